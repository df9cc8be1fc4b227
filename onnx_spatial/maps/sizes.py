"""Infer sizes that a graph computes at run time as polynomials, so that differences are constant.

    s = Shape(x); e = 2 - (s[1] mod 2)          pads = [[0, e+2]]      crops = [[0, e]]

`pads - crops` is [[0, 2]] for every size of x; `SymbolicValues.entries` returns both as polynomials.
The rules of ONNX's operators say what a node does, as in proofs, but in a case that never splits:

    proof        is h even?    a case where it is, and a case where it is not
    inference    is h even?    open: a size that depends on it is a new unknown, an integer is an
                               unknown function of what it depends on

All nodes are legal here: a run succeeds. The facts are those of a whole graph, but a question looks at
few: those about no other sizes than the ones that it asks for, and what these are computed from. What
has no rule becomes new unknowns, too: an atom for each dim, and for each element of a small tensor.
Equal functions of equal elements are one atom.

Of a tensor with many elements, or of real ones, only the dims are followed. Sizes are 0 or more; int32
and int64 are treated as one ring: valid sizes are below 2^31, and fit both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import onnx
from onnx import TensorProto

from onnx_spatial.maps import division
from onnx_spatial.maps.cases import MAX_ENTRIES, Case, UndecidedError
from onnx_spatial.maps.elements import Array
from onnx_spatial.maps.facts import Budget, Facts
from onnx_spatial.maps.graph import RULES
from onnx_spatial.maps.node import INTEGERS, WHOLE, NodeView, number
from onnx_spatial.maps.polynomial import (
    FLOOR,
    Atom,
    Index,
    Polynomial,
    top_atoms,
    unknown,
)
from onnx_spatial.maps.tensor import Dims, Tensor, only_dims
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.inference.constant_folding import ConstantScope
from onnx_spatial.model.op_traits import Trait

#: The most sizes near a question: those of a chain of a few roundings.
_MAX_ATOMS = 24

#: Searches without an answer until none is begun any more: a large graph has thousands of questions.
_MAX_FRUITLESS = 256

#: Factors and divisors are below: all strides and blocks of a model together.
_MAX_NUMBER = 1 << 16

#: Steps of the search for an answer, see `Budget`.
_MAX_STEPS = 32


class NearFacts(Facts):
    """Facts of a whole graph, of which a question looks at those near it."""

    def __init__(self) -> None:
        """Begin without facts."""
        super().__init__()
        self._by_youngest: dict[Atom, dict[Polynomial, None]] = {}
        #: For each question, how many facts were near it, and the answer.
        self._answers: dict[Polynomial, tuple[int, bool]] = {}
        self._fruitless = 0

    def __iter__(self) -> Iterator[Polynomial]:
        return (fact for facts in self._by_youngest.values() for fact in facts)

    def add(self, fact: Polynomial) -> None:
        """Add a polynomial that is 0 or more."""
        if fact.constant is None and not fact.nonnegative:
            youngest = max(top_atoms(fact), key=lambda atom: atom.serial)
            self._by_youngest.setdefault(youngest, {}).setdefault(fact)

    def nonnegative(self, p: Polynomial) -> bool:
        """Tell whether `p` is provably 0 or more."""
        if p.constant is not None:
            return p.constant >= 0
        if p.nonnegative:
            return True
        near = _near_atoms(p)
        about = (fact for atom in near for fact in self._by_youngest.get(atom, ()))
        facts = [fact for fact in about if top_atoms(fact) <= near.keys()]
        count, answer = self._answers.get(p, (-1, False))
        if answer or count == len(facts) or self._fruitless > _MAX_FRUITLESS:
            return answer
        answer = self._follows(p, near, facts)
        self._answers[p] = (len(facts), answer)
        return answer

    def _follows(self, p: Polynomial, near: Iterable[Atom], facts: Iterable[Polynomial]) -> bool:
        for atom in near:
            if atom.operation.operator != FLOOR:
                self.samples.define(atom, 0)
        budget = Budget(_MAX_STEPS)
        local = Facts(budget)
        local.samples = self.samples
        for fact in facts:
            local.add(fact)
        answer = local.nonnegative(p)
        self._fruitless += bool(budget.spent and not answer)
        return answer


def _near_atoms(p: Polynomial) -> dict[Atom, None]:
    """Return the atoms of a polynomial, and of the operands of those, up to a number of them."""
    near = dict.fromkeys(top_atoms(p))
    todo = list(near)
    while todo and len(near) < _MAX_ATOMS:
        atom = todo.pop(0)
        inner = [a for q in atom.operation.operands for a in top_atoms(q) if a not in near]
        near.update(dict.fromkeys(inner))
        todo += dict.fromkeys(inner)
    return near


@dataclass(frozen=True, slots=True)
class OpenKey:
    """Key of the atom for a size that is open."""

    case: int
    number: int


class OpenCase(Case):
    """A case that never splits: a question that its facts do not decide stays open."""

    splits = False

    def __init__(self) -> None:
        """Begin with no facts."""
        super().__init__()
        self.facts: NearFacts = NearFacts()

    def _split_by(self, p: Polynomial) -> bool:
        raise UndecidedError("the sign of a number is open")

    def _split_into(self, *_: object) -> NoReturn:
        raise UndecidedError("the value of a number is open")

    def sizes(
        self, compute: Callable[[], tuple[Polynomial, ...]], count: int
    ) -> Sequence[Polynomial]:
        """Return some sizes that a rule computes, or new unknowns, see `is_open`."""
        try:
            return compute()
        except UndecidedError:
            return self.unknown_sizes(count)

    def unknown_sizes(self, count: int) -> list[Polynomial]:
        """Return new unknowns for some sizes."""
        first, self._fresh = self._fresh, self._fresh + count
        keys = (OpenKey(self._serial, first + i) for i in range(count))
        return [Polynomial.atom(key, nonnegative=True) for key in keys]

    @staticmethod
    def is_open(size: Polynomial) -> bool:
        """Tell whether a size is one that a rule left open, or is computed from such."""
        return any(isinstance(atom.key, OpenKey) for atom in top_atoms(size))

    def function(
        self,
        op_type: str,
        details: tuple[Hashable, ...],
        operands: Callable[[], Sequence[Polynomial]],
        compute: Callable[[], Polynomial],
    ) -> Polynomial:
        """Return an integer that a rule computes, or an unknown function of its operands.

        It is computed once: what facts decide later does not change it.
        """
        row = tuple(operands())

        def known_or_unknown() -> Polynomial:
            try:
                return compute()
            except UndecidedError:
                return self._unknown_integer(op_type, details, row)

        return self.once((op_type, details, row), known_or_unknown)

    def _unknown_integer(
        self, op_type: str, details: tuple[Hashable, ...], row: Sequence[Polynomial]
    ) -> Polynomial:
        result = unknown(op_type, details, row)
        is_nonnegative = _NONNEGATIVE.get(op_type)
        if is_nonnegative is not None and is_nonnegative(map(self.surely, row)):
            (atom,) = top_atoms(result)
            result = Polynomial.atom(atom.key, nonnegative=True)
        for operand in row:
            if op_type == "Max":
                self.assume(result - operand)
            elif op_type == "Min":
                self.assume(operand - result)
        return result

    def floor_div(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """Return `a / b` rounded down; `b` is 1 or more.

        Raises:
            UndecidedError: a factor or divisor is large.
        """
        divisor = b.constant or 0
        if divisor < 1:
            return super().floor_div(a, b)
        quotient = Polynomial({m: f // divisor for m, f in a.terms.items()})
        rest = a - quotient * divisor
        if rest.constant is not None:
            return quotient
        if rest.operation.operator == FLOOR:
            inner, by = rest.operation.operands
            return quotient + self.floor_div(inner, by * divisor)
        if max(map(abs, (divisor, *rest.terms.values()))) >= _MAX_NUMBER:
            raise UndecidedError("a factor or divisor is large")
        several = sum(map(bool, rest.terms)) > 1
        if several and any(atom.operation.operator for atom in top_atoms(rest)):
            return super().floor_div(a, b)
        # Nothing bounds one size: only a common factor of all can make the quotient simpler.
        common = math.gcd(divisor, *(f for m, f in rest.terms.items() if m))
        rest = Polynomial({m: f // common for m, f in rest.terms.items()})
        if common == divisor:
            return quotient + rest
        return quotient + division.new_quotient(self.facts, rest, Polynomial.of(divisor // common))

    def divide(self, a: Polynomial, b: Polynomial, what: str) -> Polynomial:
        """Return `a / b`, which is an integer in all runs that succeed."""
        quotient = self.floor_div(a, b)
        self.assume(quotient * b - a)
        return quotient


_TRUTHS = "And Equal Greater GreaterOrEqual Less LessOrEqual Not Or Xor".split()

#: Whether a result is 0 or more, of whether the operands are.
_NONNEGATIVE: dict[str, Callable[[Iterable[bool]], bool]] = {
    **dict.fromkeys(("Abs", *_TRUTHS), lambda operands: True),
    **dict.fromkeys(("Div", "Min"), all),
    "Max": any,
}


#: The real types in which sizes are divided and rounded on the way.
_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE})

#: Operators whose output has the dims of the first input, also those without a rule.
_SAME_SHAPE = op_traits.having(Trait.SAME_SHAPE)

#: Operators whose output has the rank of the first input.
_SAME_RANK = op_traits.having(Trait.SAME_RANK) | {"Concat"}


@dataclass(frozen=True, slots=True)
class ElementKey:
    """Key of the atom for one element of a tensor."""

    scope: ConstantScope
    name: str
    index: int


@dataclass(frozen=True, slots=True)
class DimKey:
    """Key of the atom for one dim of a value."""

    scope: ConstantScope
    name: str
    axis: int


@dataclass(frozen=True, slots=True)
class NamedDimKey:
    """Key of the atom for all dims of one name among the inputs of the main graph."""

    scope: ConstantScope
    name: str


class Entries(NamedTuple):
    """A small tensor: its element type and shape, and its elements in C order."""

    element_type: int
    shape: tuple[int, ...]
    elements: tuple[Polynomial, ...]


class _Value(NamedTuple):
    """What is known of a value: its map, and its elements if they are followed."""

    tensor: Tensor
    entries: Entries | None = None


class _Declared(NamedTuple):
    """What the graph declares of a value; its element type is 0, and its dims are None, if unknown."""

    element_type: int
    dims: tuple[int | str | None, ...] | None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The dims, if all are known numbers."""
        sizes = [d for d in self.dims or () if isinstance(d, int)]
        return tuple(sizes) if self.dims is not None and len(sizes) == len(self.dims) else None

    @property
    def is_small(self) -> bool:
        """Whether the value may be a size or a list of them: an integer, or a real on the way to one."""
        shape = self.shape
        if self.element_type in _FLOATS:
            return shape is not None and len(shape) < 2 and math.prod(shape) <= MAX_ENTRIES
        if self.element_type and self.element_type not in WHOLE:
            return False
        return shape is None or math.prod(shape) <= MAX_ENTRIES


_Key = tuple[ConstantScope, str]


class SymbolicValues:
    """Sizes and small integer tensors that are visible in one graph, as polynomials."""

    def __init__(self, scope: ConstantScope) -> None:
        """Prepare to evaluate the values of `scope`; a value is evaluated when it is asked for.

        Args:
            scope: a graph, with the known types of its values.
        """
        self.case = OpenCase()
        self._scope = scope
        self._values: dict[_Key, _Value | None] = {}
        self._declared: dict[_Key, _Declared] = {}

    def entries(self, name: str) -> tuple[Polynomial, ...] | None:
        """Return the elements, in C order, of an integer tensor of at most 64 elements.

        Returns:
            None if the tensor is larger, of another type, or its number of elements is unknown.
        """
        entries = self.tensor(name)
        return entries.elements if entries is not None else None

    def shape_of_entries(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of the tensor of `entries`; None where that is None."""
        entries = self.tensor(name)
        return entries.shape if entries is not None else None

    def tensor(self, name: str) -> Entries | None:
        """Return an integer tensor with its elements as polynomials; see `entries`."""
        value = self._evaluate_value(name)
        entries = value.entries if value is not None else None
        is_integer = entries is not None and entries.element_type in INTEGERS
        return entries if is_integer else None

    def dims(self, name: str) -> Dims | None:
        """Return the dims of a tensor; None if its rank is unknown."""
        value = self._evaluate_value(name)
        return value.tensor.dims if value is not None else None

    def note(self, name: str, dims: Sequence[Polynomial]) -> None:
        """Set dims of a value that the caller knows better.

        Call it before any query for values that depend on this one: earlier results stay as they
        are. They are true, but cannot be compared with later ones.
        """
        key = self._key(self._scope, name)
        if key is not None:
            before = self._values.get(key)
            entries = None if before is None else before.entries
            self._values[key] = self._unknown_value(key, self._dims_of(key, dims), entries)

    def note_elements(self, name: str, elements: Entries) -> None:
        """Set the elements of a value that the caller knows better; see `note`."""
        key = self._key(self._scope, name)
        if key is not None:
            self._values[key] = self._tabulated(elements)

    def quotient(self, a: Polynomial, b: Polynomial | int) -> Polynomial:
        """Return the size `a / b`, rounded down, as the graph's own divisions of sizes are known."""
        return self.case.floor_div(a, Polynomial.of(0) + b)

    # Evaluation

    def _key(self, scope: ConstantScope, name: str) -> _Key | None:
        owner = scope.owner(name) if name else None
        return (owner, name) if owner is not None else None

    def _type(self, key: _Key) -> _Declared:
        """Return what the graph declares of a value; protobuf takes long to read it."""
        if key not in self._declared:
            known = key[0].type(key[1])
            kind = shape_inference.element_type(known) or 0
            self._declared[key] = _Declared(kind, shape_inference.dims(known))
        return self._declared[key]

    def _evaluate_value(self, name: str) -> _Value | None:
        """Evaluate a value after those that it depends on; in a cycle, values are unknown."""
        key = self._key(self._scope, name)
        if key is None or key in self._values:
            return None if key is None else self._values[key]
        for source in traversal.depth_first(key, self._sources_of, self._values.__contains__):
            self._values[source] = self._evaluate_node(source)
        return self._values[key]

    def _sources_of(self, key: _Key) -> list[_Key]:
        """Return the values that a value depends on."""
        scope, name = key
        small = self._type(key).is_small
        node = self._producer_of(key, small=small)
        if node is None or (small and scope.value(name) is not None):
            return []
        names = node.input[:1] if not small and _keeps_shape(node, name) else node.input
        sources = (self._key(scope, source) for source in names)
        return [source for source in sources if source is not None]

    def _producer_of(self, key: _Key, *, small: bool) -> onnx.NodeProto | None:
        """Return the node that computes a value, if the value is followed through it."""
        scope, name = key
        if not small and self._type(key).shape is not None:
            return None
        node = scope.producer(name)
        if node is None or not op_traits.is_standard(node):
            return None
        if any(attribute.ref_attr_name for attribute in node.attribute):
            return None
        return node if node.op_type in RULES or node.op_type in _SAME_RANK else None

    def _evaluate_node(self, key: _Key) -> _Value | None:
        scope, name = key
        small = self._type(key).is_small
        array = scope.value(name) if small else None
        entries = _entries_of(array) if array is not None else None
        if entries is not None:
            return self._tabulated(entries)
        node = self._producer_of(key, small=small)
        if node is not None and not small and (same := self._unchanged(key, node)) is not None:
            return same
        result = None if node is None else self._map_of_output(key, node, small=small)
        dims = self._dims_of(key, None if result is None else result.dims)
        if small and result is not None and dims is not None:
            entries = self._computed_entries(key, dims, result)
        return self._unknown_value(key, dims, entries)

    def _unchanged(self, key: _Key, node: onnx.NodeProto) -> _Value | None:
        """Return what is known of a node's first input if nothing else is known of its output.

        Most nodes of a large model are such ones: their cost is that of one look at a type.
        """
        scope, name = key
        value = self._input_value(scope, node.input[0]) if _keeps_shape(node, name) else None
        if value is None or value.entries is not None:
            return None
        known, dims = self._type(key), value.tensor.dims
        declared = known.dims or (None,) * len(dims)
        if known.element_type != value.tensor.type or len(declared) != len(dims):
            return None
        pairs = zip(declared, dims, strict=True)
        is_new = any(isinstance(dim, int) and size.constant != dim for dim, size in pairs)
        return None if is_new else value

    def _map_of_output(self, key: _Key, node: onnx.NodeProto, *, small: bool) -> Tensor | None:
        """Return the map of a node's output, or one with its dims alone; None if nothing is known."""
        scope, name = key
        first_alone = not small and _keeps_shape(node, name)
        names = node.input[:1] if first_alone else node.input
        values = [self._input_value(scope, n) for n in names]
        tensors = [value.tensor if value is not None else None for value in values]
        rule = None if first_alone else RULES.get(node.op_type)
        if rule is not None and all(t or not n for n, t in zip(node.input, tensors, strict=True)):
            # It may be open, or break its operator's rules and fail when run.
            with suppress(Exception):
                outputs = rule(self.case, _view(node, tensors, scope))
                return outputs[list(node.output).index(name)]
        first = tensors[0] if tensors and name == node.output[0] else None
        if first is None or node.op_type not in _SAME_RANK:
            return None
        dims = first.dims if _keeps_shape(node, name) else self.case.unknown_sizes(first.rank)
        return only_dims(self.case, dims, "only dims are known")

    def _input_value(self, scope: ConstantScope, name: str) -> _Value | None:
        key = self._key(scope, name)
        if key is None:
            return None
        if key in self._values:
            return self._values[key]
        return self._unknown_value(key, self._dims_of(key))

    def _dims_of(self, key: _Key, inferred: Sequence[Polynomial] | None = None) -> Dims | None:
        """Return the dims of a value: declared numbers, inferred dims, and else new unknowns."""
        scope, name = key
        declared = self._type(key).dims
        if declared is None:
            if inferred is None:
                return None
            declared = (None,) * len(inferred)
        sizes: Sequence[Polynomial | None] = (None,) * len(declared)
        if inferred is not None and len(inferred) == len(declared):
            sizes = [None if self.case.is_open(size) else size for size in inferred]
        dims = []
        for axis, (dim, size) in enumerate(zip(declared, sizes, strict=True)):
            if isinstance(dim, int):
                dims.append(Polynomial.of(dim))
            elif size is not None:
                dims.append(size)
            elif dim is not None and scope.is_fed(name):  # names of other values are not reliable
                dims.append(Polynomial.atom(NamedDimKey(scope, dim), nonnegative=True))
            else:
                dims.append(Polynomial.atom(DimKey(scope, name, axis), nonnegative=True))
        return tuple(dims)

    # Elements

    def _unknown_value(
        self, key: _Key, dims: Dims | None, entries: Entries | None = None
    ) -> _Value | None:
        """Return a value of which the dims are known, and elements if they are listed or few."""
        if entries is not None:
            return self._tabulated(entries)
        if dims is None:
            return None
        element_type, shape = self._type(key).element_type, _small_shape(dims)
        may_be_sizes = element_type in WHOLE or (element_type in _FLOATS and len(dims) < 2)
        if may_be_sizes and shape is not None:
            atoms = (Polynomial.atom(ElementKey(*key, i)) for i in range(math.prod(shape)))
            return self._tabulated(Entries(element_type, shape, tuple(atoms)))
        whole = element_type in WHOLE
        return _Value(Tensor(self.case, dims, _refuse_read, whole=whole, type=element_type))

    def _tabulated(self, entries: Entries) -> _Value:
        """Return a value whose elements are known one by one."""
        table = dict(zip(_all_places(entries.shape), entries.elements, strict=True))
        dims = tuple(map(Polynomial.of, entries.shape))
        kind = entries.element_type
        tensor = Tensor(self.case, dims, table.__getitem__, whole=kind in WHOLE, type=kind)
        return _Value(tensor, entries)

    def _computed_entries(self, key: _Key, dims: Dims, result: Tensor) -> Entries | None:
        """Return the elements of the output of a node, those that are open as unknowns."""
        shape = _small_shape(dims)
        element_type = self._type(key).element_type or result.type
        if shape is None or not element_type:
            return None
        elements = []
        for position, place in enumerate(_all_places(shape)):
            element = Polynomial.atom(ElementKey(*key, position))
            with suppress(Exception):  # as in `_map_of_output`
                element = result.at(place)
            elements.append(element)
        return Entries(element_type, shape, tuple(elements))


def _keeps_shape(node: onnx.NodeProto, output: str) -> bool:
    """Tell whether an output of a node has the dims of its first input."""
    return node.op_type in _SAME_SHAPE and output == node.output[0]


def _view(node: onnx.NodeProto, inputs: Sequence[Tensor | None], scope: ConstantScope) -> NodeView:
    """Return a node of a model that runs, for rules."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return NodeView(node.op_type, attributes, inputs, list(node.output), scope.opset, legal=True)


def _entries_of(value: Array) -> Entries | None:
    """Return the elements of a known array; None if it is large or not numeric."""
    if value.size > MAX_ENTRIES or value.dtype.kind in "OSU":
        return None
    with suppress(KeyError, ValueError):
        element_type = int(onnx.helper.np_dtype_to_tensor_dtype(value.dtype))
        return Entries(element_type, value.shape, tuple(map(number, value.reshape(-1))))
    return None


def _small_shape(dims: Dims) -> tuple[int, ...] | None:
    """Return the shape of a tensor whose elements are followed; None if it is unknown or large."""
    sizes = [size for d in dims if (size := d.constant) is not None]
    return tuple(sizes) if len(sizes) == len(dims) and math.prod(sizes) <= MAX_ENTRIES else None


def _all_places(shape: Sequence[int]) -> Iterator[Index]:
    return itertools.product(*(map(Polynomial.of, range(size)) for size in shape))


def _refuse_read(_: Index) -> Polynomial:
    raise UndecidedError("elements of a large tensor are not followed")
