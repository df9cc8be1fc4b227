"""Describe two models side by side for a page: figures, regions and graphs, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import onnx

from onnx_spatial.conversion.summary import Replacement, Summary
from onnx_spatial.report.figures import figure_rows, file_size
from onnx_spatial.report.graph_data import graph_document, script_json
from onnx_spatial.report.graph_diff import compare

Document = Mapping[str, Any]

#: Characters that the data of graphs may have on a page of many models: of all, and of one.
ROOM = 20_000_000
_LEAST, _MOST = 50_000, 2_000_000


def room(models: int) -> int:
    """Return how many characters the data of each model's graphs may have on a page."""
    return min(_MOST, max(_LEAST, ROOM // max(1, models)))


@dataclass
class SideBySide:
    """What a page shows of a model before and after.

    Attributes:
        sides: titles of the two graphs; one if there is only one.
        figures: rows of what, before and after.
        replacements: operators and regions with what took their place (`Replacement` as dicts).
        graphs: `graph_document`; None if the graphs are too large for the page.
        left_out: why the page has no graphs; empty if it has them.
    """

    sides: tuple[str, ...]
    figures: list[tuple[str, str, str]] = field(default_factory=list)
    replacements: list[Document] = field(default_factory=list)
    graphs: dict[str, Any] | None = None
    left_out: str = ""

    @classmethod
    def of(
        cls,
        original: onnx.ModelProto,
        result: onnx.ModelProto | None,
        summary: Summary | None = None,
        operators: Sequence[Document] = (),
    ) -> SideBySide:
        """Compare two models.

        Args:
            original: the model.
            result: what it was converted to; None if there is only one model.
            summary: of the conversion.
            operators: without a summary, each makes a region: dicts of an `OperatorReport` or an
                `OperatorResult`.
        """
        made = cls(("before", "after") if result is not None else ("the model",))
        regions: Sequence[Replacement]
        if summary is None:
            regions = [_region(each) for each in operators]
        else:
            regions = summary.replacements
            made.figures = list(figure_rows(summary))
            made.replacements = summary.to_dict()["replacements"]
        made.graphs = graph_document(compare(original, result, regions))
        return made

    def leave_out(self, most: int) -> None:
        """Leave the graphs out if their data has more than so many characters."""
        if self.graphs is None or (size := len(script_json(self.graphs))) <= most:
            return
        nodes = sum(len(each["before"]) + len(each["after"]) for each in self.graphs["graphs"])
        self.graphs = None
        self.left_out = (
            f"The graphs, with {nodes:,} nodes, are not drawn: they take {file_size(size)}, and each "
            f"model has room for {file_size(most)}. Alone they are drawn by convert MODEL --dry-run "
            "--html FILE."
        )

    def regions(self) -> dict[tuple[str, str], int | None]:
        """Return the position of the region of each node before, by graph and label."""
        if self.graphs is None:
            members = enumerate(self.replacements)
            return {(each["graph"], node): at for at, each in members for node in each["members"]}
        graphs = self.graphs["graphs"]
        return {(g["name"], node["l"]): node.get("r") for g in graphs for node in g["before"]}

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes by name, ready for JSON."""
        return asdict(self)


def _region(operator: Document) -> Replacement:
    members = (operator["node"], *operator.get("absorbed", ()))
    return Replacement(operator["node"], operator["graph"], "", len(members), 0, members)
