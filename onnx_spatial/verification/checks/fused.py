"""Prove sites whose own values the converted model lost to a convolution, region by region."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onnx_spatial.model import traversal
from onnx_spatial.model.io import reader
from onnx_spatial.verification.checks.isolated import OperatorCheck
from onnx_spatial.verification.checks.region import Compared, Proof, Undecided
from onnx_spatial.verification.compare.reference import Budget
from onnx_spatial.verification.subgraphs.matching_region import (
    MatchingRegion,
    MatchingRegions,
)


class _Doubt(str):
    """A reason to know nothing: a difference was seen of which it is not known whether it matters."""


@dataclass(frozen=True)
class Outcome:
    """What is known of a part of a model that was compared.

    Attributes:
        proof: can compare it in a run of the whole; None if nothing can.
        compared: the comparisons on made-up data.
        reason: why there are none.
        doubtful: whether it was seen to differ, where it may not matter.
    """

    proof: Proof | None = None
    compared: Sequence[Compared] = ()
    reason: str | None = None
    doubtful: bool = False


class FusedSites:
    """The sites that were merged with what computes around them.

    Args:
        regions: tells where they are.
        before, after: the two models.
        domains: further domains of spatial operators.
        seed: of the data.

    Attributes:
        left: sites that have a region which could not be proven on its own, with what could prove
            it in a run of the whole.
    """

    def __init__(
        self,
        regions: MatchingRegions,
        before: reader.Source,
        after: reader.Source,
        domains: Iterable[str],
        seed: int,
    ) -> None:
        self._regions = regions
        self._before = before
        self._after = after
        self._domains = domains
        self._seed = seed
        self._budget = Budget()
        self._outcomes: dict[tuple[object, str], list[Compared] | str] = {}
        self._unconfirmed: set[object] = set()
        self.left: list[tuple[OperatorCheck, Proof]] = []

    def check(self, site: OperatorCheck) -> None:
        """Compare the regions that a site is part of; each of them is run once for all its sites."""
        regions = self._regions.around(site.info)
        if isinstance(regions, str):
            site.withdraw(regions)
            return
        compared: list[tuple[Compared, str]] = []
        reason = None
        for region in regions:
            outcome = self._outcome(region)
            if isinstance(outcome, str):
                reason = outcome
                if isinstance(outcome, Undecided):
                    site.undecided = outcome
                self.left.append((site, self._proof(region)))
            else:
                compared += ((each, region.output) for each in outcome)
        if reason is not None:
            site.withdraw(reason)
            return
        site.result.reason = None
        for each, value in compared:
            site.record(each.check, each.feeds, value)
        site.replaced.update(*(r.replaced for r in regions))

    def compared(self, place: traversal.Place, output: str) -> Outcome:
        """Compare all that leads to a value from the nearest values that both models have.

        Unlike a site's, the nodes there are none that a conversion has to touch: they are compared on
        numbers that are seldom as well.

        Args:
            place: graph that holds it.
            output: name of the value.
        """
        region = self._regions.at(place, output)
        if isinstance(region, str):
            return Outcome(reason=region)
        found = self._outcome(region)
        if not isinstance(found, str) and not _differs(found):
            found = self._spread(region, found)
        if isinstance(found, str):
            return Outcome(self._proof(region), (), found, isinstance(found, _Doubt | Undecided))
        return Outcome(self._proof(region), found)

    def is_size(self, name: str, place: traversal.Place) -> bool:
        """Whether a value may be sizes or amounts by its type."""
        return self._regions.is_size(name, place)

    def _outcome(self, region: MatchingRegion) -> list[Compared] | str:
        key = (region.place, region.output)
        if key not in self._outcomes:
            found = self._compared(region)
            if _differs(found) and not region.settled:
                self._unconfirmed.add(key)
                found = self._confirmed(region)
            self._outcomes[key] = found
        return self._outcomes[key]

    def _spread(self, region: MatchingRegion, usual: list[Compared]) -> list[Compared] | str:
        """All comparisons, with those on numbers that are seldom."""
        found = self._on_seldom(region)
        differed = (region.place, region.output) in self._unconfirmed  # by its values, maybe
        if not differed and (not _differs(found) or region.fed):
            return [*usual, *found]
        wider = self._regions.widened(region)
        found = [] if isinstance(wider, str) else self._on_seldom(wider)
        if isinstance(wider, MatchingRegion) and (wider.fed if _differs(found) else differed):
            return [*usual, *found]
        return _Doubt("it differs, but on values that the model may never have there")

    def _on_seldom(self, region: MatchingRegion) -> list[Compared]:
        proof = self._proof(region)
        try:
            return proof.spread()
        finally:
            proof.close()

    def _confirmed(self, region: MatchingRegion) -> list[Compared] | str:
        """A difference at sizes that the whole model may never have there: seen from its inputs."""
        wider = self._regions.widened(region)
        found = wider if isinstance(wider, str) else self._compared(wider)
        if isinstance(found, str):
            return _Doubt(f"it differs at sizes that the model may never have there, and {found}")
        if _differs(found) and isinstance(wider, MatchingRegion) and not wider.settled:
            return _Doubt("it differs, but at sizes that the model may never have there")
        return found

    def _compared(self, region: MatchingRegion) -> list[Compared] | str:
        proof = self._proof(region)
        try:
            return proof.isolated()
        finally:
            proof.close()

    def _proof(self, region: MatchingRegion) -> Proof:
        return Proof(region, self._before, self._after, self._domains, self._seed, self._budget)


def _differs(found: list[Compared] | str) -> bool:
    return not isinstance(found, str) and not all(c.check.passed for c in found)
