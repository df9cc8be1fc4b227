"""Note how the nodes of a chain divide sizes, to read the chain where the divisors divide them.

    rows = (h + 5) / 2        h is read as 2*k - 5: then rows is k, and a Reshape by it is legal

The index maps of many chains are only known where nothing is rounded. A size is then taken for a
multiple of all usual blocks, less what the nodes add before they divide. That is for reading alone: a
proof is of all sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.polynomial import FLOOR, Atom, OperationKey, Polynomial, Symbol, top_atoms

#: A size that is a multiple is one of this number: of every usual product of blocks.
MULTIPLE = 2**8 * 3**4 * 5**2 * 7**2

#: Kind and name of the symbol for a size (`Symbol`).
SizeKey = tuple[str, str]

#: Kinds of the symbols for sizes: those that the model names, and single dims of values.
NAMED, UNNAMED = "size", "dim"

#: The most numbers added to one size that are tried.
_MAX_SUMMANDS = 3


class DividedSizes:
    """The sizes of the data of a chain, each with the numbers that nodes add before they divide it."""

    def __init__(self) -> None:
        self._added: dict[SizeKey, dict[int, None]] = {}

    def note_sizes(self, case: Case, dims: Sequence[Polynomial]) -> None:
        """Note the sizes in the dims of the data, and the quotients that a case knows facts about."""
        for key in filter(None, map(_size_key, (atom for dim in dims for atom in top_atoms(dim)))):
            self._added.setdefault(key, {})
        for fact in case.facts:
            for atom in top_atoms(fact):
                if isinstance(atom.key, OperationKey) and atom.key.operator == FLOOR:
                    self._note_dividend(next(iter(atom.key.operands)))

    def _note_dividend(self, dividend: Polynomial) -> None:
        added = dividend.terms.get((), 0)
        atom = (dividend - added).lone_atom
        key = None if atom is None else _size_key(atom)
        if key in self._added:
            self._added[key].setdefault(added)

    def as_multiples(self) -> Iterator[Mapping[SizeKey, int]]:
        """Yield sizes to take for multiples, and what to subtract: of each alone, then of all."""
        rows = {key: list(added)[:_MAX_SUMMANDS] or [0] for key, added in self._added.items()}
        if len(rows) > 1:
            yield from ({key: less} for key, row in rows.items() for less in row)
        yield from self.all_as_multiples()

    def all_as_multiples(self) -> Iterator[Mapping[SizeKey, int]]:
        """Yield all sizes as multiples, and what to subtract."""
        rows = [(key, list(added)[:_MAX_SUMMANDS] or [0]) for key, added in self._added.items()]
        for place in range(max((len(row) for _, row in rows), default=0)):
            yield {key: row[min(place, len(row) - 1)] for key, row in rows}


def _size_key(atom: Atom) -> SizeKey | None:
    """Return the key of a size; None for other atoms."""
    key = atom.key
    if not isinstance(key, Symbol) or key.kind not in (NAMED, UNNAMED):
        return None
    return str(key.kind), key.name
