"""Run a spatial node on arrays with the numpy kernels of `onnx_spatial.operators`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx

from onnx_spatial.analysis import attributes
from onnx_spatial.errors import OperatorError
from onnx_spatial.operators import Operator
from onnx_spatial.operators.shapes import show
from onnx_spatial.operators.spellings import InputFacts, NodeFacts, read
from onnx_spatial.verification.arrays import Array

#: The largest output that is computed: a block of 10^9 must not exhaust the memory.
MAX_BYTES = 1 << 30

#: The most strings of an output: each takes 300 bytes and a microsecond in onnxruntime and Python.
MAX_STRINGS = 1 << 20

#: The most positions in a window or block; each is one step of the kernel.
MAX_POSITIONS = 1 << 16

#: Largest rank of a numpy array; 64 since numpy 2.
MAX_RANK = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32


def run_node(node: onnx.NodeProto, arrays: Sequence[Array | None]) -> Array:
    """Compute the output of a spatial node; a missing optional input is None.

    Raises:
        OperatorError: the node breaks a rule on this data.
    """
    return run_facts(NodeFacts(node.op_type, node.domain, (), attributes(node)), arrays)


def run_facts(facts: NodeFacts, arrays: Sequence[Array | None]) -> Array:
    """Compute the output of a node with the attributes of `facts`.

    Raises:
        OperatorError: the node breaks a rule on this data.
    """
    if not all(a is None or isinstance(a, np.ndarray) for a in arrays):
        raise OperatorError("an input is a sequence, not a tensor")
    if sum(a.size for a in arrays[1:] if a is not None) > _MOST_PARAMETERS:
        return _run(_checked(facts, arrays), arrays)
    key = _key(facts, arrays)
    if key not in _CHECKED:
        operator = _checked(facts, arrays)
        if len(_CHECKED) >= _MOST_CHECKED:
            _CHECKED.clear()
        _CHECKED[key] = operator
    return _run(_CHECKED[key], arrays)


def _run(operator: Operator, arrays: Sequence[Array | None]) -> Array:
    assert arrays[0] is not None
    result: Array = operator(arrays[0])
    return result


#: Operators that may run, by `_key`. Nodes run again and again, and most layers of a net are equal.
_CHECKED: dict[object, Operator] = {}
#: The most of them, and the most numbers in the parameters of one.
_MOST_CHECKED, _MOST_PARAMETERS = 256, 256


def _key(facts: NodeFacts, arrays: Sequence[Array | None]) -> object:
    """Return all that `_checked` depends on: type and shape of the data, values of the parameters."""
    data, *parameters = arrays or (None,)
    return (
        facts.op_type,
        facts.domain,
        repr(sorted(facts.attributes.items())),  # 1 and 1.0 are equal, but only one is an integer
        data if data is None else (data.dtype, data.shape),
        *(p if p is None else (p.dtype, p.shape, repr(p.tolist())) for p in parameters),
    )


def _checked(facts: NodeFacts, arrays: Sequence[Array | None]) -> Operator:
    """Return the operator that a node asks for, if it can run on some arrays.

    Raises:
        OperatorError: it breaks a rule, or its output is too large.
    """
    inputs = tuple(InputFacts.of(a) if a is not None else None for a in arrays)
    call = read(replace(facts, inputs=inputs))
    if not arrays or arrays[0] is None:
        raise OperatorError("the data input is missing")
    operator, x = call.bind(arrays), arrays[0]
    positions = operator.positions
    if x.ndim + len(positions) > MAX_RANK:
        raise OperatorError(
            f"numpy cannot rearrange {x.ndim} dims, {len(positions)} of them split; it has {MAX_RANK}"
        )
    shape = operator.output_shape(x.shape)
    elements = math.prod(d for d in shape if isinstance(d, int))
    if elements * x.dtype.itemsize > MAX_BYTES or (x.dtype.kind == "O" and elements > MAX_STRINGS):
        raise OperatorError(f"its output {show(shape)} is too large for a comparison")
    if math.prod(positions) > MAX_POSITIONS:
        raise OperatorError(
            f"{operator.positions_of} of {show(positions)} are too large to be compared"
        )
    return operator
