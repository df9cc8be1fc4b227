"""Compute all sizes of a lowering at once, as vectors, where that takes fewer nodes.

Each size that only the run knows is a node of its own at first, and each shape joins some of them. Most
are products of lengths of one tensor, so a few nodes compute all: the lengths, a Gather for each factor,
their product, and a Split into what is needed.

    Shape -> Add, Div, Max -> Concat [.., 1] -> Gather, Gather -> Mul -> Mul by numbers -> Split
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby

import onnx_ir as ir

from onnx_spatial.lowering.core.nodes import INT64_MAX, NodeList

#: The opsets since which Split has the lengths of its parts as an input, and Shape can give a part.
_SPLIT_INPUT, _SHAPE_PART = 13, 15

#: What Max with it changes nothing.
_LEAST = -(2**62)


@dataclass(frozen=True)
class _Length:
    """Length of an axis, with a number added, divided and not less than another one.

    Attributes:
        source: the value whose axis it is.
        axis: the axis.
        plus, divisor, least: max((length + plus) / divisor, least).
    """

    source: ir.Value
    axis: int
    plus: int = 0
    divisor: int = 1
    least: int = _LEAST


@dataclass(frozen=True)
class _Product:
    """A number times lengths."""

    number: int
    lengths: tuple[_Length, ...] = ()

    def times(self, other: _Product) -> _Product:
        """Return the product of both."""
        return _Product(self.number * other.number, (*self.lengths, *other.lengths))

    @property
    def length(self) -> _Length | None:
        """The only factor, None if it is not alone."""
        return self.lengths[0] if self.number == 1 and len(self.lengths) == 1 else None


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
        parts = _emitted(emit, list(wanted.values()))
    if len(emit.nodes) - count < len(made):
        ir.convenience.replace_all_uses_with(list(wanted), parts)
    emit.prune(output)


def _products(nodes: Sequence[ir.Node]) -> dict[ir.Value, _Product]:
    """Return the sizes of one element that are products of lengths."""
    products: dict[ir.Value, _Product] = {}
    shapes = {n.outputs[0]: n for n in nodes if n.op_type == "Shape" and not n.attributes}
    for node in nodes:
        length = _read(node, shapes)
        product = _product(node, products) if length is None else _Product(1, (length,))
        if product is not None:
            products[node.outputs[0]] = product
    return products


def _product(node: ir.Node, products: Mapping[ir.Value, _Product]) -> _Product | None:
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


def _read(node: ir.Node, shapes: Mapping[ir.Value, ir.Node]) -> _Length | None:
    """Return the length that a node reads: a Shape of one axis, or a Gather of one from `shapes`.

    Shapes that are parameters of the operator are not among these: the lowering must not read what they
    are the shapes of.
    """
    source = node.inputs[0] if node.inputs else None
    if source is None:
        return None
    if node.op_type == "Shape":
        start, end = (node.attributes.get_int(name, -1) for name in ("start", "end"))
        return _Length(source, start) if 0 <= start == end - 1 else None
    if node.op_type != "Gather" or source not in shapes:
        return None
    (x,), index = shapes[source].inputs, node.inputs[1]
    if x is None or index is None or index.const_value is None:
        return None
    places = index.const_value.numpy()
    return _Length(x, int(places[0])) if places.shape == (1,) else None


def _changed(length: _Length, op_type: str, number: int) -> _Product | None:
    """Return a length that a node has added to, divided or bounded, if the order of these allows it."""
    if op_type == "Add" and length.divisor == 1 and length.least == _LEAST:
        plus = length.plus + number
        return _Product(1, (replace(length, plus=plus),)) if abs(plus) <= INT64_MAX else None
    if op_type == "Div" and length.divisor == 1 and length.least == _LEAST and number > 0:
        return _Product(1, (replace(length, divisor=number),))
    if op_type == "Max":
        return _Product(1, (replace(length, least=max(length.least, number)),))
    return None


def _factor(value: ir.Value | None, products: Mapping[ir.Value, _Product]) -> _Product | None:
    """Return a size as a product; a constant must be a vector of one integer."""
    if value is None:
        return None
    if value in products:
        return products[value]
    if value.const_value is None:
        return None
    array = value.const_value.numpy()
    return _Product(int(array[0])) if array.shape == (1,) and array.dtype.kind == "i" else None


def _wanted(
    nodes: Sequence[ir.Node], products: Mapping[ir.Value, _Product]
) -> Iterator[tuple[ir.Value, list[_Product]]]:
    """Yield the vectors that other nodes read, and the products that they consist of."""
    found = {value: [product] for value, product in products.items()}
    for node in nodes:
        if node.op_type == "Concat" and (entries := _entries(node, products)) is not None:
            found[node.outputs[0]] = entries
    for value, entries in found.items():
        if any(use.outputs[0] not in found for use, _ in value.uses()):
            yield value, entries


def _entries(node: ir.Node, products: Mapping[ir.Value, _Product]) -> list[_Product] | None:
    """Return the entries of a Concat of sizes and constants; None for another Concat."""
    entries: list[_Product] = []
    for value in node.inputs:
        if value is not None and value in products:
            entries.append(products[value])
        elif value is not None and value.const_value is not None:
            array = value.const_value.numpy()
            if array.ndim != 1 or array.dtype.kind != "i":
                return None
            entries += [_Product(int(number)) for number in array]
        else:
            return None
    return entries if any(entry.lengths for entry in entries) else None


def _emitted(emit: NodeList, wanted: Sequence[list[_Product]]) -> Sequence[ir.Value]:
    """Emit the nodes that compute some vectors, and return these."""
    entries = [entry for vector in wanted for entry in vector]
    used = dict.fromkeys(length for entry in entries for length in entry.lengths)
    sources = list(dict.fromkeys(length.source for length in used))
    ordered = sorted(used, key=lambda length: (sources.index(length.source), length.axis))
    base, lengths = _base(emit, ordered)
    one = len(lengths)
    rows = [
        [lengths.index(e.lengths[i]) if i < len(e.lengths) else one for e in entries]
        for i in range(max(len(entry.lengths) for entry in entries))
    ]
    if any(one in row for row in rows):
        base = emit.op("Concat", base, emit.ints([1], "one"), axis=0)
    factors = [
        base
        if row == list(range(one))
        else emit.op("Gather", base, emit.ints(row, "places"), axis=0)
        for row in rows
    ]
    total = reduce(lambda one, other: emit.op("Mul", one, other), factors)
    numbers = [entry.number for entry in entries]
    if any(number != 1 for number in numbers):
        total = emit.op("Mul", total, emit.ints(numbers, "numbers"))
    if len(wanted) == 1:
        return [total]
    parts = emit.ints([len(vector) for vector in wanted], "parts")
    return emit.add_node("Split", [total, parts], len(wanted), None, {"axis": 0})


def _base(emit: NodeList, lengths: Sequence[_Length]) -> tuple[ir.Value, list[_Length]]:
    """Emit the vector of some lengths; return it with what its entries are.

    Args:
        emit: collects the nodes.
        lengths: those of each source together, in the order of the axes. Others may be between them.
    """
    shapes = []
    held: list[_Length] = []
    for source, some in groupby(lengths, lambda length: length.source):
        needed = list(some)
        axes = [length.axis for length in needed]
        if emit.opset >= _SHAPE_PART and len({*axes}) == len(axes):
            shapes.append(emit.op("Shape", source, start=axes[0], end=axes[-1] + 1))
            of_axis = dict(zip(axes, needed, strict=True))
            held += [of_axis.get(a, _Length(source, a)) for a in range(axes[0], axes[-1] + 1)]
        else:
            shape = emit.op("Shape", source)
            shapes.append(emit.op("Gather", shape, emit.ints(axes, "axes"), axis=0))
            held += needed
    base = shapes[0] if len(shapes) == 1 else emit.op("Concat", *shapes, axis=0)
    for op_type, numbers, nothing in (
        ("Add", [length.plus for length in held], 0),
        ("Div", [length.divisor for length in held], 1),
        ("Max", [length.least for length in held], _LEAST),
    ):
        if any(number != nothing for number in numbers):
            base = emit.op(op_type, base, emit.ints(numbers, "numbers"))
    return base, held
