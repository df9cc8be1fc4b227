"""Join what is known of each operator to one row: what was done with it, its price and its proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnx_spatial.operators.shapes import show
from onnx_spatial.report.figures import duration

Document = Mapping[str, Any]

#: `OperatorResult.proven` in words.
PROOFS = {
    "all sizes": "proven for all sizes",
    "these sizes": "proven for these sizes",
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
        remarks: reasons and assumptions, one sentence each.
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
    verification: Document | None = None,
    regions: Mapping[tuple[str, str], int | None] | None = None,
) -> list[OperatorRow]:
    """Make a row for each operator, from the JSON documents of a conversion and its verification.

    The rows of `operators` come first, in their order.

    Args:
        operators: each a `OperatorReport.to_dict()`.
        verification: a `Verification.to_dict()`; operators that only it has get a row, too.
        regions: position of the region of each node, by graph and label.
    """
    checked = (
        {} if verification is None else {_key(each): each for each in verification["operators"]}
    )
    regions = regions or {}
    rows = []
    for operator in operators:
        row = _of_site(operator)
        row.region = regions.get(_key(operator))
        if (result := checked.pop(_key(operator), None)) is not None:
            _add_result(row, result)
        rows.append(row)
    for key, result in checked.items():
        row = OperatorRow(result["node"], result["graph"], result["op_type"])
        row.region = regions.get(key)
        _add_result(row, result)
        rows.append(row)
    return rows


def _key(operator: Document) -> tuple[str, str]:
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
    row.price = price(operator)
    row.level = {"refuse": "failed", "leave": "unverified"}.get(operator["action"], "")
    row.remarks += [operator["reason"]] if operator["reason"] else []
    row.remarks += [f"not fused: {reason}" for reason in operator["declined"]]
    if len(operator["candidates"]) > 1:
        others = [f"{each['lowering']} {price(each)}" for each in operator["candidates"]]
        row.remarks.append(f"possible lowerings: {', '.join(others)}")
    return row


def price(operator: Document) -> str:
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
    row.remarks += [f"assumed: {each}" for each in result["assumptions"]]
    row.remarks += [f"not proven: {result['unproven']['reason']}"] if result["unproven"] else []
    row.remarks += [result["reason"]] if result["reason"] else []
    if differs:
        row.remarks.append(f"counterexample: {result['counterexample']['reason']}")
    row.remarks = list(dict.fromkeys(row.remarks))
