"""Move the graph of a random region into a local function: as much must fuse there.

    moved(case, rng, form)      its nodes are in a function, which is called in one of `FORMS`

The Constants of the function have every form. Some tensors and attributes are given by the callers, and
sometimes the arithmetic of sizes is left to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

import interpreter
import numpy as np
import onnx
from interpreter import Known
from making import Case
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from onnx_spatial.model import traversal
from onnx_spatial.model.inference import functions

DOMAIN = "layers"
#: How the function is called.
FORMS = ("once", "twice", "nested", "in a branch")
#: Of the second call.
AGAIN = "_again"


@dataclass
class Body:
    """What goes into the function.

    Attributes:
        nodes: its nodes.
        outside: nodes that stay with the caller.
        attributes: what every call gives, by the name of the function's attribute.
        inputs, outputs: of the function.
    """

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    outside: list[onnx.NodeProto] = field(default_factory=list)
    attributes: dict[str, AttributeProto] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


def moved(case: Case, rng: Random, form: str) -> Case:
    """The case with its nodes in a local function, called in one of `FORMS`."""
    graph, imports = case.model.graph, [*case.model.opset_import, helper.make_opsetid(DOMAIN, 1)]
    body = body_of(case.model, rng)
    call = call_of("Region", body, body.attributes.values())
    functions = [function_of("Region", body, body.nodes, imports)]
    if form == "nested":
        passed = [reference(name, a, a.name) for name, a in body.attributes.items()]
        for given, name in zip(passed, body.attributes, strict=True):
            given.name = name
        functions.append(function_of("Outer", body, [call_of("Region", body, passed)], imports))
        call = call_of("Outer", body, body.attributes.values())
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    del model.graph.node[:], model.graph.value_info[:]
    model.graph.node.extend(body.outside)
    feeds, expected = dict(case.feeds), dict(case.expected)
    if form == "in a branch":
        model.graph.input.append(helper.make_tensor_value_info("branch", TensorProto.BOOL, []))
        feeds["branch"] = np.array(rng.random() < 0.5)
        types = {v.name: v.type for v in graph.output}
        call = in_branches(call, types)
    model.graph.node.append(call)
    if form == "twice":
        other_feeds, other_weights, known = second(case, body, rng)
        feeds |= {f"{name}{AGAIN}": array for name, array in other_feeds.items()}
        expected |= {f"{v.name}{AGAIN}": known[v.name] for v in graph.output}
        call_again(model, case.model, [*body.outside, call], other_weights)
    model.functions.extend(functions)
    model.opset_import.append(imports[-1])
    model.ir_version = max(model.ir_version, 8)
    return Case(model, feeds, expected, case.labels | {"place": form})


def body_of(model: onnx.ModelProto, rng: Random) -> Body:
    """Decide what goes into the function, and what its callers give."""
    body, graph = Body(), model.graph
    fed = {v.name for v in graph.input}
    given = rng.choice((0.0, 0.0, 0.5, 1.0))
    referred = rng.choice((0.0, 0.0, 0.5))
    tensors = [t for t in graph.initializer if t.name not in fed and rng.random() >= given]
    nodes = [constant(t, rng) for t in tensors]
    body.outside = sizes(model) if rng.random() < 0.4 else []
    outside = {name for node in body.outside for name in node.output}
    if all(v.name in outside for v in graph.output):  # the function would compute nothing
        body.outside, outside = [], set()
    for node in (*nodes, *(n for n in graph.node if outside.isdisjoint(n.output))):
        body.nodes.append(of_caller(node, body.attributes) if rng.random() < referred else node)
    inside = {name for node in body.nodes for name in node.output}
    read = dict.fromkeys(name for node in body.nodes for name in node.input if name)
    body.inputs = [name for name in read if name not in inside]
    body.outputs = [v.name for v in graph.output if v.name in inside]
    return body


def constant(tensor: onnx.TensorProto, rng: Random) -> onnx.NodeProto:
    """A Constant with the value of a tensor, in one of the forms that can hold it."""
    array = numpy_helper.to_array(tensor)
    form = {np.dtype(np.int64): "value_int", np.dtype(np.float32): "value_float"}.get(array.dtype)
    if form is None or array.ndim > 1 or not array.size or rng.random() < 0.5:
        return helper.make_node("Constant", [], [tensor.name], value=tensor)
    value = {f"{form}s": array.tolist()} if array.ndim else {form: array.item()}
    return helper.make_node("Constant", [], [tensor.name], **value)


def sizes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes that compute with the sizes of the model's inputs."""
    measured = {v.name for v in model.graph.input}
    known = {t.name for t in model.graph.initializer} | {""}
    found = []
    for node in model.graph.node:
        inputs = set(node.input)
        if inputs <= known or (node.op_type == "Shape" and inputs <= measured):
            found.append(node)
            known.update(node.output)
    return found


def of_caller(node: onnx.NodeProto, attributes: dict[str, AttributeProto]) -> onnx.NodeProto:
    """The node with its lists and numbers given by the callers of its function."""
    result = onnx.NodeProto()
    result.CopyFrom(node)
    for index, attribute in enumerate(node.attribute):
        if attribute.type in (AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOATS):
            name = f"{attribute.name}_{len(attributes)}"
            given = AttributeProto()
            given.CopyFrom(attribute)
            given.name = name
            attributes[name] = given
            result.attribute[index].CopyFrom(reference(name, attribute, attribute.name))
    return result


def reference(name: str, attribute: AttributeProto, of: str) -> AttributeProto:
    """An attribute called `of` that refers to the attribute `name` of the function."""
    return AttributeProto(name=of, ref_attr_name=name, type=attribute.type)


def function_of(
    name: str,
    body: Body,
    nodes: Sequence[onnx.NodeProto],
    imports: Sequence[onnx.OperatorSetIdProto],
) -> onnx.FunctionProto:
    return helper.make_function(
        DOMAIN, name, body.inputs, body.outputs, nodes, imports, list(body.attributes)
    )


def call_of(name: str, body: Body, attributes: Iterable[AttributeProto]) -> onnx.NodeProto:
    node = helper.make_node(name, body.inputs, body.outputs, "call", domain=DOMAIN)
    node.attribute.extend(attributes)
    return node


def in_branches(call: onnx.NodeProto, types: dict[str, onnx.TypeProto]) -> onnx.NodeProto:
    """An If with the same call in both branches."""
    bodies = []
    for side in ("then", "else"):
        inner = onnx.NodeProto()
        inner.CopyFrom(call)
        inner.output[:] = [f"{name}_{side}" for name in call.output]
        body = onnx.GraphProto(name=side, node=[inner])
        for name, output in zip(inner.output, call.output, strict=True):
            body.output.add(name=name).type.CopyFrom(types[output])
        bodies.append(body)
    then, other = bodies
    return helper.make_node(
        "If", ["branch"], list(call.output), then_branch=then, else_branch=other
    )


def second(
    case: Case, body: Body, rng: Random
) -> tuple[dict[str, np.ndarray], list[onnx.TensorProto], dict[str, Known]]:
    """Data and weights for another call, and every value with them.

    There are more images if the model admits that.
    """
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    weights = []
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if tensor.name in body.inputs and array.dtype == np.float32 and array.ndim:
            tensor.CopyFrom(numpy_helper.from_array(array * np.float32(0.5), tensor.name))
            weights.append(tensor)
    for grown in (True, False):
        if grown and case.labels["mode"] == "static":
            continue
        feeds = {name: other_data(array, grown) for name, array in case.feeds.items()}
        try:
            return feeds, weights, interpreter.run(model, feeds)
        except Exception:  # it holds for one number of images only
            continue
    model = case.model
    return dict(case.feeds), [], interpreter.run(model, case.feeds)


def other_data(array: np.ndarray, grown: bool) -> np.ndarray:
    if array.dtype != np.float32 or array.ndim < 3:
        return array
    other = np.flip(array) * np.float32(0.75)
    return np.ascontiguousarray(np.concatenate([other, array]) if grown else other)


def call_again(
    model: onnx.ModelProto,
    original: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    weights: Sequence[onnx.TensorProto],
) -> None:
    """Call the function once more, with other inputs, weights and outputs."""
    renamed = {v.name for v in original.graph.input} | {t.name for t in weights}
    renamed |= {name for node in nodes for name in node.output}
    for node in nodes:
        again = model.graph.node.add()
        again.CopyFrom(node)
        again.name += AGAIN if node.name else ""
        again.input[:] = [f"{n}{AGAIN}" if n in renamed else n for n in node.input]
        again.output[:] = [f"{n}{AGAIN}" if n else "" for n in node.output]
    for value in original.graph.input:
        info = model.graph.input.add()
        info.CopyFrom(value)
        info.name += AGAIN
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param += AGAIN
    for value in original.graph.output:
        info = model.graph.output.add()
        info.CopyFrom(value)
        info.name += AGAIN
    for tensor in weights:
        again = model.graph.initializer.add()
        again.CopyFrom(tensor)
        again.name += AGAIN


def needed_nodes(model: onnx.ModelProto) -> int:
    """How many nodes one call needs once it is inlined; Constants left out.

    The caller computes sizes for it all the same; runtimes drop what a function does not read.
    """
    inlined = functions.inline(model) if model.functions else model
    outputs = {v.name for v in inlined.graph.output if not v.name.endswith(AGAIN)}
    return _needed(inlined.graph, outputs)


def _needed(graph: onnx.GraphProto, needed: set[str]) -> int:
    count = 0
    for node in reversed(graph.node):
        if needed.isdisjoint(node.output):
            continue
        needed.update(traversal.needs(node))
        if node.op_type == "If":
            branch = node.attribute[0].g
            count += _needed(branch, {v.name for v in branch.output})
        elif node.op_type != "Constant":
            count += 1
    return count
