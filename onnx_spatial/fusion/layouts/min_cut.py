"""Choose between two labels for each of many variables at the least sum of costs."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

_SOURCE, _SINK = "source", "sink"


class LabelChoice:
    """Variables that are 0 or 1, with costs of single ones and of pairs.

    The costs of a pair must not favour different labels (`equal` at most `differ`); where they do, the
    favour is left out. Solved as a minimum cut.
    """

    def __init__(self) -> None:
        self._capacity: dict[Hashable, dict[Hashable, int]] = {_SOURCE: {}, _SINK: {}}

    def single(self, variable: Hashable, zero: int, one: int) -> None:
        """Add the cost of a variable for each label."""
        key = ("variable", variable)
        self._capacity.setdefault(key, {})
        if one > zero:
            self._add(key, _SINK, one - zero)
        elif zero > one:
            self._add(_SOURCE, key, zero - one)

    def pair(self, a: Hashable, b: Hashable, costs: tuple[int, int, int, int]) -> None:
        """Add the costs of a pair with labels 00, 01, 10 and 11."""
        both_zero, only_b, only_a, both_one = costs
        self.single(a, 0, only_a - both_zero)
        self.single(b, 0, both_one - only_a)
        joint = only_b + only_a - both_zero - both_one
        if joint > 0:
            self._add(("variable", b), ("variable", a), joint)

    def solve(self) -> set[Hashable]:
        """Return the variables that are 1."""
        for key, to_variable in self._capacity[_SOURCE].items():
            both = min(to_variable, self._capacity[key].get(_SINK, 0))
            if both:  # most variables have a cost for each label; no search is needed for these
                self._capacity[_SOURCE][key] -= both
                self._capacity[key][_SINK] -= both
        while (path := self._path()) is not None:
            width = min(self._capacity[a][b] for a, b in path)
            for a, b in path:
                self._capacity[a][b] -= width
                self._capacity[b][a] = self._capacity[b].get(a, 0) + width
        reached = self._reached()
        return {key[1] for key in reached if isinstance(key, tuple)}

    def _add(self, a: Hashable, b: Hashable, capacity: int) -> None:
        self._capacity.setdefault(a, {}).setdefault(b, 0)
        self._capacity.setdefault(b, {}).setdefault(a, 0)
        self._capacity[a][b] += capacity

    def _reached(self) -> dict[Hashable, Hashable]:
        """Return what is reached from the source, with the neighbour in front."""
        reached: dict[Hashable, Hashable] = {_SOURCE: _SOURCE}
        todo: deque[Hashable] = deque([_SOURCE])
        while todo:
            key = todo.popleft()
            for other, capacity in self._capacity[key].items():
                if capacity > 0 and other not in reached:
                    reached[other] = key
                    todo.append(other)
        return reached

    def _path(self) -> list[tuple[Hashable, Hashable]] | None:
        reached = self._reached()
        if _SINK not in reached:
            return None
        path: list[tuple[Hashable, Hashable]] = []
        key: Hashable = _SINK
        while key != _SOURCE:
            path.append((reached[key], key))
            key = reached[key]
        return path
