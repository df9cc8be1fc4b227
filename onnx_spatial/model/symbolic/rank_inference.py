"""Ranks and element types that follow backward, from what reads a value.

    Foreign -> a -> Mul b -> SpaceToBatch -> Conv with a 5-D weight        a, if b is a scalar, is 5-D

Shape inference goes forward only, and ends at an operator that it does not know. But a Conv, a
Transpose, a Pad tell how many axes their input has: else the model does not run. What stands in a
graph says so of the values of that graph only: a branch need not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import constant_folding, shape_inference
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.model.symbolic import eval_shapes, symbolic_tensor
from onnx_spatial.model.symbolic.symbolic_tensor import Attributes

_SAME = op_traits.having(Trait.SAME_RANK)
_REDUCTIONS = op_traits.having(Trait.REDUCES)
#: Operators whose attributes have an entry for each spatial axis, or two.
_SPATIAL = op_traits.having(Trait.WINDOWS)
_PER_AXIS = {"dilations": 1, "kernel_shape": 1, "pads": 2, "strides": 1}
#: Where others have a vector with an entry for each axis, and of how many.
_VECTORS = {"Pad": ((1, 2),), "Resize": ((2, 1), (3, 1)), "Tile": ((1, 1),), "Upsample": ((1, 1),)}


#: Before, operators broadcast and took their parameters in other ways.
_MIN_OPSET = 7


def declared(graph: onnx.GraphProto) -> dict[str, int]:
    """The ranks that a graph declares of its outputs; of none where it says that there is no axis."""
    known = ((v.name, shape_inference.dims(v.type)) for v in graph.output)
    return {name: len(dims) for name, dims in known if dims}


def declare(
    model: onnx.ModelProto, inferred: onnx.ModelProto, outputs: Mapping[str, int] | None
) -> bool:
    """Declare in `model` the ranks and element types that follow backward.

    Args:
        model: edited in place; what only a function's callers know stays unknown.
        inferred: what shape inference made of it.
        outputs: ranks of outputs of the main graph. They are taken for true where nothing else says
            what they are. None: find only what any run makes sure of that gets there, and not what
            follows from our operators' outputs, which get their rank from what we write for them.

    Returns:
        Whether there were any that were not found in `inferred`.
    """
    local = {(f.domain, f.name) for f in model.functions}
    found = False
    pairs = zip(traversal.graphs(model), constant_folding.scopes(inferred), strict=True)
    for (place, graph), (scope, known) in pairs:
        if place.function is not None or not isinstance(graph, onnx.GraphProto):
            continue
        nodes = [n for n in known.node if (n.domain, n.op_type) not in local]
        settling = _Settling(scope, nodes, {v.name for v in graph.input})
        settling.run(through_ours=outputs is not None)
        if graph is model.graph and outputs is not None:
            settling.claim(outputs.items())
            settling.run(through_ours=True)
        found |= _write(graph, settling)
    return found


class _Settling:
    """What follows backward in one graph.

    Attributes:
        ranks: of values of which none was known.
        types: element types, likewise.
    """

    def __init__(
        self,
        scope: constant_folding.ConstantScope,
        nodes: Sequence[onnx.NodeProto],
        inputs: set[str],
    ) -> None:
        self._scope = scope
        self._own = inputs | {name for node in nodes for name in node.output if name}
        self.ranks: dict[str, int] = {}
        self.types: dict[str, int] = {}
        open_ = {n for n in self._own if self._rank(n) is None or self._element_type(n) is None}
        self._nodes = [
            (node, symbolic_tensor.attributes(node))
            for node in nodes
            if not open_.isdisjoint((*node.input, *node.output))
        ]

    def run(self, *, through_ours: bool) -> None:
        """Go back through the nodes until nothing new is found.

        Args:
            through_ours: whether the data of our operators is of the rank of their outputs.
        """
        before = -1
        while before < len(self.ranks) + len(self.types):
            before = len(self.ranks) + len(self.types)
            for node, attributes in reversed(self._nodes):
                if attributes is None or self._scope.opset < _MIN_OPSET:
                    continue
                if (
                    node.domain == shape_inference.DOMAIN
                ):  # all of ours keep rank and type of their data
                    if through_ours:
                        self.claim(self._as_behind(node))
                    self._claim_types(node.input[:1], node.output[:1])
                elif op_traits.is_standard(node):
                    try:
                        self.claim(list(self._ranks(node, attributes)))
                    except Exception:  # the node breaks its operator's rules, as the run will say
                        continue
                    for given, others in _of_one_type(node, self._scope.opset):
                        self._claim_types(given, others)

    def claim(self, ranks: Iterable[tuple[str, int]]) -> None:
        """Take down the ranks of values of this graph of which none is known."""
        for name, rank in ranks:
            if self._is_own_tensor(name) and self._rank(name) is None and rank >= 0:
                self.ranks[name] = rank

    def _claim_types(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Take down the element type of inputs that have that of the others, and of the outputs."""
        known = map(self._element_type, (*inputs, *outputs))
        found = next((element_type for element_type in known if element_type is not None), None)
        for name in inputs:
            if found is not None and self._is_own_tensor(name) and self._element_type(name) is None:
                self.types[name] = found

    def _as_behind(self, node: onnx.NodeProto) -> Iterator[tuple[str, int]]:
        """The rank of the data, where it is that of an output."""
        outputs = node.output if node.op_type == "Split" else node.output[:1]
        found = [rank for rank in map(self._rank, outputs) if rank is not None]
        yield from ((name, rank) for name in node.input[:1] for rank in found[:1])

    def _is_own_tensor(self, name: str) -> bool:
        known = self._scope.types.get(name)
        kind = None if known is None else known.WhichOneof("value")
        return name in self._own and kind in (None, "tensor_type")

    def _rank(self, name: str) -> int | None:
        if name in self.ranks:
            return self.ranks[name]
        dims = shape_inference.dims(self._scope.type(name)) if name else None
        return None if dims is None else len(dims)

    def _element_type(self, name: str) -> int | None:
        if name in self.types:
            return self.types[name]
        return shape_inference.element_type(self._scope.type(name)) if name else None

    def _length(self, node: onnx.NodeProto, index: int) -> int | None:
        """How long a vector among the inputs is; None if that is unknown, or nothing stands there."""
        name = node.input[index] if index < len(node.input) else ""
        dims = shape_inference.dims(self._scope.type(name)) if name else None
        size = dims[0] if dims is not None and len(dims) == 1 else None
        return size if isinstance(size, int) and size > 0 else None

    def _ranks(self, node: onnx.NodeProto, attributes: Attributes) -> Iterator[tuple[str, int]]:
        """What one node says of its inputs."""
        operator, data = node.op_type, node.input[0] if node.input else ""
        own = self._own_rank(node, attributes)
        if own is not None:
            yield data, own
        if operator in _SAME:
            yield from self._as_behind(node)
        elif operator in eval_shapes.BROADCAST:
            yield from self._broadcast(node)
        else:
            added, after = self._added(node, attributes), self._rank(node.output[0])
            if added is not None and after is not None:
                yield data, after - added

    def _own_rank(self, node: onnx.NodeProto, attributes: Attributes) -> int | None:
        """The rank of the data by weights, attributes and parameters."""
        operator = node.op_type
        weight = op_traits.of(node).weight
        rank = None if weight is None else self._rank(node.input[weight])
        if rank is not None:
            return rank
        if operator in _SPATIAL:
            lengths = [len(attributes.get(name, ())) // n for name, n in _PER_AXIS.items()]
            return 2 + max(lengths) if any(lengths) else None
        if operator == "Transpose":
            return len(attributes.get("perm", ())) or None
        if operator in ("DepthToSpace", "SpaceToDepth") and len(node.input) == 1:
            return 4
        if "axes" in attributes or (operator == "Pad" and any(node.input[3:])):
            return None
        if operator == "Pad" and "pads" in attributes:
            return len(attributes["pads"]) // 2
        for index, entries_per_axis in _VECTORS.get(operator, ()):
            length = self._length(node, index)
            if length is not None:
                return length // entries_per_axis
        return None

    def _added(self, node: onnx.NodeProto, attributes: Attributes) -> int | None:
        """How many axes more a node gives than it takes; None if that is unknown."""
        operator = node.op_type
        if operator == "Gather":
            indices = self._rank(node.input[1])
            return None if indices is None else indices - 1
        if operator not in _REDUCTIONS | {"Squeeze", "Unsqueeze"}:
            return None
        if operator in _REDUCTIONS and attributes.get("keepdims", 1):
            return 0
        if operator.startswith("Arg"):
            return -1
        axes = attributes.get("axes")
        count = self._length(node, 1) if axes is None else len(axes)
        if not count:
            return None
        return count if operator == "Unsqueeze" else -count

    def _broadcast(self, node: onnx.NodeProto) -> Iterator[tuple[str, int]]:
        """The one input that has all the axes of the output, because no other has."""
        result = self._rank(node.output[0])
        others = [name for name in node.input if self._rank(name) != result]
        unknown = [name for name in node.input if self._rank(name) is None]
        if result is not None and len(others) == len(node.input) and len(set(unknown)) == 1:
            yield unknown[0], result


def _of_one_type(node: onnx.NodeProto, opset: int) -> list[tuple[list[str], list[str]]]:
    """Inputs, and outputs, of a node that its operator gives one and the same type."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    signature = _signature(node.op_type, opset)
    for side, names in enumerate((node.input, node.output)):
        variables = signature[side]
        for index, name in enumerate(names):
            variable = variables[min(index, len(variables) - 1)] if variables else None
            if name and variable is not None:
                found.setdefault(variable, ([], []))[side].append(name)
    return list(found.values())


@cache
def _signature(operator: str, opset: int) -> tuple[tuple[str | None, ...], ...]:
    """The type variables of an operator's inputs and outputs; None for one of a type of its own."""
    try:
        schema = onnx.defs.get_schema(operator, opset)
    except onnx.defs.SchemaError:
        return ((), ())
    variables = {constraint.type_param_str for constraint in schema.type_constraints}
    return tuple(
        tuple(p.type_str if p.is_homogeneous and p.type_str in variables else None for p in formal)
        for formal in (schema.inputs, schema.outputs)
    )


def _write(graph: onnx.GraphProto, settling: _Settling) -> bool:
    """Declare what was settled; whether there was anything."""
    infos = {v.name: v for v in (*graph.value_info, *graph.output, *graph.input)}
    for name in dict.fromkeys((*settling.ranks, *settling.types)):
        info = infos[name] if name in infos else graph.value_info.add(name=name)
        tensor = info.type.tensor_type
        if name in settling.types:
            tensor.elem_type = settling.types[name]
        if name in settling.ranks:
            tensor.shape.SetInParent()
            for _ in range(settling.ranks[name]):
                tensor.shape.dim.add()
    return bool(settling.ranks or settling.types)
