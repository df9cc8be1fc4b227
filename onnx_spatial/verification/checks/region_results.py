"""Compare regions once each, and tell a real difference from one at sizes the model never has."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.checks.findings import Proof
from onnx_spatial.verification.checks.region import RegionComparison
from onnx_spatial.verification.checks.region_judge import (
    Compared,
    Doubt,
    NeverRan,
    Overflows,
    Undecided,
    Unreached,
)
from onnx_spatial.verification.compare.reference import Budget
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.runtime.context import Sessions
from onnx_spatial.verification.subgraphs.matched_parts import MatchingRegion, RegionKey
from onnx_spatial.verification.subgraphs.matching_region import MatchingRegions

#: Nodes before a region that may limit its values, at most, one behind the other.
_NODES_BEFORE = 3
_SUMS = Trait.PRODUCTS | Trait.WINDOWS | Trait.ACROSS


@dataclass
class RegionResults:
    """The results of comparing the regions of two models, on data of a seed.

    Attributes:
        proofs: those of regions, by `MatchingRegion.key`.
        differing: keys of the regions that differ on data made for them alone, although the larger
            ones around them may agree.
    """

    regions: MatchingRegions
    models: ModelPair
    seed: int
    proofs: Mapping[RegionKey, Proof] = field(default_factory=dict)
    differing: set[RegionKey] = field(default_factory=set)
    _budget: Budget = field(default_factory=Budget)
    _sessions: Sessions = field(default_factory=dict)
    _results: dict[RegionKey, list[Compared] | str] = field(default_factory=dict)
    _on_rare_too: dict[RegionKey, list[Compared] | str] = field(default_factory=dict)
    _unreached: dict[RegionKey, str] = field(default_factory=dict)
    _unconfirmed: set[RegionKey] = field(default_factory=set)

    def comparison(self, region: MatchingRegion, proof: Proof | None = None) -> RegionComparison:
        """Return a region ready to be compared; `proof` is what is known of it apart from `proofs`."""
        proof = proof or self.proofs.get(region.key)
        proven = _is_proven(proof)
        analysed = self.regions.analysed(region) if proven else None
        return RegionComparison(
            region,
            self.models,
            self.seed,
            self._budget,
            proof=proof,
            analysed=analysed,
            shared=self._sessions,
        )

    def of(self, region: MatchingRegion) -> list[Compared] | str:
        """Compare a region; or return why that is impossible. Each is compared once."""
        key = region.key
        if key not in self._results:
            compared = self._compared(region)
            if _differs(compared) or isinstance(compared, NeverRan):
                self.differing.add(key)
            if _differs(compared) and (larger := self.regions.independent(region)) is not None:
                compared = self._compared(larger)
            if _differs(compared) and not (region.settled or _at_any_size(compared)):
                self._unconfirmed.add(key)
                compared = self._confirmed(region)
            self._results[key] = compared
        return self._results[key]

    def checked(self, region: MatchingRegion) -> list[Compared] | str:
        """Compare a region, also on rare numbers if it is not proven; or say why that is impossible."""
        return (
            self.of(region)
            if _is_proven(self.proofs.get(region.key))
            else self.on_rare_numbers(region)
        )

    def on_rare_numbers(self, region: MatchingRegion) -> list[Compared] | str:
        """Compare a region on usual and rare numbers; or return why that is impossible.

        Rare numbers, where a conversion has no reason to touch the nodes.
        """
        compared = self.of(region)
        if isinstance(compared, str) or _differs(compared):
            return compared
        return self._with_open(region, self._with_rare(region, compared))

    def _with_rare(self, region: MatchingRegion, compared: list[Compared]) -> list[Compared] | str:
        if region.key not in self._on_rare_too:
            self._on_rare_too[region.key] = _decided(self._spread(region, compared))
        return self._on_rare_too[region.key]

    def _spread(self, region: MatchingRegion, usual: list[Compared]) -> list[Compared] | str:
        """Add the comparisons on rare numbers."""
        rare = self._on_rare(region)
        differed = region.key in self._unconfirmed  # by its values, maybe
        if not differed and (not _differs(rare) or region.fed):
            return [*usual, *rare]
        if not differed and (possible := self._on_possible(region)) is not None:
            return [*usual, *possible]
        wider = self.regions.widened(region)
        rare = [] if isinstance(wider, str) else self._on_rare(wider)
        if isinstance(wider, MatchingRegion) and (wider.fed if _differs(rare) else differed):
            return [*usual, *rare]
        return Unreached("it differs, but only on values that may never occur in the model")

    def _on_possible(self, region: MatchingRegion) -> list[Compared] | None:
        """Compare on what the nodes before a region make of rare numbers; None if that differs, too.

        Behind Abs there are no negative numbers, behind Sigmoid none above 1.
        """
        known = {id(node) for node in region.before.nodes}
        deeper = self.regions.deepened(region)
        for _ in range(_NODES_BEFORE):
            # Sums of many products hide a small difference.
            if deeper is None or deeper.sites != region.sites:
                return None
            if any(
                id(n) not in known and op_traits.of(n).traits & _SUMS for n in deeper.before.nodes
            ):
                return None
            rare = self._on_rare(deeper)
            if rare and not _differs(rare):
                return rare
            deeper = self.regions.deepened(deeper)
        return None

    def _confirmed(self, region: MatchingRegion) -> list[Compared] | str:
        """Compare from the model's inputs on: the region differs at sizes that may never occur."""
        wider = self.regions.widened(region)
        compared = wider if isinstance(wider, str) else self._compared(wider, self._widened(region))
        if isinstance(compared, str):
            return Doubt(f"it differs at sizes that may never occur in the model, and {compared}")
        if _differs(compared) and isinstance(wider, MatchingRegion) and not wider.settled:
            return Doubt("it differs, but only at sizes that may never occur in the model")
        return compared

    def _widened(self, region: MatchingRegion) -> Proof | None:
        """Return what is proven of a region from the model's inputs on."""
        proof = self.proofs.get(region.key)
        return proof.widened if proof is not None else None

    def _compared(self, region: MatchingRegion, proof: Proof | None = None) -> list[Compared] | str:
        with closing(self.comparison(region, proof)) as comparison:
            compared = comparison.isolated()
            if comparison.unreached is not None:
                self._unreached[region.key] = comparison.unreached
            return compared

    def _with_open(
        self, region: MatchingRegion, compared: list[Compared] | str
    ) -> list[Compared] | str:
        """Leave a region open where a difference that the prover found could not be run."""
        reason = self._unreached.get(region.key)
        if reason is None or isinstance(compared, str) or _differs(compared):
            return compared
        return compared if _is_proven(self._widened(region)) else Unreached(reason)

    def _on_rare(self, region: MatchingRegion) -> list[Compared]:
        with closing(self.comparison(region)) as comparison:
            return comparison.spread()


def _is_proven(proof: Proof | None) -> bool:
    return proof is not None and proof.scope != "sampled"


def _differs(compared: list[Compared] | str) -> bool:
    return not isinstance(compared, str) and not all(
        c.check.passed or c.undecided for c in compared
    )


def _at_any_size(compared: list[Compared] | str) -> bool:
    return not isinstance(compared, str) and any(c.at_any_size for c in compared)


def _decided(compared: list[Compared] | str) -> list[Compared] | str:
    """Return the comparisons that decide; or a doubt if none of these differs, but another does."""
    if isinstance(compared, str):
        return compared
    rest = [c for c in compared if not (c.undecided or c.overflows)]
    if _differs(rest) or len(rest) == len(compared):
        return rest
    unclear = next((c.check.reason for c in compared if c.undecided), None)
    if unclear is not None:
        return Undecided(f"undecided: rounding may explain that {unclear}")
    return Overflows("it differs, but only where rare numbers overflow")
