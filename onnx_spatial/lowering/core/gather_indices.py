"""Build the index of a Gather of rows as a sum of one term for each axis of the index.

A short index is one constant; a long one is stored as its terms, which runtimes add when they load. A
term that depends on unknown sizes is computed at run time.
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

#: Entries of an index that is stored as one constant (int32: 32 KiB).
LONGEST = 1 << 13

#: Entries of an index, at most: runtimes hold it for as long as the model is loaded (64 MiB).
LARGEST = 1 << 24


@dataclass(frozen=True, eq=False)
class Term:
    """One axis of an index: entry i adds steps[i] * stride to the row number.

    Attributes:
        steps: one for each entry; or the number of entries, whose steps are 0, step, 2 * step, ..
        stride: rows from one step to the next.
        step: see `steps`.
    """

    steps: Numbers | Size
    stride: Size
    step: int = 1

    @property
    def count(self) -> Size:
        """Number of entries."""
        return len(self.steps) if isinstance(self.steps, np.ndarray) else self.steps

    @property
    def known(self) -> bool:
        """Whether count and stride are known."""
        return isinstance(self.count, int) and isinstance(self.stride, int)

    def offsets(self) -> Numbers:
        """Return the summand of each entry of a known term."""
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
    """Return the flat index and its dims.

    Args:
        emit: collects the nodes.
        axes: summands of the row number for the entries of each axis, outermost first.
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
    """Return the index and its dims: flat if all terms are known, else one axis for each term."""
    if all(term.known for term in terms):
        return constant_index(emit, [term.offsets() for term in terms])
    total = emit.sum(
        _column(emit, term, [-1 if axis == place else 1 for axis in range(len(terms))])
        for place, term in enumerate(terms)
    )
    dims = [term.count for term in terms]
    return emit.tensor(total, dims).value, dims


def _column(emit: Emitter, term: Term, column: list[int]) -> ir.Value:
    """Return the summands of a term in the shape `column`."""
    if term.known:
        return emit.constant(term.offsets().reshape(column), "rows")
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
    """Refuse an index of more than LARGEST entries.

    Raises:
        ConversionError: it has more.
    """
    if count > LARGEST:
        raise ConversionError(f"it would take an index of {count} entries")


def outer_sum(axes: Iterable[Numbers]) -> Numbers:
    """Return every sum of one entry of each axis, the last axis fastest."""
    total = np.zeros(1, np.int64)
    for axis in axes:
        total = np.add.outer(total, axis).reshape(-1)
    return total
