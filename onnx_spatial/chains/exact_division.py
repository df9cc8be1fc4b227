"""Prove that a chain of nodes only runs where numbers divide its sizes.

    Reshape [n, h, w, c] -> [n, h/2, 2, w/2, 2, c]        fails for odd h, because elements would be left

All that may be left of the sizes is tried: either nothing is, or a node fails.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

from onnx_spatial.chains.chain_map import ChainMap
from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.polynomial import Polynomial

#: A size, and the number that divides it.
Division = tuple[Polynomial, int]


def runs_only_divided(
    chain: Callable[[Case], ChainMap],
    divisions: Callable[[Case, ChainMap], Sequence[Division]],
    case: Case,
) -> bool:
    """Return whether a chain provably fails where a number does not divide its size.

    Args:
        chain: returns the map of the chain in a case.
        divisions: returns the sizes, and what divides them.
        case: an empty case.
    """

    def fails_or_divides(now: Case) -> bool:
        mapped = chain(now)
        pairs = divisions(now, mapped)
        try:
            exact = (now.are_equal(now.floor_div(p, Polynomial.of(b)) * b, p) for p, b in pairs)
            if not mapped.runs() or all(exact):
                return True
        except UndecidedError:
            pass  # it may be known where it is known what is left of each size
        left = [now.residue(p, b) for p, b in pairs]
        if any(left):  # then the other sizes may say that a node fails
            for dim, block in itertools.product(mapped.x.dims, {b for _, b in pairs}):
                now.residue(dim, block)
        return not any(left)

    try:
        return all(case.all(partial(fails_or_divides, case)))
    except UndecidedError:
        return False
