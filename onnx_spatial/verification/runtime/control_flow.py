"""If, Loop and Scan whose bodies hold our operators: each turn of a body is one run of its plan."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators.shapes import show
from onnx_spatial.verification.arrays import Array, dtype_of
from onnx_spatial.verification.runtime import sessions
from onnx_spatial.verification.runtime.sessions import RunFailure

if TYPE_CHECKING:
    from onnx_spatial.verification.runtime.scope import RunScope
    from onnx_spatial.verification.runtime.steps import GraphProgram


def run(node: onnx.NodeProto, bodies: Mapping[str, GraphProgram], scope: RunScope) -> list[Any]:
    """The outputs of a control-flow node, in order.

    Raises:
        RunFailure: a node in a body cannot be run, or this one is no If, Loop or Scan.
    """
    inputs = [scope.value(name) if name else None for name in node.input]
    if node.op_type == "If":
        branch = "then_branch" if np.asarray(inputs[0]).reshape(-1)[0] else "else_branch"
        return _outputs(bodies[branch], {}, scope)
    if node.op_type == "Loop":
        return _loop(bodies["body"], inputs, scope)
    if node.op_type == "Scan":
        return _scan(node, bodies["body"], inputs, scope)
    raise RunFailure(f"{node.op_type} nodes with spatial operators inside are not known", "load")


def _loop(body: GraphProgram, inputs: Sequence[Any], scope: RunScope) -> list[Any]:
    names = [v.name for v in body.graph.input]
    trips = None if inputs[0] is None else int(np.asarray(inputs[0]).reshape(-1)[0])
    condition = len(inputs) < 2 or inputs[1] is None or bool(np.asarray(inputs[1]).reshape(-1)[0])
    carried = list(inputs[2:])
    collected: list[list[Array]] = [[] for _ in body.graph.output[1 + len(carried) :]]
    turn = 0
    deadline = time.monotonic() + sessions.LOOP_SECONDS
    while condition and (trips is None or turn < trips):
        if time.monotonic() > deadline:
            raise sessions.endless()
        feeds = dict(zip(names[2:], carried, strict=True))
        feeds[names[0]] = _scalar(body.graph.input[0], turn, np.int64)
        feeds[names[1]] = _scalar(body.graph.input[1], condition, np.bool_)
        first, *rest = _outputs(body, feeds, scope)
        condition = bool(np.asarray(first).reshape(-1)[0])
        carried = rest[: len(carried)]
        for rows, value in zip(collected, rest[len(carried) :], strict=True):
            rows.append(value)
        turn += 1
    declared = body.graph.output[1 + len(carried) :]
    return carried + [_stack(r, v, 0) for r, v in zip(collected, declared, strict=True)]


def _scan(
    node: onnx.NodeProto, body: GraphProgram, inputs: Sequence[Any], scope: RunScope
) -> list[Any]:
    attributes = {a.name: a for a in node.attribute}
    if "num_scan_inputs" not in attributes or len(inputs) != len(body.graph.input):
        raise RunFailure("Scan as it was before opset 9 cannot be run", "load")

    def integers(name: str, count: int) -> list[int]:
        return list(attributes[name].ints) if name in attributes else [0] * count

    scanned = attributes["num_scan_inputs"].i
    states = list(inputs[: len(inputs) - scanned])
    axes = integers("scan_input_axes", scanned)
    sources = [
        np.flip(np.moveaxis(x, axis, 0), 0) if backwards else np.moveaxis(x, axis, 0)
        for x, axis, backwards in zip(
            inputs[len(states) :], axes, integers("scan_input_directions", scanned), strict=True
        )
    ]
    lengths = sorted({len(source) for source in sources})
    if len(lengths) > 1:
        raise RunFailure(f"Scan: inputs have {lengths[0]} and {lengths[-1]} elements", "run")
    names = [v.name for v in body.graph.input]
    declared = body.graph.output[len(states) :]
    collected: list[list[Array]] = [[] for _ in declared]
    for turn in range(len(sources[0])):
        feeds = dict(zip(names, [*states, *(np.asarray(s[turn]) for s in sources)], strict=True))
        results = _outputs(body, feeds, scope)
        for name, old, new in zip(names, states, results, strict=False):
            if np.shape(old) != np.shape(new):
                shapes_of = (
                    f"{show(np.shape(old))} before a turn and {show(np.shape(new))} after it"
                )
                raise RunFailure(f"Scan: state {name!r} has the shape {shapes_of}", "run")
        states = results[: len(states)]
        for rows, value in zip(collected, results[len(states) :], strict=True):
            rows.append(value)
    out_axes = integers("scan_output_axes", len(declared))
    backward = integers("scan_output_directions", len(declared))
    return states + [
        _stack(rows[::-1] if back else rows, value, axis)
        for rows, value, axis, back in zip(collected, declared, out_axes, backward, strict=True)
    ]


def _outputs(body: GraphProgram, feeds: Mapping[str, Any], scope: RunScope) -> list[Any]:
    results = body.run(feeds, scope)
    return [results[v.name] for v in body.graph.output]


def _scalar(declared: onnx.ValueInfoProto, value: int | bool, dtype: type[np.generic]) -> Array:
    # The counter and the condition may be declared with the shape [1].
    dims = shape_inference.dims(declared.type) if declared.HasField("type") else None
    return np.full((1,) * len(dims or ()), value, dtype)


def _stack(rows: Sequence[Array], declared: onnx.ValueInfoProto, axis: int) -> Array:
    if rows:
        found = list(dict.fromkeys(np.shape(row) for row in rows))
        if len(found) > 1:
            shapes_of = f"{show(found[0])} in one turn and {show(found[1])} in another"
            raise RunFailure(f"output {declared.name!r} has the shape {shapes_of}", "run")
        return np.stack(rows, axis)
    # No turn at all: the declared shape, with unknown dims 0 as in onnxruntime.
    element_type = shape_inference.element_type(declared.type) or onnx.TensorProto.FLOAT
    dims = [d if isinstance(d, int) else 0 for d in shape_inference.dims(declared.type) or ()]
    dims.insert(axis, 0)
    return np.zeros(dims, dtype_of(element_type))
