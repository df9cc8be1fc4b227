"""Compare two models at all sizes up to a bound, by running them: nothing here knows index maps.

A spatial operator is computed by its definition (`definitions`), standard nodes by onnxruntime. Sizes at
which the first model fails do not count. All elements of the data differ, and none is 0: nodes that only
move data are equal for all values if they are for these.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import definitions
import numpy as np
import onnx
import running
from onnx import numpy_helper

Sizes = Mapping[str, int]


def names_of(model: onnx.ModelProto) -> list[str]:
    """Names of the symbolic sizes of a model's inputs."""
    found: dict[str, None] = {}
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                found[dim.dim_param] = None
    return list(found)


def up_to(bound: int, names: Sequence[str]) -> Iterable[Sizes]:
    """All sizes from 1 to a bound."""
    for values in itertools.product(range(1, bound + 1), repeat=len(names)):
        yield dict(zip(names, values, strict=True))


def feeds(model: onnx.ModelProto, sizes: Sizes) -> dict[str, np.ndarray]:
    """Data of the model at some sizes."""
    arrays, start = {}, 1000
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in dims]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        count = int(np.prod(shape))
        arrays[value.name] = np.arange(start, start + count).astype(dtype).reshape(shape)
        start += count
    return arrays


def defined(model: onnx.ModelProto, given: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The result of a model of one spatial operator; None at sizes that break its rules."""
    (node,) = model.graph.node
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    try:
        return definitions.node(
            node.op_type, [{**given, **stored}[n] for n in node.input], attributes
        )
    except ValueError:
        return None


def first_difference(
    original: onnx.ModelProto, converted: onnx.ModelProto, sizes: Iterable[Sizes]
) -> Sizes | None:
    """The first sizes at which the converted model fails or gives something else, or None."""
    is_operator = any(node.domain for node in original.graph.node)
    sessions = []
    for model in (converted,) if is_operator else (converted, original):
        try:
            sessions.append(running.session(model, running.LEVELS[0]))
        except Exception:  # onnxruntime's errors have no common class
            return {}
    for each in sizes:
        given = feeds(original, each)
        if is_operator:
            wanted = defined(original, given)
            if wanted is None or not wanted.size:
                continue
        else:
            try:
                (wanted,) = sessions[1].run(None, given)
            except Exception:
                continue
        try:
            (found,) = sessions[0].run(None, given)
        except Exception:
            return each
        if found.dtype != wanted.dtype or found.shape != wanted.shape:
            return each
        if found.tobytes() != wanted.tobytes():
            return each
    return None
