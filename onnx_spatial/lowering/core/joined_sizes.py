"""Compute all sizes of a lowering at once, as vectors, where that takes fewer nodes.

Each size that only the run knows is a node of its own at first, and each shape joins some of them. Most
are products of lengths of one tensor, so a few nodes compute all (`size_vectors`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from onnx_spatial.lowering.core.nodes import INT64_MAX, NodeList
from onnx_spatial.lowering.core.size_vectors import LEAST, Length, Product, Vector, emit_vectors

#: The opset since which Split has the lengths of its parts as an input.
_SPLIT_INPUT = 13


def join(emit: NodeList, output: ir.Value) -> None:
    """Replace the arithmetic on sizes by vectors, if fewer nodes remain.

    Args:
        emit: the nodes, of which all are needed for `output`.
        output: of the lowering.
    """
    if emit.opset < _SPLIT_INPUT:
        return
    products = _products(emit.nodes)
    wanted = dict(_wanted(emit.nodes, products))
    made = {node for node in emit.nodes if node.outputs[0] in products or node.outputs[0] in wanted}
    sources = {length.source for product in products.values() for length in product.lengths}
    place = 1 + max((i for i, n in enumerate(emit.nodes) if sources & {*n.outputs}), default=-1)
    users = {use for value in wanted for use, _ in value.uses()} - made
    if not wanted or users & {*emit.nodes[:place]}:
        return
    count = len(emit.nodes)
    with emit.inserted(place):
        parts = emit_vectors(emit, list(wanted.values()))
    if len(emit.nodes) - count < len(made):
        ir.convenience.replace_all_uses_with(list(wanted), parts)
    emit.prune(output)


def _products(nodes: Sequence[ir.Node]) -> dict[ir.Value, Product]:
    """Return the sizes of one element that are products of lengths."""
    products: dict[ir.Value, Product] = {}
    shapes = {n.outputs[0]: n for n in nodes if n.op_type == "Shape" and not n.attributes}
    for node in nodes:
        length = _read(node, shapes)
        product = _product(node, products) if length is None else Product(1, (length,))
        if product is not None:
            products[node.outputs[0]] = product
    return products


def _product(node: ir.Node, products: Mapping[ir.Value, Product]) -> Product | None:
    """Return what a node computes of products, if that is a product."""
    if node.op_type not in ("Add", "Div", "Max", "Mul"):
        return None
    factors = [_factor(value, products) for value in node.inputs]
    one, other = factors if len(factors) == 2 else (None, None)
    if one is None or other is None:
        return None
    if node.op_type == "Mul":
        product = one.times(other)
        return product if abs(product.number) <= INT64_MAX else None
    if one.length is None or other.lengths:
        return None
    return _changed(one.length, node.op_type, other.number)


def _read(node: ir.Node, shapes: Mapping[ir.Value, ir.Node]) -> Length | None:
    """Return the length that a node reads: a Shape of one axis, or a Gather of one from `shapes`.

    Shapes that are parameters of the operator are not among these: the lowering must not read what they
    are the shapes of.
    """
    source = node.inputs[0] if node.inputs else None
    if source is None:
        return None
    if node.op_type == "Shape":
        start, end = (node.attributes.get_int(name, -1) for name in ("start", "end"))
        return Length(source, start) if 0 <= start == end - 1 else None
    if node.op_type != "Gather" or source not in shapes:
        return None
    (x,), index = shapes[source].inputs, node.inputs[1]
    if x is None or index is None or index.const_value is None:
        return None
    places = index.const_value.numpy()
    return Length(x, int(places[0])) if places.shape == (1,) else None


def _changed(length: Length, op_type: str, number: int) -> Product | None:
    """Return a length that a node has added to, divided or bounded, if the order of these allows it."""
    if op_type == "Add" and length.divisor == 1 and length.least == LEAST:
        plus = length.plus + number
        return Product(1, (replace(length, plus=plus),)) if abs(plus) <= INT64_MAX else None
    if op_type == "Div" and length.divisor == 1 and length.least == LEAST and number > 0:
        return Product(1, (replace(length, divisor=number),))
    if op_type == "Max":
        return Product(1, (replace(length, least=max(length.least, number)),))
    return None


def _factor(value: ir.Value | None, products: Mapping[ir.Value, Product]) -> Product | None:
    """Return a size as a product; a constant must be a vector of one integer."""
    if value is None:
        return None
    if value in products:
        return products[value]
    if value.const_value is None:
        return None
    array = value.const_value.numpy()
    return Product(int(array[0])) if array.shape == (1,) and array.dtype.kind == "i" else None


def _wanted(
    nodes: Sequence[ir.Node], products: Mapping[ir.Value, Product]
) -> Iterator[tuple[ir.Value, Vector]]:
    """Yield the vectors that other nodes read, and the products that they consist of."""
    found = {value: Vector((product,)) for value, product in products.items()}
    for node in nodes:
        if node.op_type == "Concat" and (entries := _entries(node, products)) is not None:
            found[node.outputs[0]] = Vector(entries)
        elif node.op_type == "Reshape" and (scalar := _scalar(node, products)) is not None:
            found[node.outputs[0]] = Vector((scalar,), scalar=True)
    for value, vector in found.items():
        if any(use.outputs[0] not in found for use, _ in value.uses()):
            yield value, vector


def _scalar(node: ir.Node, products: Mapping[ir.Value, Product]) -> Product | None:
    """Return the product that a Reshape makes a scalar; None for another Reshape."""
    size, shape = node.inputs
    if size is None or shape is None or shape.const_value is None or shape.const_value.size:
        return None
    return products.get(size)


def _entries(node: ir.Node, products: Mapping[ir.Value, Product]) -> tuple[Product, ...] | None:
    """Return the entries of a Concat of sizes and constants; None for another Concat."""
    entries: list[Product] = []
    for value in node.inputs:
        if value is not None and value in products:
            entries.append(products[value])
        elif value is not None and value.const_value is not None:
            array = value.const_value.numpy()
            if array.ndim != 1 or array.dtype.kind != "i":
                return None
            entries += [Product(int(number)) for number in array]
        else:
            return None
    return tuple(entries) if any(entry.lengths for entry in entries) else None
