"""Put Transposes around the node of a model of one node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

Perm = tuple[int, ...]


def between_transposes(
    model: onnx.ModelProto,
    rank: int,
    *,
    before: Perm | None = None,
    behind: Sequence[Perm] = (),
    front_read: bool = False,
    outputs: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model of `building.one_node` whose node "site" stands between Transposes.

        x -> front -> data -> site -> result -> behind0 -> t0 -> Identity -> y0, ..

    Args:
        model: with one input x and one output y.
        rank: of x; that of y is the length of what is behind.
        before: of the Transpose in front; x is what goes into it.
        behind: of the Transposes behind; none leaves y as it is.
        front_read: a Neg reads what comes out of the one in front, too.
        outputs: values that are graph outputs beside y0, ...: "data", "result", "t0", ..
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    site = onnx.NodeProto()
    site.CopyFrom(graph.node[0])
    del graph.node[:]
    element_type = graph.input[0].type.tensor_type.elem_type
    if before is not None:
        graph.node.append(_transpose(before, "x", "data", "front"))
        site.input[0] = "data"
        dims = graph.input[0].type.tensor_type.shape.dim
        if graph.input[0].type.tensor_type.HasField("shape"):
            given = [
                onnx.TensorShapeProto.Dimension.FromString(d.SerializeToString()) for d in dims
            ]
            for axis, dim in zip(before, given, strict=True):
                dims[axis].CopyFrom(dim)
    names = []
    if behind:
        site.output[0] = "result"
    graph.node.append(site)
    if behind:
        for number, perm in enumerate(behind):
            graph.node.append(_transpose(perm, "result", f"t{number}", f"behind{number}"))
            graph.node.append(helper.make_node("Identity", [f"t{number}"], [f"y{number}"]))
            names.append(f"y{number}")
        del graph.output[:]
    if front_read:
        graph.node.append(helper.make_node("Identity", ["data"], ["also"]))
        names.append("also")
    for name in (*names, *outputs):
        in_front = not behind or name in ("data", "also")
        unknown = [None] * (rank if in_front else len(behind[0]))
        graph.output.append(helper.make_tensor_value_info(name, element_type, unknown))
    if all(o.domain for o in made.opset_import):
        made.opset_import.append(helper.make_opsetid("", 17))
    return made


def _transpose(perm: Perm, source: str, target: str, name: str) -> onnx.NodeProto:
    """With the attribute left out where it says what is meant anyway."""
    reverse = perm == tuple(reversed(range(len(perm))))
    given = {} if reverse else {"perm": list(perm)}
    return helper.make_node("Transpose", [source], [target], name, **given)


def unturned(data: np.ndarray, perm: Perm | None) -> np.ndarray:
    """What a Transpose by `perm` makes `data` of."""
    if perm is None:
        return data
    return np.ascontiguousarray(np.transpose(data, np.argsort(perm))).reshape(
        [data.shape[perm.index(axis)] for axis in range(data.ndim)]
    )
