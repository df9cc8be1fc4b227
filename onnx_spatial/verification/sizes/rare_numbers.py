"""Repeat runs of the original on unusual numbers, the constants of the models among them.

A limit, a threshold or a rounded half shows only where a number meets it:

    large      thousands; all integers of the type
    small      thousandths
    ties       whole numbers and halves, of which many are equal
    sparse     mostly zeros: a small weight matters in a short sum
    shifted    numbers far from zero and close to each other: E[x^2] - E[x]^2 loses their variance
    nans       NaNs with payloads: apart from the others, because a sum with one shows nothing else
    specials   infinities, -0.0, subnormals
    largest    the largest finite numbers, for data that is only moved: what computes may overflow
    constants  numbers of the models (`model_numbers`), their opposites and neighbours
    equal      one number for a whole input, row or channel: what averages it or adds it up meets a
               limit, and a mask has no true element
    limits     constants with which the replacement computes: of all small inputs at once; of single
               integers, which may be sizes or positions, also their neighbours and negative ones
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.arrays import FLOATS, Array, special_patterns
from onnx_spatial.verification.run.data import FEW
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes.model_numbers import DIVIDES, computed_with, may_end_process
from onnx_spatial.verification.sizes.trial_runs import Trial

Spread = Literal[
    "large",
    "small",
    "ties",
    "sparse",
    "shifted",
    "nans",
    "specials",
    "largest",
    "constants",
    "equal",
    "limits",
]
SPREADS: tuple[Spread, ...] = get_args(Spread)

#: Kinds on which the order of operations decides what becomes NaN or infinite.
BEYOND_ARITHMETIC = frozenset[str]({"nans", "specials", "largest"})

#: At least as many as there are special numbers of a type. One of so many numbers is special; of few
#: numbers up to a half.
_SPECIALS = 20
_SPECIALS_ONE_IN = 16
#: One of so many numbers is not zero in sparse data.
_SPARSE_ONE_IN = 16
#: Where shifted numbers lie: float16 still tells them apart.
_SHIFT = 64
#: Integers beyond the shorter types, for values that are no sizes.
_BEYOND = (2**7, 2**8, 2**15, 2**16, 2**24 + 1, 2**31, 2**32 + 1, 2**53 + 1)
#: Elements of all runs on the numbers of one pool: small inputs take several to meet each number.
_ELEMENTS = 2**14
#: Numbers of which an input may consist, besides those of the models (powers of two make sums of binary
#: fractions whole); and least and most turns of it.
_EQUAL = (0.0, 255.0, 16.0, 1000.0, 8.0, 1.0, -1000.0, 2.5)
_EQUAL_TURNS = (16, 32)
#: Runs on limits, of one integer or of all small inputs.
_LIMIT_RUNS = 48
#: The largest limit, and where a node makes a tensor of such a size; elements of that tensor.
_LARGEST_LIMIT, _LARGEST_SIZE, _MOST_MADE = 2**16, 2**12, 2**24
#: Operators whose integers are sizes of the result, or a number of turns.
_MAKES = frozenset(
    "AffineGrid BlackmanWindow CenterCropPad Col2Im ConstantOfShape DFT Expand HammingWindow HannWindow"
    " Loop MaxUnpool MelWeightMatrix OneHot Pad Range Reshape Resize STFT Scan Tile Upsample".split()
)


def runs(
    program: Program,
    trial: Trial,
    kinds: Iterable[Spread],
    numbers: Sequence[float | str],
    seed: int,
    replacement: onnx.ModelProto | None = None,
) -> Iterator[Trial]:
    """Yield successful runs on the sizes of a trial and on unusual numbers.

    Args:
        program: the original.
        trial: the run to repeat; what it was assigned, parameters of operators for example, stays.
        kinds: of numbers.
        numbers: constants of the models.
        seed: of the data.
        replacement: the converted model, which reads the same inputs.
    """
    free = {n: a for n, a in trial.feeds.items() if n not in trial.assignment.values and a.size}
    least = min((a.size for a in free.values()), default=0)
    most = max(1, _ELEMENTS // max(1, sum(a.size for a in free.values())))
    is_data = {n: _is_data(program.flat.graph, n) for n, a in free.items() if _is_whole(a)}
    for kind in kinds:
        if kind == "limits":
            limits = () if replacement is None else _limits(program, free, replacement)
            yield from _successful(program, trial, kind, limits)
            continue
        for turn in range(_turns(kind, least, most, len(numbers))):
            fed: dict[str, Array] = {}
            for position, (name, array) in enumerate(free.items()):
                rng = np.random.default_rng([seed, position, SPREADS.index(kind)])
                changed = _spread(array, kind, rng, turn, numbers, is_data.get(name, True))
                if changed is not None:
                    fed[name] = changed
            if not fed:
                break
            yield from _successful(program, trial, kind, [fed])


def _successful(
    program: Program, trial: Trial, kind: Spread, changed: Iterable[dict[str, Array]]
) -> Iterator[Trial]:
    """Yield the runs of a trial with other inputs that the original accepts."""
    for fed in changed:
        feeds = {**trial.feeds, **fed}
        try:
            yield replace(trial, feeds=feeds, outputs=program.run(feeds), spread=kind)
        except RunFailure:
            continue


def _limits(
    program: Program, free: dict[str, Array], replacement: onnx.ModelProto
) -> Iterator[dict[str, Array]]:
    """Yield inputs that take the constants with which the replacement computes."""
    fed = {n: a for n, a in free.items() if a.dtype.kind in "iuf" and a.dtype.itemsize <= 8}
    found = {n: computed_with(replacement, n) for n in fed}
    both = (program.flat, replacement)
    safe = {n for n in fed if not any(may_end_process(model, n) for model in both)}
    numbers = {
        n: [v for v in c if not isinstance(v, str)]
        for n, c in found.items()
        if c is not None and n in safe
    }
    makes = any(node.op_type in _MAKES for _, _, node in traversal.nodes(program.flat))
    largest = max((a.size for a in free.values()), default=1)
    most = min(_LARGEST_SIZE, _MOST_MADE // max(1, largest)) if makes else _LARGEST_LIMIT

    def legal(array: Array, value: float) -> bool:
        if not _is_whole(array):
            return True
        limits = np.iinfo(array.dtype)
        return abs(value) <= most and limits.min < value <= limits.max

    small = {n: c for n, c in numbers.items() if c and fed[n].size <= FEW}
    for turn in range(max(map(len, small.values()), default=0) if len(small) > 1 else 0):
        chosen = {n: c[turn % len(c)] for n, c in small.items()}
        if all(legal(fed[n], v) for n, v in chosen.items()):
            yield {n: np.full_like(fed[n], v) for n, v in chosen.items()}
    edits = []
    for name, constants in numbers.items():
        if _is_whole(fed[name]):
            whole = [int(v) for v in constants if v == int(v)]
            near = [n for v in whole for n in (v + 1, -v, v - 1, v)]
            values = [v for v in dict.fromkeys([-1, *near, -2]) if legal(fed[name], v)]
            edits += [(i, v, name) for i in range(min(FEW, fed[name].size)) for v in values]
    # A step between two equal numbers does nothing, and usual scalars are equal.
    single = [n for n, a in fed.items() if _is_whole(a) and a.size == 1]
    apart = {n: np.full_like(fed[n], k) for k, n in enumerate(single) if n in safe}
    for index, value, name in sorted(edits, key=lambda e: e[0])[:_LIMIT_RUNS]:
        changed = np.array(fed[name])
        changed.reshape(-1)[index] = value
        yield {name: changed}
        if len(apart) > 1:
            yield {**apart, name: changed}


def _turns(kind: Spread, least: int, most: int, numbers: int) -> int:
    """Return how many runs meet the numbers of a kind, of inputs with so many elements at least."""
    if kind == "equal":
        return int(np.clip(most, *_EQUAL_TURNS))
    pool = {"nans": _SPECIALS, "specials": _SPECIALS, "constants": 6 * (numbers + len(_BEYOND))}
    return min(most, -(-pool.get(kind, 1) // max(1, least // 2)))


def _spread(
    array: Array,
    kind: Spread,
    rng: np.random.Generator,
    turn: int,
    numbers: Sequence[float | str],
    is_data: bool,
) -> Array | None:
    """Return unusual numbers in place of usual ones; None leaves these as they are."""
    if kind in ("constants", "equal") and _is_whole(array) and not is_data:
        return None
    if kind == "equal":
        return _equal(array, rng, turn, numbers)
    if array.dtype == np.bool_:
        single = np.arange(array.size) == rng.integers(array.size)
        return single.reshape(array.shape) if kind == "sparse" else None
    if kind == "constants":
        pool = _pool(array.dtype, numbers)
        taken = np.arange(turn * array.size, (turn + 1) * array.size)
        return (
            None if not pool.size else rng.permutation(pool)[taken % pool.size].reshape(array.shape)
        )
    if array.dtype in FLOATS:
        return _reals(array, kind, rng, turn)
    return _integers(array, kind, rng) if _is_whole(array) else None


def _equal(
    array: Array, rng: np.random.Generator, turn: int, numbers: Sequence[float | str]
) -> Array | None:
    """Return one number again and again: in the whole array, in each row, or in each channel."""
    is_bool = array.dtype == np.bool_
    values = np.array([True, False]) if is_bool else _equals(array.dtype, numbers)
    if not values.size:
        return None
    rank = array.ndim
    # Axes along which the number changes: rows of the last axis, channels behind the batch, and last.
    changing = [set(range(rank - 1)), {0, 1}, {0, rank - 1}] if rank > 1 else []
    layouts = [axes for axes in changing if len(axes) < rank]
    if turn < len(layouts):
        shape = [d if axis in layouts[turn] else 1 for axis, d in enumerate(array.shape)]
        chosen = np.resize(rng.permutation(values), shape)
        return np.array(np.broadcast_to(chosen, array.shape))
    return np.full(array.shape, values[(turn - len(layouts)) % len(values)], array.dtype)


def _equals(dtype: np.dtype[Any], numbers: Sequence[float | str]) -> Array:
    """Return the numbers of a type of which a whole input may consist, the usual ones first."""
    if dtype.kind == "O":
        return np.array([n for n in numbers if isinstance(n, str)], object)
    reals = [n for n in numbers if not isinstance(n, str)]
    own = [m for n in reals for m in (1.5 * n, n)]
    pairs = itertools.zip_longest(_EQUAL, own[::2], own[1::2])
    wanted = dict.fromkeys(n for n in itertools.chain(*pairs) if n is not None)
    if dtype in FLOATS:
        with np.errstate(over="ignore"):
            values = np.array(list(wanted)).astype(dtype)
        return np.asarray(values[np.isfinite(values)])
    if dtype.kind not in "iu" or dtype.itemsize > 8:
        return np.zeros(0, dtype)
    limits = np.iinfo(dtype)
    ends = [limits.max, limits.min + 1] if dtype.itemsize <= 2 else []
    whole = [*ends, *(int(n) for n in wanted if abs(n) < 2**62)]
    fitting = dict.fromkeys(n for n in whole if limits.min < n <= limits.max)
    return np.array(list(fitting), dtype)


def _is_whole(array: Array) -> bool:
    return array.dtype.kind in "iu" and array.dtype.itemsize <= 8


def _integers(array: Array, kind: Spread, rng: np.random.Generator) -> Array | None:
    if kind == "ties":
        return np.asarray(array % 3, array.dtype)
    if kind != "large":
        return None
    if array.size <= FEW:
        return np.asarray(array + 31, array.dtype)
    bits = rng.integers(0, 256, array.nbytes, np.uint8).view(array.dtype).reshape(array.shape)
    if array.dtype.kind == "i":
        # The least number has no opposite: dividing it by -1 kills the process.
        bits[bits == np.iinfo(array.dtype).min] += 1
    return bits


def _reals(array: Array, kind: Spread, rng: np.random.Generator, turn: int) -> Array:
    if kind == "ties":
        return np.asarray(np.rint(array.astype(np.float32) * 2) / 2, array.dtype)
    if kind == "sparse":
        return np.asarray(array * (rng.random(array.shape) < 1 / _SPARSE_ONE_IN), array.dtype)
    if kind == "shifted":
        return np.asarray(array + np.array(_SHIFT, array.dtype), array.dtype)
    if kind in ("nans", "specials", "largest"):
        result = np.array(array).reshape(-1)
        special = _special(array.dtype, kind)
        few = min(len(special), max(1, result.size // 2))
        count = max(few, result.size // _SPECIALS_ONE_IN)
        places = rng.permutation(result.size)[:count]
        chosen = np.roll(rng.permutation(special), -turn * few)
        result.view(special.dtype)[places] = np.resize(chosen, count)
        return result.reshape(array.shape)
    # The sum of a few thousand float16 must still be finite.
    exponent = (3 if array.dtype == np.float16 else 13) * (1 if kind == "large" else -1)
    return np.asarray(array * np.array(2.0**exponent, array.dtype), array.dtype)


def _special(dtype: np.dtype[Any], kind: Spread) -> Array:
    """Return the bit patterns of a kind of special numbers."""
    patterns = special_patterns(dtype)
    values = patterns.view(dtype)
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        nans = np.isnan(values)
        largest = np.abs(values) == np.abs(values[np.isfinite(values)]).max()
    return np.asarray(patterns[{"nans": nans, "largest": largest}.get(kind, ~nans & ~largest)])


def _pool(dtype: np.dtype[Any], numbers: Sequence[float | str]) -> Array:
    """Return the numbers of a type that are near some constants, each once."""
    if dtype.kind == "O":
        return np.array([n for n in numbers if isinstance(n, str)], object)
    values: npt.NDArray[np.float64] = np.array([n for n in numbers if not isinstance(n, str)])
    if dtype in FLOATS:
        with np.errstate(over="ignore"):
            reals = np.concatenate([values, -values]).astype(dtype)
        bits = reals[np.isfinite(reals) & (reals != 0)].view(f"u{dtype.itemsize}")
        near = np.concatenate([bits, bits + 1, bits - 1]).view(dtype)
        return np.unique(np.concatenate([reals, near]))
    if dtype.kind not in "iu":
        return np.zeros(0, dtype)
    whole = {int(v) for v in values if abs(v) < 2**62} | set(_BEYOND)
    near_whole = {s * (n + d) for n in whole for s in (1, -1) for d in (-1, 0, 1)}
    limits = np.iinfo(dtype)
    return np.array(sorted(n for n in near_whole if limits.min < n <= limits.max), dtype)


def _is_data(graph: onnx.GraphProto, name: str) -> bool:
    """Return whether integers are data: no node takes them for sizes, positions or divisors."""
    reached = {name}
    for node in traversal.in_order(graph):
        read = {i for i, n in enumerate(node.input) if n in reached}
        if reached.isdisjoint(traversal.needs(node)):
            continue
        traits = op_traits.of(node).traits
        if Trait.SIZES in traits:
            continue
        elementwise = Trait.UNARY in traits or Trait.BROADCASTS in traits
        divides = node.op_type in DIVIDES and 1 in read
        moved = set(op_traits.moved_inputs(node))
        if Trait.PRODUCTS in traits or node.op_type == "MatMulInteger":
            moved = {0, 1}
        elif Trait.REDUCES in traits or Trait.WINDOWS in traits:
            moved = {0}
        if divides or not (read and (elementwise or read <= moved)):
            return False
        reached.update(node.output)
    return True
