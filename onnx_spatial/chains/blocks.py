"""Read SpaceToBatch and BatchToSpace off an access form, and say which index map they have.

    y[(r1, r2, n); o1; o2; c] = x[n; 2*o1 + r1 - 1; 2*o2 + r2 - 1; c]     SpaceToBatch, block 2, pads 1

The digits of the batch are the places in the block and the image. BatchToSpace is the same with the
sides swapped. Axes may be in another order on both sides: the operator then stands between Transposes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Generic, TypeVar

from onnx_spatial.chains.access import IN, OUT, Access, Digit, stack_digits
from onnx_spatial.chains.chain_map import ChainMap
from onnx_spatial.chains.formulas import Formula, UnnamedError, write_formula
from onnx_spatial.chains.reading import Division
from onnx_spatial.maps import operators, polynomial
from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.polynomial import ONE, ZERO, Polynomial, show
from onnx_spatial.maps.rules_reshape import transposed
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.operators import BatchToSpace, SpaceToBatch

_T = TypeVar("_T")


@dataclass(frozen=True)
class Blocks(Generic[_T]):
    """A SpaceToBatch or BatchToSpace between Transposes.

    Attributes:
        kind: the operator.
        block: block of each axis behind the batch, up to the last that is blocked, padded or cropped.
        begins, ends: the pads or crops of these axes.
        before: permutation of the axes in front of the operator.
        behind: permutation of the axes behind it.
    """

    kind: type[SpaceToBatch] | type[BatchToSpace]
    block: tuple[int, ...]
    begins: tuple[_T, ...]
    ends: tuple[_T, ...]
    before: tuple[int, ...]
    behind: tuple[int, ...]

    @property
    def transposes(self) -> int:
        """Number of Transposes that are not the identity."""
        return sum(list(perm) != sorted(perm) for perm in (self.before, self.behind))


# Reading


def read(chain: ChainMap, access: Access) -> Iterator[Blocks[Formula]]:
    """Yield the operators that a form may be, with pads by the dims of the chain's values."""
    seen = set[Blocks[Formula]]()
    for found in _block_operators(access):
        try:
            begins, ends = (
                tuple(write_formula(p, chain.dims) for p in amounts)
                for amounts in (found.begins, found.ends)
            )
        except UnnamedError:
            continue
        named = Blocks(found.kind, found.block, begins, ends, found.before, found.behind)
        if named not in seen and all((f.constant or 0) >= 0 for f in (*begins, *ends)):
            seen.add(named)
            yield named


def _block_operators(access: Access) -> Iterator[Blocks[Polynomial]]:
    rank = len(access.dims[OUT])
    if rank != len(access.dims[IN]):
        return
    inverse = access.swapped()
    for batch, images in itertools.product(range(rank), repeat=2):
        for found in (
            _read_kind(SpaceToBatch, access, images, batch),
            _read_kind(BatchToSpace, inverse, batch, images),
        ):
            if found is not None and max(found.block, default=1) > 1:
                yield found


@dataclass(frozen=True)
class _Axis:
    """An axis apart from the batch: that of the cells (None: any of size 1), and that of the sizes."""

    cells: int | None
    size: int
    block: int
    begin: Polynomial


def _read_kind(
    kind: type[SpaceToBatch] | type[BatchToSpace], m: Access, blocked: int, alone: int
) -> Blocks[Polynomial] | None:
    """Read the operator whose blocks and images are along one axis, and images `alone` along another."""
    row, image = stack_digits(m.digits_along(OUT, blocked), OUT), m.digits_along(IN, alone)
    if row is None or m.rests[OUT][blocked] != ZERO or m.rests[IN][alone] != ZERO:
        return None
    if row[: len(image)] != stack_digits(image, IN) or (not image and m.dims[IN][alone] != ONE):
        return None
    places = row[len(image) :]
    axes: list[_Axis] = []
    firsts: dict[int, int] = {}
    for axis in range(len(m.dims[IN])):
        if axis == alone:
            continue
        inner = [d for d in m.digits_along(IN, axis) if d in places]
        outer = [d for d in m.digits_along(IN, axis) if d not in places]
        each = _read_axis(m, axis, inner, outer)
        if each is None or each.cells == blocked:
            return None
        if inner:
            positions = sorted(places.index(d) for d in inner)
            firsts[axis] = positions[0]
            if positions != list(range(positions[0], positions[-1] + 1)):
                return None
        axes.append(each)
    if sum(d.axes[IN] != alone for d in places) != len(places):
        return None
    order = sorted(firsts, key=lambda axis: firsts[axis], reverse=True)
    return _assemble_operator(kind, m, blocked, alone, axes, order)


def _read_axis(
    m: Access, axis: int, inner: Sequence[Digit], outer: Sequence[Digit]
) -> _Axis | None:
    """Read an axis: cell * block + place - begin."""
    count = ONE
    row = stack_digits(inner, IN)
    for each in row or ():
        count = count * each.extent
    targets = {d.axes[OUT] for d in outer}
    block = count.constant
    if row is None or block is None or len(targets) > 1:
        return None
    target = min(targets, default=None)
    begin = -m.rests[IN][axis]
    if target is not None:
        if m.digits_along(OUT, target) != list(outer):
            return None
        if any(d.factors[IN] != d.factors[OUT] * block for d in outer):
            return None
        begin = begin + m.rests[OUT][target] * block
    return _Axis(target, axis, block, begin)


def _assemble_operator(
    kind: type[SpaceToBatch] | type[BatchToSpace],
    m: Access,
    blocked: int,
    alone: int,
    axes: Sequence[_Axis],
    order: Sequence[int],
) -> Blocks[Polynomial] | None:
    """Return the operator with the batch first, and the blocked axes in the order of their places."""
    rank, used = len(m.dims[OUT]), [a.cells for a in axes if a.cells is not None]
    if len(set(used)) != len(used):
        return None
    free = [t for t in range(rank) if t != blocked and t not in used]
    rows: dict[int, tuple[tuple[int, int], int, Polynomial, Polynomial]] = {}
    for each in axes:
        cells = free.pop(0) if each.cells is None else each.cells
        end = m.dims[OUT][cells] * each.block - each.begin - m.dims[IN][each.size]
        pair = (each.size, cells) if kind is SpaceToBatch else (cells, each.size)
        rows[each.size] = (pair, each.block, each.begin, end)
    row = [rows.pop(axis) for axis in order]
    batch, images = (alone, blocked) if kind is SpaceToBatch else (blocked, alone)
    in_order = row == sorted(row, key=itemgetter(0))
    row += sorted(rows.values(), key=itemgetter(0))
    if batch == 0 and in_order:
        row.sort(key=itemgetter(0))
    inputs, outputs = [batch], [images]
    for (source, target), *_ in row:
        inputs.append(source)
        outputs.append(target)
    amounts = [each[1:] for each in row]
    count = max((i + 1 for i, each in enumerate(amounts) if each != (1, ZERO, ZERO)), default=0)
    block, begins, ends = zip(*amounts[:count], strict=True) if count else ((), (), ())
    behind = tuple(outputs.index(axis) for axis in range(rank))
    return Blocks(kind, block, begins, ends, tuple(inputs), behind)


# The index map


def expected(blocks: Blocks[Formula], case: Case, chain: ChainMap) -> Tensor | None:
    """Return the map of the operator on the data of a chain; None where the chain does not run."""
    block, begins, ends = _block_parameters(blocks, case, chain)
    for amount in (*begins, *ends):
        case.require(amount, "a pad or crop may be negative")
    x = transposed(case, chain.x, blocks.before)
    if blocks.kind is BatchToSpace:
        count = polynomial.product(block)
        case.divide(x.dims[0], count, f"{show(x.dims[0])} is divisible by {show(count)}")
        if not chain.may_run():
            return None
        for axis, (b, begin, end) in enumerate(zip(block, begins, ends, strict=True), 1):
            _check_crop(
                case, x.dims[axis] * b - begin - end, chain.y.dims[blocks.behind.index(axis)]
            )
    y = operators.apply(case, blocks.kind, None, x, block, begins, ends)
    return transposed(case, y, blocks.behind) if chain.may_run() else None


def _check_crop(case: Case, left: Polynomial, size: Polynomial) -> None:
    """Require that crops leave what the chain gives: where they leave nothing, an empty tensor."""
    if case.decide(left - 1):
        case.require_equal(left, size, "a crop may differ")
    else:
        case.require(-size, "the operator gives nothing, but the chain does")
        case.assume(left - 1)


def divisions(blocks: Blocks[Formula], case: Case, chain: ChainMap) -> list[Division] | None:
    """Return the padded sizes of a SpaceToBatch and their blocks; None for BatchToSpace.

    BatchToSpace only fuses with the SpaceToBatch that has made the batch a multiple of the blocks.
    """
    if blocks.kind is BatchToSpace:
        return None
    _, begins, ends = _block_parameters(blocks, case, chain)
    sizes = [chain.x.dims[axis] for axis in blocks.before[1:]]
    each = zip(sizes, begins, ends, blocks.block, strict=False)
    return [(size + begin + end, block) for size, begin, end, block in each if block > 1]


def _block_parameters(
    blocks: Blocks[Formula], case: Case, chain: ChainMap
) -> tuple[list[Polynomial], list[Polynomial], list[Polynomial]]:
    sizes = operators.CaseArithmetic(case)
    begins, ends = (
        [sizes.polynomial(amount.compute(sizes, chain.size)) for amount in amounts]
        for amounts in (blocks.begins, blocks.ends)
    )
    return [Polynomial.of(b) for b in blocks.block], begins, ends
