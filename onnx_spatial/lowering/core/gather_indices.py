"""Row numbers for a Gather: small constants that add up to the index.

The number of a row is a sum with one term for each axis of the index. A short index is one constant;
of a long one the terms are kept, whose sum runtimes compute when they load. Where a term depends on
sizes that are known at run time only, it is computed there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.core.builder import Emitter, Size

Numbers = npt.NDArray[np.int64]

#: Entries of an index that is stored as it is (int32: 32 KiB).
LONGEST = 1 << 13

#: Entries of an index, at most: runtimes hold it for as long as the model is loaded (64 MiB).
LARGEST = 1 << 24


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
    emit: Emitter, axes: Sequence[Numbers], start: int = 0
) -> tuple[ir.Value, list[Size]]:
    """(the flat index, its dims)

    Args:
        emit: where the nodes go.
        axes: what each entry of each axis adds to the row number, outermost first.
        start: is added to every entry.
    """
    lengths = [len(axis) for axis in axes]
    count = math.prod(lengths)
    check_length(count)
    largest = start + sum(int(axis.max(initial=0)) for axis in axes)
    dtype = np.int32 if largest < 2**31 else np.int64
    if count <= LONGEST or len(axes) < 2:
        return emit.constant((outer_sum(axes) + start).astype(dtype), "rows"), [count]
    cut = min(range(1, len(axes)), key=lambda i: math.prod(lengths[:i]) + math.prod(lengths[i:]))
    column = emit.constant((outer_sum(axes[:cut]) + start).astype(dtype)[:, None], "rows")
    row = emit.constant(outer_sum(axes[cut:]).astype(dtype)[None], "rows")
    table = emit.op("Add", column, row)
    return emit.op("Reshape", table, emit.ints([count], "shape")), [count]


def index(emit: Emitter, terms: Sequence[Term]) -> tuple[ir.Value, list[Size]]:
    """(the index, its dims): flat if all terms are known, else with one axis for each term."""
    if all(term.known for term in terms):
        return constant_index(emit, [term.offsets() for term in terms])
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
        return emit.op(
            "Mul", emit.constant(term.steps.reshape(column), "steps"), emit.size(term.stride)
        )
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


def outer_sum(axes: Iterable[Numbers]) -> Numbers:
    """Every sum of one entry of each axis, the last axis fastest."""
    total = np.zeros(1, np.int64)
    for axis in axes:
        total = np.add.outer(total, axis).reshape(-1)
    return total
