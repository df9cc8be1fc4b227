"""Describe an outcome once: the screen, the HTML page and a notebook render the same description.

Outcome  headline    "10 operators became 5 dilated convolutions; 226 -> 68 nodes, 80 -> 41 kB"
         parts       tables, and sentences below them
         remarks     what went wrong, and what is left
         checks      the verdict of each verification, and what it rests on

What a verification found comes as its JSON document: `validate` gets nothing else from other processes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onnx_spatial.errors import count, first_lines, list_names, one_line
from onnx_spatial.model.io import reader
from onnx_spatial.operators import Rearrange
from onnx_spatial.operators.operator import show
from onnx_spatial.report.figures import (
    duration,
    figure_rows,
    interface,
    names_by_sentence,
)
from onnx_spatial.verification.evidence import (
    SCOPES,
    UNCHANGED,
    OperatorResult,
    Unproven,
    count_proofs,
)

if TYPE_CHECKING:
    from onnx_spatial.conversion.limits import LimitReport, NodeBeyond
    from onnx_spatial.conversion.report import OperatorReport
    from onnx_spatial.conversion.summary import Summary
    from onnx_spatial.model.io.source import Source
    from onnx_spatial.report.graphs import SideBySide
    from onnx_spatial.verification import Verification

Json = Mapping[str, Any]
#: Position of the region of a node in the graphs, by graph and label.
Regions = Mapping[tuple[str, str], int | None]

#: What is shown without `verbose`: problems and rows of outputs, replaced operators, reasons why nodes
#: are beyond a limit.
_PROBLEMS, _REPLACEMENTS, _REASONS = 6, 12, 8
#: Last line of a list that is cut off without -v.
MORE = "{} more (-v shows them)"
#: Larger distances in ulp are no figures that help.
_MAX_ULP = 1_000_000

#: Columns of words that have a level, and of numbers.
_MARKED = {"action", "proven", "run", "result"}
NUMBERS = {"nodes", "estimated time", "before", "after"}
_LEVELS = {
    "passed": "passed xfailed lower fuse function custom-op ok agrees every fixed",
    "failed": "failed refuse DIFFERS",
    "unverified": "unverified leave interrupted not",
}
#: "passed", "failed" or "unverified" by the first word of a verdict or of a cell.
LEVELS = {word: level for level, words in _LEVELS.items() for word in words.split()}


@dataclass
class Table:
    """A table as cells by the head of their column; the first column names the rows.

    Columns without a word are left out, and that of graphs if it names only the main graph.

    Attributes:
        columns: cells by head, each in one line.
        spare: heads of the columns that are left out where there is no room, the first one first.
        regions: position in the regions of the graphs for each row; None if it is in none.
    """

    columns: Mapping[str, Sequence[str]]
    spare: tuple[str, ...] = ()
    regions: Sequence[int | None] = ()

    def __post_init__(self) -> None:
        self.columns = {
            head: list(map(one_line, cells))
            for head, cells in self.columns.items()
            if {*cells} - {"", "main graph" if head == "in" else ""}
        }

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells row by row."""
        return [*zip(*self.columns.values(), strict=True)]

    @staticmethod
    def level(head: str, cell: str) -> str:
        """Return whether a cell is good, in doubt or wrong; "" if it does not say."""
        return LEVELS.get(re.split("[: ]", cell)[0], "") * (head in _MARKED)

    @property
    def failed(self) -> int | None:
        """The first region in which something is wrong."""
        for region, row in zip(self.regions, self.rows, strict=False):
            levels = (self.level(*each) for each in zip(self.columns, row, strict=True))
            if region is not None and "failed" in levels:
                return region
        return None


@dataclass
class Section:
    """A section of a description: a sentence, perhaps with a verdict, a table, and lines below it.

    Attributes:
        title: heading on a page.
        table: None if there is none.
        lines: sentences.
        status: "passed", "failed" or "unverified"; empty if `message` is no verdict.
        message: the sentence at the top.
        value: graph and name of the first value that differs; None if there is none.
    """

    title: str
    table: Table | None = None
    lines: list[str] = field(default_factory=list)
    status: str = ""
    message: str = ""
    value: tuple[str, str] | None = None


@dataclass
class Outcome:
    """What became of one model.

    Attributes:
        name: of the model.
        status: the verdict in a word: "passed", "failed", "unverified", or another one.
        headline: the outcome in one line.
        facts: inputs and outputs of the model, by kind.
        parts: figures, replacements, operators, chains.
        remarks: sentences, each with a level: "failed", "unverified" or "".
        checks: the verifications, and the outputs that were compared.
        shown: the graphs before and after; None without them.
        operators: their number.
        command: line that repeats the work; empty if there is none.
        log: the end of what a process printed that broke down.
    """

    name: str
    status: str
    headline: str
    facts: dict[str, list[str]] = field(default_factory=dict)
    parts: list[Section] = field(default_factory=list)
    remarks: list[tuple[str, str]] = field(default_factory=list)
    checks: list[Section] = field(default_factory=list)
    shown: SideBySide | None = None
    operators: int = 0
    command: str = ""
    log: str = ""

    @property
    def opened(self) -> int | None:
        """The region that is drawn at first: of what failed, else the one that changed most."""
        tables = (part.table for part in self.parts if part.table is not None)
        failed = [table.failed for table in tables if table.failed is not None]
        largest = None if self.shown is None else self.shown.largest
        return failed[0] if failed else largest

    def add_figures(self, summary: Summary, *, types: bool) -> None:
        """Add the figures before and after; `types` names all types of nodes."""
        rows = map(list, zip(*figure_rows(summary, verbose=types), strict=True))
        columns = dict(zip(("figure", "before", "after"), rows, strict=True))
        self.parts.append(Section("Summary", Table(columns)))

    def add_replacements(self, summary: Summary, *, verbose: bool = True) -> None:
        """Add what took the place of nodes; the rows add up to all nodes."""
        replacements = summary.replacements
        named = replacements if verbose else replacements[:_REPLACEMENTS]
        rows = [(r.node, r.graph, r.what, r.nodes_before, r.nodes_after) for r in named]
        if left_out := replacements[len(named) :]:
            old = sum(replacement.nodes_before for replacement in left_out)
            new = sum(replacement.nodes_after for replacement in left_out)
            rows.append((MORE.format(len(left_out)), "", "", old, new))
        rows += [(name, "", what, old, new) for name, what, old, new in summary.other_nodes()]
        columns = {
            "operator or region": [node for node, *_ in rows],
            "in": [graph for _, graph, *_ in rows],
            "now": [product for _, _, product, *_ in rows],
            "nodes": [f"{old} -> {new}" for *_, old, new in rows],
        }
        regions = [*range(len(named)), *[None] * (len(rows) - len(named))]
        section = Section("Operators and regions", Table(columns, ("in",), regions))
        before, after = summary.before.nodes, summary.after.nodes
        if sum(before.values()) < sum(after.values()) and not summary.calls:
            computed = before.get("Shape", 0) < after.get("Shape", 0)
            sizes = "the new nodes compute sizes that the file leaves open"
            section.lines = [f"nodes grow: {sizes if computed else 'an operator takes several'}"]
        self.parts.append(section)

    def add_operators(
        self,
        title: str,
        operators: Sequence[OperatorReport],
        check: Json | None,
        *,
        shown: bool,
        verbose: bool,
    ) -> None:
        """Add operators or chains, with a table if they are `shown`, and what is to know of them."""
        lines = [*operator_lines(operators, shown=shown, verbose=verbose)]
        section = Section(title, lines=lines)
        if operators and shown:
            regions = {} if self.shown is None else self.shown.regions()
            section.table = operator_table(operators, check, regions)
            if title == "Chains":
                moves = any(operator.op_type == Rearrange.name for operator in operators)
                what = "only move data" if moves else "are spatial operators"
                section.message = f"chains of standard nodes that {what}:"
        self.parts += [section] if section.table or section.lines else []

    def add_lacking(self, messages: Sequence[str], *, verbose: bool) -> None:
        """Add remarks on the operators that onnxruntime lacks."""
        rest = "{} more operators that onnxruntime lacks"
        lines = first_lines(messages, None if verbose else _PROBLEMS, rest)
        self.remarks += [(one_line(message), "unverified") for message in lines]

    def add_limits(self, report: LimitReport | None, *, verbose: bool, when: str = "") -> None:
        """Add which nodes of a result are beyond the limit, a line for each reason, or that all fit.

        With `verbose` every reason and node is named. `when` starts the sentence.
        """
        if report is None:
            return
        if report.text is not None:
            self.remarks.append((f"{when}{report.text}:", "failed"))
            most = None if verbose else _REASONS
            reasons = _nodes_by_reason(report.nodes, most)
            lines = first_lines(reasons, most, "{} other reasons (-v shows all)")
        else:
            unknown = count(len(report.unknown), "node")
            others = f"; of {unknown} a rank is unknown (-v shows them)" if report.unknown else ""
            nodes = "every other node" if report.unknown else "every node"
            self.remarks.append((f"{when}{nodes} fits rank {report.max_rank}{others}", ""))
            lines = []
        if verbose:
            lines += [f"not compared: {line}" for line in _nodes_by_reason(report.unknown, None)]
        self.remarks += [(f"  {line}", "") for line in lines]

    def add_error(self, error: str) -> None:
        """Put why the command failed in front of the remarks, unless it is said already."""
        said = [self.headline, *(part.message for part in self.checks)]
        if error and not any(text and text in error for text in said):
            self.remarks.insert(0, (error, "failed"))


def describe_verification(
    found: Verification,
    original: reader.Model | Source | None = None,
    converted: reader.Model | Source | None = None,
    *,
    operators: Sequence[OperatorReport] = (),
    verbose: bool = True,
) -> Outcome:
    """Describe a comparison; with the two models also their graphs, by the name of the second.

    `operators` are those of which it is known how they were converted.

    Raises:
        ModelFileError: a model cannot be read.
    """
    document = found.to_dict()
    outcome = Outcome("", found.status, "", operators=len(found.operators))
    regions: Regions = {}
    if original is not None and converted is not None:
        before, after = (reader.read(each, data=False) for each in (original, converted))
        outcome.name = after.name
        from onnx_spatial.report.graphs import (
            SideBySide,  # loads lowerings, which a screen does without
        )

        outcome.facts = interface(before.proto)
        outcome.shown = SideBySide.of(before.proto, after.proto, found.operators)
        regions = outcome.shown.regions()
    outcome.checks = describe_check(document, operators, verbose=verbose)
    outcome.headline = outcome.checks[0].message if outcome.name else ""
    if verbose and (found.operators or found.parts):
        title = "Operators and changed parts" if found.parts else "Operators"
        compared = [*found.operators, *found.parts]
        outcome.parts = [Section(title, operator_table(compared, document, regions))]
    return outcome


def operator_table(
    operators: Sequence[OperatorReport | OperatorResult], check: Json | None, regions: Regions
) -> Table:
    """Make a table of operators; columns that say the same of all are left out.

    Args:
        operators: that were converted, or only compared.
        check: a `Verification.to_dict()`; None if nothing was verified.
        regions: of the nodes.
    """
    places = [(operator.graph, operator.node) for operator in operators]
    compared = [] if check is None else [*check["operators"], *check["parts"]]
    results = {_node_place(result): result for result in compared}
    checked = [results.get(place) for place in places] if results else []
    reports = [each for each in operators if not isinstance(each, OperatorResult)]
    columns = {
        "node": [operator.node for operator in operators],
        "operator": [operator.op_type for operator in operators],
        "in": [operator.graph for operator in operators],
        "function": [report.function or "" for report in reports],
        "data": [_data_cell(report) for report in reports],
        "action": [_action_cell(report) for report in reports],
        "nodes": [f"{report.nodes_before} -> {report.nodes_after}" for report in reports],
        "estimated time": [duration(report.estimated_us) for report in reports],
        "proven": [_proven_cell(result) for result in checked],
        "run": [_run_cell(result) for result in checked],
    }
    return Table(columns, ("estimated time", "data"), [regions.get(place) for place in places])


def _node_place(result: Json) -> tuple[str, str]:
    return result["graph"], result["node"]


def _data_cell(operator: OperatorReport) -> str:
    shapes = (operator.input_shape, operator.output_shape)
    before, after = ("?" if shape is None else show(shape) for shape in shapes)
    return f"{operator.element_type or '?'} {before} -> {after}"


def _action_cell(operator: OperatorReport) -> str:
    action = ": ".join(filter(None, (operator.action, operator.lowering)))
    if operator.absorbed:
        action += f" with {count(len(operator.absorbed), 'other node')}"
    return action


def _proven_cell(result: Json | None) -> str:
    if result is None:
        return ""
    return SCOPES[result["proven"]] if result["proven"] or result["unproven"] else ""


def _run_cell(result: Json | None) -> str:
    if result is None:
        return ""
    if result["counterexample"] is not None:
        return "DIFFERS"
    return "agrees" if result["ran"] else result["reason"] or ""


def operator_lines(
    operators: Sequence[OperatorReport], *, shown: bool = True, verbose: bool = True
) -> Iterator[str]:
    """Yield why operators are left or not fused (if they are `shown`), and what is to know of them.

    With `verbose` their other lowerings follow.
    """
    names = [one_line(f"'{operator.node}'") for operator in operators]
    named = list(zip(names, operators, strict=True))
    for state, is_refused in (("cannot be converted", True), ("{} not converted", False)):
        reasons = [(n, o.reason) for n, o in named if (o.action == "refuse") is is_refused]
        yield from _by_reason(state, ((name, r) for name, r in reasons if r and shown))
    declined = ((n, one_line(reason)) for n, o in named for reason in o.declined)
    yield from _by_reason("{} not fused", declined if shown else ())
    noted = ((name, note) for name, o in named for note in o.notes)
    yield from (f"{list_names(who)}: {note}" for note, who in names_by_sentence(noted).items())
    for name, operator in named if verbose and shown else ():
        if len(operator.candidates) > 1:
            times = (f"{c.lowering} ({duration(c.estimated_us)})" for c in operator.candidates)
            yield f"lowerings of {name}, with estimated times: {', '.join(times)}"


def _by_reason(state: str, reasons: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each reason: "a, b and 12 more are not fused: the reason"."""
    return [
        f"{list_names(names)} {state.format('is' if len(names) == 1 else 'are')}: {reason}"
        for reason, names in names_by_sentence(reasons).items()
    ]


def _nodes_by_reason(nodes: Sequence[NodeBeyond], most: int | None) -> list[str]:
    """Return a line for each reason: "Tile: computes rank 6: a, b; the chain stays: why".

    All nodes are named if `most` is None.
    """
    names_of: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        kept = "" if node.kept is None else f"; the chain stays: {node.kept}"
        names_of.setdefault((f"{node.op_type}: {node.reason}", kept), []).append(node.node)
    return [
        one_line(f"{reason}: {', '.join(names) if most is None else list_names(names)}{kept}")
        for (reason, kept), names in names_of.items()
    ]


def describe_check(
    check: Json,
    operators: Sequence[OperatorReport] = (),
    of: str = "",
    *,
    verbose: bool = True,
) -> list[Section]:
    """Describe a verification: the verdict, what it rests on, and the outputs.

    Args:
        check: a `Verification.to_dict()`.
        operators: those that were converted, if that is known.
        of: what was verified; empty if there is one verification only.
        verbose: whether all is described.
    """
    status = check["status"]
    message = check["message"].removeprefix(f"{status}: ")
    if status == "failed":
        problems = [problem for problem in check["problems"] if not message.startswith(problem)]
    else:
        unproven = (Unproven(**part) for part in check["unproven"])
        others = ((part.node, part.reason) for part in unproven if str(part) not in message)
        problems = _by_reason("{} not proven", others)
    message = re.sub(r" \(and \d+ more\)", "", message)  # the lines below have them
    lines = first_lines(problems, None if verbose else _PROBLEMS, MORE)
    lines += _explain_difference(check, operators)
    lines += [note for note in check["notes"] if note not in message]
    scopes = [each["proven"] or "" for each in check["operators"] if each["reason"] != UNCHANGED]
    if status == "unverified" and any(scopes):
        lines.append(count_proofs(scopes))
    if verbose:
        lines += list_assumptions(check["operators"])
    section = Section("Verification", lines=lines, status=status, message=message)
    if of:
        section.title = f"Verification: {of}"
        section.message = f"{of}: {message}"
    if (value := check["first_value"]) is not None:
        section.value = value["graph"], value["name"]
    if not (verbose or status == "failed"):
        return [section]
    return [section, *output_parts(check["outputs"], verbose=verbose)]


def _explain_difference(check: Json, operators: Sequence[OperatorReport]) -> Iterator[str]:
    """Yield where two models begin to differ, how to see it again, and what to do."""
    differing = {_node_place(o) for o in check["operators"] if o["counterexample"] is not None}
    advice = [_other_way(each) for each in operators if (each.graph, each.node) in differing]
    value, shown = check["first_value"], check["first_difference"]
    if value and not (shown and (shown["kind"], shown["name"]) == ("value", value["name"])):
        node = f"{value['op_type']} node {value['node']!r} ({value['graph']})"
        what = f"{value['name']!r} {show(value['shape'])}, of {node}: {value['reason']}"
        yield f"the first value that differs is {what}"
    if check["reproducer"] is not None:
        yield f"reproduce it with: python {check['reproducer']}"
    if advice:
        yield from dict.fromkeys(advice)
    elif check["advice"] is not None:
        yield f"what to do: {check['advice']}"


def _other_way(operator: OperatorReport) -> str:
    """Name the lowering of an operator that differs, and another one that is possible for it."""
    lowerings = [candidate.lowering for candidate in operator.candidates]
    others = [lowering for lowering in lowerings if lowering != operator.lowering]
    fused = operator.action == "fuse" or operator.absorbed
    advice = "--no-fuse" if fused else f"--prefer {others[0]}" if others else ""
    what = f"'{operator.node}' was converted by {operator.action}: {operator.lowering}"
    return one_line(f"{what}; {f'try {advice}, and ' if advice else 'please '}report it")


def list_assumptions(operators: Sequence[Json]) -> Iterator[str]:
    """Yield what the proofs of operators assume, each with the operators that it is assumed for."""
    proven = sum(bool(operator["assumptions"]) for operator in operators)
    assumed = ((each["node"], text) for each in operators for text in each["assumptions"])
    for assumption, nodes in names_by_sentence(assumed).items():
        which = "" if len(nodes) == proven else f" (for {list_names(nodes)})"
        yield one_line(f"assumed: {assumption}{which}")


def output_parts(
    outputs: Sequence[Json], title: str = "Outputs", *, verbose: bool = True
) -> list[Section]:
    """Describe comparisons of outputs, and of the worst one the worst elements.

    Args:
        outputs: each an `OutputResult`, as a dict.
        title: of the part.
        verbose: whether all are described; else of each output that differs the worst comparison.
    """
    if verbose:
        rows = sorted(outputs, key=_error_order, reverse=True)
    else:  # of each output the run that the verdict speaks of
        differing = [output for output in outputs if output["passed"] is not True]
        first_run = {output["name"]: output for output in reversed(differing)}
        rows = [*reversed(first_run.values())][:_PROBLEMS]
    if not rows:
        return []
    section = Section(title, _output_table(rows))
    if len(rows) < len(outputs):
        counts = f"{len(differing)} of {len(outputs)}"
        section.lines = [f"{counts} comparisons of outputs differ (-v shows all)"]
    worst = rows[0]
    if not verbose or not worst["worst_elements"]:
        return [section]
    elements = worst["worst_elements"]
    columns = {"index": [show(each["index"]) for each in elements]}
    columns |= {side: [each[side] for each in elements] for side in ("original", "converted")}
    what = f"the elements of {worst['name']!r} with the largest errors:"
    return [section, Section("", Table(columns), message=what)]


def _error_order(output: Json) -> tuple[bool, bool, float]:
    """Return what sorts comparisons: those that differ, then those without a verdict, by error."""
    error = output["max_relative_error"]  # in JSON an infinite error is null
    infinite = math.inf if "inf" in output["error_decades"] else 0.0
    return output["passed"] is False, output["passed"] is None, infinite if error is None else error


def _output_table(outputs: Sequence[Json]) -> Table:
    results = {True: "ok", False: "DIFFERS", None: "not compared"}
    columns = {
        "output": [output["name"] for output in outputs],
        "data": [output.get("set", "") for output in outputs],
        "mode": [output.get("mode") or "" for output in outputs],
        "type": [output["dtype"] for output in outputs],
        "shape": [show(output["shape"]) for output in outputs],
        "optimisations": ["on" if output["optimised"] else "off" for output in outputs],
        "largest error": [_largest_error(output) for output in outputs],
        "mean": [_error_cell(output["mean_relative_error"]) for output in outputs],
        "99 %": [_error_cell(output["p99_relative_error"]) for output in outputs],
        "distance": [_ulp_cell(output["max_steps"]) for output in outputs],
        "allowed": [_allowed_cell(output) for output in outputs],
        "result": [results[output["passed"]] for output in outputs],
    }
    return Table(columns, ("mean", "99 %", "distance", "type", "shape"))


def _largest_error(output: Json) -> str:
    if output["equal_bits"]:
        return "equal bits"
    error = output["max_relative_error"]
    lacking = "NaN, inf" if "inf" in output["error_decades"] else "-"
    return lacking if error is None else f"{error:.1e}"


def _ulp_cell(steps: float | None) -> str:
    if steps is None:
        return ""
    return f"{steps:.0f} ulp" if steps <= _MAX_ULP else "> 1e6 ulp"


def _allowed_cell(output: Json) -> str:
    if not output["tolerance"] and not output["atol"]:
        return "equal bits" if output["max_steps"] is not None or output["passed"] else ""
    also = f" + {output['atol']:.0e}" if output["atol"] else ""
    return f"{output['tolerance']:.0e}{also}"


def _error_cell(error: float | None) -> str:
    return "" if error is None else "0" if not error else f"{error:.1e}"
