"""Wrong conversions that a comparison on small and usual data misses, by classes.

Every draw comes with data on which it differs from the original, or with the fact that makes it wrong;
`judging.witness` checks the data without the package under test.
"""

from __future__ import annotations

from collections.abc import Callable

import beside_foreign
import damaged_values
import numpy as np
import other_meanings
import overlooked
from drawn import Deception
from nets import Rng

#: Draws of each class: of a generator and a number, which takes its bases in turn.
CLASSES: dict[str, Callable[[Rng, int], Deception | None]] = {
    **damaged_values.CLASSES,
    **other_meanings.CLASSES,
    **overlooked.CLASSES,
    **beside_foreign.CLASSES,
}


def draw(kind: str, number: int, seed: int = 0) -> Deception | None:
    """Draw a wrong conversion of a class; None if the base has no place for it."""
    rng = np.random.default_rng([seed, number, *map(ord, kind)])
    return CLASSES[kind](rng, number)
