"""Count the operators that are proven after a conversion, and time the proofs.

    python -m benchmarks.proofs [--only PART ...] [--cases 2000] [--pages]

Parts: `operators` (every lowering on tests/grid), `cases` (the same on the cases of the tests),
`nets` (models/), `regions` (random fused regions of the tests). Nothing is run: `verify` does that.
With --pages the tables go into docs/internals/index-maps.md.
Times are processor time. Equal operators of a model share a proof, which counts once.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import click
import onnx

import onnx_spatial
from benchmarks import results
from onnx_spatial.conversion.options import STRATEGY_NAMES
from onnx_spatial.errors import SpatialError
from onnx_spatial.verification.checks import proof
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.sizes.reference_runs import RunRequest

ROOT = Path(__file__).resolve().parent.parent
#: Where the grid, the cases and the random regions are: what pytest's `pythonpath` does.
TESTS = (ROOT / "tests", ROOT / "tests" / "fusion")

#: The pages of the tables and of their sums, and the lines around them.
PAGE = ROOT / "docs" / "internals" / "index-maps.md"
BEGIN, END = "<!-- proofs: python -m benchmarks.proofs --pages -->", "<!-- end of proofs -->"

SCOPES = ("all sizes", "these sizes", "sampled")
#: Columns of `operators`: the forms of tests/grid, similar ones together.
COLUMNS = {
    "static_1d": "static",
    "static_2d": "static",
    "static_3d": "static",
    "run_time": "run-time",
    "subgraph_if": "If",
    "subgraph_loop": "Loop",
    "subgraph_scan": "Scan",
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


@dataclass(frozen=True)
class Outcome:
    """What is said of one operator of a conversion.

    Attributes:
        row, column: of the table.
        scope: one of SCOPES, or "disproved".
        reason: why it is sampled.
        seconds: that the proof took; None if that of an equal operator was there.
    """

    row: str
    column: str
    scope: str
    reason: str
    seconds: float | None


def prove(
    model: Path | onnx.ModelProto, row: str, column: str, options: Mapping[str, str]
) -> Iterator[Outcome]:
    """Convert a model and prove its operators; with a strategy, those that it lowers."""
    try:
        converted = onnx_spatial.convert(model, verify=False, **options)  # type: ignore[arg-type]
    except SpatialError:
        return  # this strategy or mode does not take the model
    wanted = options.get("prefer")
    strategies = [site.lowering for site in converted.operators]
    if row in STRATEGY_NAMES and wanted not in strategies:
        return
    marks: list[tuple[float, int]] = []

    def mark(_: str = "") -> None:
        marks.append((process_time(), len(context.proofs) + len(context.region_proofs)))

    pair = ModelPair.read(model, converted.model, ()).resolved().without_earlier_form()
    context = Context(pair, RunRequest(None, {}, 0, mark))
    proof.check(context)  # which reports progress before each operator
    mark()
    for number, operator in enumerate(context.findings.operators):
        if row not in STRATEGY_NAMES or strategies[number] == wanted:
            result = operator.result
            scope = result.proven or ("disproved" if result.counterexample else "sampled")
            reason = result.proof_reason or result.reason or ""
            (start, before), (end, after) = marks[number : number + 2]
            yield Outcome(row, column, scope, reason, end - start if after > before else None)


def operators() -> Iterator[Outcome]:
    """Prove the grid of tiny models after every lowering."""
    sys.path[:0] = map(str, TESTS)
    import grid

    for cell in grid.CELLS:
        for row, options in LOWERINGS.items():
            yield from prove(grid.model(cell), row, COLUMNS.get(cell.form, cell.form), options)


def cases() -> Iterator[Outcome]:
    """Prove the valid cases of the tests after every lowering: known, symbolic, run-time parameters."""
    sys.path[:0] = map(str, TESTS)
    from cases import load

    for case in load():
        if case.error is not None:
            continue
        forms = [
            ("static", case.model()),
            ("symbolic", case.model(symbolic=True)),
            ("static, run-time", case.model(run_time_parameters=True)),
            ("symbolic, run-time", case.model(symbolic=True, run_time_parameters=True)),
        ]
        for column, model in forms[: 4 if len(case.inputs) > 1 else 2]:
            for row, options in LOWERINGS.items():
                yield from prove(model, row, column, options)


def nets() -> Iterator[Outcome]:
    """Prove the nets of models/, fused."""
    for path in sorted((ROOT / "models").glob("*/model.onnx")):
        yield from prove(path, path.parent.name, "operators", {})


def regions(count: int) -> Iterator[Outcome]:
    """Prove random regions between SpaceToBatch and BatchToSpace, fused."""
    sys.path[:0] = map(str, TESTS)
    import regions as campaign

    for number in range(count):
        case = campaign.build(0, number, None)
        yield from prove(case.model, case.labels["kind"], case.labels["mode"], {})


def share(outcomes: Iterable[Outcome]) -> str:
    """Return "12" if all of 12 are proven, "11 of 12" if not."""
    scopes = [outcome.scope for outcome in outcomes]
    proven = sum(scope in SCOPES[:2] for scope in scopes)
    return str(proven) if proven == len(scopes) else f"{proven} of {len(scopes)}"


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
        cells = [share(o for o in row if o.column == column) for column in columns]
        counts = [str(sum(o.scope == scope for o in row)) for scope in SCOPES]
        cells = ["" if cell == "0" else cell for cell in cells] if len(columns) > 1 else []
        proven = sum(o.scope in SCOPES[:2] for o in row) / len(row)
        yield f"| {' | '.join([name, *cells, *counts, f'{100 * proven:.1f} %'])} |"


def reasons(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield why operators are sampled, the most frequent reason first; names and numbers left out."""
    counted = Counter(
        general(o.reason) if o.scope == "sampled" else o.scope
        for o in outcomes
        if o.scope not in SCOPES[:2]
    )
    if counted:
        yield from ("", "| not proven | operators |", "|---|---|")
    for reason, count in counted.most_common():
        yield f"| {reason} | {count} |"


def general(reason: str) -> str:
    """Return a reason without the names and formulas of one model."""
    if reason.startswith("the element at "):
        return "elements whose maps are not provably equal"
    if re.match(r"dim \d+ of the output is ", reason):
        return "sizes that are not provably equal"
    reason = re.sub(r": [^:]* (may be negative|may differ)$", r" \1", reason)
    return re.sub(r"'[^']*'", "'..'", reason).replace("|", "\\|")[:120]


def times(outcomes: Sequence[Outcome]) -> str:
    """Return a sentence on the processor time of the proofs."""
    seconds = sorted(o.seconds for o in outcomes if o.seconds is not None)
    if len(seconds) < 2:
        return ""
    high = statistics.quantiles(seconds, n=20)[-1]
    middle = statistics.median(seconds)
    return (
        f"{len(outcomes)} operators, {len(seconds)} proofs. "
        f"Time of a proof: median {1e3 * middle:.0f} ms, "
        f"95 % below {1e3 * high:.0f} ms, at most {1e3 * seconds[-1]:.0f} ms."
    )


def sums(parts: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    """Yield the lines of a table with a few rows for each part."""
    yield f"| conversions | operators | {' | '.join(SCOPES)} |"
    yield "|---" * 5 + "|"
    for part, outcomes in parts.items():
        named = {TITLES[part]: [o for o in outcomes if o.row not in LOWERINGS]}
        for name, rows in SUMMED.items():
            named[f"{TITLES[part]}, {name}"] = [o for o in outcomes if o.row in rows]
        for name, some in named.items():
            if some:
                counts = [sum(o.scope == scope for o in some) for scope in SCOPES]
                yield f"| {name} | {' | '.join(f'{n:,}' for n in (len(some), *counts))} |"


#: The first column of each part, and what the part is.
HEADS = {"operators": "lowering", "cases": "lowering", "nets": "net", "regions": "kind"}
TITLES = {
    "operators": "the grid of tiny models",
    "cases": "the cases of the tests",
    "nets": "the nets of `models/`, fused",
    "regions": "random models with regions that are fused",
}
#: Rows of `operators` and `cases` that are summed up.
SUMMED = {
    "default": ("default",),
    "`--mode function`": ("mode function",),
    "each lowering that applies": STRATEGY_NAMES,
}


@click.command(help=__doc__)
@click.option("--only", "parts", type=click.Choice(list(HEADS)), multiple=True)
@click.option("--cases", "count", default=2000, help="number of random regions")
@click.option("--pages", is_flag=True, help="put the tables into the pages of docs/")
def main(parts: Sequence[str], count: int, pages: bool) -> None:
    """Print the tables."""
    sources = {"operators": operators, "cases": cases, "nets": nets}
    proven, sections = {}, []
    for part in parts or HEADS:
        outcomes = list(regions(count) if part == "regions" else sources[part]())
        lines = [f"### {TITLES[part].capitalize()}", "", *table(HEADS[part], outcomes)]
        sections.append("\n".join([*lines, *reasons(outcomes), "", times(outcomes)]))
        click.echo(sections[-1])
        proven[part] = outcomes
    click.echo("\n" + "\n".join(sums(proven)))
    if pages:
        results.put(PAGE, BEGIN, END, "\n\n".join(sections))


if __name__ == "__main__":
    main()
