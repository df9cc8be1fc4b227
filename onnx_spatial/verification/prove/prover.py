"""Prove that both sides of a changed part compute the same, for all sizes and values.

    1  both sides as formulas, in every case of sizes, parameters and indices     `formulas`
    2  the formulas are compared, case by case                                    `maps.compare`
    3  where formulas differ: at which sizes to try it, and in words

The work is counted in steps: the same files get the same verdict on every machine, however busy it is.

    Add(Clip(x[i0, i1], 0, 6), b[i1])  and  Add(Relu(x[i0, i1]), b[i1])

    "computes Clip(x, 0, 6), the original Relu(x)", by the innermost expressions that differ

A difference is a case: facts about sizes, parameters and indices, and two elements that are not provably
the same. Small values of its symbols are tried, and those near the constants in its facts; a run there
decides:

    1001 <= H, 1000 <= i < H        H = 1001, i = 1000: an image of 1001 rows
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from onnx_spatial.errors import ModelFileError, OperatorError
from onnx_spatial.maps.cases import Case, IllegalError, UndecidedError
from onnx_spatial.maps.compare import NEVER_RUNS, Comparison, Difference, compare
from onnx_spatial.maps.elements import CONSTANT, PRODUCTS, stored_in
from onnx_spatial.maps.facts import Budget
from onnx_spatial.maps.polynomial import (
    ELEMENT,
    FLOOR,
    INTEGER,
    UNKNOWN_PREFIX,
    Atom,
    IndexKind,
    LiteralKey,
    OperationKey,
    Polynomial,
    Symbol,
    bases_of,
    product,
    show,
    show_place,
)
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.maps.values import Values, evaluate
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.operators.operator import is_countable
from onnx_spatial.verification.evidence import Found, Scope
from onnx_spatial.verification.match.graphs import Computation
from onnx_spatial.verification.match.matches import ChangedPart, Matches, Upstream
from onnx_spatial.verification.options import Array
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.prove.formulas import (
    Formulas,
    integer_symbol,
    size_symbol,
    value_read,
)
from onnx_spatial.verification.values import Kind, describe_element, dtype_of, find_mismatch


@dataclass(frozen=True)
class Trial:
    """Sizes and whole numbers at which the formulas of two parts differ.

    Attributes:
        shapes: of the inputs of the part, by name.
        values: of those inputs that are parameters, by name.
    """

    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Proof:
    """What the prover found out of one changed part.

    Attributes:
        scope: sizes for which it is proven; None if it is not.
        assumptions: what the proof assumes, one sentence each.
        found: what was found instead of a proof; None if it is proven.
        reason: why it is not proven: "gave up: ...", or which formula differs.
        find_trials: finds `trials`.
        wider: the part that the trials are of, up to the inputs of the graph; None: the part itself.
    """

    scope: Scope | None
    assumptions: tuple[str, ...] = ()
    found: Found | None = None
    reason: str = ""
    find_trials: Callable[[], tuple[Trial, ...]] = field(default=tuple, compare=False)
    wider: ChangedPart | None = None

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """Where the formulas differ, the smallest first; a run there decides."""
        return self.find_trials()


#: Assumptions of every proof for all sizes.
STANDING = (
    "every size, of results too, is at least 1 and below 2^27",
    "every tensor has fewer than 2^31 elements",
    "no integer that the original computes is beyond the range of its type",
)


#: Steps of one comparison, and of all of a model. Of the exports of nets, a dilated convolution that
#: tf2onnx wrote in standard nodes takes up to 80,000.
PART_STEPS, MODEL_STEPS = 100_000, 1_000_000


#: The largest rank that is tried where a rank is unknown.
MAX_RANK = 8


#: How often parts are looked for, each time with fewer names that both models have.
_MAX_MATCHES = 4


#: Differences that are looked for: where two functions have different names, they may be the same.
_MAX_DIFFERENCES = 6


class Prover:
    """Prove changed parts of two models.

    Args:
        models: the models.
        matches: how parts go on in front of them.
    """

    def __init__(self, models: ModelPair, matches: Matches) -> None:
        converted = models.converted.holding(matches.converted.model)
        before, after = matches.holders
        self._before = Formulas(models.original, models.domains, True, models.infos, before)
        self._after = Formulas(converted, models.domains, False, None, after)
        self._matches = matches
        self._budget = Budget(MODEL_STEPS)
        self._proofs: dict[Hashable, Proof] = {}

    def prove_all(self, progress: Callable[[str], None]) -> tuple[Matches, list[Proof]]:
        """Prove all changed parts; return them with their proofs.

        A name may mean another value in the converted model: tools use names again. So values that are
        not proven are taken for different ones, and what reads them is compared by what computes them.
        """
        first: tuple[Matches, list[Proof]] | None = None
        matches: Matches | None = self._matches
        for _ in range(_MAX_MATCHES):
            if matches is None:
                break
            self._follow(matches)
            proofs = []
            for number, part in enumerate(matches.changed, start=1):
                progress(f"proof {number}/{len(matches.changed)}: {part.output}")
                proofs.append(self._assuming(part, self._prove_once(part)))
            pairs = zip(matches.changed, proofs, strict=True)
            unproven = [part for part, proof in pairs if proof.scope is None]
            if not unproven and not matches.unmatched and not matches.rest:
                return matches, proofs
            first = first or (matches, proofs)
            matches = matches.renaming(unproven)
        assert first is not None
        matches, proofs = first
        self._follow(matches)
        extended = []
        for number, (part, proof) in enumerate(zip(matches.changed, proofs, strict=True), start=1):
            if proof.scope is None:
                where = f"{number} of {len(proofs)}: {part.output}"
                progress(f"looking for sizes that show the difference, {where}")
            extended.append(self._assuming(part, self._extended(part, proof)))
        return matches, extended

    def _follow(self, matches: Matches) -> None:
        self._matches = matches
        self._before.holders, self._after.holders = matches.holders

    def _assuming(self, part: ChangedPart, proof: Proof) -> Proof:
        """Return a proof with what is assumed of the nodes of the converted model."""
        if proof.scope is None:
            return proof
        added = sorted(self._matches.assumptions(part) - {*proof.assumptions})
        return replace(proof, assumptions=(*proof.assumptions, *added))

    def _extended(self, part: ChangedPart, proof: Proof) -> Proof:
        """Return the proof of a part, or else of one that reaches back to the inputs of its graph."""
        if proof.scope is not None or part.fed:
            return proof
        has_values = any(trial.values for trial in proof.trials)
        if not proof.trials or part.may_be_fed(values=has_values):
            return proof
        # What the part reads may never have these sizes or values in the model: its inputs can.
        wider = self._matches.widened(part)
        if isinstance(wider, ChangedPart):
            of_wider = self._prove_once(wider)
            if of_wider.scope is not None:
                return of_wider
            if of_wider.trials:
                return replace(proof, find_trials=lambda: of_wider.trials, wider=wider)
        return replace(proof, find_trials=tuple) if has_values else proof

    def _prove_once(self, part: ChangedPart) -> Proof:
        """Prove a part, once however often parts are looked for."""
        nodes = (*part.before.nodes, *part.after.nodes)
        # The same name may be another value now to a graph inside a node.
        if any(inside for node in nodes for inside in traversal.subgraphs(node)):
            return self._compare_sides(part)
        key = (part.place, part.output, *map(id, nodes))
        if key not in self._proofs:
            self._proofs[key] = self._compare_sides(part)
        return self._proofs[key]

    def _compare_sides(self, part: ChangedPart) -> Proof:
        """Prove a part by comparing the formulas of both sides."""
        try:
            comparison, ranked = self._of_all_ranks(part)
        except (OperatorError, ModelFileError, UndecidedError) as error:
            return _gave_up(str(error))
        if comparison.equal:
            if part.is_static:
                return Proof("these sizes", comparison.assumptions)
            return Proof("all sizes", (*comparison.assumptions, *STANDING))
        if not comparison.differences:
            tried = partial(trials_of, ranked, comparison.failures)
            return replace(_gave_up(comparison.reason or ""), find_trials=tried)
        reason = difference_in_words(comparison.differences[0], _edited_constant(part))
        tried = partial(trials_of, ranked, comparison.differences)
        return Proof(None, found="other formula", reason=reason, find_trials=tried)

    def _of_all_ranks(self, part: ChangedPart) -> tuple[Comparison, ChangedPart]:
        """Compare a part at every rank that it may have; return the first difference, else the last.

        Returns:
            The comparison, and the part at its rank.
        """
        unknown = [n for n, t in part.inputs.items() if shape_inference.dims(t) is None]
        upstream = self._matches.upstream(part)
        if not unknown:
            return self._at_rank(part, upstream), part
        if upstream is not None and {*unknown} <= {
            *upstream.names
        }:  # what computes them knows ranks
            comparison = self._following(part, upstream)
            if comparison.equal:
                return comparison, part
        if len(unknown) > 1:
            raise UndecidedError(f"the ranks of {unknown[0]!r} and {unknown[1]!r} are unknown")
        (name,) = unknown
        ranks = self._likely_ranks(part, name)
        equal: Comparison | None = None
        for rank in ranks:
            ranked = _with_rank(part, name, rank)
            comparison = self._at_rank(ranked, upstream)
            if comparison.equal:
                equal = comparison
            elif comparison.reason != NEVER_RUNS:
                return comparison, ranked
        comparison = equal or comparison
        assumptions = comparison.assumptions
        if isinstance(ranks, range):
            assumptions = (*assumptions, f"the rank is from {ranks[0]} to {ranks[-1]}")
        return replace(comparison, assumptions=assumptions), ranked

    def _likely_ranks(self, part: ChangedPart, name: str) -> list[int] | range:
        """Return the rank that a value has, by the nodes that read it; else a range of usual ones."""
        least = 1
        for node in part.before.nodes:
            if not node.input or node.input[0] != name:
                continue
            info = self._before.operator(node, part.place)
            if info is not None and info.call is not None:
                if info.call.rank:
                    return [info.call.rank]
                least = max(least, info.call.axes)
            perm = [a.ints for a in node.attribute if a.name == "perm"]
            if node.op_type == "Transpose" and op_traits.is_standard(node) and perm:
                return [len(perm[0])]
        return range(least, max(least, MAX_RANK) + 1)

    def _at_rank(self, part: ChangedPart, upstream: Upstream | None) -> Comparison:
        """Compare a part with free values; then with those that depend on sizes, or on each other."""
        comparison = self._following(part, None)
        if comparison.equal or comparison.reason == NEVER_RUNS or upstream is None:
            return comparison
        return self._following(part, upstream)

    def _following(self, part: ChangedPart, upstream: Upstream | None) -> Comparison:
        """Compare a part that reads some values as the original computes them."""
        case = Case(Budget(PART_STEPS, within=self._budget))
        # Sums of products that became copies of elements are one-hot convolutions.
        case.copies = _count_sums(part.before) != _count_sums(part.after)
        return compare(case, partial(self._maps_of_sides, part, upstream), _MAX_DIFFERENCES)

    def _maps_of_sides(
        self, part: ChangedPart, upstream: Upstream | None, case: Case
    ) -> tuple[Tensor, Tensor] | None:
        """Return the formulas of both sides; None where the original fails."""
        parameters = self._before.parameters(part.before.nodes, part.place)
        inputs: dict[str, Tensor] = {}

        def add_free(types: Mapping[str, onnx.TypeProto]) -> None:
            for name, known in types.items():
                if name not in inputs:
                    known = part.inputs.get(name, known)
                    inputs[name] = value_read(case, name, known, parameters.get(name))

        if upstream is not None:
            add_free(upstream.inputs)
            ahead = self._before.of(case, upstream.part, inputs, part.place)
            for name in upstream.names:
                with suppress(UndecidedError):
                    inputs[name] = ahead.value(name)
        add_free(part.inputs)
        inputs = {name: inputs[name] for name in part.inputs}
        case.counts = [product(t.dims) for t in inputs.values() if not t.whole]
        original = self._before.of(case, part.before, inputs, part.place)
        try:
            before = original.value(part.output)
        except IllegalError:
            return None
        case.counts += [product(t.dims) for t in (before,) if not t.whole]
        return before, self._after.of(case, part.after, inputs, part.place).value(part.output)


def _count_sums(side: Computation) -> int:
    """Return how many nodes of a side are sums of products."""
    return sum(Trait.PRODUCTS in op_traits.of(node).traits for node in side.nodes)


def _edited_constant(part: ChangedPart) -> str:
    """Return the name of the one constant that both sides have with other bytes; "" without one."""
    known = {tensor.name: tensor.SerializeToString() for tensor in part.before.stored}
    edited = [
        tensor.name
        for tensor in part.after.stored
        if known.get(tensor.name, data := tensor.SerializeToString()) != data
    ]
    return edited[0] if len(edited) == 1 else ""


def _gave_up(reason: str) -> Proof:
    return Proof(None, found="gave up", reason=f"gave up: {reason}")


def _with_rank(part: ChangedPart, name: str, rank: int) -> ChangedPart:
    """Return a part with unknown sizes for the value of an unknown rank."""
    element_type = shape_inference.element_type(part.inputs[name]) or 0
    known = onnx.helper.make_tensor_type_proto(element_type, [None] * rank)
    return replace(part, inputs=part.inputs | {name: known})


# Sizes to try

#: Small trials, and elements of the data of the large one (64 MiB of float32).
_SMALL_TRIALS, _MAX_ELEMENTS = 3, 2**24

#: All values of a symbol below this are tried, and the most with those near constants.
_SMALL, _MAX_VALUES = 7, 96
#: The largest value of a symbol, and the most combinations of values that are kept.
_MAX_VALUE, _MAX_ROWS = 1 << 25, 1 << 13


def trials_of(part: ChangedPart, differences: Sequence[Difference]) -> tuple[Trial, ...]:
    """Return some sizes and parameters at which both sides of a part may differ, the smallest first.

    A few small ones, by turns for each difference, and a large one: where a limit is only exceeded far
    behind it, the small ones show nothing.
    """
    tried = [_trials_of(part, each) for each in differences]
    chosen: dict[object, Trial] = {}
    for number in range(_SMALL_TRIALS):
        for small, _ in tried:
            if number < len(small) and len(chosen) < _SMALL_TRIALS:
                chosen.setdefault(_key(small[number]), small[number])
    large = [trial for _, trial in tried if trial is not None]
    if large:
        largest = max(large, key=_count_elements)
        chosen.setdefault(_key(largest), largest)
    return tuple(sorted(chosen.values(), key=_trial_size))


def _trials_of(part: ChangedPart, difference: Difference) -> tuple[list[Trial], Trial | None]:
    """Return the smallest trials for a difference, and the largest of no more than _MAX_ELEMENTS."""
    # A column has the values of one symbol; a row is a solution.
    columns, ones = _solve_difference(difference)
    dims_of = {
        name: [
            ones * dim if isinstance(dim, int) else columns.get(size_symbol(name, axis, dim), ones)
            for axis, dim in enumerate(shape_inference.dims(known) or ())
        ]
        for name, known in part.inputs.items()
    }
    sizes = [size for dims in dims_of.values() for size in dims]
    integers = [column for (kind, _), column in columns.items() if kind == INTEGER]
    counts = [np.prod([ones, *dims], axis=0, dtype=float) for dims in dims_of.values()]
    elements = np.sum([0 * ones, *counts], axis=0)
    sum_of_integers = np.sum([0 * ones, *integers], axis=0)
    _, rows = np.unique(np.stack([ones, *sizes, *integers]), axis=1, return_index=True)
    rows = rows[np.min([ones, *sizes], axis=0)[rows] > 0]
    rows = rows[np.lexsort((rows, sum_of_integers[rows], elements[rows]))]

    def trial_at(row: int) -> Trial:
        shapes = {name: tuple(int(size[row]) for size in dims) for name, dims in dims_of.items()}
        symbols = {key: int(column[row]) for key, column in columns.items()}
        values = {}
        for name, shape in shapes.items():
            numbers = _elements_of(name, shape, symbols)
            if numbers is not None:
                element_type = shape_inference.element_type(part.inputs[name])
                dtype = dtype_of(element_type or onnx.TensorProto.INT64)
                values[name] = np.array(numbers, dtype).reshape(shape)
        return Trial(shapes, values)

    small: dict[object, Trial] = {}
    for trial in map(trial_at, rows):
        if all(map(is_countable, trial.shapes.values())):
            small.setdefault(_key(trial), trial)
        if len(small) == _SMALL_TRIALS:
            break
    rows = rows[elements[rows] <= _MAX_ELEMENTS]
    largest = trial_at(rows[np.argmax(elements[rows])]) if len(rows) else None
    return [*small.values()], largest


def _elements_of(
    name: str, shape: Sequence[int], symbols: Mapping[tuple[Hashable, str], int]
) -> list[int] | None:
    """Return the integers that a part reads from a value; None if they are no part of its formulas."""
    if len(shape) > 2 or math.prod(shape) > _MAX_VALUES:
        return None
    keys = [(INTEGER, integer_symbol(name, index)) for index in np.ndindex(*shape)]
    return [symbols.get(key, 0) for key in keys] if any(key in symbols for key in keys) else None


def _count_elements(trial: Trial) -> int:
    return sum(math.prod(shape) for shape in trial.shapes.values())


def _trial_size(trial: Trial) -> tuple[int, int]:
    return _count_elements(trial), sum(int(a.sum()) for a in trial.values.values())


def _key(trial: Trial) -> object:
    return tuple(trial.shapes.items()), tuple((n, a.tobytes()) for n, a in trial.values.items())


def _solve_difference(
    difference: Difference,
) -> tuple[dict[tuple[Hashable, str], Values], Values]:
    """Return values of the symbols of a difference for which its sides may differ, and as many ones.

    The search is not exhaustive: it combines small values and those near constants.
    """
    try:
        rows, count = _solution_rows(difference, difference.symbols.values())
        ones = np.ones(count, np.int64)
        return {name: ones * evaluate(p, rows) for name, p in difference.symbols.items()}, ones
    except OverflowError:  # the facts hold numbers too large to search
        return {}, np.ones(0, np.int64)


def _solution_rows(
    difference: Difference, sizes: Iterable[Polynomial]
) -> tuple[dict[Atom, Values], int]:
    """Return values of the symbols for which a case holds, and how many: where its sides differ, if any.

    One symbol after the other gets values near the constants of the facts, in all combinations; those
    are kept that meet each fact of which all symbols have values.
    """
    facts = [f for f in difference.case if _is_computable(f)]
    sides = [_coordinates_of(p) for p in _innermost_difference(difference.left, difference.right)]
    read = [*facts, *sides[0], *sides[1], *sizes]
    atoms = sorted({a for p in read for a in bases_of(p)}, key=lambda atom: atom.serial)
    atoms = [a for a in atoms if isinstance(a.key, Symbol)]
    rng = np.random.default_rng(len(atoms))
    columns: dict[Atom, Values] = {}
    count = 1
    for atom in atoms:
        candidates = _values_near(atom, facts)
        columns = {a: np.repeat(values, len(candidates)) for a, values in columns.items()}
        columns[atom] = np.tile(candidates, count)
        holds = np.ones(count * len(candidates), bool)
        for fact in facts:
            bases = bases_of(fact)
            if atom in bases and bases <= columns.keys():
                holds &= np.broadcast_to(_evaluate_rows(fact, columns) >= 0, holds.shape)
        rows = np.flatnonzero(holds)
        if len(rows) > _MAX_ROWS:
            rows = np.sort(rng.choice(rows, _MAX_ROWS, replace=False))
        columns = {a: values[rows] for a, values in columns.items()}
        count = len(rows)
    differs = _rows_that_differ(sides[0], sides[1], columns, count)
    if differs.any():
        columns = {a: values[differs] for a, values in columns.items()}
        count = int(differs.sum())
    return columns, count


def _values_near(atom: Atom, facts: Sequence[Polynomial]) -> Values:
    """Return the values to try for a symbol: small ones, and those at which a fact begins to hold."""
    values = dict.fromkeys(range(_SMALL))
    # A size exceeds an index, and a fact about the index has the constant: 33 <= H from 32 <= i < H.
    bases = [bases_of(fact) for fact in facts]
    linked = {atom, *(a for each in bases if atom in each for a in each if _is_index_symbol(a))}
    for fact in facts:
        constant = abs(fact.terms.get((), 0))
        if constant < _SMALL or linked.isdisjoint(bases_of(fact)):
            continue
        factors = {1, *(abs(f) for product, f in fact.terms.items() if atom in product)}
        for factor in factors:
            values.update(dict.fromkeys(constant // factor + d for d in (0, 1, -1, 2)))
    return np.array([v for v in values if v <= _MAX_VALUE][:_MAX_VALUES], np.int64)


def _rows_that_differ(
    left: Sequence[Polynomial], right: Sequence[Polynomial], rows: Mapping[Atom, Values], count: int
) -> npt.NDArray[np.bool_]:
    """Tell for each row of values whether some coordinates are different there."""
    if len(left) != len(right) or not all(map(_is_computable, (*left, *right))):
        return np.ones(count, np.bool_)
    differs = np.zeros(count, np.bool_)
    for a, b in zip(left, right, strict=True):
        differs |= _evaluate_rows(a, rows) != _evaluate_rows(b, rows)
    return differs


def _coordinates_of(p: Polynomial) -> tuple[Polynomial, ...]:
    """Return the coordinates of an element of the data, or a number itself."""
    is_element = p.operation.operator not in ("", FLOOR)
    return tuple(p.operation.operands) if is_element else (p,)


def _is_index_symbol(atom: Atom) -> bool:
    return isinstance(atom.key, Symbol) and isinstance(atom.key.kind, IndexKind)


def _is_computable(p: Polynomial) -> bool:
    return all(isinstance(atom.key, Symbol) for atom in bases_of(p))


def _evaluate_rows(p: Polynomial, rows: Mapping[Atom, Values]) -> Values:
    with np.errstate(divide="ignore"):
        return evaluate(p, rows)


# The difference in words

#: Characters of an expression, at most.
_MAX_EXPRESSION_LETTERS = 80


def difference_in_words(found: Difference, constant: str = "") -> str:
    """Return how both sides differ, as the rest of a sentence about the converted one.

    `constant` is the name of the one constant that was edited, if there is one.
    """
    if found.index is None:
        return found.message
    left, right = _innermost_difference(found.left, found.right)
    old, new = stored_in(left), stored_in(right)
    if old is not None and new is not None and min(old.array.size, new.array.size) > 1:
        return _other_constant(old.array, new.array, constant)
    original, converted = _Text(indices=False).of(left), _Text(indices=False).of(right)
    if original != converted and all(map(_is_function, (left, right))):
        return f"computes {_shorten_text(converted)}, the original {_shorten_text(original)}"
    original, converted = _Text(indices=True).of(left), _Text(indices=True).of(right)
    if original == converted:
        of_others = "of other values than the original"
        return f"computes {_shorten_text(converted)} {of_others}, at {_slice(found.index)}"
    names_index = re.search(r"\bi\d", converted + original)
    at = f"at {show_place(found.index) if names_index else _slice(found.index)}"
    return f"computes {_shorten_text(converted)} {at}, the original {_shorten_text(original)}"


def _slice(index: Sequence[Polynomial]) -> str:
    """Format an index of which any number may be a part, as numpy does: "[0, :, :]"."""
    return re.sub(r"(?<=[\[ ])i\d+(?=[,\]])", ":", show_place(index))


def _other_constant(expected: Array, actual: Array, name: str) -> str:
    mismatch = find_mismatch(expected, actual, Kind())
    if mismatch is None:
        return "reads other elements of a constant than the original"
    reason, element = (
        f"reads another constant {repr(name) if name else 'than the original'}: {mismatch.reason}",
        mismatch.element,
    )
    if element is None:
        return reason
    place = show_place([*map(Polynomial.of, element)])
    return f"{reason}; {place} {describe_element(expected, actual, element, {})}"


def _innermost_difference(left: Polynomial, right: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Return the innermost expressions that differ, if there is one such pair."""
    while True:
        one, other = left.operation, right.operation
        if one.operator in ("", ELEMENT, CONSTANT):
            return left, right
        if (one.operator, one.details) != (other.operator, other.details):
            return left, right
        pairs = list(zip(one.operands, other.operands, strict=False))
        pairs = [(a, b) for a, b in pairs if a != b]
        if len(one.operands) != len(other.operands) or len(pairs) != 1:
            return left, right
        ((left, right),) = pairs


def _is_function(p: Polynomial) -> bool:
    return p.operation.operator.startswith(UNKNOWN_PREFIX)


class _Text:
    """The text of expressions, with or without the indices of elements."""

    def __init__(self, indices: bool) -> None:
        self._indices = indices

    def of(self, p: Polynomial) -> str:
        """Return the text of an expression."""
        if p.lone_atom is not None:
            return self._atom(p.lone_atom)
        return show(p)

    def _atom(self, atom: Atom) -> str:
        key = atom.key
        if isinstance(key, LiteralKey):
            stored = stored_in(Polynomial({(atom,): 1}))
            return "?" if stored is None else _number_text(stored.array[0])
        if not isinstance(key, OperationKey):
            return show(Polynomial({(atom,): 1}))
        operands = list(key.operands)
        if key.operator in (ELEMENT, CONSTANT):
            name = str(key.details[0]) if key.operator == ELEMENT else "constant"
            return f"{name}{show_place(operands)}" if self._indices else name
        if key.operator == PRODUCTS:
            return f"sum of {self.of(operands[1])} * {self.of(operands[0])}"
        if not key.operator.startswith(UNKNOWN_PREFIX):
            return show(Polynomial({(atom,): 1}))
        kept = [q for q in operands if self._indices or not _is_index(q)]
        named = [d for d in key.details if isinstance(d, tuple) and len(d) == 2]
        attributes = [f"{name}={_attribute_text(value)}" for name, value in named]
        arguments = ", ".join([*map(self.of, kept), *attributes])
        return f"{key.operator.removeprefix(UNKNOWN_PREFIX)}({arguments})"


def _attribute_text(value: object) -> object:
    """Return the text of an attribute; its reals are float32."""
    return _number_text(np.float32(value)) if isinstance(value, float) else value


def _number_text(value: np.floating[Any]) -> str:
    """Return the digits that tell a number from others of its type."""
    short = f"{float(value):.6g}"
    return short if value.dtype.type(short) == value else str(value)


def _is_index(p: Polynomial) -> bool:
    atom = p.lone_atom
    key = atom.key if atom is not None else None
    return isinstance(key, Symbol) and isinstance(key.kind, IndexKind)


def _shorten_text(text: str) -> str:
    return (
        text
        if len(text) <= _MAX_EXPRESSION_LETTERS
        else f"{text[: _MAX_EXPRESSION_LETTERS - 4]} ..."
    )
