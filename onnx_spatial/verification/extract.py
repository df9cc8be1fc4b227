"""Extract nodes of a graph as a model of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from onnx_spatial.model import op_traits, traversal


@dataclass(frozen=True)
class Imports:
    """The opsets by domain ("" is the default) and functions that a part takes from its model."""

    ir_version: int
    opsets: Mapping[str, int]
    functions: Sequence[onnx.FunctionProto] = ()

    @classmethod
    def of(cls, model: onnx.ModelProto, body: traversal.GraphLike | None = None) -> Imports:
        """Return the imports of a model, or of its function `body`."""
        holder = body if isinstance(body, onnx.FunctionProto) else model
        assumed = {"": op_traits.assumed_opset(model.ir_version)}
        opsets = assumed | op_traits.opsets_of(holder.opset_import)
        return cls(model.ir_version, opsets, list(model.functions))


def called(nodes: Iterable[onnx.NodeProto], functions: Sequence[onnx.FunctionProto]) -> set[int]:
    """Return the positions of the functions that nodes call, directly or through other functions."""
    positions: dict[tuple[str, str], list[int]] = {}
    for position, function in enumerate(functions):
        positions.setdefault((function.domain, function.name), []).append(position)
    result: set[int] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        for position in positions.get((node.domain, node.op_type), ()):
            if position not in result:
                result.add(position)
                todo.extend(functions[position].node)
        for _, graph in traversal.subgraphs(node):
            todo.extend(graph.node)
    return result


def model_of(
    imports: Imports,
    nodes: Iterable[onnx.NodeProto],
    inputs: Mapping[str, onnx.TypeProto],
    outputs: Iterable[str],
    initializers: Iterable[onnx.TensorProto] = (),
    sparse: Iterable[onnx.SparseTensorProto] = (),
) -> onnx.ModelProto:
    """Make a model of some nodes; the runtime infers the types of its outputs."""
    model = onnx.ModelProto(ir_version=imports.ir_version)
    graph = model.graph
    graph.name = "part"
    graph.node.extend(nodes)
    for node in graph.node:
        node.name = traversal.label(node)  # for messages
    graph.initializer.extend(initializers)
    graph.sparse_initializer.extend(sparse)
    graph.input.extend(onnx.ValueInfoProto(name=n, type=t) for n, t in inputs.items())
    graph.output.extend(onnx.ValueInfoProto(name=n) for n in outputs)
    for position in sorted(called(graph.node, imports.functions)):
        model.functions.append(imports.functions[position])
    domains = {op_traits.canonical_domain(n.domain) for _, _, n in traversal.nodes(model)} | {""}
    for function in model.functions:
        domains.update(op_traits.canonical_domain(o.domain) for o in function.opset_import)
    for domain in sorted(domains):
        model.opset_import.append(onnx.helper.make_opsetid(domain, imports.opsets.get(domain, 1)))
    return model
