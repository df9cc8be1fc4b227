"""Compute with sizes: integers where they are known, polynomials where only the run knows them.

    y = [n / 4, 2 * h, 2 * w, 3]        n, h, w: atoms "length of axis 0, 1, 2 of x"

A `Size` is one dim. Its atoms are what the run reads, lengths of axes and elements of parameters, and
quotients and bounds of such; sums within a product are atoms of their own, so that (h + 2) * (w + 2) is
not multiplied out. Arithmetic emits nothing: `vector` says which sizes a node reads, and `size_writer`
writes these. A size that is unknown has a guess, by which lowerings are priced.

Older opsets lack operators:

    Range             since opset 11      before that NonZero of ones, opset 9
    Where             since opset 9       before that by arithmetic
    Less of integers  since opset 9       before that of doubles
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import groupby

import numpy as np
import onnx_ir as ir

from onnx_spatial.lowering.core import cost_model, size_writer
from onnx_spatial.lowering.core.nodes import NewerOpsetError, NodeList
from onnx_spatial.lowering.core.size_writer import Read, Wanted
from onnx_spatial.maps.polynomial import OperationKey, Polynomial, computed

Size = int | Polynomial

#: Ranges up to this many elements are constants; longer ones are made at run time.
LARGEST_RANGE = 1 << 14

#: Opsets that brought Range, NonZero, Where and Less of integers.
_RANGE, _NON_ZERO, _WHERE, _INTEGER_LESS = 11, 9, 9, 9

#: Size of an unknown dim in estimates.
TYPICAL_DIM = 64

#: The same for a side of an image with one axis, with two, ..: of small images, and of large ones whose
#: rows compete for the lines of a cache, as powers of two do.
_SIDES = ((25600, 65536), (160, 512), (40, 64), (16, 16))


def typical_sides(dims: Sequence[object]) -> tuple[int, ...]:
    """Return estimates of an unknown side of images: the more sides, the shorter.

    Args:
        dims: of the images; a batch, which does not count, is the first.
    """
    unknown = sum(not isinstance(dim, int) for dim in dims[1:])
    return _SIDES[min(max(1, unknown, len(dims) - 2), len(_SIDES)) - 1]


class SizeArithmetic(NodeList):
    """Arithmetic on sizes, and the values of those that nodes read.

    Attributes:
        defers: whether `write_sizes` writes all vectors at once; else each is written when it is named.
    """

    def __init__(self, opset: int, *, defers: bool = False) -> None:
        super().__init__(opset)
        self.defers = defers
        self._guesses_of: dict[Polynomial, tuple[int, ...]] = {}
        self._guess_of: dict[tuple[Polynomial, int], int] = {}
        self._deferred: dict[Wanted, ir.Value] = {}

    # What the run reads.

    def length(self, x: ir.Value, axis: int) -> Size:
        """Return the length of an axis that only the run knows."""
        return Polynomial.atom(Read(x, axis))

    def elements(self, vector: ir.Value, indices: Sequence[int], count: int = 0) -> list[Size]:
        """Return elements of a 1-D int64 value, which has `count` of them if that is known."""
        return [Polynomial.atom(Read(vector, i, count)) for i in indices]

    # Arithmetic.

    def add(self, a: Size, b: Size) -> Size:
        """Return a + b."""
        return _fold_size(a + b)

    def sub(self, a: Size, b: Size) -> Size:
        """Return a - b."""
        return _fold_size(a - b)

    def mul(self, a: Size, b: Size) -> Size:
        """Return a * b."""
        if not isinstance(a, int) and not isinstance(b, int):
            a, b = _as_factor(a), _as_factor(b)
        return _fold_size(a * b)

    def div(self, a: Size, b: Size) -> Size:
        """Return a / b truncated like C; b is never 0."""
        if isinstance(a, int) and isinstance(b, int):
            return a // b if (a >= 0) == (b > 0) else -(-a // b)
        return a if b == 1 else computed("Div", map(_as_polynomial, (a, b)))

    def quotient(self, a: Size, b: Size) -> Size:
        """Return a / b where b >= 1 divides a >= 0; otherwise a size that makes Reshape fail.

        Before allowzero a Reshape copies a dim for a 0, so there it is the next larger quotient.
        """
        if self.opset < 14 and not (isinstance(a, int) and isinstance(b, int)):
            a = self.add(a, self.sub(b, 1))
        return self.div(a, b)

    def max(self, a: Size, b: Size) -> Size:
        """Return the larger of two sizes."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        a, b = (b, a) if isinstance(a, int) else (a, b)
        return computed("Max", map(_as_polynomial, (a, b)))

    def product(self, sizes: Sequence[Size]) -> Size:
        """Return the product of sizes."""
        result: Size = 1
        for size in sizes:
            result = self.mul(result, size)
        return result

    # Estimates.

    def guess(self, size: Size) -> int:
        """Return a size, or an estimate of one that is unknown."""
        if isinstance(size, int):
            return size
        key = (size, self._case)
        if key not in self._guess_of:
            self._guess_of[key] = self._guess_unknown(size)
        return self._guess_of[key]

    def _guess_unknown(self, size: Polynomial) -> int:
        guesses = self._guesses_of.get(size)
        if guesses is not None:
            return guesses[min(self._case, len(guesses) - 1)]
        if size.lone_atom is None:
            return sum(
                factor * math.prod(self.guess(Polynomial({(atom,): 1})) for atom in product)
                for product, factor in size.terms.items()
            )
        key = size.lone_atom.key
        if not isinstance(key, OperationKey):
            return TYPICAL_DIM
        numbers = list(map(self.guess, key.operands))
        if key.operator == "Div":
            return numbers[0] // max(1, numbers[1])
        if key.operator == "Max":
            return max(numbers)
        return sum(numbers) if key.operator == "Add" else math.prod(numbers)

    def note_guesses(self, size: Size, guesses: tuple[int, ...]) -> Size:
        """Record estimates of a size that the run reads, and return the size."""
        if not isinstance(size, int):
            self._guesses_of.setdefault(size, guesses)
        return size

    def weigh_estimates(self, dims: Sequence[Size]) -> None:
        """Price nodes for each estimate of the unknown sizes of an operator's data.

        Times count for each element: large images are not more important than small ones.
        """
        cases = max(len(self._guesses_of.get(d, ())) for d in dims if not isinstance(d, int))
        totals = self.in_each_case(lambda: max(1, self.elements_in(dims)), cases)
        self.weights = tuple(totals[0] / total / cases for total in totals)

    def elements_in(self, dims: Iterable[Size]) -> int:
        """Return the number of elements of a tensor with these dims, or an estimate."""
        return min(cost_model.MAX_SIZE, math.prod(max(0, self.guess(d)) for d in dims))

    # Values.

    def vector(self, sizes: Sequence[Size | ir.Value], hint: str) -> ir.Value:
        """Return a 1-D tensor of sizes; 1-D values among them are joined to it."""
        parts: list[ir.Value] = []
        for is_value, run in groupby(sizes, lambda size: isinstance(size, ir.Value)):
            if is_value:
                parts += [value for value in run if isinstance(value, ir.Value)]
            else:
                parts.append(
                    self._emit_vector([s for s in run if not isinstance(s, ir.Value)], hint)
                )
        if not parts:
            return self.ints([], hint)
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def _emit_vector(self, sizes: Sequence[Size], hint: str) -> ir.Value:
        known = [size for size in sizes if isinstance(size, int)]
        if len(known) == len(sizes):
            return self.ints(known, hint)
        return self._write_wanted(Wanted(tuple(map(_as_polynomial, sizes))))

    def size(self, a: Size, hint: str = "size") -> ir.Value:
        """Return a size as a vector of one element."""
        return self.vector([a], hint)

    def scalar(self, a: Size) -> ir.Value:
        """Return a size as a scalar."""
        if isinstance(a, int):
            return self.constant(np.array(a, np.int64), "size")
        return self._write_wanted(Wanted((a,), scalar=True))

    def _write_wanted(self, wanted: Wanted) -> ir.Value:
        if not self.defers:
            return size_writer.write_sizes(self, [wanted])[0]
        if wanted not in self._deferred:
            # It stands for nodes that are not known before all sizes are.
            sources = size_writer.sources_of(wanted.sizes)
            self._deferred[wanted] = self.op("Sizes", *sources, number=len(self._deferred))
        return self._deferred[wanted]

    def write_sizes(self) -> None:
        """Write the vectors that nodes read, all at once whose sources are there."""
        wanted_of = {value.producer(): wanted for wanted, value in self._deferred.items()}
        while deferred := [node for node in self.nodes if node in wanted_of]:
            place = self.nodes.index(deferred[0])
            later = {output for node in self.nodes[place:] for output in node.outputs}
            ready = [node for node in deferred if later.isdisjoint(node.inputs)]
            self.nodes = [node for node in self.nodes if node not in ready]
            with self.inserted(place):
                values = size_writer.write_sizes(self, [wanted_of[node] for node in ready])
            ir.convenience.replace_all_uses_with([node.outputs[0] for node in ready], values)
            for node in ready:
                for index in range(len(node.inputs)):
                    node.replace_input_with(index, None)

    def shape_of(self, x: ir.Value) -> ir.Value:
        """Return the run-time shape of a value."""
        return self.op("Shape", x)

    def less(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return a < b for int64 values; before opset 9 Less has floats only.

        Doubles round integers beyond 2**53, which changes no comparison with a smaller one.
        """
        if self.opset < _INTEGER_LESS:
            a, b = (self.op("Cast", value, to=int(ir.DataType.DOUBLE)) for value in (a, b))
        return self.op("Less", a, b)

    def where(self, condition: ir.Value, yes: ir.Value, no: ir.Value) -> ir.Value:
        """Return `yes` where the condition holds, else `no`; both are int64."""
        if self.opset >= _WHERE:
            return self.op("Where", condition, yes, no)
        chosen = self.op("Cast", condition, to=int(ir.DataType.INT64))
        return self.op("Add", no, self.op("Mul", chosen, self.op("Sub", yes, no)))

    def sum(self, values: Iterable[ir.Value]) -> ir.Value:
        """Return the sum of values that broadcast, of which there is at least one."""
        return reduce(lambda total, value: self.op("Add", total, value), values)

    def range(self, count: Size, step: int = 1) -> ir.Value:
        """Return 0, step, 2 * step, .. (count elements) as a 1-D int64 value."""
        if isinstance(count, int) and count <= LARGEST_RANGE:
            return self.ints([i * step for i in range(count)], "index")
        if self.opset < _RANGE:
            if self.opset < _NON_ZERO:
                raise NewerOpsetError("indices that are computed at run time", _NON_ZERO)
            one = ir.Attr("value", ir.AttributeType.TENSOR, ir.tensor(np.ones(1, np.int64)))
            ones = self.op("ConstantOfShape", self.size(count), value=one)
            places = self.op("Squeeze", self.op("NonZero", ones), axes=[0])
            return places if step == 1 else self.op("Mul", places, self.ints([step], "step"))
        zero = self.constant(np.array(0, np.int64), "start")
        limit = self.scalar(self.mul(count, step))
        return self.op("Range", zero, limit, self.constant(np.array(step, np.int64), "delta"))


def _fold_size(size: Size) -> Size:
    constant = size if isinstance(size, int) else size.constant
    return size if constant is None else constant


def _as_polynomial(size: Size) -> Polynomial:
    return Polynomial.of(size) if isinstance(size, int) else size


def _as_factor(size: Polynomial) -> Polynomial:
    """Return a number times one product of atoms, in which a sum is an atom."""
    if len(size.terms) == 1:
        return size
    number = math.gcd(*size.terms.values())
    terms = {product: factor // number for product, factor in size.terms.items()}
    return computed("Add", [Polynomial(terms)]) * number
