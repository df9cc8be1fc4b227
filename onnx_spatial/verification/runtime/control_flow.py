"""Run If, Loop and Scan nodes whose bodies hold spatial operators: each iteration runs a body's plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators.shapes import show
from onnx_spatial.verification.arrays import Array, dtype_of
from onnx_spatial.verification.runtime import sessions
from onnx_spatial.verification.runtime.graph_plan import GraphPlan
from onnx_spatial.verification.runtime.scope import RunScope
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.runtime.steps import Step
from onnx_spatial.verification.runtime.stopwatch import Stopwatch


@dataclass
class ControlFlowStep(Step):
    """An If, Loop or Scan with spatial operators in its bodies, which are by attribute name."""

    nodes: list[onnx.NodeProto]
    bodies: Mapping[str, GraphPlan]

    def run(self, scope: RunScope) -> None:
        """Run the bodies that the node selects, as often as it says."""
        node = self.nodes[0]
        inputs = [scope.value(name) if name else None for name in node.input]
        try:
            if node.op_type == "If":
                branch = "then_branch" if _flag(inputs[0]) else "else_branch"
                results = _outputs(self.bodies[branch], {}, scope)
            elif node.op_type == "Loop":
                results = _loop(self.bodies["body"], inputs, scope)
            elif node.op_type == "Scan":
                results = _scan(node, self.bodies["body"], inputs, scope)
            else:
                reason = f"{node.op_type} nodes with spatial operators inside are not supported"
                raise RunFailure(reason, "load")
        except (LookupError, ValueError, TypeError) as error:
            name = f"{node.op_type} node {traversal.label(node)!r}"
            raise RunFailure(f"{name} does not match its subgraphs: {error}", "load") from None
        scope.values.update((n, v) for n, v in zip(node.output, results, strict=False) if n)


def _loop(body: GraphPlan, inputs: Sequence[Any], scope: RunScope) -> list[Any]:
    names = [v.name for v in body.graph.input]
    trip_count = None if inputs[0] is None else int(np.asarray(inputs[0]).reshape(-1)[0])
    condition = len(inputs) < 2 or inputs[1] is None or _flag(inputs[1])
    carried = list(inputs[2:])
    scan_outputs = body.graph.output[1 + len(carried) :]
    rows: list[list[Array]] = [[] for _ in scan_outputs]
    iteration = 0
    stopwatch = Stopwatch()
    while condition and (trip_count is None or iteration < trip_count):
        if stopwatch.exceeds(sessions.LOOP_SECONDS):
            raise sessions.endless()
        feeds = dict(zip(names[2:], carried, strict=True))
        feeds[names[0]] = _scalar(body.graph.input[0], iteration, np.int64)
        feeds[names[1]] = _scalar(body.graph.input[1], condition, np.bool_)
        first, *rest = _outputs(body, feeds, scope)
        condition = _flag(first)
        carried = rest[: len(carried)]
        for values, value in zip(rows, rest[len(carried) :], strict=True):
            values.append(value)
        iteration += 1
    return carried + [_stack(r, body, v, 0) for r, v in zip(rows, scan_outputs, strict=True)]


def _scan(
    node: onnx.NodeProto, body: GraphPlan, inputs: Sequence[Any], scope: RunScope
) -> list[Any]:
    attributes = {a.name: a for a in node.attribute}
    if "num_scan_inputs" not in attributes or len(inputs) != len(body.graph.input):
        raise RunFailure("Scan before opset 9 is not supported", "load")

    def integers(name: str, count: int) -> list[int]:
        return list(attributes[name].ints) if name in attributes else [0] * count

    count = attributes["num_scan_inputs"].i
    states = list(inputs[: len(inputs) - count])
    scanned = [
        np.flip(np.moveaxis(x, axis, 0), 0) if backwards else np.moveaxis(x, axis, 0)
        for x, axis, backwards in zip(
            inputs[len(states) :],
            integers("scan_input_axes", count),
            integers("scan_input_directions", count),
            strict=True,
        )
    ]
    lengths = sorted({len(x) for x in scanned})
    if len(lengths) > 1:
        raise RunFailure(f"Scan: inputs have {lengths[0]} and {lengths[-1]} elements", "run")
    names = [v.name for v in body.graph.input]
    scan_outputs = body.graph.output[len(states) :]
    rows: list[list[Array]] = [[] for _ in scan_outputs]
    for iteration in range(len(scanned[0])):
        elements = (np.asarray(x[iteration]) for x in scanned)
        feeds = dict(zip(names, [*states, *elements], strict=True))
        results = _outputs(body, feeds, scope)
        for name, old, new in zip(names, states, results, strict=False):
            if np.shape(old) != np.shape(new):
                change = (
                    f"{show(np.shape(old))} before an iteration and {show(np.shape(new))} after"
                )
                raise RunFailure(f"Scan: state {name!r} has the shape {change}", "run")
        states = results[: len(states)]
        for values, value in zip(rows, results[len(states) :], strict=True):
            values.append(value)
    axes = integers("scan_output_axes", len(scan_outputs))
    directions = integers("scan_output_directions", len(scan_outputs))
    return states + [
        _stack(values[::-1] if backwards else values, body, declared, axis)
        for values, declared, axis, backwards in zip(
            rows, scan_outputs, axes, directions, strict=True
        )
    ]


def _outputs(body: GraphPlan, feeds: Mapping[str, Any], scope: RunScope) -> list[Any]:
    results = body.run(feeds, scope)
    return [results[v.name] for v in body.graph.output]


def _flag(value: Any) -> bool:
    return bool(np.asarray(value).reshape(-1)[0])


def _scalar(declared: onnx.ValueInfoProto, value: int | bool, dtype: type[np.generic]) -> Array:
    # The counter and the condition may be declared with the shape [1].
    dims = shape_inference.dims(declared.type) if declared.HasField("type") else None
    return np.full((1,) * len(dims or ()), value, dtype)


def _stack(
    rows: Sequence[Array], body: GraphPlan, declared: onnx.ValueInfoProto, axis: int
) -> Array:
    """Stack the values of a scan output of a body, one for each iteration."""
    if rows:
        shapes = list(dict.fromkeys(np.shape(row) for row in rows))
        if len(shapes) > 1:
            change = f"{show(shapes[0])} in one iteration and {show(shapes[1])} in another"
            raise RunFailure(f"output {declared.name!r} has the shape {change}", "run")
        return np.stack(rows, axis)
    # Without an iteration: the inferred shape, with unknown dims 0 as in onnxruntime.
    known = body.context.body_types.get((id(body.graph), declared.name), declared.type)
    element_type = shape_inference.element_type(known) or onnx.TensorProto.FLOAT
    inferred = shape_inference.dims(known)
    body.context.unsized |= inferred is None or not all(isinstance(d, int) for d in inferred)
    dims = [d if isinstance(d, int) else 0 for d in inferred or ()]
    dims.insert(axis, 0)
    return np.zeros(dims, dtype_of(element_type))
