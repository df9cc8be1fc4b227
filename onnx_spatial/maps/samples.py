"""Draw sample values of symbols, which refute most wrong conjectures fast.

A polynomial that is negative at a point where all facts hold does not follow from them, and facts that
hold at a point do not contradict each other. No proof depends on samples.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onnx_spatial.maps.expressions import COMPUTED, LOOKUP
from onnx_spatial.maps.grids import looked_up
from onnx_spatial.maps.polynomial import Atom, OperationKey, Polynomial

Values = npt.NDArray[np.int64]

#: Number of points.
_COUNT = 1024

#: Values of sizes: mostly small ones, some that larger windows fit in.
_SMALL, _MEDIUM, _LARGE = 7, 40, 300


#: Polynomials with factors from here on are not evaluated.
_FAR = 1 << 62


class Samples:
    """Random values of symbols; quotients are computed from them."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._values: dict[Atom, Values] = {}

    def define(self, atom: Atom, least: int, extent: Polynomial | None = None) -> None:
        """Draw values for a symbol: a size of at least `least`, or an index below `extent`."""
        if atom in self._values:
            return
        if extent is None:
            bound = self._rng.choice([_SMALL, _MEDIUM, _LARGE], _COUNT, p=[0.8, 0.15, 0.05])
            values = least + self._rng.integers(0, bound)
        else:
            below = self.evaluate(extent)
            if below is None:
                return
            share = self._rng.random(_COUNT)
            # The first and the last value refute most.
            share = np.where(self._rng.random(_COUNT) < 0.2, np.round(share), share)
            values = np.clip((share * below).astype(np.int64), 0, np.maximum(below - 1, 0))
        self._values[atom] = values

    def is_defined(self, atom: Atom) -> bool:
        """Tell whether a symbol has values."""
        return atom in self._values

    def set(self, atom: Atom, values: Values) -> None:
        """Set the values of an integer that follows from symbols."""
        self._values[atom] = values

    def evaluate(self, p: Polynomial) -> Values | None:
        """Return the value of a polynomial at every point; None if an atom has no samples."""
        total = np.zeros(_COUNT, np.int64)
        for product, factor in p.terms.items():
            if abs(factor) >= _FAR:
                return None
            term: Values | None = None
            for atom in product:
                value = self._value(atom)
                if value is None:
                    return None
                term = value if term is None else term * value
            total += factor if term is None else term * factor
        return total

    def _value(self, atom: Atom) -> Values | None:
        known = self._values.get(atom)
        if known is not None:
            return known
        key = atom.key
        if not isinstance(key, OperationKey) or key.operator not in COMPUTED:
            return None
        operands = [p for q in key.operands if (p := self.evaluate(q)) is not None]
        if len(operands) < len(key.operands):
            return None
        if key.operator == LOOKUP:
            (stored,) = key.details
            result = looked_up(stored.array, operands)  # type: ignore[attr-defined]
        else:
            result = operands[0] // np.maximum(operands[1], 1)
        self._values[atom] = result
        return result
