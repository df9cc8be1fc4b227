"""Define what `inspect`, `convert` and `optimize` return: `Inspection` and `Conversion`.

What makes reports is imported where one is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from onnx_spatial.analysis.unknown_operators import UnknownOperator
from onnx_spatial.conversion.changes import list_changes
from onnx_spatial.conversion.limits import LimitReport
from onnx_spatial.conversion.report import OperatorReport
from onnx_spatial.conversion.summary import Summary, layout_text, summarize
from onnx_spatial.errors import one_line
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import rebuild_ir
from onnx_spatial.model.io.source import Source
from onnx_spatial.verification import OperatorResult, Verification

if TYPE_CHECKING:
    from onnx_spatial.chains import Chain


@dataclass(repr=False)
class Inspection:
    """The operators of a model, and what a conversion would do with each.

    Attributes:
        model: name of the model.
        ir_version, opset: of the file; opset is None if the default domain is not imported.
        operators: the spatial operators, in the order of the file, and what `convert` does with each.
            Behind them the chains: operators that are spelled in standard nodes, and what `optimize`
            does with each.
        nodes: number of nodes after `convert`, which leaves chains as they are, and after `optimize`; of
            a conversion, before and after it.
        layouts: number of nodes before and after that change the layout of a value, if `optimize`
            removes or moves some beside convolutions that it does not fuse; else 0 and 0.
        limits: the nodes that `optimize` leaves beyond max_rank; None
            without these, and of `convert`.
        remaining: the operators that onnxruntime lacks also after a conversion.
        notes: where the search for chains stopped at its limits.
        original, result: the model that was inspected, and what a conversion makes of it; None if they
            are not known, or nothing would change.
    """

    model: str
    ir_version: int
    opset: int | None
    operators: list[OperatorReport] = field(default_factory=list)
    nodes: tuple[int, int] = (0, 0)
    layouts: tuple[int, int] = (0, 0)
    limits: LimitReport | None = None
    remaining: list[UnknownOperator] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    original: Source | None = field(default=None, compare=False)
    result: Source | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return one_line(f"<Inspection of {self.model}: {_actions(self.operators)}>")

    @property
    def named(self) -> list[OperatorReport]:
        """The operators but for chains."""
        return [operator for operator in self.operators if not operator.is_chain]

    @property
    def chains(self) -> list[OperatorReport]:
        """The operators that are spelled in standard nodes."""
        return [operator for operator in self.operators if operator.is_chain]

    @property
    def summary(self) -> str | None:
        """What `optimize` does, in one line; None if there are no chains and no changes of layout."""
        layouts = layout_text(*self.layouts)
        if not self.chains and not layouts:
            return None
        fusions = Counter(chain.lowering or "" for chain in self.chains if chain.action == "fuse")
        above = sum(chain.above_limit for chain in self.chains)
        alone = sum(chain.action == "lower" for chain in self.chains)
        left = sum(chain.action == "leave" for chain in self.chains) - above
        parts = [_became(fusion, number) for fusion, number in fusions.items()]
        nodes = "faster" if self.limits is None else "other"
        parts += [f"{_chains(alone)} written as {nodes} nodes"] if alone else []
        parts += [f"{_chains(above)} above the limit left"] if above else []
        parts += [f"{_chains(left)} left, with nothing to gain"] if left else []
        parts += [layouts] if layouts else []
        before, after = self.nodes
        return ", ".join(parts) + (f": {before} -> {after} nodes" if before != after else "")

    @cached_property
    def conversion(self) -> Summary | None:
        """What `convert` does with the model; None if that is nothing."""
        if self.original is None or self.result is None:
            return None
        return summarize(self.original, self.result, self.named)

    def to_dict(self) -> dict[str, object]:
        """Return version 2 of the report, ready for JSON: the attributes by name, and `summary`."""
        return {
            "version": 2,
            "model": self.model,
            "ir_version": self.ir_version,
            "opset": self.opset,
            "operators": [operator.to_dict() for operator in self.operators],
            "nodes": list(self.nodes),
            "layouts": list(self.layouts),
            "summary": self.summary,
            "limits": None if self.limits is None else self.limits.to_dict(),
            "remaining": [dict(vars(each)) for each in self.remaining],
            "notes": self.notes,
        }


def _actions(operators: Sequence[OperatorReport]) -> str:
    """Count operators by what is done with them: "3 operators (2 fuse, 1 lower)"."""
    if not operators:
        return "no operators"
    actions = Counter(operator.action for operator in operators)
    counts = ", ".join(f"{number} {action}" for action, number in actions.items())
    return f"{len(operators)} operator{'' if len(operators) == 1 else 's'} ({counts})"


def _chains(number: int) -> str:
    return f"{number} chain{'' if number == 1 else 's'}"


def _became(fusion: str, number: int) -> str:
    """Say what some chains become, by `OperatorReport.lowering`."""
    if fusion.endswith(" convolution"):
        return f"{_chains(number)} {f'is a {fusion}' if number == 1 else f'are {fusion}s'}"
    return f"{_chains(number)} {fusion}"


@dataclass(repr=False)
class Conversion:
    """A converted model, what was done with each operator, and the verification.

    Attributes:
        result: the converted model as it will be written.
        inspection: what was found in the original; `operators` has more of the operators.
        verification: result of the verification; None if `verify` was False or nothing changed.
        changed: whether the converted model differs from the original.
        output: the file that was written; None if none was.
        backup: the original of a conversion in place, if it was kept.
        original: the model that was read, as `result`.
        chains: the chains that `optimize` rewrote, apart from those that only move data.
        ir_original: the model that was passed, if it was an onnx_ir.Model.
    """

    result: Source
    inspection: Inspection
    verification: Verification | None
    changed: bool
    original: Source
    output: Path | None = None
    backup: Path | None = None
    chains: Sequence[Chain] = ()
    ir_original: ir.Model | None = None

    def __repr__(self) -> str:
        verdict = "not verified" if self.verification is None else self.verification.status
        what = f"{self.nodes_before} -> {self.nodes_after} nodes, {verdict}"
        what = what if self.changed else "nothing to do"
        return one_line(f"<Conversion of {self.result.name}: {_actions(self.operators)}, {what}>")

    @property
    def operators(self) -> list[OperatorReport]:
        """Each operator, chains too, and what was done with it; once verified, what is proven."""
        if self.verification is None:
            return self.inspection.operators
        results: dict[tuple[str, str], list[OperatorResult]] = {}
        for result in self.verification.operators:
            results.setdefault((result.graph, result.node), []).append(result)
        return [
            _with_proof(operator, results.get((operator.graph, operator.node), []))
            for operator in self.inspection.operators
        ]

    @property
    def nodes_before(self) -> int:
        """Number of nodes of the original, those of subgraphs and functions included."""
        return traversal.number_of_nodes(self.original.proto)

    @property
    def nodes_after(self) -> int:
        """Number of nodes of the converted model."""
        return traversal.number_of_nodes(self.result.proto)

    @cached_property
    def touched(self) -> dict[str, list[str]]:
        """What differs from the original, by kind; empty if nothing changed.

        The kinds are nodes_replaced (each operator, followed by the nodes that were fused with it; in
        mode "function" the nodes that now call functions), nodes_changed, nodes_removed, nodes_added,
        initializers_added, initializers_removed, value_info_changed, functions_added,
        functions_removed, opset_imports_added, opset_imports_removed; ir_version ("7 -> 8") if raised.
        """
        if not self.changed:
            return {}
        return list_changes(self.original.proto, self.result.proto, self.inspection.operators)

    @cached_property
    def summary(self) -> Summary | None:
        """Nodes, sizes and ranks before and after; None if nothing changed."""
        if not self.changed:
            return None
        rewritten = [chain for chain in self.inspection.chains if chain.converted]
        operators = [*self.inspection.named, *rewritten]
        return summarize(self.original, self.result, operators, self.inspection.layouts)

    @property
    def model(self) -> onnx.ModelProto:
        """The converted model; the original if nothing changed."""
        return self.result.proto

    @cached_property
    def ir_model(self) -> ir.Model:
        """The converted model as a new onnx_ir.Model, also if nothing changed.

        If an onnx_ir.Model was converted, the result shares its tensors, and keeps names and `meta` of
        everything that the conversion did not touch. External tensors are not read.

        Raises:
            ModelFileError: onnx_ir cannot hold the model.
        """
        if self.ir_original is None:
            return rebuild_ir.to_ir(self.model, self.result.folder)
        proto = self.original.proto
        return rebuild_ir.to_ir(self.result.proto, self.result.folder, self.ir_original, proto)

    def to_dict(self) -> dict[str, object]:
        """Return version 2 of the report, ready for JSON; docs/report.md lists its keys."""
        found = self.inspection.to_dict()
        return {
            **{key: found[key] for key in ("version", "model", "ir_version", "opset")},
            "changed": self.changed,
            "output": None if self.output is None else str(self.output),
            "backup": None if self.backup is None else str(self.backup),
            "operators": [operator.to_dict() for operator in self.operators],
            "nodes_before": self.nodes_before,
            "nodes_after": self.nodes_after,
            "summary": None if self.summary is None else self.summary.to_dict(),
            "touched": self.touched,
            **{key: found[key] for key in ("layouts", "limits", "remaining", "notes")},
            "verification": None if self.verification is None else self.verification.to_dict(),
        }

    def _repr_html_(self) -> str:
        """Return the table and the verdict for a notebook."""
        from onnx_spatial.report.outcome import describe
        from onnx_spatial.report.page import fragment

        return fragment(describe(self, graphs=False))

    def to_html(self) -> str:
        """Return an HTML page with what was done and how it was proven; it needs no other file.

        Raises:
            UsageError: jinja2 is missing.
        """
        from onnx_spatial.report.outcome import describe
        from onnx_spatial.report.page import render

        return render("convert", [describe(self)])


def _with_proof(operator: OperatorReport, results: list[OperatorResult]) -> OperatorReport:
    """Return an operator with what is proven, and take the first of the results of its name."""
    if not results:
        return operator
    result = results.pop(0)
    return replace(operator, proven=result.proven, assumptions=result.assumptions)
