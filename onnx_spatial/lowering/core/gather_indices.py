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
from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor
from onnx_spatial.lowering.core.cost_model import Work
from onnx_spatial.lowering.core.sizes import LARGEST_RANGE

Numbers = npt.NDArray[np.int64]

#: Entries of an index that is stored as one constant (int32: 32 KiB).
MAX_STORED_ENTRIES = 1 << 13

#: Entries that an Add of rows computes in the time that it takes to begin a row.
_ENTRIES_PER_ROW_START = 32

#: Entries of an index, at most: runtimes hold it for as long as the model is loaded (64 MiB).
MAX_INDEX_ENTRIES = 1 << 24


@dataclass(frozen=True, eq=False)
class Term:
    """One axis of an index: entry i adds steps[i] * stride to the row number.

    Attributes:
        steps: the number of entries, whose steps are 0, step, 2 * step, ..; or their steps, computed in
            the run.
        stride: rows from one step to the next.
        step: see `steps`.
    """

    steps: Size | Tensor
    stride: Size
    step: int = 1

    @property
    def count(self) -> Size:
        """Number of entries."""
        return self.steps.dims[0] if isinstance(self.steps, Tensor) else self.steps

    @property
    def known(self) -> bool:
        """Whether count and stride are known."""
        return isinstance(self.steps, int) and isinstance(self.stride, int)

    def offsets(self) -> Numbers:
        """Return the summand of each entry of a known term."""
        assert isinstance(self.steps, int) and isinstance(self.stride, int)
        check_length(self.steps)
        return np.arange(self.steps, dtype=np.int64) * (self.step * self.stride)


def constant_index(emit: Emitter, axes: Sequence[Numbers], *, wide: bool = False) -> Tensor:
    """Return the flat index.

    Args:
        emit: collects the nodes.
        axes: summands of the row number for the entries of each axis, outermost first.
        wide: whether it must be int64.
    """
    lengths = [len(axis) for axis in axes]
    count = math.prod(lengths)
    check_length(count)
    largest = sum(int(axis.max(initial=0)) for axis in axes)
    dtype = np.int64 if wide or largest >= 2**31 else np.int32
    if count <= MAX_STORED_ENTRIES or len(axes) < 2:
        return emit.tensor(emit.constant(outer_sum(axes).astype(dtype), "rows"), [count])
    cut = min(range(1, len(axes)), key=lambda i: math.prod(lengths[:i]) + math.prod(lengths[i:]))
    column = emit.constant(outer_sum(axes[:cut]).astype(dtype)[:, None], "rows")
    row = emit.constant(outer_sum(axes[cut:]).astype(dtype)[None], "rows")
    dims = [math.prod(lengths[:cut]), math.prod(lengths[cut:])]
    return emit.reshape(emit.tensor(emit.op("Add", column, row), dims), [count])


def index(emit: Emitter, terms: Sequence[Term], *, wide: bool = False) -> Tensor:
    """Return the index: flat if it is a constant, else with one axis for each term, and int64."""
    counts = [term.count for term in terms if term.known and isinstance(term.count, int)]
    if len(counts) == len(terms) and math.prod(counts) <= MAX_INDEX_ENTRIES:
        return constant_index(emit, [term.offsets() for term in terms], wide=wide)
    return computed_index(emit, terms)


def computed_index(emit: Emitter, terms: Sequence[Term]) -> Tensor:
    """Return the index as int64 with one axis for each term that adds anything."""
    terms = [term for term in terms if term.count != 1] or terms[:1]
    dims = [term.count for term in terms]
    columns = [
        _emit_column(emit, term, [-1 if axis == place else 1 for axis in range(len(terms))])
        for place, term in enumerate(terms)
    ]
    return emit.tensor(_sum_columns(emit, columns, dims), dims)


def _sum_columns(emit: Emitter, columns: Sequence[ir.Value], dims: Sequence[Size]) -> ir.Value:
    """Return the sum of one value for each axis, of which only the last Add is large."""
    if len(columns) == 1:
        return columns[0]
    cuts = [(emit.elements_in(dims[:i]), emit.elements_in(dims[i:])) for i in range(len(dims))]
    cut = min(range(1, len(dims)), key=lambda i: cuts[i][0] * _ENTRIES_PER_ROW_START + cuts[i][1])
    parts = (
        _sum_columns(emit, columns[:cut], dims[:cut]),
        _sum_columns(emit, columns[cut:], dims[cut:]),
    )

    def work() -> Work:
        outer, inner = emit.elements_in(dims[:cut]), emit.elements_in(dims[cut:])
        return cost_model.copies("crop", outer, outer * inner * 8)

    return emit.op("Add", *parts, work=work)


def _emit_column(emit: Emitter, term: Term, column: list[int]) -> ir.Value:
    """Return the summands of a term in the shape `column`; the innermost ones may stay 1-D."""
    if term.known:
        return emit.constant(term.offsets().reshape(column), "rows")
    if isinstance(term.steps, Tensor):
        return emit.reshape_to(term.steps.value, column)
    if isinstance(term.stride, int):
        numbers = emit.range(term.count, max(1, term.step * term.stride))  # 0 where all is empty
    elif isinstance(term.count, int) and term.count <= LARGEST_RANGE:
        steps = np.arange(term.count, dtype=np.int64) * term.step
        return emit.op("Mul", emit.constant(steps.reshape(column), "steps"), emit.size(term.stride))
    else:
        numbers = emit.op("Mul", emit.range(term.count, term.step), emit.size(term.stride))
    return numbers if column[-1] == -1 else emit.reshape_to(numbers, column)


def check_length(count: int) -> None:
    """Refuse an index of more than LARGEST entries.

    Raises:
        ConversionError: it has more.
    """
    if count > MAX_INDEX_ENTRIES:
        raise ConversionError(f"it would take an index of {count} entries")


def outer_sum(axes: Iterable[Numbers]) -> Numbers:
    """Return every sum of one entry of each axis, the last axis fastest."""
    total = np.zeros(1, np.int64)
    for axis in axes:
        total = np.add.outer(total, axis).reshape(-1)
    return total
