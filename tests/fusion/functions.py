"""Move the graph of a random region into a local function: as much must fuse there.

    moved(case, rng, form)      its nodes are in a function, which is called in one of `FORMS`

Some tensors and attributes are given by the callers; the others are Constants in the function.
"""

from __future__ import annotations

from random import Random

import numpy as np
import onnx
import reference
from making import Case
from onnx import AttributeProto, TensorProto, helper

DOMAIN = "layers"
#: How the function is called.
FORMS = ("once", "twice", "nested", "in a branch")
#: Of the second call.
AGAIN = "_again"


def moved(case: Case, rng: Random, form: str) -> Case:
    """The case with its nodes in a local function, called in one of `FORMS`."""
    graph, fed = case.model.graph, [v.name for v in case.model.graph.input]
    imports = [*case.model.opset_import, helper.make_opsetid(DOMAIN, 1)]
    share = rng.choice((0.0, 0.5, 1.0))
    inside = [t for t in graph.initializer if t.name not in fed and rng.random() >= share]
    outside = [t for t in graph.initializer if t not in inside]
    inputs = [*fed, *(t.name for t in outside if t.name not in fed)]
    outputs = [v.name for v in graph.output]
    nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in inside]
    given: list[AttributeProto] = []
    refer = rng.choice((0.0, 0.5))
    nodes += [_of_caller(n, given) if rng.random() < refer else n for n in graph.node]
    names = [a.name for a in given]
    call = helper.make_node("Region", inputs, outputs, "call", domain=DOMAIN)
    functions = [helper.make_function(DOMAIN, "Region", inputs, outputs, nodes, imports, names)]
    if form == "nested":
        inner = helper.make_node("Region", inputs, outputs, domain=DOMAIN)
        inner.attribute.extend(_reference(a.name, a, a.name) for a in given)
        call.op_type = "Outer"
        functions.append(
            helper.make_function(DOMAIN, "Outer", inputs, outputs, [inner], imports, names)
        )
    call.attribute.extend(given)
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.initializer.extend(outside)
    feeds, expected = dict(case.feeds), dict(case.expected)
    if form == "in a branch":
        model.graph.input.append(helper.make_tensor_value_info("branch", TensorProto.BOOL, []))
        feeds["branch"] = np.array(rng.random() < 0.5)
        branches = [_branch(call, list(graph.output), side) for side in ("then", "else")]
        call = helper.make_node("If", ["branch"], outputs, then_branch=branches[0],
                                else_branch=branches[1])  # fmt: skip
    model.graph.node.append(call)
    if form == "twice":
        other = {n: a * np.float32(0.75) if a.dtype == np.float32 else a for n, a in feeds.items()}
        results = reference.run(case.model, other)
        feeds |= {f"{name}{AGAIN}": array for name, array in other.items()}
        expected |= {f"{n}{AGAIN}": np.asarray(r) for n, r in zip(outputs, results, strict=True)}
        again = model.graph.node.add()
        again.CopyFrom(call)
        again.name += AGAIN
        again.input[:] = [f"{n}{AGAIN}" if n in fed else n for n in call.input]
        again.output[:] = [f"{n}{AGAIN}" for n in call.output]
        for values in (model.graph.input, model.graph.output):
            for value in list(values):
                values.add().CopyFrom(value)
                values[-1].name += AGAIN
        for tensor in [t for t in outside if t.name in fed]:  # defaults
            model.graph.initializer.add().CopyFrom(tensor)
            model.graph.initializer[-1].name += AGAIN
    model.functions.extend(functions)
    model.opset_import.append(imports[-1])
    model.ir_version = max(model.ir_version, 8)
    return Case(model, feeds, expected, case.labels | {"place": form})


def _of_caller(node: onnx.NodeProto, given: list[AttributeProto]) -> onnx.NodeProto:
    """The node with its lists and numbers given by the callers of its function."""
    result = onnx.NodeProto()
    result.CopyFrom(node)
    for index, attribute in enumerate(node.attribute):
        if attribute.type in (AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOATS):
            name = f"{attribute.name}_{len(given)}"
            given.append(AttributeProto())
            given[-1].CopyFrom(attribute)
            given[-1].name = name
            result.attribute[index].CopyFrom(_reference(name, attribute, attribute.name))
    return result


def _reference(name: str, attribute: AttributeProto, of: str) -> AttributeProto:
    """An attribute called `of` that refers to the attribute `name` of the function."""
    return AttributeProto(name=of, ref_attr_name=name, type=attribute.type)


def _branch(call: onnx.NodeProto, outputs: list[onnx.ValueInfoProto], side: str) -> onnx.GraphProto:
    """The body of an If that holds a call."""
    body = onnx.GraphProto(name=side, node=[call])
    body.node[0].output[:] = [f"{name}_{side}" for name in call.output]
    for output in outputs:
        body.output.add().CopyFrom(output)
        body.output[-1].name += f"_{side}"
    return body
