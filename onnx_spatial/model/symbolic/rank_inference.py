"""Infer ranks and element types backward, from the readers of a value.

    Foreign -> a -> Mul b -> SpaceToBatch -> Conv with a 5-D weight        a, if b is a scalar, is 5-D

onnx's shape inference goes forward only, and stops at an operator that it does not know. But a Conv,
Transpose or Pad determines the rank of its input: else the model does not run. Nodes determine only
values of their own graph, because a branch may never run. Forward goes the rank behind a Reshape, which
is the length of the shape even where its elements are unknown.
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
_SPATIAL = op_traits.having(Trait.WINDOWS)
#: Attributes of these operators, with their entries per spatial axis.
_PER_AXIS = {"dilations": 1, "kernel_shape": 1, "pads": 2, "strides": 1}
#: Inputs with entries for each axis: (position, entries per axis).
_VECTORS = {"Pad": ((1, 2),), "Resize": ((2, 1), (3, 1)), "Tile": ((1, 1),), "Upsample": ((1, 1),)}

#: Before it, broadcasting and parameters were different.
_MIN_OPSET = 7


def declared(graph: onnx.GraphProto) -> dict[str, int]:
    """Return the ranks above 0 that a graph declares for its outputs."""
    outputs = ((v.name, shape_inference.dims(v.type)) for v in graph.output)
    return {name: len(dims) for name, dims in outputs if dims}


def declare(
    model: onnx.ModelProto, inferred: onnx.ModelProto, outputs: Mapping[str, int] | None
) -> bool:
    """Infer ranks and element types backward and declare them in `model`, in place.

    Args:
        model: the model; the values in its functions are not inferred.
        inferred: the result of shape inference for it.
        outputs: ranks of outputs of the main graph, used where nothing else determines them. None:
            infer only ranks that hold in every run, and not through probes, whose output ranks are
            those of the nodes that replace them.

    Returns:
        Whether any rank or type is new.
    """
    local = {(f.domain, f.name) for f in model.functions}
    changed = False
    pairs = zip(traversal.graphs(model), constant_folding.scopes(inferred), strict=True)
    for (place, graph), (scope, known) in pairs:
        if place.function is not None or not isinstance(graph, onnx.GraphProto):
            continue
        nodes = [n for n in known.node if (n.domain, n.op_type) not in local]
        inference = _BackwardInference(scope, nodes, {v.name for v in graph.input})
        inference.run(through_probes=outputs is not None)
        if graph is model.graph and outputs is not None:
            inference.add_ranks(outputs.items())
            inference.run(through_probes=True)
        changed |= _write(graph, inference)
    return changed


class _BackwardInference:
    """Backward inference in one graph.

    Attributes:
        ranks: inferred ranks.
        types: inferred element types.
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
        unknown = {n for n in self._own if self._rank(n) is None or self._element_type(n) is None}
        self._nodes = [
            (node, symbolic_tensor.attributes(node))
            for node in nodes
            if not unknown.isdisjoint((*node.input, *node.output))
        ]

    def run(self, *, through_probes: bool) -> None:
        """Go back through the nodes until nothing new is inferred.

        Args:
            through_probes: whether the rank of a probe's output is that of its data.
        """
        before = -1
        while before < len(self.ranks) + len(self.types):
            before = len(self.ranks) + len(self.types)
            for node, attributes in reversed(self._nodes):
                if attributes is None or self._scope.opset < _MIN_OPSET:
                    continue
                if node.domain == shape_inference.DOMAIN:
                    # Spatial operators keep the element type of their data, and its rank, unless
                    # they say how each of its axes is split.
                    splits = attributes.get("splits")
                    if isinstance(splits, list):
                        self.add_ranks([(node.input[0], len(splits))])
                    elif through_probes:
                        self.add_ranks(self._output_rank(node))
                    self._add_types(node.input[:1], node.output[:1])
                elif op_traits.is_standard(node):
                    try:
                        self.add_ranks(list(self._ranks(node, attributes)))
                    except Exception:  # the node breaks its operator's rules, and fails when run
                        continue
                    for inputs, outputs in _of_one_type(node, self._scope.opset):
                        self._add_types(inputs, outputs)

    def add_ranks(self, ranks: Iterable[tuple[str, int]]) -> None:
        """Add ranks for the values of this graph that have none."""
        for name, rank in ranks:
            if self._is_own_tensor(name) and self._rank(name) is None and rank >= 0:
                self.ranks[name] = rank

    def _add_types(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Add element types for the inputs without one; all inputs and outputs have the same."""
        types = map(self._element_type, (*inputs, *outputs))
        common = next((t for t in types if t is not None), None)
        for name in inputs:
            if (
                common is not None
                and self._is_own_tensor(name)
                and self._element_type(name) is None
            ):
                self.types[name] = common

    def _output_rank(self, node: onnx.NodeProto) -> Iterator[tuple[str, int]]:
        """Yield the rank of an output as that of the data."""
        outputs = node.output if node.op_type == "Split" else node.output[:1]
        ranks = [rank for rank in map(self._rank, outputs) if rank is not None]
        yield from ((name, rank) for name in node.input[:1] for rank in ranks[:1])

    def _is_own_tensor(self, name: str) -> bool:
        known = self._scope.types.get(name)
        kind = None if known is None else known.WhichOneof("value")
        return name in self._own and kind in (None, "tensor_type")

    def _rank(self, name: str) -> int | None:
        if name in self.ranks:
            return self.ranks[name]
        return shape_inference.rank(self._scope.type(name)) if name else None

    def _element_type(self, name: str) -> int | None:
        if name in self.types:
            return self.types[name]
        return shape_inference.element_type(self._scope.type(name)) if name else None

    def _length(self, node: onnx.NodeProto, index: int) -> int | None:
        """Return the length of an input that is a vector; None if it is unknown or omitted."""
        name = node.input[index] if index < len(node.input) else ""
        dims = shape_inference.dims(self._scope.type(name)) if name else None
        size = dims[0] if dims is not None and len(dims) == 1 else None
        return size if isinstance(size, int) and size > 0 else None

    def _ranks(self, node: onnx.NodeProto, attributes: Attributes) -> Iterator[tuple[str, int]]:
        """Yield the ranks that a node determines for its inputs."""
        operator, data = node.op_type, node.input[0] if node.input else ""
        rank = self._data_rank(node, attributes)
        if rank is not None:
            yield data, rank
        if operator in _SAME:
            yield from self._output_rank(node)
        elif operator in eval_shapes.BROADCAST:
            yield from self._broadcast(node)
        else:
            if operator == "Reshape" and (length := self._length(node, 1)) is not None:
                yield node.output[0], length
            added, output = self._added(node, attributes), self._rank(node.output[0])
            if added is not None and output is not None:
                yield data, output - added

    def _data_rank(self, node: onnx.NodeProto, attributes: Attributes) -> int | None:
        """Return the rank of the data by weight, attributes and parameters."""
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
        """Return the rank of a node's output minus that of its data; None if it is unknown."""
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
        """Yield the output's rank for the only input that can have it."""
        result = self._rank(node.output[0])
        others = [name for name in node.input if self._rank(name) != result]
        unknown = [name for name in node.input if self._rank(name) is None]
        if result is not None and len(others) == len(node.input) and len(set(unknown)) == 1:
            yield unknown[0], result


def _of_one_type(node: onnx.NodeProto, opset: int) -> list[tuple[list[str], list[str]]]:
    """Return the inputs and outputs of a node that share a type variable of its schema."""
    groups: dict[str, tuple[list[str], list[str]]] = {}
    signature = _signature(node.op_type, opset)
    for side, names in enumerate((node.input, node.output)):
        variables = signature[side]
        for index, name in enumerate(names):
            variable = variables[min(index, len(variables) - 1)] if variables else None
            if name and variable is not None:
                groups.setdefault(variable, ([], []))[side].append(name)
    return list(groups.values())


@cache
def _signature(operator: str, opset: int) -> tuple[tuple[str | None, ...], ...]:
    """Return the type variables of an operator's inputs and outputs; None for a fixed type."""
    try:
        schema = onnx.defs.get_schema(operator, opset)
    except onnx.defs.SchemaError:
        return ((), ())
    variables = {constraint.type_param_str for constraint in schema.type_constraints}
    return tuple(
        tuple(p.type_str if p.is_homogeneous and p.type_str in variables else None for p in formal)
        for formal in (schema.inputs, schema.outputs)
    )


def _write(graph: onnx.GraphProto, inference: _BackwardInference) -> bool:
    """Declare the inferred ranks and types; return whether there are any."""
    infos = {v.name: v for v in (*graph.value_info, *graph.output, *graph.input)}
    for name in dict.fromkeys((*inference.ranks, *inference.types)):
        info = infos[name] if name in infos else graph.value_info.add(name=name)
        tensor = info.type.tensor_type
        if name in inference.types:
            tensor.elem_type = inference.types[name]
        if name in inference.ranks:
            tensor.shape.SetInParent()
            for _ in range(inference.ranks[name]):
                tensor.shape.dim.add()
    return bool(inference.ranks or inference.types)
