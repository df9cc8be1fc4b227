"""Groups of input dims that share a size, and likely combinations of their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from onnx_spatial.verification.run.data import Assignment
from onnx_spatial.verification.sizes.candidate_sizes import Candidates

#: Combinations that are proposed.
_COMBINATIONS = 8


@dataclass
class SizeGroup:
    """Symbols of input dims that most likely have the same size, and sizes to try, likely ones first."""

    symbols: list[str]
    sizes: list[int]
    is_batch: bool  # the first dims of inputs

    @classmethod
    def of(cls, symbols: Sequence[str], candidates: Candidates) -> SizeGroup:
        """Return the group of some symbols."""
        return cls(list(symbols), candidates.sizes(symbols), candidates.is_batch(symbols))


def proposals(
    groups: Sequence[SizeGroup], sizes: Sequence[Sequence[int]]
) -> Iterator[dict[str, int]]:
    """Likely combinations: a different size for each group, then one for all spatial groups."""
    spatial = [known for known, group in zip(sizes, groups, strict=True) if not group.is_batch]
    common = [s for s in (spatial[0] if spatial else ()) if all(s in known for known in spatial)]
    for turn in range(_COMBINATIONS):
        chosen: dict[str, int] = {}
        position = turn
        for group, known in zip(groups, sizes, strict=True):
            if known:
                index = turn // 2 if group.is_batch else position
                chosen.update(dict.fromkeys(group.symbols, known[index % len(known)]))
            # Two further: another size, and in most lists odd or even like this one.
            position += 0 if group.is_batch else 2
        yield dict(chosen)
        if len(spatial) > 1 and common:
            for group in groups:
                if not group.is_batch:
                    chosen.update(dict.fromkeys(group.symbols, common[turn % len(common)]))
            yield dict(chosen)


def resized(
    assignment: Assignment, groups: Iterable[Sequence[str]], sizes: Iterable[int]
) -> Assignment:
    """Return an assignment with another size for all symbols of each group."""
    changed = {s: size for symbols, size in zip(groups, sizes, strict=True) for s in symbols}
    return replace(assignment, sizes={**assignment.sizes, **changed})
