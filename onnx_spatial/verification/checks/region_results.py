"""Compare regions once each, and tell a real difference from one at sizes the model never has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.model import traversal
from onnx_spatial.verification.checks.model_pair import ModelPair
from onnx_spatial.verification.checks.region import Compared, Proof, Undecided
from onnx_spatial.verification.compare.reference import Budget
from onnx_spatial.verification.subgraphs.matching_region import MatchingRegion, MatchingRegions


class _Doubt(str):
    """Why nothing is proven: there is a difference that may not matter."""


@dataclass(frozen=True)
class Outcome:
    """The result for a part of a model.

    Attributes:
        proof: compares it in a run of the whole; None if there is no region.
        compared: the comparisons on generated data.
        reason: why there are none.
        doubtful: whether there is a difference that may not matter.
    """

    proof: Proof | None = None
    compared: Sequence[Compared] = ()
    reason: str | None = None
    doubtful: bool = False


class RegionResults:
    """The regions of a model and the results of their comparisons.

    Args:
        regions: finds them.
        models: the two models.
        seed: of the data.
    """

    def __init__(self, regions: MatchingRegions, models: ModelPair, seed: int) -> None:
        self._regions = regions
        self._models = models
        self._seed = seed
        self._budget = Budget()
        self._results: dict[tuple[traversal.Place, str], list[Compared] | str] = {}
        self._unconfirmed: set[tuple[traversal.Place, str]] = set()

    def around(self, info: OperatorInfo) -> list[MatchingRegion] | str:
        """Return the regions of an operator; or why there are none."""
        return self._regions.around(info)

    def is_size(self, name: str, place: traversal.Place) -> bool:
        """Return whether a value may be sizes or amounts by its type."""
        return self._regions.is_size(name, place)

    def proof(self, region: MatchingRegion) -> Proof:
        """Return a region ready to be compared."""
        return Proof(region, self._models, self._seed, self._budget)

    def of(self, region: MatchingRegion) -> list[Compared] | str:
        """Compare a region; or return why that is impossible. Each is compared once."""
        key = (region.place, region.output)
        if key not in self._results:
            compared = self._compared(region)
            if _differs(compared) and not region.settled:
                self._unconfirmed.add(key)
                compared = self._confirmed(region)
            self._results[key] = compared
        return self._results[key]

    def of_value(self, place: traversal.Place, output: str) -> Outcome:
        """Compare the region that leads to a value, on rare numbers as well.

        Rare numbers, because a conversion has no reason to touch these nodes.

        Args:
            place: graph that holds the value.
            output: name of the value.
        """
        region = self._regions.at(place, output)
        if isinstance(region, str):
            return Outcome(reason=region)
        compared = self.of(region)
        if not isinstance(compared, str) and not _differs(compared):
            compared = self._spread(region, compared)
        if isinstance(compared, str):
            doubtful = isinstance(compared, _Doubt | Undecided)
            return Outcome(self.proof(region), (), compared, doubtful)
        return Outcome(self.proof(region), compared)

    def _spread(self, region: MatchingRegion, usual: list[Compared]) -> list[Compared] | str:
        """Add the comparisons on rare numbers."""
        rare = self._on_rare(region)
        differed = (region.place, region.output) in self._unconfirmed  # by its values, maybe
        if not differed and (not _differs(rare) or region.fed):
            return [*usual, *rare]
        wider = self._regions.widened(region)
        rare = [] if isinstance(wider, str) else self._on_rare(wider)
        if isinstance(wider, MatchingRegion) and (wider.fed if _differs(rare) else differed):
            return [*usual, *rare]
        return _Doubt("it differs, but only on values that may never occur in the model")

    def _confirmed(self, region: MatchingRegion) -> list[Compared] | str:
        """Compare from the model's inputs on: the region differs at sizes that may never occur."""
        wider = self._regions.widened(region)
        compared = wider if isinstance(wider, str) else self._compared(wider)
        if isinstance(compared, str):
            return _Doubt(f"it differs at sizes that may never occur in the model, and {compared}")
        if _differs(compared) and isinstance(wider, MatchingRegion) and not wider.settled:
            return _Doubt("it differs, but only at sizes that may never occur in the model")
        return compared

    def _compared(self, region: MatchingRegion) -> list[Compared] | str:
        proof = self.proof(region)
        try:
            return proof.isolated()
        finally:
            proof.close()

    def _on_rare(self, region: MatchingRegion) -> list[Compared]:
        proof = self.proof(region)
        try:
            return proof.spread()
        finally:
            proof.close()


def _differs(compared: list[Compared] | str) -> bool:
    return not isinstance(compared, str) and not all(c.check.passed for c in compared)
