"""Put what a small model computes into a branch, a body or a function of another model.

    x, p1, .. -> y     becomes     x, p1, .. -> If | Loop | Scan | call of a local function -> held

Initializers stay outside and are captured, but for functions: theirs are Constants, or attributes.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, ValueInfoProto, helper, numpy_helper

#: The domain of the functions, and how often bodies run.
DOMAIN, TURNS = "held.here", 2


def in_branch(model: onnx.ModelProto) -> onnx.ModelProto:
    """Where the input `take` is true x is moved, else it is the output."""
    graph, (y,) = model.graph, model.graph.output
    same = _value(graph.input[0], "same")
    moving = helper.make_graph(graph.node, "moving", [], [y])
    keeping = helper.make_graph([helper.make_node("Identity", ["x"], ["same"])], "k", [], [same])
    node = helper.make_node("If", ["take"], ["held"], then_branch=moving, else_branch=keeping)
    take = helper.make_tensor_value_info("take", TensorProto.BOOL, [])
    return _outer(model, [node], [*graph.input, take], [_value(y, "held", unknown=True)])


def in_loop(model: onnx.ModelProto) -> onnx.ModelProto:
    """Each turn rotates the batch by one, so that turns differ; `held` stacks what they give."""
    graph, (y,) = model.graph, model.graph.output
    image, after = (_value(graph.input[0], name) for name in ("image", "after"))
    turn = helper.make_tensor_value_info("turn", TensorProto.INT64, [])
    still, on = (helper.make_tensor_value_info(n, TensorProto.BOOL, []) for n in ("still", "on"))
    nodes = [
        helper.make_node("Identity", ["still"], ["on"]),
        *_renamed(graph.node, {"x": "image"}),
        helper.make_node("Slice", ["image", "zero", "one"], ["head"]),
        helper.make_node("Slice", ["image", "one", "far"], ["tail"]),
        helper.make_node("Concat", ["tail", "head"], ["after"], axis=0),
    ]
    body = helper.make_graph(nodes, "turning", [turn, still, image], [on, after, y])
    node = helper.make_node("Loop", ["turns", "go", "x"], ["last", "held"], body=body)
    known = {"turns": TURNS, "go": True, "zero": [0], "one": [1], "far": [2**31 - 1]}
    held = _value(y, "held", unknown=True, more=1)
    return _outer(model, [node], graph.input, [held], known)


def in_scan(model: onnx.ModelProto) -> onnx.ModelProto:
    """One more axis of x, in front, is scanned over."""
    graph, (y,) = model.graph, model.graph.output
    image = _value(graph.input[0], "image")
    image.type.tensor_type.shape.dim[0].Clear()  # runs scan over images of other numbers
    body = helper.make_graph(_renamed(graph.node, {"x": "image"}), "scanning", [image], [y])
    node = helper.make_node("Scan", ["x"], ["held"], num_scan_inputs=1, body=body)
    x = _value(image, "x", more=1)
    return _outer(model, [node], [x, *graph.input[1:]], [_value(y, "held", unknown=True, more=1)])


def in_function(model: onnx.ModelProto) -> onnx.ModelProto:
    """A function has all nodes and constants, and is called once."""
    graph = model.graph
    stored = [helper.make_node("Constant", [], [t.name], value=t) for t in graph.initializer]
    names = [v.name for v in graph.input], [v.name for v in graph.output]
    function = helper.make_function(DOMAIN, "Held", *names, [*stored, *graph.node], _imports(model))
    node = helper.make_node("Held", *names, "call", domain=DOMAIN)
    made = _outer(model, [node], graph.input, graph.output, stored=())
    made.functions.append(function)
    return made


def called_twice(
    model: onnx.ModelProto, more: ValueInfoProto, other: Mapping[str, Sequence[int]]
) -> onnx.ModelProto:
    """A function takes all attributes and parameters of its node as attributes of the calls.

    Args:
        model: a model of one node.
        more: a second input, which the second call moves.
        other: by names of parameters, what the second call says.
    """
    graph, (node,) = model.graph, model.graph.node
    inner = onnx.NodeProto.FromString(node.SerializeToString())
    given = {a.name: a for a in node.attribute if a.name not in ("site", "batch_entry", "Tidx")}
    for attribute in inner.attribute:
        if attribute.name in given:
            attribute.CopyFrom(_reference(attribute.name, attribute.name, attribute.type))
    nodes = []
    for tensor in graph.initializer:
        values = numpy_helper.to_array(tensor)
        name, dims = tensor.name, values.shape
        given[name] = helper.make_attribute(name, values.reshape(-1).tolist())
        nodes += [
            helper.make_node("Constant", [], [f"{name}_list"]),
            helper.make_node("Constant", [], [f"{name}_dims"], value_ints=[-1, *dims[1:]]),
            helper.make_node("Reshape", [f"{name}_list", f"{name}_dims"], [f"{name}_table"]),
            helper.make_node("Cast", [f"{name}_table"], [name], to=tensor.data_type),
        ]
        nodes[-4].attribute.append(_reference("value_ints", name, AttributeProto.INTS))
    function = helper.make_function(
        DOMAIN, "Held", ["x"], ["y"], [*nodes, inner], _imports(model), list(given)
    )
    calls = []
    for data, output in (("x", "y"), ("more", "z")):
        call = helper.make_node("Held", [data], [output], domain=DOMAIN)
        for name, attribute in given.items():
            changed = data == "more" and name in other
            call.attribute.append(
                helper.make_attribute(name, list(other[name])) if changed else attribute
            )
        calls.append(call)
    outputs = [_value(graph.output[0], name) for name in "yz"]
    made = _outer(model, calls, [graph.input[0], more], outputs, stored=())
    made.functions.append(function)
    return made


def overridable(model: onnx.ModelProto) -> onnx.ModelProto:
    """Callers may give other values of the initializers."""
    stored = [
        helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in model.graph.initializer
    ]
    return _outer(model, model.graph.node, [*model.graph.input, *stored], model.graph.output)


#: By a word for each: what holds a model of any nodes, whose output has the rank of x.
HOLDERS: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "branch": in_branch,
    "loop": in_loop,
    "scan": in_scan,
    "function": in_function,
}


def _outer(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    known: Mapping[str, object] | None = None,
    stored: Sequence[TensorProto] | None = None,
) -> onnx.ModelProto:
    tensors = list(model.graph.initializer if stored is None else stored)
    tensors += [numpy_helper.from_array(np.array(v), n) for n, v in (known or {}).items()]
    graph = helper.make_graph(nodes, "outer", inputs, outputs, tensors)
    made = helper.make_model(graph, opset_imports=_imports(model), ir_version=model.ir_version)
    if any(node.domain == DOMAIN for node in nodes):
        made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        made.ir_version = max(8, made.ir_version)
    return made


def _imports(model: onnx.ModelProto) -> list[onnx.OperatorSetIdProto]:
    return list(model.opset_import)


def _value(
    value: ValueInfoProto, name: str, *, unknown: bool = False, more: int = 0
) -> ValueInfoProto:
    """The declared type under another name; its sizes unknown, or with more axes in front."""
    type_ = value.type.tensor_type
    if not type_.HasField("shape"):
        dims = None
    else:
        dims = [None] * more
        for dim in type_.shape.dim:
            dims.append(None if unknown else dim.dim_param or dim.dim_value or None)
    return helper.make_tensor_value_info(name, type_.elem_type, dims)


def _renamed(nodes: Sequence[onnx.NodeProto], names: Mapping[str, str]) -> list[onnx.NodeProto]:
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    for node in copies:
        node.input[:] = [names.get(name, name) for name in node.input]
    return copies


def _reference(name: str, of: str, kind: int) -> AttributeProto:
    return AttributeProto(name=name, ref_attr_name=of, type=kind)
