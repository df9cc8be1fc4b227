"""Row numbers for a Gather: small constants that add up to the index.

The number of a row is a sum with one term for each axis of the index. A short index is one constant;
of a long one the terms are kept, whose sum runtimes compute when they load. Where a term depends on
sizes that are known at run time only, it is computed there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.emit import Emitter, Size

Numbers = npt.NDArray[np.int64]

#: Entries of an index that is stored as it is (int32: 32 KiB).
LONGEST = 1 << 13

#: Entries of an index, at most: runtimes hold it for as long as the model is loaded (64 MiB).
LARGEST = 1 << 24


@dataclass(frozen=True, eq=False)
class IndexAxis:
    """One axis of an index whose terms are known.

    Attributes:
        factors: of the rearrangement that it stands for.
        offsets: what each of its entries adds to the row number.
    """

    factors: tuple[int, ...]
    offsets: Numbers


@dataclass(frozen=True, eq=False)
class Term:
    """One axis of an index, known or not: entry i adds steps[i] * stride.

    Attributes:
        steps: of the entries; how many there are instead, if these are 0, step, 2 * step, ..
        stride: rows from one step to the next.
        step: between entries that are only counted.
    """

    steps: Numbers | Size
    stride: Size
    step: int = 1

    @property
    def count(self) -> Size:
        """Entries."""
        return len(self.steps) if isinstance(self.steps, np.ndarray) else self.steps

    @property
    def known(self) -> bool:
        """Whether all of it is known."""
        return isinstance(self.count, int) and isinstance(self.stride, int)

    def offsets(self) -> Numbers:
        """What each entry adds, if that is known."""
        assert isinstance(self.stride, int)
        steps = self.steps
        if isinstance(steps, int):
            check_length(steps)
            steps = np.arange(steps, dtype=np.int64) * self.step
        assert isinstance(steps, np.ndarray)
        return steps * self.stride


def constant_index(
    emit: Emitter, axes: Sequence[IndexAxis], start: int = 0
) -> tuple[ir.Value, list[Size]]:
    """(the flat index, its dims)

    Args:
        emit: where the nodes go.
        axes: outermost first.
        start: is added to every entry.
    """
    lengths = [len(axis.offsets) for axis in axes]
    count = math.prod(lengths)
    check_length(count)
    largest = start + sum(int(axis.offsets.max(initial=0)) for axis in axes)
    dtype = np.int32 if largest < 2**31 else np.int64
    if count <= LONGEST or len(axes) < 2:
        return emit.constant(_sum(axes, start).astype(dtype), "rows"), [count]
    cut = min(range(1, len(axes)), key=lambda i: math.prod(lengths[:i]) + math.prod(lengths[i:]))
    column = emit.constant(_sum(axes[:cut], start).astype(dtype)[:, None], "rows")
    row = emit.constant(_sum(axes[cut:], 0).astype(dtype)[None], "rows")
    table = emit.op("Add", column, row)
    return emit.op("Reshape", table, emit.ints([count], "shape")), [count]


def index(emit: Emitter, terms: Sequence[Term]) -> tuple[ir.Value, list[Size]]:
    """(the index, its dims): flat if all terms are known, else with one axis for each term."""
    if all(term.known for term in terms):
        return constant_index(emit, [IndexAxis((), term.offsets()) for term in terms])
    total: ir.Value | None = None
    for place, term in enumerate(terms):
        column = [1] * len(terms)
        column[place] = -1
        if term.known:
            value = emit.constant(term.offsets().reshape(column), "rows")
        else:
            value = _at_run_time(emit, term, column)
        total = value if total is None else emit.op("Add", total, value)
    assert total is not None
    dims = [term.count for term in terms]
    return emit.tensor(total, dims).value, dims


def _at_run_time(emit: Emitter, term: Term, column: list[int]) -> ir.Value:
    if isinstance(term.steps, np.ndarray):
        steps = emit.constant(term.steps.reshape(column), "steps")
        if isinstance(term.stride, int):
            return emit.constant(term.offsets().reshape(column), "rows")
        return emit.op("Mul", steps, term.stride)
    if isinstance(term.stride, int):
        numbers = emit.range(term.steps, max(1, term.step * term.stride))  # 0 where all is empty
    else:
        numbers = emit.op("Mul", emit.range(term.steps, term.step), term.stride)
    if len(column) == 1:
        return numbers
    return emit.reshape_to(numbers, column)


def check_length(count: int) -> None:
    """Refuse an index that is too long.

    Raises:
        ConversionError: it is.
    """
    if count > LARGEST:
        raise ConversionError(f"it would take an index of {count} entries")


def _sum(axes: Sequence[IndexAxis], start: int) -> Numbers:
    total = np.full(1, start, np.int64)
    for axis in axes:
        total = np.add.outer(total, axis.offsets).reshape(-1)
    return total
