"""Compute with sizes: integers where they are known, polynomials where only the run knows them.

    y = [n / 4, 2 * h, 2 * w, 3]        n, h, w: atoms "length of axis 0, 1, 2 of x"

A `Size` is one dim. Its atoms are what the run reads, lengths of axes and elements of parameters, and
quotients and bounds of such; sums within a product are atoms of their own, so that (h + 2) * (w + 2) is
not multiplied out. Arithmetic emits nothing: `vector` says which sizes a node reads. A size that is
unknown has a guess, by which lowerings are priced.

Sizes that a node reads are written as vectors, in few nodes:

    BatchToSpace of [n, h, w, 3] by 2 x 2 needs the shapes
        [2, 2, n/4, h, w, 3]  and  [n/4, 2 * h, 2 * w, 3]

    lanes     Shape n -> Div;  Shape h, w -> Mul;  Concat        sizes of one form are one vector
    a row     Shape n, h, w -> Div [4, 1, 1] -> Mul [1, 2, 2] -> Concat
    joined    a row -> Gather for each factor -> Mul -> Mul by numbers -> Split for all vectors

A row is a vector of atoms: first of what is read, then of quotients and bounds, each in the place of
what it is made of, while the others stay (they are divided by 1). All vectors that a lowering needs are
drafted in each of these ways, and the choice with the fewest different nodes is emitted.

Older opsets lack operators:

    Range             since opset 11      before that NonZero of ones, opset 9
    Where             since opset 9       before that by arithmetic
    Less of integers  since opset 9       before that of doubles
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from itertools import groupby
from operator import attrgetter, or_

import numpy as np
import onnx_ir as ir

from onnx_spatial.lowering import cost_model
from onnx_spatial.lowering.nodes import SINCE, NewerOpsetError, NodeList
from onnx_spatial.maps.polynomial import Atom, OperationKey, Polynomial, computed

Size = int | Polynomial

#: Ranges, and blocks of zeros, up to this many elements are constants; larger ones are made in the run.
LARGEST_CONSTANT = 1 << 14

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
        if self.opset < SINCE["allowzero"] and not (isinstance(a, int) and isinstance(b, int)):
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

    def vector(self, sizes: Sequence[Size], hint: str) -> ir.Value:
        """Return a 1-D tensor of sizes."""
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
            return write_sizes(self, [wanted])[0]
        if wanted not in self._deferred:
            # A placeholder: `write_sizes` replaces it, when all vectors are known.
            sources = sources_of(wanted.sizes)
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
                values = write_sizes(self, [wanted_of[node] for node in ready])
            ir.convenience.replace_all_uses_with([node.outputs[0] for node in ready], values)
            for node in ready:
                for index in range(len(node.inputs)):
                    node.replace_input_with(index, None)

    def less(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return a < b for int64 values; before opset 9 Less has floats only.

        Doubles round integers beyond 2**53, which changes no comparison with a smaller one.
        """
        if self.opset < SINCE["Less of integers"]:
            a, b = (self.op("Cast", value, to=int(ir.DataType.DOUBLE)) for value in (a, b))
        return self.op("Less", a, b)

    def where(self, condition: ir.Value, yes: ir.Value, no: ir.Value) -> ir.Value:
        """Return `yes` where the condition holds, else `no`; both are int64."""
        if self.opset >= SINCE["Where"]:
            return self.op("Where", condition, yes, no)
        chosen = self.op("Cast", condition, to=int(ir.DataType.INT64))
        return self.op("Add", no, self.op("Mul", chosen, self.op("Sub", yes, no)))

    def range(self, count: Size, step: int = 1) -> ir.Value:
        """Return 0, step, 2 * step, .. (count elements) as a 1-D int64 value."""
        if isinstance(count, int) and count <= LARGEST_CONSTANT:
            return self.ints([i * step for i in range(count)], "index")
        if self.opset < SINCE["Range"]:
            if self.opset < SINCE["NonZero"]:
                raise NewerOpsetError("indices that are computed at run time", SINCE["NonZero"])
            one = ir.AttrTensor("value", ir.tensor(np.ones(1, np.int64)))
            ones = self.op("ConstantOfShape", self.size(count), value=one)
            places = self.op("Squeeze", self.op("NonZero", ones), axes=[0])
            return places if step == 1 else self.op("Mul", places, self.ints([step], "step"))
        zero = self.constant(np.array(0, np.int64), "start")
        limit = self.scalar(self.mul(count, step))
        return self.op("Range", zero, limit, self.constant(np.array(step, np.int64), "delta"))


def _fold_size(size: Size) -> Size:
    """Return a size that is known as an integer."""
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


# Writing sizes as vectors

#: What atoms are sorted by: the oldest first.
_AGE = attrgetter("serial")

#: Operand that changes nothing, of each operator that has two operands.
_NEUTRAL = {"Div": 1, "Max": -(2**62), "Add": 0, "Mul": 1}


@dataclass(frozen=True)
class Read:
    """Key of an atom that the run reads.

    Attributes:
        source: a value.
        place: axis of the value, or place of an element in it.
        count: number of elements of a 1-D value whose element is read, 0 if it is unknown; None for
            the length of an axis.
    """

    source: ir.Value
    place: int
    count: int | None = None


@dataclass(frozen=True)
class Wanted:
    """Sizes that a node reads: a vector, or a scalar of one size."""

    sizes: tuple[Polynomial, ...]
    scalar: bool = False


def write_sizes(emit: NodeList, wanted: Sequence[Wanted]) -> list[ir.Value]:
    """Emit the nodes that compute sizes, each time at least one that is unknown; return the values."""
    draft = _Draft(emit.opset)
    return [draft.emit_part(emit, part) for part in _cheapest_ways(draft, wanted)]


def sources_of(sizes: Iterable[Polynomial]) -> list[ir.Value]:
    """Return the values that sizes are computed from."""
    sources: dict[ir.Value, None] = {}
    todo, seen = list(_atoms(sizes)), set[Atom]()
    while todo:
        atom = todo.pop()
        if atom not in seen:
            seen.add(atom)
            if isinstance(atom.key, Read):
                sources[atom.key.source] = None
            todo += _atoms(_operands(atom))
    return list(sources)


#: A node of a draft by its number, a constant, or a value.
_Part = int | tuple[int, ...] | ir.Value


@dataclass(frozen=True)
class _Row:
    """A vector of atoms."""

    part: _Part
    atoms: tuple[Atom, ...]


class _Draft:
    """Nodes that may be emitted; equal ones are one."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self._nodes: list[tuple[str, tuple[_Part, ...], tuple[tuple[str, int], ...]]] = []
        self._number_of: dict[object, int] = {}
        self._needed_by: list[int] = []
        self._outputs_of: dict[int, tuple[ir.Value, ...]] = {}
        self._forms: dict[object, int] = {}
        self._rows: dict[frozenset[Atom], _Row] = {}

    def op(self, op_type: str, *inputs: _Part, **attributes: int) -> int:
        """Draft a node; one without a type is an output of a Split."""
        node = (op_type, inputs, tuple(attributes.items()))
        if node not in self._number_of:
            self._number_of[node] = len(self._nodes)
            self._needed_by.append(self._needed_nodes(inputs) | (bool(op_type) << len(self._nodes)))
            self._nodes.append(node)
        return self._number_of[node]

    def _needed_nodes(self, parts: Iterable[_Part]) -> int:
        """Return the nodes that compute all these, one bit each."""
        return reduce(or_, (self._needed_by[part] for part in parts if isinstance(part, int)), 0)

    def count_nodes(self, *parts: _Part) -> int:
        """Return how many nodes compute all these."""
        return self._needed_nodes(parts).bit_count()

    def emit_part(self, emit: NodeList, part: _Part) -> ir.Value:
        """Emit a part with all that it needs."""
        if not isinstance(part, int):
            return part if isinstance(part, ir.Value) else emit.ints(part, "sizes")
        op_type, inputs, attributes = self._nodes[part]
        if not op_type:
            (split,), ((_, output),) = inputs, attributes
            assert isinstance(split, int)
            self.emit_part(emit, split)
            return self._outputs_of[split][output]
        if part not in self._outputs_of:
            values = [self.emit_part(emit, source) for source in inputs]
            count = len(inputs[1]) if op_type == "Split" and isinstance(inputs[1], tuple) else 1
            self._outputs_of[part] = emit.add_node(op_type, values, count, None, dict(attributes))
        return self._outputs_of[part][0]

    def concat(self, parts: Iterable[_Part]) -> _Part:
        """Draft the parts behind each other; neighbouring constants are one."""
        pieces: list[_Part] = []
        for part in parts:
            if pieces and isinstance(part, tuple) and isinstance(pieces[-1], tuple):
                pieces[-1] += part
            elif part != ():
                pieces.append(part)
        return pieces[0] if len(pieces) == 1 else self.op("Concat", *pieces, axis=0)

    def scalar(self, part: _Part) -> _Part:
        """Draft the only entry of a vector as a scalar."""
        if isinstance(part, int) and self._nodes[part][0] == "ReduceProd":
            return self.op("ReduceProd", *self._nodes[part][1], keepdims=0)
        return self.op("Reshape", part, ())

    def draft_operation(self, op_type: str, a: _Part, b: _Part) -> _Part:
        """Draft an operation; before opset 12 Max has no int64."""
        if op_type != "Max" or self.opset >= SINCE["Max of integers"]:
            return self.op(op_type, a, b)
        # max(a, b) = (a + b + |a - b|) / 2
        distance = self.op("Abs", self.op("Sub", a, b))
        return self.op("Div", self.op("Add", self.op("Add", a, b), distance), (2,))

    def draft_read(self, atoms: Sequence[Atom]) -> _Part:
        """Draft what is read of one source."""
        keys = [atom.key for atom in atoms if isinstance(atom.key, Read)]
        source: _Part = keys[0].source
        count, places = keys[0].count, tuple(key.place for key in keys)
        if count is None:
            if self.opset >= SINCE["part of Shape"] and places == (
                *range(places[0], places[-1] + 1),
            ):
                return self.op("Shape", source, start=places[0], end=places[-1] + 1)
            source = self.op("Shape", source)
        elif places == (*range(count),):
            return source
        return self.op("Gather", source, places, axis=0)

    # Lanes.

    def draft_apart(self, sizes: Sequence[Polynomial]) -> _Part:
        """Draft a vector as sizes by themselves, of which others may need parts, too."""
        return self.concat(self._draft_lanes([size], products=False) for size in sizes)

    def in_lanes(self, sizes: Sequence[Polynomial]) -> _Part:
        """Draft a vector as lanes of neighbours that have one form."""
        runs = (list(run) for _, run in groupby(sizes, self._form_of))
        return self.concat(map(self._draft_lanes, runs))

    def _form_of(self, p: Polynomial) -> int:
        """Return a number that sizes which are computed by the same nodes have in common."""
        form = tuple(
            (factor < 0, *(self._form_of_atom(atom) for atom in product))
            for product, factor in _ordered_terms(p)
        )
        return self._forms.setdefault(form, len(self._forms))

    def _form_of_atom(self, atom: Atom) -> int:
        key = atom.key
        form: tuple[object, ...] = (
            (key.source, key.count)
            if isinstance(key, Read)
            else (atom.operation.operator, *map(self._form_of, _operands(atom)))
        )
        return self._forms.setdefault(form, len(self._forms))

    def _draft_lanes(self, sizes: Sequence[Polynomial], *, products: bool = True) -> _Part:
        """Draft a vector of sizes of one form; a product at once where that is cheaper."""
        numbers = tuple(p.terms.get((), 0) for p in sizes)
        total: _Part | None = None
        for column in zip(*map(_ordered_terms, sizes), strict=True):
            value = self._draft_products([product for product, _ in column], at_once=products)
            factors = tuple(abs(factor) for _, factor in column)
            if any(factor != 1 for factor in factors):
                value = self.op("Mul", value, factors)
            negative = column[0][1] < 0
            if negative and total is None:
                total, numbers = numbers, ()
            operator = "Sub" if negative else "Add"
            total = value if total is None else self.op(operator, total, value)
        if total is None:
            return numbers
        return self.op("Add", total, numbers) if any(numbers) else total

    def _draft_products(self, products: Sequence[tuple[Atom, ...]], *, at_once: bool) -> _Part:
        """Draft products of as many atoms; `products` has one for each lane."""
        # Sizes of inner axes, which are the youngest, first: strides are products of these.
        columns = zip(*(product[::-1] for product in products), strict=True)
        multiplied = reduce(lambda a, b: self.op("Mul", a, b), map(self._draft_column, columns))
        if not at_once or len(products) > 1 or len(products[0]) < 2:
            return multiplied
        row = self.row(products[0])
        if sorted(map(_AGE, row.atoms)) != sorted(map(_AGE, products[0])):
            return multiplied
        reduced = self.op("ReduceProd", row.part, keepdims=1)
        return min(multiplied, reduced, key=self.count_nodes)

    def _draft_column(self, atoms: Sequence[Atom]) -> _Part:
        """Draft atoms of one form, one for each lane."""
        if isinstance(atoms[0].key, Read):
            return self.draft_read(atoms)
        operands = [self._draft_lanes(lanes) for lanes in zip(*map(_operands, atoms), strict=True)]
        return reduce(
            lambda a, b: self.draft_operation(atoms[0].operation.operator, a, b), operands
        )

    # Rows.

    def row(self, atoms: Iterable[Atom]) -> _Row:
        """Draft a row that holds these atoms, of which there is at least one."""
        wanted = dict.fromkeys(atoms)
        key = frozenset(wanted)
        if key not in self._rows:
            top = max(map(_atom_level, wanted))
            self._rows[key] = (
                self._draft_computed(wanted, top) if top else self._draft_reads(wanted)
            )
        return self._rows[key]

    def _draft_reads(self, atoms: Iterable[Atom]) -> _Row:
        """Draft a row of what is read, and of what is read at once with it."""
        places_of: dict[tuple[ir.Value, int | None], list[int]] = {}
        for atom in sorted(atoms, key=_AGE):
            assert isinstance(atom.key, Read)
            places_of.setdefault((atom.key.source, atom.key.count), []).append(atom.key.place)
        parts: list[_Part] = []
        row_atoms: list[Atom] = []
        for (source, count), wanted_places in places_of.items():
            places = sorted(wanted_places)
            if count:
                places = list(range(count))
            elif count is None and self.opset >= SINCE["part of Shape"]:
                places = list(range(places[0], places[-1] + 1))
            read_atoms = list(_atoms(Polynomial.atom(Read(source, p, count)) for p in places))
            parts.append(self.draft_read(read_atoms))
            row_atoms += read_atoms
        return _Row(self.concat(parts), tuple(row_atoms))

    def _draft_computed(self, wanted: dict[Atom, None], top: int) -> _Row:
        """Draft a row with the atoms of level `top`, which are computed from a row of lower levels.

        Each stands in the place of the first atom that it is computed from. Atoms that stay are kept by
        operands that change nothing: they are divided by 1.
        """
        computed_atoms = [atom for atom in wanted if _atom_level(atom) == top]
        staying = [atom for atom in wanted if atom not in computed_atoms]
        row = self.row([*staying, *_atoms(p for atom in computed_atoms for p in _operands(atom))])
        computed_at: dict[Atom, list[Atom]] = {}
        for atom in computed_atoms:
            sources = _atoms(_operands(atom))
            first_source = next(a for a in row.atoms if a in sources)
            computed_at.setdefault(first_source, []).append(atom)
        row_atoms: list[Atom] = []
        for atom in row.atoms:
            computed_here = computed_at.get(atom, [])
            if atom in wanted or not computed_here:
                row_atoms.append(atom)
            row_atoms += computed_here
        operands_of = [
            _operands(atom) if atom in computed_atoms else (Polynomial({(atom,): 1}),)
            for atom in row_atoms
        ]
        part = self.linear(row, [operands[0] for operands in operands_of])
        for operator, neutral in _NEUTRAL.items():
            second_operands = [
                operands[1]
                if len(operands) > 1 and atom.operation.operator == operator
                else Polynomial.of(neutral)
                for atom, operands in zip(row_atoms, operands_of, strict=True)
            ]
            if any(operand.constant != neutral for operand in second_operands):
                part = self.draft_operation(operator, part, self.linear(row, second_operands))
        return _Row(part, tuple(row_atoms))

    def linear(self, row: _Row, sizes: Sequence[Polynomial]) -> _Part:
        """Draft polynomials of the atoms of a row: the first terms of all at once, then the second."""
        terms_of = [_ordered_terms(p) for p in sizes]
        numbers = [p.terms.get((), 0) for p in sizes]
        if not any(terms_of):
            return tuple(numbers)
        total: _Part | None = None
        for i in range(max(map(len, terms_of))):
            # A size without terms is its number; one with fewer terms than others adds 0 times 1.
            column = [
                terms[i] if i < len(terms) else ((), 0 if i or terms else number)
                for terms, number in zip(terms_of, numbers, strict=True)
            ]
            value = self._draft_gathered(row, [product for product, _ in column])
            factors = tuple(factor for _, factor in column)
            if any(factor != 1 for factor in factors):
                value = self.op("Mul", value, factors)
            total = value if total is None else self.op("Add", total, value)
        assert total is not None
        summands = tuple(n if terms else 0 for terms, n in zip(terms_of, numbers, strict=True))
        return self.op("Add", total, summands) if any(summands) else total

    def _draft_gathered(self, row: _Row, products: Sequence[tuple[Atom, ...]]) -> _Part:
        """Draft products of the atoms of a row, a factor of each at once."""
        degree = max(map(len, products))
        part, count = row.part, len(row.atoms)
        place_of = {atom: place for place, atom in enumerate(row.atoms)}
        place_of_one = count  # behind the atoms, where a product has fewer factors than others
        if any(len(product) < degree for product in products):
            part, count = self.concat([part, (1,)]), count + 1
        factors = []
        for i in range(degree):
            places = tuple(
                place_of[product[i]] if i < len(product) else place_of_one for product in products
            )
            is_whole = places == (*range(count),)
            factors.append(part if is_whole else self.op("Gather", part, places, axis=0))
        return reduce(lambda a, b: self.op("Mul", a, b), factors)

    def between_numbers(self, row: _Row, sizes: Sequence[Polynomial]) -> _Part:
        """Draft a vector as polynomials of a row, with the numbers at its ends."""
        unknown = [place for place, size in enumerate(sizes) if size.constant is None]
        first, behind = unknown[0], unknown[-1] + 1
        before, after = (
            tuple(p.constant or 0 for p in end) for end in (sizes[:first], sizes[behind:])
        )
        return self.concat([before, self.linear(row, sizes[first:behind]), after])

    def draft_joined(self, vectors: Sequence[Sequence[Polynomial]]) -> list[_Part]:
        """Draft several vectors as one, which is split."""
        sizes = [size for vector in vectors for size in vector]
        whole = self.linear(self.row(_atoms(sizes)), sizes)
        if len(vectors) == 1:
            return [whole]
        split = self.op("Split", whole, tuple(map(len, vectors)), axis=0)
        return [self.op("", split, output=i) for i in range(len(vectors))]


def _cheapest_ways(draft: _Draft, wanted: Sequence[Wanted]) -> list[_Part]:
    """Draft sizes in the ways that take the fewest nodes together; return the part of each vector.

    A way of a vector is its part, or None: those with None are joined. The search starts with the
    cheapest way of each by itself, with all sizes apart, and with all joined.
    """
    vectors = [each.sizes for each in wanted]
    row_of_all = draft.row(_atoms(size for vector in vectors for size in vector))
    ways: list[list[_Part | None]] = []
    for vector in vectors:
        alone = [draft.draft_apart(vector), draft.in_lanes(vector)]
        rows = dict.fromkeys((draft.row(_atoms(vector)), row_of_all))
        alone += [draft.between_numbers(row, vector) for row in rows]
        alone = list(dict.fromkeys(alone))
        can_join = len(vectors) > 1 and draft.opset >= SINCE["parts of Split"]
        ways.append([*sorted(alone, key=draft.count_nodes), *([None] if can_join else [])])

    @cache
    def joined(places: tuple[int, ...]) -> list[_Part]:
        """Draft these vectors as one."""
        return draft.draft_joined([vectors[place] for place in places]) if places else []

    def parts_of(choice: tuple[int, ...]) -> list[_Part]:
        """Return the parts of all vectors, for the number of a way for each."""
        chosen = [options[way] for options, way in zip(ways, choice, strict=True)]
        of_joined = iter(joined(tuple(i for i, part in enumerate(chosen) if part is None)))
        parts = (next(of_joined) if part is None else part for part in chosen)
        return [
            draft.scalar(part) if each.scalar else part
            for part, each in zip(parts, wanted, strict=True)
        ]

    @cache
    def cost(choice: tuple[int, ...]) -> int:
        return draft.count_nodes(*parts_of(choice))

    def improved(choice: tuple[int, ...]) -> tuple[int, ...]:
        """Change the way of one vector after the other while that takes fewer nodes."""
        best = choice
        for place, options in enumerate(ways):
            changed = ((*best[:place], way, *best[place + 1 :]) for way in range(len(options)))
            best = min(changed, key=cost)
        return improved(best) if cost(best) < cost(choice) else choice

    apart = [options.index(draft.draft_apart(v)) for options, v in zip(ways, vectors, strict=True)]
    starts = ([0] * len(ways), apart, [len(options) - 1 for options in ways])
    return parts_of(min((improved(tuple(start)) for start in starts), key=cost))


@lru_cache(1 << 12)
def _ordered_terms(p: Polynomial) -> list[tuple[tuple[Atom, ...], int]]:
    """Return the terms but the number, those that are subtracted last."""
    terms = [(product, factor) for product, factor in p.terms.items() if product]
    return sorted(terms, key=lambda term: (term[1] < 0, [atom.serial for atom in term[0]]))


def _atoms(sizes: Iterable[Polynomial]) -> dict[Atom, None]:
    """Return the atoms of sizes in order, each once, but not those inside of them."""
    return {atom: None for p in sizes for product in p.terms for atom in product}


def _operands(atom: Atom) -> tuple[Polynomial, ...]:
    """Return what an atom is computed from, in a fixed order; () if it is read."""
    operands = atom.operation.operands
    return operands if isinstance(operands, tuple) else tuple(sorted(operands, key=repr))


def _atom_level(atom: Atom) -> int:
    """Return how many operations are behind each other in an atom."""
    operands = _operands(atom)
    return 1 + max(map(_atom_level, _atoms(operands)), default=0) if operands else 0
