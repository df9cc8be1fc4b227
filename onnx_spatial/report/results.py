"""Define what `inspect`, `convert` and `optimize` return: `Inspection` and `Conversion`.

Each has its attributes, `to_dict` for programs, and `describe` for people: the screen, a page and a
notebook render the same `Outcome`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import onnx
import onnx_ir as ir

from onnx_spatial.analysis.unknown_operators import UnknownOperator, unknown_operators
from onnx_spatial.conversion.changes import list_changes
from onnx_spatial.conversion.limits import LimitReport
from onnx_spatial.conversion.report import EditResult, OperatorReport
from onnx_spatial.conversion.summary import Summary, describe_products, layout_text, summarize
from onnx_spatial.documents import Document, plain
from onnx_spatial.errors import count, one_line
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph import rebuild_ir
from onnx_spatial.model.io.source import Source
from onnx_spatial.operators import Rearrange
from onnx_spatial.report.figures import headline, interface
from onnx_spatial.report.graphs import SideBySide
from onnx_spatial.report.outcome import Outcome, Section, describe_check
from onnx_spatial.verification import OperatorResult, Verification

if TYPE_CHECKING:
    from onnx_spatial.chains.find_chains import Chain


@dataclass(repr=False)
class Inspection(Document):
    """The operators of a model, and what a conversion would do with each.

    Attributes:
        original: the model.
        operators: the spatial operators, in the order of the file, and what `convert` does with each.
            Behind them the chains: operators that are spelled in standard nodes, and what `optimize`
            does with each.
        nodes: number of nodes after `convert`, which leaves chains as they are, and after `optimize`; of
            a conversion, before and after it.
        layouts: number of nodes before and after that change the layout of a value, if `optimize`
            removes or moves some beside convolutions that it does not fuse; else 0 and 0.
        limits: the nodes that `optimize` leaves beyond max_rank; None without `optimize` or max_rank.
        remaining: the operators that onnxruntime lacks also after a conversion.
        notes: where the search for chains stopped at its limits.
        result: what a conversion makes of the model; None if nothing would change.
    """

    KEYS = "version model ir_version opset operators nodes layouts summary limits remaining notes"
    version: ClassVar[int] = 2

    original: Source = field(compare=False)
    operators: list[OperatorReport] = field(default_factory=list)
    nodes: tuple[int, int] = (0, 0)
    layouts: tuple[int, int] = (0, 0)
    limits: LimitReport | None = None
    remaining: list[UnknownOperator] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    result: Source | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls, source: Source, edit: EditResult, optimized: EditResult | None = None
    ) -> Inspection:
        """Return the inspection of a model, from its conversion and, if asked for, its optimization."""
        refused = {(o.domain, o.op_type) for o in edit.operators if o.action == "refuse"}
        not_accepted = {(o.domain, o.op_type) for o in edit.operators if o.unknown_domain}
        result = None if edit.model is None else source.holding(edit.model)
        index = traversal.Index((result or source).proto)
        nodes = traversal.number_of_nodes(source.proto), len(index.nodes)
        if optimized is not None:
            nodes = nodes[1], traversal.number_of_nodes(optimized.model or source.proto)
        last = optimized or edit
        return cls(
            original=source,
            operators=[*edit.operators, *last.chains],
            nodes=nodes,
            layouts=last.layouts,
            limits=last.limits,
            remaining=[
                operator
                for operator in unknown_operators(index, not_accepted)
                if (operator.domain, operator.op_type) not in refused
            ],
            notes=last.notes,
            result=result,
        )

    def __repr__(self) -> str:
        return one_line(f"<Inspection of {self.model}: {_count_actions(self.operators)}>")

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.original.name

    @property
    def ir_version(self) -> int:
        """IR version of the file."""
        return self.original.proto.ir_version

    @property
    def opset(self) -> int | None:
        """Opset of the file; None if the default domain is not imported."""
        return op_traits.opset_of(self.original.proto.opset_import)

    @property
    def named(self) -> list[OperatorReport]:
        """The operators but for chains."""
        return [operator for operator in self.operators if not operator.is_chain]

    @property
    def chains(self) -> list[OperatorReport]:
        """The operators that are spelled in standard nodes."""
        return [operator for operator in self.operators if operator.is_chain]

    @property
    def refused(self) -> bool:
        """Whether an operator cannot be converted."""
        return any(operator.action == "refuse" for operator in self.operators)

    @property
    def summary(self) -> str | None:
        """What `optimize` does, in one line; None if there are no chains and no changes of layout."""
        layouts = layout_text(*self.layouts)
        if not self.chains and not layouts:
            return None
        rewritten = [chain for chain in self.chains if chain.converted]
        above = sum(chain.above_limit for chain in self.chains)
        left = len(self.chains) - len(rewritten) - above
        parts = [describe_products(rewritten, self.layouts)] if rewritten or layouts else []
        parts += [f"{count(above, 'chain')} above the limit left"] if above else []
        parts += [f"{count(left, 'chain')} left, with nothing to gain"] if left else []
        before, after = self.nodes
        return ", ".join(parts) + (f": {before} -> {after} nodes" if before != after else "")

    @cached_property
    def conversion(self) -> Summary | None:
        """What `convert` does with the model; None if that is nothing, or an operator is refused."""
        if self.result is None or self.refused:
            return None
        return summarize(self.original, self.result, self.named)

    @property
    def command(self) -> str | None:
        """The command that changes the model; None if none does."""
        if self.refused:
            return None
        gains = any(chain.converted for chain in self.chains) or self.layouts[0] > self.layouts[1]
        if self.result is not None and not gains:
            return "convert"
        return "optimize" if gains or any(self.layouts) else None

    def describe(
        self, name: str = "", *, verbose: bool = True, graphs: bool = True, error: str = ""
    ) -> Outcome:
        """Describe the inspection.

        Args:
            name: of the model, if it is not its path.
            verbose: whether all of it is described, as on a page.
            graphs: whether a page draws the graphs.
            error: why the command failed.
        """
        summary = self.conversion
        status = "failed" if error or self.refused else "inspected"
        outcome = Outcome(name or self.model, status, self._describe_contents())
        outcome.facts = interface(self.original.proto)
        if graphs:
            after = None if summary is None or self.result is None else self.result.proto
            outcome.shown = SideBySide.of(
                self.original.proto,
                after,
                self.named if summary is None else summary.replacements,
            )
        if summary is not None:
            outcome.remarks.append((f"after convert: {headline(summary)}", ""))
            if outcome.shown is not None:
                outcome.shown.sides = ("before", "after convert")
                outcome.add_figures(summary, types=False)
                outcome.add_replacements(summary)
        self._add_operators(outcome, None, verbose=verbose, tables=(True, True))
        outcome.add_limits(self.limits, verbose=verbose, when="after optimize, ")
        outcome.add_error(error)
        return outcome

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        from onnx_spatial.report.page import fragment  # jinja2

        return fragment(self.describe(graphs=False))

    def _describe_contents(self) -> str:
        """Count the operators of a model, and name its domains and versions."""
        if not self.named:
            spelled = sum(chain.op_type != Rearrange.name for chain in self.chains)
            if spelled:
                return f"no spatial operators by name; {spelled} written as standard nodes"
            return f"no spatial operators{'' if self.summary is not None else ', nothing to do'}"
        opset = "no opset" if self.opset is None else f"opset {self.opset}"
        spatial = [operator.domain for operator in self.named if operator.spatial]
        domains = ", ".join(map(repr, filter(None, dict.fromkeys(spatial))))
        where = f" in domain {domains}" if domains else ""
        what = [f"{count(len(spatial), 'spatial operator')}{where}"] if spatial else []
        if refused := len(self.named) - len(spatial):
            what.append(f"{count(refused, 'convolution')} that onnxruntime refuses")
        return f"{', '.join(what)}, {opset}, IR {self.ir_version}"

    def _add_operators(
        self,
        outcome: Outcome,
        check: dict[str, object] | None,
        *,
        verbose: bool,
        tables: tuple[bool, bool],
    ) -> None:
        """Add the operators and the chains, each perhaps with a table, and remarks on what is left."""
        outcome.operators = len(self.named)
        outcome.add_operators("Operators", self.named, check, shown=tables[0], verbose=verbose)
        outcome.add_operators("Chains", self.chains, check, shown=tables[1], verbose=verbose)
        if tables[1] and self.summary is not None:
            outcome.remarks.append((f"optimize: {self.summary}", ""))
        left = sum(not (chain.converted or chain.above_limit) for chain in self.chains)
        if left and not tables[1]:
            chains = count(left, "chain")
            what = f"{chains} of standard nodes left, with nothing to gain by a rewrite"
            outcome.remarks.append((what, ""))
        outcome.remarks += [(f"note: {one_line(note)}", "unverified") for note in self.notes]
        listed = {(o.domain, o.op_type) for o in self.operators if o.unknown_domain}
        lacking = [o.message for o in self.remaining if (o.domain, o.op_type) not in listed]
        outcome.add_lacking(lacking, verbose=verbose)


def _count_actions(operators: Sequence[OperatorReport]) -> str:
    """Count operators by what is done with them: "3 operators (2 fuse, 1 lower)"."""
    if not operators:
        return "no operators"
    actions = Counter(operator.action for operator in operators)
    counts = ", ".join(f"{number} {action}" for action, number in actions.items())
    return f"{count(len(operators), 'operator')} ({counts})"


@dataclass(repr=False)
class Conversion(Document):
    """A converted model, what was done with each operator, and the verification.

    Attributes:
        inspection: what was found in the original; `operators` has more of the operators.
        verification: result of the verification; None if `verify` was False or nothing changed.
        output: the file that was written; None if none was.
        backup: the original of a conversion in place, if it was kept.
        chains: the chains that `optimize` rewrote, apart from those that only move data.
        ir_original: the model that was passed, if it was an onnx_ir.Model.
    """

    KEYS = (
        "version model ir_version opset changed output backup operators nodes_before nodes_after "
        "summary touched layouts limits remaining notes verification"
    )

    inspection: Inspection
    verification: Verification | None = None
    output: Path | None = None
    backup: Path | None = None
    chains: Sequence[Chain] = ()
    ir_original: ir.Model | None = None

    def __repr__(self) -> str:
        verdict = "not verified" if self.verification is None else self.verification.status
        what = f"{self.nodes_before} -> {self.nodes_after} nodes, {verdict}"
        what = what if self.changed else "nothing to do"
        return one_line(
            f"<Conversion of {self.result.name}: {_count_actions(self.operators)}, {what}>"
        )

    @property
    def original(self) -> Source:
        """The model that was read."""
        return self.inspection.original

    @property
    def result(self) -> Source:
        """The converted model as it will be written."""
        return self.inspection.result or self.original

    @property
    def changed(self) -> bool:
        """Whether the converted model differs from the original."""
        return self.inspection.result is not None

    @property
    def operators(self) -> list[OperatorReport]:
        """Each operator, chains too, and what was done with it; once verified, what is proven."""
        if self.verification is None:
            return self.inspection.operators
        results_of_name = defaultdict[tuple[str, str], list[OperatorResult]](list)
        for result in self.verification.operators:
            results_of_name[result.graph, result.node].append(result)
        operators = []
        for operator in self.inspection.operators:
            # Operators of one name were verified in their order.
            if results := results_of_name[operator.graph, operator.node]:
                result = results.pop(0)
                operator = replace(operator, proven=result.proven, assumptions=result.assumptions)
            operators.append(operator)
        return operators

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

    def to_dict(self) -> dict[str, Any]:
        """Return version 2 of the report, ready for JSON; docs/report.md lists its keys."""
        of_inspection = "version model ir_version opset layouts limits remaining notes".split()
        return {
            key: plain(getattr(self.inspection if key in of_inspection else self, key))
            for key in self.KEYS.split()
        }

    def describe(
        self, name: str = "", *, verbose: bool = True, graphs: bool = True, error: str = ""
    ) -> Outcome:
        """Describe the conversion; the arguments are those of `Inspection.describe`."""
        found, summary = self.inspection, self.summary
        check = None if self.verification is None else self.verification.to_dict()
        verdict = "not verified" if self.verification is None else self.verification.status
        status = "failed" if error else verdict if self.changed else "nothing to do"
        what = self._nothing_done() if summary is None else headline(summary)
        if left := sum(operator.left_over for operator in found.named):
            what += f"; {count(left, 'operator')} left"
        outcome = Outcome(name or found.model, status, what)
        if graphs:
            after = self.model if self.changed else None
            outcome.shown = SideBySide.of(
                self.original.proto,
                after,
                found.operators if summary is None else summary.replacements,
            )
        if summary is not None:
            outcome.facts = interface(self.original.proto)
            if verbose:
                outcome.add_figures(summary, types=not graphs)
            outcome.add_replacements(summary, verbose=verbose)
        needed = not self.changed or not all(operator.converted for operator in found.named)
        tables = verbose or needed, verbose
        found._add_operators(outcome, check, verbose=verbose, tables=tables)
        for versions in self.touched.get("ir_version", ()):
            outcome.remarks.append((f"raised the IR version: {versions}", ""))
        outcome.add_limits(found.limits, verbose=verbose)
        if check is not None:
            outcome.checks = describe_check(check, self.operators, verbose=verbose)
        elif self.changed:
            outcome.checks = [Section("Verification", message="not verified")]
        outcome.add_error(error)
        return outcome

    def _nothing_done(self) -> str:
        found, limits = self.inspection, self.inspection.limits
        why = "no operators to convert" if found.named else "no spatial operators"
        if found.named and all(operator.action == "function" for operator in found.named):
            why = "its operators call local functions already"
        return f"{why}, nothing {'was changed' if limits and limits.nodes else 'to do'}"

    def _repr_html_(self) -> str:
        """Return the table and the verdict for a notebook."""
        from onnx_spatial.report.page import fragment  # jinja2

        return fragment(self.describe(graphs=False))

    def to_html(self) -> str:
        """Return an HTML page with what was done and how it was proven; it needs no other file.

        Raises:
            UsageError: jinja2 is missing.
        """
        from onnx_spatial.report.page import render  # jinja2

        return render("convert", [self.describe()])
