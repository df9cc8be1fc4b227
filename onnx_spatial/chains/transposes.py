"""Move the Transpose behind an operator down to one that cancels it.

    BatchToSpaceND -> Transpose -> Add(bias) -> Relu -> Transpose       converters push Transposes like this
    BatchToSpaceND -> Add(bias') -> Relu                                bias' has its axes in the other order

Only nodes that work element by element are passed, with constants for their other inputs, each of them
read by the next one alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.replace_nodes import ORIGIN, Draft, GraphEdit
from onnx_spatial.model.op_traits import Trait

Array = npt.NDArray[np.generic]

_UNARY = op_traits.having(Trait.UNARY)
_BROADCASTING = op_traits.having(Trait.BROADCASTS)

#: The opset since which operators broadcast as numpy does.
_BROADCASTS = 7

#: The most nodes that a Transpose is moved across.
_FAR = 16


def cancelled(
    first: ir.Node,
    opset: int,
    message: Callable[[ir.Node], onnx.NodeProto | None],
    constant: Callable[[ir.Value], Array | None],
) -> GraphEdit | None:
    """Return the edit that removes a Transpose and the one behind that cancels it; None if none does.

    Args:
        first: a new Transpose.
        opset: version of the default domain.
        message: returns the message of a node of the model; None for new nodes and local functions.
        constant: returns the value of a stored tensor.
    """
    perm = list(first.attributes["perm"].as_ints())
    passed: list[ir.Node] = []
    current, value = first, first.outputs[0]
    while len(passed) <= _FAR:
        readers = [node for node, _ in value.uses() if node.graph is not None]
        if len(readers) != 1 or readers[0].graph is not first.graph or value.is_graph_output():
            return None
        current = readers[0]
        known = message(current)
        if known is None or not op_traits.is_standard(known) or len(current.outputs) != 1:
            return None
        if known.op_type == "Transpose":
            return _edit(first, passed, current, known, perm, message, constant)
        if any(traversal.subgraphs(known)) or not _is_passed(known, current, value, opset, constant):
            return None
        passed.append(current)
        value = current.outputs[0]
    return None


def _is_passed(
    known: onnx.NodeProto,
    node: ir.Node,
    value: ir.Value,
    opset: int,
    constant: Callable[[ir.Value], Array | None],
) -> bool:
    if known.op_type in _UNARY:
        return node.inputs[0] is value and list(node.inputs).count(value) == 1
    others = [v for v in node.inputs if v is not value]
    return (
        known.op_type in _BROADCASTING
        and opset >= _BROADCASTS
        and len(others) == len(node.inputs) - 1
        and all(v is not None and constant(v) is not None for v in others)
    )


def _edit(
    first: ir.Node,
    passed: Sequence[ir.Node],
    last: ir.Node,
    known: onnx.NodeProto,
    perm: Sequence[int],
    message: Callable[[ir.Node], onnx.NodeProto | None],
    constant: Callable[[ir.Value], Array | None],
) -> GraphEdit | None:
    """Return the edit, if the last Transpose cancels the first."""
    again = [list(a.ints) for a in known.attribute if a.name == "perm"]
    again = again[0] if again else list(reversed(range(len(perm))))
    if not passed or len(again) != len(perm) or [perm[axis] for axis in again] != sorted(perm):
        return None
    draft = Draft(last)
    source, value = first.inputs[0], first.outputs[0]
    assert source is not None
    for node in passed:
        told = message(node)
        assert told is not None
        inputs: list[ir.Value | None] = []
        for other in node.inputs:
            array = constant(other) if other is not None and told.op_type in _BROADCASTING else None
            if other is value:
                inputs.append(source)
            elif array is None or array.ndim == 0:
                inputs.append(other)
            elif array.ndim > len(perm):
                return None
            else:
                full = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
                inputs.append(draft.constant(np.transpose(full, again), "constant"))
        attributes = [ir.serde.deserialize_attribute(a) for a in told.attribute]
        copy = ir.Node(node.domain, node.op_type, inputs, attributes, name=node.name)
        copy.metadata_props.update(
            {k: v for k, v in node.metadata_props.items() if k != ORIGIN}
        )
        copy.doc_string = node.doc_string
        draft.nodes.append(copy)
        source, value = copy.outputs[0], node.outputs[0]
    draft.results[last.outputs[0]] = source
    return GraphEdit([draft], [*reversed(passed), first])
