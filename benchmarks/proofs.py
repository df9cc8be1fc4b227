"""Count the operators that are proven after a conversion, by lowering, and measure the proofs.

    python -m benchmarks.proofs                  every lowering and mode on tests/grid: some minutes
    python -m benchmarks.proofs MODEL...         the default conversion of some files

Nothing is run: `verify` does that. Times are processor time. Equal parts of a model share a proof, whose
steps count once; the prover gives up at `PART_STEPS` and `MODEL_STEPS`
of `verification.prove.prover`.
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
from onnx_spatial.conversion.options import LOWERING_NAMES
from onnx_spatial.errors import SpatialError
from onnx_spatial.verification.match.matches import find
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.prove.prover import Proof, Prover

TESTS = Path(__file__).resolve().parent.parent / "tests"
#: What may be proven of an operator, the strongest first.
SCOPES = ("all sizes", "these sizes", "not proven")
#: Rows of the table of the grid, with the options of the conversion.
LOWERINGS: dict[str, dict[str, str]] = {
    "default": {},
    "mode function": {"mode": "function"},
    **{name: {"prefer": name} for name in LOWERING_NAMES},
}


@dataclass(frozen=True)
class Outcome:
    """What is proven of one operator of a conversion.

    Attributes:
        row: of the table.
        scope: one of SCOPES.
        reason: why it is not proven.
        steps, seconds: that new proofs took; 0 if those of equal parts were there.
    """

    row: str
    scope: str
    reason: str
    steps: int
    seconds: float


def prove(model: Path | onnx.ModelProto, row: str, options: Mapping[str, str]) -> Iterator[Outcome]:
    """Convert a model and prove its operators; with `prefer`, those that it lowers."""
    try:
        converted = onnx_spatial.convert(model, verify=False, **options)  # type: ignore[arg-type]
    except SpatialError:
        return  # this lowering or mode does not take the model
    wanted = options.get("prefer")
    lowerings = [operator.lowering for operator in converted.operators]
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
        yield Outcome(row, scope, reason, prover.steps - steps, process_time() - start)


def _joined(proofs: Sequence[Proof], lost: Sequence[str]) -> tuple[str, str]:
    """Return what is proven of an operator by the proofs of its parts, and why not more."""
    unproven = [proof for proof in proofs if proof.scope is None]
    differ = "the formulas differ"
    reasons = [*lost, *(differ if p.found == "other formula" else p.reason for p in unproven)]
    if reasons or not proofs:
        return "not proven", (*reasons, "no part of the original")[0]
    return max((proof.scope or "" for proof in proofs), key=SCOPES.index), ""


def rows(outcomes: Sequence[Outcome]) -> Iterator[tuple[object, ...]]:
    """Yield the rows of the table."""
    for name in [*dict.fromkeys(o.row for o in outcomes), "all"]:
        row = [o for o in outcomes if name in (o.row, "all")]
        counts = [sum(o.scope == scope for o in row) for scope in SCOPES]
        new = [o for o in row if o.steps] or row
        milliseconds = sorted(1e3 * o.seconds for o in new)
        most = max(o.steps for o in new)
        median = f"{statistics.median(milliseconds):.0f} ms"
        yield name, len(row), *counts, most, median, f"{milliseconds[-1]:.0f} ms"


def general(reason: str) -> str:
    """Return a reason without the names and formulas of one model."""
    reason = re.sub(r" \(.*", "", reason.removeprefix("gave up: "))
    reason = re.sub(r": [^:]* (may be negative|may differ)$", r" \1", reason)
    return re.sub(r"'[^']*'", "'..'", reason).replace("|", "\\|")


@click.command(help=__doc__)
@click.argument("models", nargs=-1, type=click.Path(path_type=Path, exists=True))
def main(models: Sequence[Path]) -> None:
    """Print the tables."""
    outcomes = [each for path in models for each in prove(path, path.parent.name, {})]
    if not models:
        sys.path.insert(0, str(TESTS))  # what pytest's `pythonpath` does
        import grid

        cells = [grid.model(cell) for cell in grid.CELLS]
        for name, options in LOWERINGS.items():
            outcomes += [each for model in cells for each in prove(model, name, options)]
    head = ("conversion", "operators", *SCOPES, "most steps", "median", "longest")
    click.echo(f"{results.heading()}\n\n{results.table(head, rows(outcomes))}\n")
    reasons = Counter(general(o.reason) for o in outcomes if o.scope == "not proven")
    click.echo(results.table(("not proven", "operators"), reasons.most_common()))


if __name__ == "__main__":
    main()
