"""Prove sites whose own values the converted model lost to a convolution, region by region."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnx_spatial.graph import files, walk
from onnx_spatial.verify.proof import Compared, Proof
from onnx_spatial.verify.region import Region, Regions
from onnx_spatial.verify.sites import Site


class Merged:
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
        regions: Regions,
        before: files.Source,
        after: files.Source,
        domains: Iterable[str],
        seed: int,
    ) -> None:
        self._regions = regions
        self._before = before
        self._after = after
        self._domains = domains
        self._seed = seed
        self._outcomes: dict[tuple[object, str], list[Compared] | str] = {}
        self.left: list[tuple[Site, Proof]] = []

    def check(self, site: Site) -> None:
        """Compare the regions that a site is part of; each of them is run once for all its sites."""
        regions = self._regions.around(site.finding)
        if isinstance(regions, str):
            site.withdraw(regions)
            return
        compared: list[tuple[Compared, str]] = []
        reason = None
        for region in regions:
            outcome = self._outcome(region)
            if isinstance(outcome, str):
                reason = outcome
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

    def compared(self, place: walk.Place, output: str) -> tuple[Proof | None, Sequence[Compared]]:
        """Compare all that leads to a value from the nearest values that both models have.

        The second are the comparisons on made-up data; the first can compare it in a run of the whole,
        None if nothing can.

        Args:
            place: graph that holds it.
            output: name of the value.
        """
        region = self._regions.at(place, output)
        if isinstance(region, str):
            return None, ()
        outcome = self._outcome(region)
        return self._proof(region), () if isinstance(outcome, str) else outcome

    def is_size(self, name: str) -> bool:
        """Whether a value of the main graph may be sizes or amounts by its type."""
        return self._regions.is_size(name, walk.Place())

    def _outcome(self, region: Region) -> list[Compared] | str:
        key = (region.place, region.output)
        if key not in self._outcomes:
            found = self._compared(region)
            if _differs(found) and not region.settled:
                found = self._confirmed(region)
            self._outcomes[key] = found
        return self._outcomes[key]

    def _confirmed(self, region: Region) -> list[Compared] | str:
        """A difference at sizes that the whole model may never have there: seen from its inputs."""
        wider = self._regions.widened(region)
        found = wider if isinstance(wider, str) else self._compared(wider)
        if isinstance(found, str):
            return f"it differs at sizes that the model may never have there, and {found}"
        if _differs(found) and isinstance(wider, Region) and not wider.settled:
            return "it differs, but at sizes that the model may never have there"
        return found

    def _compared(self, region: Region) -> list[Compared] | str:
        proof = self._proof(region)
        try:
            return proof.isolated()
        finally:
            proof.close()

    def _proof(self, region: Region) -> Proof:
        return Proof(region, self._before, self._after, self._domains, self._seed)


def _differs(found: list[Compared] | str) -> bool:
    return not isinstance(found, str) and not all(c.check.passed for c in found)
