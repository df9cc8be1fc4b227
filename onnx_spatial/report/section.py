"""Collect what the HTML report shows of one model.

operator   node, data, lowering, nodes, price, proof      a row of a table
output     all comparisons with the original               those that differ first
section    verdict, figures, graphs, operators, outputs    of each model
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx

from onnx_spatial.analysis.unknown_operators import UnknownOperator
from onnx_spatial.conversion.report import CHAIN
from onnx_spatial.conversion.summary import Summary
from onnx_spatial.model.io import reader
from onnx_spatial.model.io.reader import Model
from onnx_spatial.model.io.source import Source
from onnx_spatial.operators.shapes import show
from onnx_spatial.report.figures import count, duration, headline, listed, names_by_sentence
from onnx_spatial.report.graphs import SideBySide
from onnx_spatial.verification import Verification

Document = Mapping[str, Any]

#: `OperatorResult.proven` in words.
PROOFS = {
    "all sizes": "proven for every size",
    "these sizes": "proven for the fixed sizes",
}


@dataclass
class OperatorRow:
    """A row of the table of operators.

    Attributes:
        node, graph, operator, dialect: as in the file.
        data: type and shapes of its data.
        region: position in the regions of the graphs; None if it is in none.
        lowering: what was done with it.
        nodes: "11 -> 5".
        price: estimated (~) or measured time of what replaces it.
        proof: in words; empty if nothing was verified.
        level: "passed", "failed", "unverified" or "".
        ran: whether it ran on its own and agreed.
        remarks: what is to know of it, one sentence each.
    """

    node: str
    graph: str
    operator: str
    dialect: str = ""
    data: str = ""
    region: int | None = None
    lowering: str = ""
    nodes: str = ""
    price: str = ""
    proof: str = ""
    level: str = ""
    ran: str = ""
    remarks: list[str] = field(default_factory=list)


def operator_rows(
    operators: Sequence[Document],
    verification: Document | None,
    regions: Mapping[tuple[str, str], int | None],
) -> list[OperatorRow]:
    """Make a row for each operator, from the JSON documents of a conversion and its verification.

    The rows of `operators` come first, in their order.

    Args:
        operators: each a `OperatorReport.to_dict()`.
        verification: a `Verification.to_dict()`; operators that only it has get a row, too.
        regions: position of the region of each node, by graph and label.
    """
    checked = (
        {} if verification is None else {_place(each): each for each in verification["operators"]}
    )
    rows = []
    for operator in operators:
        row = _of_site(operator)
        row.region = regions.get(_place(operator))
        if (result := checked.pop(_place(operator), None)) is not None:
            _add_result(row, result)
        rows.append(row)
    for key, result in checked.items():
        row = OperatorRow(result["node"], result["graph"], result["op_type"])
        row.region = regions.get(key)
        _add_result(row, result)
        rows.append(row)
    return rows


def _place(operator: Document) -> tuple[str, str]:
    return operator["graph"], operator["node"]


def _of_site(operator: Document) -> OperatorRow:
    shapes = [
        "?" if operator[k] is None else show(operator[k]) for k in ("input_shape", "output_shape")
    ]
    row = OperatorRow(
        operator["node"], operator["graph"], operator["op_type"], operator["dialect"] or ""
    )
    row.data = f"{operator['element_type'] or '?'} {' -> '.join(shapes)}"
    row.lowering = operator["lowering"] or {"refuse": "cannot be converted"}.get(
        operator["action"], "left"
    )
    if operator["function"]:
        row.lowering += f", calls {operator['function']}"
    row.nodes = f"{operator['nodes_before']} -> {operator['nodes_after']}"
    row.price = _price(operator)
    row.level = {"refuse": "failed", "leave": "unverified"}.get(operator["action"], "")
    row.remarks += [operator["reason"]] if operator["reason"] else []
    row.remarks += [f"not fused: {reason}" for reason in operator["declined"]]
    if len(operator["candidates"]) > 1:
        others = [f"{each['lowering']} {_price(each)}" for each in operator["candidates"]]
        row.remarks.append(f"possible lowerings: {', '.join(others)}")
    return row


def _price(operator: Document) -> str:
    """Format the estimated time of a lowering."""
    return "" if operator["estimated_us"] is None else f"~{duration(operator['estimated_us'])}"


def _add_result(row: OperatorRow, result: Document) -> None:
    """Add what is proven of an operator, and whether it ran."""
    differs = result["counterexample"] is not None
    unproven = "differs" if differs else "not proven" if result["unproven"] else ""
    row.proof = PROOFS.get(result["proven"], unproven)
    row.ran = "ran and agrees" if result["ran"] else ""
    level = "failed" if differs else "unverified" if unproven else ""
    row.level = "passed" if result["proven"] and not differs else level
    row.remarks += [result["reason"]] if result["reason"] else []
    if differs and result["counterexample"]["reason"] not in (result["reason"] or ""):
        row.remarks.append(f"counterexample: {result['counterexample']['reason']}")
    row.remarks = list(dict.fromkeys(row.remarks))


@dataclass(frozen=True)
class ComparedOutput:
    """All comparisons of one output, each an `OutputResult` as a dict, in the order of the runs."""

    name: str
    comparisons: list[Document] = field(default_factory=list)

    @property
    def level(self) -> str:
        """The verdict on the output: "failed", "unverified" or "passed"."""
        verdicts = [each["passed"] for each in self.comparisons]
        return "failed" if False in verdicts else "unverified" if None in verdicts else "passed"

    @property
    def worst(self) -> Document | None:
        """The comparison with the largest error; None if every bit is equal or there are no numbers."""
        counted = [each for each in self.comparisons if each.get("error_decades")]
        return max(counted, key=_badness, default=None)


def _badness(output: Document) -> tuple[bool, float]:
    # In JSON an infinite error is null.
    error = output["max_relative_error"]
    return output["passed"] is False, math.inf if error is None else error


def compared_outputs(comparisons: Sequence[Document]) -> list[ComparedOutput]:
    """Group the comparisons of a verification by output; those that differ come first."""
    outputs: dict[str, ComparedOutput] = {}
    for each in comparisons:
        outputs.setdefault(each["name"], ComparedOutput(each["name"])).comparisons.append(each)
    order = ("failed", "unverified", "passed")
    return sorted(outputs.values(), key=lambda output: order.index(output.level))


@dataclass
class Check:
    """A verification of a model: the verdict, and how its outputs compare.

    Attributes:
        title: what was verified; empty if there is one verification only.
        status: "passed", "failed" or "unverified".
        message: the verdict in one line.
        document: `Verification.to_dict()`.
        outputs: that were compared.
        said: what is not proven and what is assumed, each sentence once with the nodes.
    """

    title: str
    status: str
    message: str
    document: Document
    outputs: list[ComparedOutput]
    said: list[str] = field(default_factory=list)


@dataclass
class Section:
    """What the report shows of one model.

    Attributes:
        name: of the model.
        status: "passed", "failed", "unverified", or other words of the command.
        headline: the result in one line.
        shown: the model before and after.
        operators: a row for each.
        chains: a row for each chain of standard nodes that is a spatial operator.
        checks: verifications.
        recorded: outputs that were compared with recorded data.
        remarks: sentences, each with a level: "failed", "unverified" or "".
        command: line that repeats the work; empty if there is none.
    """

    name: str
    status: str
    headline: str
    shown: SideBySide = field(default_factory=SideBySide)
    operators: list[OperatorRow] = field(default_factory=list)
    chains: list[OperatorRow] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    recorded: list[ComparedOutput] = field(default_factory=list)
    remarks: list[tuple[str, str]] = field(default_factory=list)
    command: str = ""

    @property
    def opened(self) -> int | None:
        """The region that is drawn at first: of what failed, else the one that changed most."""
        failed = (row.region for row in self.operators + self.chains if row.level == "failed")
        if (region := next((r for r in failed if r is not None), None)) is not None:
            return region
        sizes = [each["nodes_before"] + each["nodes_after"] for each in self.shown.replacements]
        return sizes.index(max(sizes)) if sizes else None


def model_section(
    name: str,
    inspection: Document | None = None,
    summary: Summary | None = None,
    verification: Document | None = None,
    models: tuple[onnx.ModelProto, onnx.ModelProto | None] | None = None,
    *,
    status: str = "",
    error: str = "",
) -> Section:
    """Make the section of a model that was inspected, converted or verified.

    Args:
        name: of the model.
        inspection: `Inspection.to_dict()`; None if only two models were compared.
        summary: of the conversion; None if nothing changed.
        verification: `Verification.to_dict()`; None if nothing was verified.
        models: before and after, for the graphs. The second is None if there is only one.
        status: the verdict, if it is not that of the verification.
        error: why the command failed.
    """
    section = Section(name, status, error)
    operators = [] if inspection is None else inspection["operators"]
    if models is not None:
        known = operators if verification is None else verification["operators"]
        section.shown = SideBySide.of(*models, summary, known)
    if verification is not None:
        section.status = status or verification["status"]
        section.headline = _verdict(verification)
        section.checks = [check(verification)]
    if summary is not None:
        section.headline = headline(summary)
    rows = operator_rows(operators, verification, section.shown.regions())
    section.operators = [row for row in rows if row.dialect != CHAIN]
    section.chains = [row for row in rows if row.dialect == CHAIN]
    if inspection is not None:
        section.headline = section.headline or _found(inspection)
        section.remarks += [(each, "") for each in [inspection["summary"]] if each]
        lacking = (UnknownOperator(**each).message for each in inspection["remaining"])
        section.remarks += [(message, "unverified") for message in lacking]
    if error not in ("", section.headline) and not (
        verification and verification["message"] in error
    ):
        section.remarks.insert(0, (error, "failed"))
    return section


def verification_section(
    verification: Verification, original: Model | Source, converted: Model | Source
) -> Section:
    """Make the section of two models that were compared; its name is that of the second.

    Raises:
        ModelFileError: a model cannot be read.
    """
    before, after = (reader.read(each, data=False) for each in (original, converted))
    models = before.proto, after.proto
    return model_section(after.name, verification=verification.to_dict(), models=models)


def check(verification: Document, title: str = "") -> Check:
    """Make the part of a section that shows a verification."""
    message, outputs = _verdict(verification), compared_outputs(verification["outputs"])
    unproven = (
        (each["node"], f"not proven: {each['reason']}") for each in verification["unproven"]
    )
    assumed = (
        (o["node"], f"assumed: {a}") for o in verification["operators"] for a in o["assumptions"]
    )
    of_all = sum(bool(o["assumptions"]) for o in verification["operators"])
    said = [
        sentence
        if sentence.startswith("assumed: ") and len(names) == of_all
        else f"{sentence} ({listed(names)})"
        for sentence, names in names_by_sentence([*unproven, *assumed]).items()
    ]
    return Check(title, verification["status"], message, verification, outputs, said)


def _verdict(verification: Document) -> str:
    """Return the message without the status, which the page shows beside it."""
    message: str = verification["message"]
    return message.removeprefix(f"{verification['status']}: ")


def _found(inspection: Document) -> str:
    operators = [each for each in inspection["operators"] if each["dialect"] != CHAIN]
    refused = sum(operator["action"] == "refuse" for operator in operators)
    parts = [f"{count(refused, 'operator')} cannot be converted"] if refused else []
    if len(operators) > refused:
        parts.append(count(len(operators) - refused, "operator to convert"))
    return ", ".join(parts) or "no operator to convert"


def index_rows(sections: Sequence[Section]) -> list[tuple[int, Section]]:
    """Number the sections; those that failed come first."""
    order = {"failed": 0, "unverified": 1}
    numbered = enumerate(sections, 1)
    return sorted(numbered, key=lambda each: order.get(each[1].status, 2))
