"""Count the operators that are proven after a conversion, and measure the proofs.

    python -m benchmarks.proofs [--only PART ...] [--cases 2000] [--pages]

Parts: `operators` (every lowering on tests/grid), `cases` (the same on the cases of the tests),
`nets` (models/), `regions` (random fused regions of the tests). Nothing is run: `verify` does that.
With --pages the tables go into docs/internals/index-maps.md.
Times are processor time. Equal parts of a model share a proof, which counts once.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import click
import onnx

import onnx_spatial
from benchmarks import results
from onnx_spatial.conversion.options import STRATEGY_NAMES
from onnx_spatial.errors import SpatialError
from onnx_spatial.verification.match.matches import find
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.prove.proof import Proof
from onnx_spatial.verification.prove.prover import Prover

ROOT = Path(__file__).resolve().parent.parent
# What pytest's `pythonpath` does: the grid, the cases and the random regions.
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "fusion")]

#: The page of the tables, and the lines around them.
PAGE = ROOT / "docs" / "internals" / "index-maps.md"
BEGIN, END = "<!-- proofs: python -m benchmarks.proofs --pages -->", "<!-- end of proofs -->"

SCOPES = ("all sizes", "these sizes", "sampled")
#: Columns of `operators`: the forms of tests/grid, similar ones together.
COLUMNS = {
    **dict.fromkeys(("static_1d", "static_2d", "static_3d"), "static"),
    "run_time": "run-time",
    **{f"subgraph_{name.lower()}": name for name in ("If", "Loop", "Scan")},
    "quantised_integers": "quantised",
}
#: Columns of the tables in their order.
ORDER = (
    *("operators", "static", "symbolic", "dynamic", "static, run-time", "symbolic, run-time"),
    *("run-time", "computed", "overridable", "If", "Loop", "Scan", "function", "quantised"),
)
#: Rows of `operators` and `cases`, with the options of the conversion.
LOWERINGS: dict[str, dict[str, str]] = {
    "default": {},
    "mode function": {"mode": "function"},
    **{name: {"prefer": name} for name in STRATEGY_NAMES},
}


Model = Path | onnx.ModelProto
#: Models with their rows, or "" for a row for each lowering, and columns.
Sources = Iterator[tuple[str, str, Model]]


@dataclass(frozen=True)
class Outcome:
    """What is proven of one operator of a conversion.

    Attributes:
        row, column: of the table.
        scope: one of SCOPES.
        reason: why it is sampled.
        steps, seconds: that new proofs took; 0 if those of equal parts were there.
    """

    row: str
    column: str
    scope: str
    reason: str
    steps: int
    seconds: float


def prove(model: Model, row: str, column: str, options: Mapping[str, str]) -> Iterator[Outcome]:
    """Convert a model and prove its operators; with a strategy, those that it lowers."""
    try:
        converted = onnx_spatial.convert(model, verify=False, **options)  # type: ignore[arg-type]
    except SpatialError:
        return  # this strategy or mode does not take the model
    wanted = options.get("prefer")
    lowerings = [site.lowering for site in converted.operators]
    if wanted is not None and wanted not in lowerings:
        return
    models = ModelPair.read(model, converted.model, ()).prepared()
    matches = find(models)
    prover = Prover(models, matches)
    known: dict[int, Proof] = {}
    for info, lowering in zip(models.infos, lowerings, strict=True):
        if wanted not in (None, lowering):
            continue
        steps, start = prover.steps, process_time()
        parts = [n for n, part in enumerate(matches.changed) if info.index in part.nodes]
        known |= {n: prover.prove(matches.changed[n]) for n in parts if n not in known}
        lost = [each.reason for each in matches.unmatched if info.index in each.nodes]
        scope, reason = _joined([known[n] for n in parts], lost)
        yield Outcome(row, column, scope, reason, prover.steps - steps, process_time() - start)


def _joined(proofs: Sequence[Proof], lost: Sequence[str]) -> tuple[str, str]:
    """Return what is proven of an operator by the proofs of its parts, and why not more."""
    differ, other = "the formulas differ", "other formula"
    unproven = [proof for proof in proofs if proof.scope is None]
    reasons = [*lost, *(differ if p.found == other else p.reason for p in unproven)]
    if reasons or not proofs:
        return "sampled", (*reasons, "no part of the original")[0]
    return max((proof.scope or "" for proof in proofs), key=SCOPES.index), ""


def operators(count: int) -> Sources:
    """Yield the grid of tiny models, for every lowering."""
    import grid

    for cell in grid.CELLS:
        yield "", COLUMNS.get(cell.form, cell.form), grid.model(cell)


def cases(count: int) -> Sources:
    """Yield the valid cases of the tests, for every lowering: known, symbolic, run-time parameters."""
    from cases import load

    for case in load():
        for sizes in ("static", "symbolic") if case.error is None else ():
            yield "", sizes, case.model(symbolic=sizes == "symbolic")
            if len(case.inputs) > 1:
                model = case.model(symbolic=sizes == "symbolic", run_time_parameters=True)
                yield "", f"{sizes}, run-time", model


def nets(count: int) -> Sources:
    """Yield the nets of models/."""
    for path in sorted((ROOT / "models").glob("*/model.onnx")):
        yield path.parent.name, "operators", path


def regions(count: int) -> Sources:
    """Yield random regions between SpaceToBatch and BatchToSpace."""
    import regions as campaign

    for number in range(count):
        case = campaign.build(0, number, None)
        yield case.labels["kind"], case.labels["mode"], case.model


#: Each part: what yields its models, the first column of its table, and its title.
PARTS = {
    "operators": (operators, "lowering", "The grid of tiny models"),
    "cases": (cases, "lowering", "The cases of the tests"),
    "nets": (nets, "net", "The nets of `models/`, fused"),
    "regions": (regions, "kind", "Random models with regions that are fused"),
}


def table(head: str, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the lines of a table of the shares by row and column, and of how much is proven."""
    columns = sorted({o.column for o in outcomes}, key=ORDER.index)
    rows = list(dict.fromkeys(o.row for o in outcomes))
    order = [name for name in LOWERINGS if name in rows] or sorted(rows)
    heading = [head, *(columns if len(columns) > 1 else []), *SCOPES, "proven"]
    yield f"| {' | '.join(heading)} |"
    yield "|---" * len(heading) + "|"
    for name in [*order, "all"]:
        row = [o for o in outcomes if name in (o.row, "all")]
        cells = []
        for column in columns if len(columns) > 1 else ():
            scopes = [o.scope for o in row if o.column == column]
            proven, count = len(scopes) - scopes.count("sampled"), len(scopes)
            cells.append(f"{proven} of {count}" if proven < count else str(count or ""))
        counts = [sum(o.scope == scope for o in row) for scope in SCOPES]
        percent = f"{100 * sum(counts[:2]) / len(row):.1f} %"
        yield f"| {' | '.join([name, *cells, *map(str, counts), percent])} |"


def reasons(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield why operators are sampled, the most frequent reason first; names and numbers left out."""
    counted = Counter(general(o.reason) for o in outcomes if o.scope == "sampled")
    if counted:
        yield from ("", "| not proven | operators |", "|---|---|")
    for reason, count in counted.most_common():
        yield f"| {reason} | {count} |"


def general(reason: str) -> str:
    """Return a reason without the names and formulas of one model."""
    reason = re.sub(r" \(.*", "", reason.removeprefix("gave up: "))
    reason = re.sub(r": [^:]* (may be negative|may differ)$", r" \1", reason)
    return re.sub(r"'[^']*'", "'..'", reason).replace("|", "\\|")


def measured(outcomes: Sequence[Outcome]) -> str:
    """Return a sentence on the steps and the processor time of the proofs."""
    new = [o for o in outcomes if o.steps]
    seconds = sorted(o.seconds for o in new)
    if len(new) < 2:
        return ""
    return (
        f"{len(outcomes)} operators, {len(new)} proofs of at most {max(o.steps for o in new)} steps. "
        f"Time of a proof: median {1e3 * statistics.median(seconds):.0f} ms, "
        f"95 % below {1e3 * statistics.quantiles(seconds, n=20)[-1]:.0f} ms, "
        f"at most {1e3 * seconds[-1]:.0f} ms."
    )


@click.command(help=__doc__)
@click.option("--only", "parts", type=click.Choice(list(PARTS)), multiple=True)
@click.option("--cases", "count", default=2000, help="number of random regions")
@click.option("--pages", is_flag=True, help="put the tables into the pages of docs/")
def main(parts: Sequence[str], count: int, pages: bool) -> None:
    """Print the tables."""
    sections = []
    for part in parts or PARTS:
        make, head, title = PARTS[part]
        found = [
            outcome
            for row, column, model in make(count)
            for name, options in ({row: {}} if row else LOWERINGS).items()
            for outcome in prove(model, name, column, options)
        ]
        lines = [f"### {title}", "", *table(head, found), *reasons(found), "", measured(found)]
        sections.append("\n".join(lines))
        click.echo(sections[-1])
    if pages:
        results.put(PAGE, BEGIN, END, "\n\n".join(sections))


if __name__ == "__main__":
    main()
