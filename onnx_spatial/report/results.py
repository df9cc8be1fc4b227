"""Define what `inspect`, `convert` and `optimize` return: `Inspection` and `Conversion`.

What makes reports is imported where one is asked for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from onnx_spatial.analysis.unknown_operators import UnknownOperator
from onnx_spatial.conversion.limits import LimitReport
from onnx_spatial.conversion.report import OperatorReport
from onnx_spatial.conversion.summary import Summary, layout_text, summarize
from onnx_spatial.model.graph import rebuild_ir
from onnx_spatial.model.io.source import Source
from onnx_spatial.verification.report import Verification

if TYPE_CHECKING:
    from onnx_spatial.conversion.rewrite_chains import NamedChains
    from onnx_spatial.report.section import Section


@dataclass
class Inspection:
    """The spatial operators of a model, and what `convert` would do with each.

    Attributes:
        model: name of the model.
        ir_version, opset: of the file; opset is None if the default domain is not imported.
        operators: the spatial operators, in the order of the file.
        chains: the chains of standard nodes that are spatial operators, are better written as other
            nodes, or exceed a limit, and what `optimize` does with each.
        nodes: number of nodes after `convert`, which leaves chains as they are, and after `optimize`.
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
    chains: list[OperatorReport] = field(default_factory=list)
    nodes: tuple[int, int] = (0, 0)
    layouts: tuple[int, int] = (0, 0)
    limits: LimitReport | None = None
    remaining: list[UnknownOperator] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    original: Source | None = field(default=None, repr=False, compare=False)
    result: Source | None = field(default=None, repr=False, compare=False)

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
        return summarize(self.original, self.result, self.operators)

    def to_dict(self) -> dict[str, object]:
        """Version 2: the attributes and `summary`, each object in them as a dict."""
        return {
            "version": 2,
            "model": self.model,
            "ir_version": self.ir_version,
            "opset": self.opset,
            "operators": [operator.to_dict() for operator in self.operators],
            "chains": [operator.to_dict() for operator in self.chains],
            "nodes": list(self.nodes),
            "layouts": list(self.layouts),
            "summary": self.summary,
            "limits": None if self.limits is None else self.limits.to_dict(),
            "remaining": [dict(vars(each)) for each in self.remaining],
            "notes": self.notes,
        }

    def section(self, name: str | None = None, *, error: str = "") -> Section:
        """Return the section of an HTML report: the operators, and what a conversion would do.

        Args:
            name: of the model; None: `model`.
            error: why a conversion failed.
        """
        from onnx_spatial.report.section import model_section

        refused = any(operator.action == "refuse" for operator in self.operators)
        result = None if refused or self.result is None else self.result.proto
        summary = None if refused else self.conversion
        models = None if self.original is None else (self.original.proto, result)
        status = "failed" if error or refused else "inspected"
        section = model_section(
            name or self.model, self.to_dict(), summary, None, models, status=status, error=error
        )
        if summary is not None:
            section.headline = f"after convert: {section.headline}"
            section.sides = ("before", "after convert")
        return section

    def to_html(self) -> str:
        """Return an HTML page with the operators and the graph; it needs no other file.

        Raises:
            UsageError: jinja2 is missing.
        """
        from onnx_spatial.report.page import render

        return render("inspect", [self.section()])


def _chains(number: int) -> str:
    return f"{number} chain{'' if number == 1 else 's'}"


def _became(fusion: str, number: int) -> str:
    """Say what some chains become, by `OperatorReport.lowering`."""
    if fusion.endswith(" convolution"):
        return f"{_chains(number)} {f'is a {fusion}' if number == 1 else f'are {fusion}s'}"
    return f"{_chains(number)} {fusion}"


@dataclass
class Conversion:
    """A converted model and its verification.

    Attributes:
        result: the converted model as it will be written.
        inspection: its operators and what was done with each.
        verification: result of the verification; None if `verify` was False or nothing changed.
        changed: whether the converted model differs from the original.
        touched: what differs from the original: nodes_replaced (each operator, followed by the
            nodes that were fused with it), nodes_added, initializers_added, initializers_removed,
            value_info_changed, functions_added, functions_removed, opset_imports_added,
            opset_imports_removed; ir_version and opset ("7 -> 8") if raised. In mode "function"
            nodes_replaced are the nodes that now call functions.
        output: the file that was written; None if none was.
        backup: the original of a conversion in place, if it was kept.
        original: the model that was read, as `result`; None if it is not known.
        named: the chains that `optimize` rewrote; None if there are none.
        ir_original: the model that was passed, if it was an onnx_ir.Model.
    """

    result: Source
    inspection: Inspection
    verification: Verification | None
    changed: bool
    touched: dict[str, list[str]] = field(repr=False)
    output: Path | None = None
    backup: Path | None = None
    original: Source | None = None
    named: NamedChains | None = None
    ir_original: ir.Model | None = field(default=None, repr=False)

    @cached_property
    def summary(self) -> Summary | None:
        """Nodes, sizes and ranks before and after; None if nothing changed."""
        if not self.changed or self.original is None:
            return None
        rewritten = [operator for operator in self.inspection.chains if operator.converted]
        operators = [*self.inspection.operators, *rewritten]
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
        if self.ir_original is None or self.original is None:
            return rebuild_ir.to_ir(self.model, self.result.folder)
        proto = self.original.proto
        return rebuild_ir.to_ir(self.result.proto, self.result.folder, self.ir_original, proto)

    def to_dict(self) -> dict[str, object]:
        """Version 2: changed, output, backup, touched, summary, inspection, verification (or null)."""
        return {
            "version": 2,
            "changed": self.changed,
            "output": None if self.output is None else str(self.output),
            "backup": None if self.backup is None else str(self.backup),
            "touched": self.touched,
            "summary": None if self.summary is None else self.summary.to_dict(),
            "inspection": self.inspection.to_dict(),
            "verification": None if self.verification is None else self.verification.to_dict(),
        }

    def section(self, name: str | None = None, *, error: str = "") -> Section:
        """Return the section of an HTML report: summary, graphs, operators and errors.

        Args:
            name: of the model; None: that of the file that was read.
            error: why the conversion failed.
        """
        from onnx_spatial.report.section import model_section

        models = None
        if self.original is not None:
            models = self.original.proto, self.result.proto if self.changed else None
        verification = None if self.verification is None else self.verification.to_dict()
        status = "failed" if error else "" if verification else "not verified"
        return model_section(
            name or self.inspection.model,
            self.inspection.to_dict(),
            self.summary,
            verification,
            models,
            status=status if self.changed else "nothing to do",
            error=error,
        )

    def to_html(self) -> str:
        """Return an HTML page with what was done and how it was proven; it needs no other file.

        Raises:
            UsageError: jinja2 is missing.
        """
        from onnx_spatial.report.page import render

        return render("convert", [self.section()])
