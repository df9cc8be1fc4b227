"""A value and how far from it float32 arithmetic may end; the table of what evaluates operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class Known:
    """A value and how far from it is still right; slack None means that nothing is."""

    value: np.ndarray
    slack: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def moved(self, move: Callable[[np.ndarray], np.ndarray]) -> Known:
        """The same elements elsewhere; `move` fills with zeros, which are exact."""
        return Known(move(self.value), None if self.slack is None else move(self.slack))


Handler = Callable[[list[Any], dict[str, Any]], Any]

#: What evaluates a node, by the type of its operator.
HANDLERS: dict[str, Handler] = {}


def given(array: np.ndarray) -> Known:
    """An input or constant: exact."""
    if array.dtype.kind == "f":
        return Known(array.astype(np.float64), np.zeros(array.shape))
    return Known(array)


def handler(*op_types: str) -> Callable[[Handler], Handler]:
    """Register what evaluates nodes of these types."""

    def register(function: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(op_types, function))
        return function

    return register


def ints(known: Known) -> list[int]:
    """The elements of a 1-D tensor of integers."""
    return [int(v) for v in known.value.reshape(-1)]


def difference(result: np.ndarray, wanted: Known) -> str | None:
    """What is wrong with a result; None if nothing is."""
    if result.shape != wanted.shape:
        return f"shape {result.shape}, not {wanted.shape}"
    if wanted.slack is None:
        return None if np.array_equal(result, wanted.value) else "integers differ"
    off = np.where(result == wanted.value, 0, np.abs(result.astype(np.float64) - wanted.value))
    wrong = ~(off <= wanted.slack + 1e-30)  # what is not a number is wrong
    if not wrong.any():
        return None
    worst = np.unravel_index(int(np.argmax(np.where(wrong, off, -1))), off.shape)
    return (
        f"{int(wrong.sum())} of {off.size} elements differ; {result[worst]} is not "
        f"{wanted.value[worst]} +- {wanted.slack[worst]:.1e} at {tuple(int(i) for i in worst)}"
    )
