"""Recognise parts that have one proof: they differ in names, and in the numbers of weights.

    block 1    a -> [Conv, w1] -> b        block 2    c -> [Conv, w2] -> d

A deep net is proven once for each kind of block: for any finite numbers in the weights that both sides
of a part read as they are.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.maps.constants import Stored
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators import Dim
from onnx_spatial.verification.arrays import constant_value
from onnx_spatial.verification.match.changed_part import ChangedPart, Upstream

_REALS = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
    onnx.TensorProto.DOUBLE,
)
#: The fewest elements of a weight; a smaller constant may be a table, a mask, a bound.
_FEWEST = 32

#: Returns the spatial operator that a node of a graph is, None for other nodes.
Operators = Callable[[onnx.NodeProto, traversal.Place], OperatorInfo | None]


def common_weights(part: ChangedPart, folder: Path | None) -> dict[str, onnx.TypeProto]:
    """Return the types of the finite weights that both sides of a part read as they are, by name.

    Args:
        part: the part.
        folder: of the external data of the original.
    """
    after = {tensor.name: tensor for tensor in part.after.stored}
    return {
        tensor.name: onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        for tensor in part.before.stored
        if tensor.data_type in _REALS
        and math.prod(tensor.dims) >= _FEWEST
        and tensor.name not in part.inputs
        and after.get(tensor.name) == tensor
        and Stored(constant_value(tensor, folder)).finite
    }


def digest(
    part: ChangedPart,
    upstream: Upstream,
    operators: tuple[Operators, Operators],
    weights: Iterable[str] = (),
) -> bytes | None:
    """Return a digest that is equal where a proof of one part is a proof of another.

    Args:
        part: the part.
        upstream: how the original computes some of the values that it reads.
        operators: of the original and of the converted model.
        weights: constants whose numbers do not count.

    Returns:
        None if nodes have graphs inside, which read outer values by name.
    """
    groups = (upstream.nodes, part.before.nodes, part.after.nodes)
    if any(True for nodes in groups for node in nodes for _ in traversal.subgraphs(node)):
        return None
    names: dict[str, str] = {"": ""}
    sizes: dict[str, str] = {}
    result = hashlib.sha256()

    def add(*values: object) -> None:
        result.update(repr(values).encode())

    def renamed(values: Iterable[str]) -> list[str]:
        return [names.setdefault(name, f"value {len(names)}") for name in values]

    def shape(dims: Sequence[Dim] | None) -> list[Dim] | None:
        if dims is None:
            return None
        return [d if not isinstance(d, str) else sizes.setdefault(d, f"{len(sizes)}") for d in dims]

    for nodes in groups:
        add(len(nodes))
        for node in nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.input[:], copy.output[:] = renamed(node.input), renamed(node.output)
            for field in ("name", "doc_string", "metadata_props"):
                copy.ClearField(field)
            result.update(copy.SerializeToString(deterministic=True))
    for stored in (upstream.stored, part.before.stored, part.after.stored):
        add("stored", len(stored))
        for tensor in sorted(stored, key=lambda t: renamed([t.name])):
            add(*renamed([tensor.name]), tensor.data_type, tuple(tensor.dims))
            if tensor.name not in weights:
                content = onnx.TensorProto()
                content.CopyFrom(tensor)
                content.ClearField("name")
                result.update(content.SerializeToString(deterministic=True))
    for sparse in (*part.before.sparse, *part.after.sparse):
        result.update(sparse.SerializeToString(deterministic=True))
    for types in (upstream.inputs, part.inputs):
        for name in sorted(types, key=lambda n: renamed([n])):
            known = types[name]
            add(*renamed([name]), shape_inference.element_type(known), known.WhichOneof("value"))
            add(shape(shape_inference.dims(known)))
    for read in (upstream.names, upstream.ties, part.before.read, part.after.read):
        add("names", sorted(names.get(name, name) for name in read))
    add(renamed([part.output]), part.place.function)
    for side in (part.before, part.after):
        add(sorted(side.imports.opsets.items(), key=repr))
    for nodes, operator in zip(groups, (operators[0], *operators), strict=True):
        for position, node in enumerate(nodes):
            info = operator(node, part.place)
            if info is None:
                continue
            facts = info.facts
            add("operator", position, facts.op_type, facts.domain, info.error)
            add(sorted(facts.attributes.items(), key=repr))
            for fact in facts.inputs:
                if fact is None:
                    add(None)
                    continue
                add(fact.dtype, shape(fact.shape))
                add(None if fact.value is None else fact.value.tolist())
    return result.digest()
