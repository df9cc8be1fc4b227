"""What stands around a spatial operator: who computes what it reads, who reads what it computes.

The graph is onnx_ir's, in the state that earlier rewrites left it in; what a node says (its
attributes) is read off the message that it came from, because the graph is an `outline`. Nodes that
a rewrite wrote have no message, and no rule looks at them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from onnx_spatial.facts import Finding
from onnx_spatial.graph import walk
from onnx_spatial.lowering import Request

#: Operators that a Transpose is looked for beyond, and how many of them in a row.
_RESHAPES = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze"})
_FAR = 3

_CONVOLUTIONS = frozenset({"Conv", "MaxPool", "AveragePool", "GlobalAveragePool"})
#: What onnxruntime fuses into a convolution, or runs on blocked channels as well.
_ELEMENTWISE = frozenset(
    {"Add", "BatchNormalization", "Clip", "LeakyRelu", "Mul", "Relu", "Sigmoid", "Sum", "Tanh"}
)


@dataclass(frozen=True)
class Subject:
    """A spatial operator that is being rewritten.

    Attributes:
        finding: what is known of it.
        node: it, in the graph.
        request: what its lowering is asked for.
    """

    finding: Finding
    node: ir.Node
    request: Request


class Neighbourhood:
    """The graphs of a model.

    Args:
        proto: the model as it was read.
        nodes: every node of its onnx_ir form, in the order of `walk.nodes`.
        subjects: the spatial operators that may be rewritten.
    """

    def __init__(
        self, proto: onnx.ModelProto, nodes: Iterable[ir.Node], subjects: Iterable[Subject]
    ) -> None:
        self._messages = {
            node: (graph, message)
            for node, (_, graph, message) in zip(nodes, walk.nodes(proto), strict=True)
        }
        self._order = {node: number for number, node in enumerate(self._messages)}
        self._subjects = {subject.node: subject for subject in subjects}
        self._local = {(f.domain, f.name) for f in proto.functions}
        self._training = _read_in_training(proto)
        self._named: dict[int, set[str]] = {}

    def subject(self, node: ir.Node) -> Subject | None:
        """A node as a spatial operator that is still there."""
        return self._subjects.get(node) if node.graph is not None else None

    def readers(self, value: ir.Value) -> list[tuple[ir.Node, int]]:
        """Nodes that read a value, in the order of the file, with the number of the input."""
        # Forms of an operator that were written, but not taken, are in no graph.
        found = [(node, index) for node, index in value.uses() if node.graph is not None]
        last = len(self._order)
        return sorted(found, key=lambda use: (self._order.get(use[0], last), use[1]))

    def is_named(self, value: ir.Value) -> bool:
        """Whether more than nodes of its own graph know a value by name: it is an output of the
        graph, is read in a graph inside it or by training, or has a quantization annotation.
        """
        producer = value.producer()
        if producer not in self._messages or value.name is None:
            return True
        graph, _ = self._messages[producer]
        if id(graph) not in self._named:
            self._named[id(graph)] = _named(graph)
        return value.name in self._named[id(graph)] or value.name in self._training

    def near(self, node: ir.Node) -> tuple[bool, bool]:
        """Whether Transposes stand in front of a node's data and behind its output.

        Also beyond nodes that only write the shape in another way.
        """
        front = False
        value = node.inputs[0]
        for _ in range(_FAR):
            producer = value.producer() if value is not None else None
            if producer is None or producer not in self._messages:
                break
            kind = self._messages[producer][1].op_type
            front |= kind == "Transpose"
            if kind not in _RESHAPES:
                break
            value = producer.inputs[0]
        behind = False
        values = [node.outputs[0]]
        for _ in range(_FAR):
            readers = [
                (n, self._messages[n][1])
                for v in values
                for n, _ in self.readers(v)
                if n in self._messages
            ]
            behind |= any(message.op_type == "Transpose" for _, message in readers)
            values = [n.outputs[0] for n, message in readers if message.op_type in _RESHAPES]
        return front, behind

    def follows_convolution(self, node: ir.Node) -> bool:
        """Whether the data of a Transpose comes from a Conv, maybe through operators on elements."""
        value = node.inputs[0]
        for _ in range(_FAR):
            producer = value.producer() if value is not None else None
            if producer is None or producer not in self._messages:
                return False
            kind = self._messages[producer][1].op_type
            if kind in _CONVOLUTIONS:
                return True
            if kind not in _ELEMENTWISE:
                return False
            value = producer.inputs[0]
        return False

    def leads_to_convolution(self, node: ir.Node) -> bool:
        """Whether everything that reads the output of a Transpose is a Conv."""
        readers = [reader for reader, _ in self.readers(node.outputs[0])]
        kinds = {self._messages[n][1].op_type for n in readers if n in self._messages}
        return bool(kinds) and kinds <= _CONVOLUTIONS

    def perm(self, node: ir.Node | None, rank: int) -> tuple[int, ...] | None:
        """The permutation of a Transpose of `rank` axes; None if the node is no such thing.

        Without the attribute the axes are reversed.
        """
        if node is None or node.graph is None or node not in self._messages:
            return None
        _, message = self._messages[node]
        standard = message.domain in ("", "ai.onnx") and message.op_type == "Transpose"
        if not standard or (message.domain, message.op_type) in self._local:
            return None
        if len(message.input) != 1 or len(message.output) != 1 or not message.input[0]:
            return None
        perm = tuple(reversed(range(rank)))
        for attribute in message.attribute:
            if attribute.type != onnx.AttributeProto.INTS or attribute.ref_attr_name:
                return None
            perm = tuple(attribute.ints)
        known = len(message.attribute) <= 1 and sorted(perm) == list(range(rank))
        return perm if known else None


def _named(graph: walk.GraphLike) -> set[str]:
    """Names in a graph that are outputs, annotated, or read inside the graphs of its nodes."""
    if isinstance(graph, onnx.FunctionProto):
        names = set(graph.output)
    else:
        names = {v.name for v in graph.output}
        names.update(a.tensor_name for a in graph.quantization_annotation)
    # onnx_ir does not link a graph's outputs to values of the graphs around it.
    for node in graph.node:
        for _, body in walk.subgraphs(node):
            names.update(v.name for v in body.output)
            for _, _, inner in walk.graph_nodes(walk.Place(), body):
                names.update(walk.reads(inner))
    return names


def _read_in_training(proto: onnx.ModelProto) -> set[str]:
    graphs = (g for t in proto.training_info for g in (t.initialization, t.algorithm))
    return {
        name
        for graph in graphs
        for _, _, node in walk.graph_nodes(walk.Place(), graph)
        for name in walk.reads(node)
    }
