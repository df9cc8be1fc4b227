"""Change one thing in a copy of a model: a node, an input of a node, a constant that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import parsing
from onnx import helper, numpy_helper

#: A graph or a function: what holds nodes.
Holder = onnx.GraphProto | onnx.FunctionProto


@dataclass(frozen=True)
class Spot:
    """A node of a model, found again in its copies by position."""

    number: int
    node: onnx.NodeProto
    holder: Holder


def spots(model: onnx.ModelProto) -> list[Spot]:
    """Every node, those in subgraphs and functions included."""
    held: list[tuple[Holder, onnx.NodeProto]] = list(_held(model.graph))
    for function in model.functions:
        held += _held(function)
    return [Spot(number, node, holder) for number, (holder, node) in enumerate(held)]


def _held(holder: Holder) -> Iterator[tuple[Holder, onnx.NodeProto]]:
    for node in holder.node:
        yield holder, node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _held(graph)


def edited(
    model: onnx.ModelProto, number: int, change: Callable[[Holder, int, onnx.NodeProto], None]
) -> onnx.ModelProto:
    """A copy in which `change` was made to one node; it is given its holder and index there."""
    copy = copied(model)
    spot = spots(copy)[number]
    index = next(i for i, node in enumerate(spot.holder.node) if node is spot.node)
    change(spot.holder, index, spot.node)
    return copy


def constants(holder: Holder) -> dict[str, np.ndarray]:
    """The arrays that a graph stores, by name."""
    found = {}
    for tensor in getattr(holder, "initializer", ()):
        found[tensor.name] = numpy_helper.to_array(tensor)
    for node in holder.node:
        if (
            node.op_type == "Constant"
            and len(node.attribute) == 1
            and node.attribute[0].name == "value"
        ):
            found[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return found


def feed_constant(holder: Holder, index: int, position: int, value: np.ndarray) -> None:
    """Let input `position` of node `index` be a constant of its own."""
    name = f"mutant_{index}_{position}"
    tensor = numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value)), name)
    holder.node[index].input[position] = name
    insert(holder, index, [helper.make_node("Constant", [], [name], value=tensor)])


Change = Callable[[Holder, int, onnx.NodeProto], None]


def setting(name: str, value: Any) -> Change:
    """Give an attribute another value."""
    return lambda holder, index, node: set_attribute(node, name, value)


def feeding(position: int, value: np.ndarray) -> Change:
    """Let an input be a constant of its own."""
    return lambda holder, index, node: feed_constant(holder, index, position, value)


def insert(holder: Holder, index: int, nodes: Sequence[onnx.NodeProto]) -> None:
    """Put nodes in front of node `index`."""
    for offset, node in enumerate(nodes):
        holder.node.insert(index + offset, node)


def behind(
    holder: Holder, index: int, make: Callable[[str, str], Sequence[onnx.NodeProto]]
) -> None:
    """Put nodes between a node and all who read its first output; `make` is given both names."""
    node = holder.node[index]
    target, source = node.output[0], f"{node.output[0]}_mutant"
    node.output[0] = source
    insert(holder, index + 1, make(source, target))


def attribute(node: onnx.NodeProto, name: str) -> Any:
    """Value of an attribute; None if there is none, or a caller of the function around it has it."""
    found = (a for a in node.attribute if a.name == name and not a.ref_attr_name)
    return next(map(helper.get_attribute_value, found), None)


def set_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Give an attribute another value."""
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def swapped(values: Sequence[Any], i: int, j: int) -> list[Any]:
    """A list with two entries exchanged."""
    result = list(values)
    result[i], result[j] = result[j], result[i]
    return result


def spliced(text: str, real: type = np.float32) -> Callable[[str, str], list[onnx.NodeProto]]:
    """Make nodes of text that compute `t` of `s`, for values of other names."""

    def make(source: str, target: str) -> list[onnx.NodeProto]:
        nodes, stored = parsing.nodes(text, real)
        held = [helper.make_node("Constant", [], [n], value=t) for n, t in stored.items()]
        names = {n: f"{source}_{n}" for node in (*held, *nodes) for n in node.output}
        names |= {"s": source, "t": target}
        for node in (*held, *nodes):
            node.input[:] = [names.get(n, n) for n in node.input]
            node.output[:] = [names.get(n, n) for n in node.output]
        return [*held, *nodes]

    return make


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the same model as another message."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def renamed(model: onnx.ModelProto, names: Mapping[str, str]) -> None:
    """Rename values of the main graph, in bodies too."""

    def inside(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
        for node in graph.node:
            node.input[:] = [names.get(n, n) for n in node.input]
            node.output[:] = [names.get(n, n) for n in node.output]
            for attribute in node.attribute:
                for body in (attribute.g, *attribute.graphs):
                    made = {v.name for v in (*body.input, *body.initializer)}
                    made |= {o for n in body.node for o in n.output}
                    inside(body, {k: v for k, v in names.items() if k not in made})
                    for value in body.output:
                        if value.name not in made:
                            value.name = names.get(value.name, value.name)
        for tensor in graph.initializer:
            tensor.name = names.get(tensor.name, tensor.name)

    inside(model.graph, names)
    del model.graph.value_info[:]
