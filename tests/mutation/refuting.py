"""Look for wrong proofs: prove wrong conversions, and run what is proven.

    python tests/mutation/refuting.py written                           models by hand (`wrong_models`)
    python tests/mutation/refuting.py targeted --number 2000 -j 2       wrong for rare sizes (`targeted`)
    python tests/mutation/refuting.py general --share 1 --seeds 0 1 -j 2     mutants of `mutating`

prints how many were made and how many of them the prover wrongly proves; every one of those by name.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

if __name__ in ("__main__", "__mp_main__"):  # what pytest's `pythonpath` does
    _TESTS = Path(__file__).parents[1]
    sys.path[:0] = [str(_TESTS), str(_TESTS / "campaign"), str(_TESTS / "mutation")]

import mutating
import proving
import subjects
import targeted
from proving import Replaced
from wrong_models import WRONG

from onnx_spatial import SpatialError
from onnx_spatial.conversion.options import STRATEGY_NAMES


@dataclass(frozen=True)
class Outcome:
    """What the prover says of one operator of a conversion.

    Attributes:
        kind: class of the mistake.
        what: the mistake.
        wrong: how the nodes differ from the operator in a run; None if they do not, as far as was tried.
        proven: whether the prover says that they do not.
        disproved: whether it says that they do.
        reason: why it says neither.
        crash: the exception, if it raised one.
    """

    kind: str
    what: str
    wrong: str | None = None
    proven: bool = False
    disproved: bool = False
    reason: str = ""
    crash: str = ""


def _outcome(kind: str, what: str, replaced: Replaced, wrong: str | None) -> Outcome:
    answer = replaced.answer()
    return Outcome(kind, what, wrong, answer.proven, answer.disproved, answer.reason)


def _crashed(kind: str, what: str, error: Exception) -> Outcome:
    return Outcome(kind, what, crash=f"{type(error).__name__}: {error}")


def written(number: int) -> Outcome:
    """Ask about a model of `wrong_models`."""
    wrong, kind = WRONG[number], "written by hand"
    try:
        replaced = proving.proven(*wrong.models())[wrong.operator]
    except (SpatialError, MemoryError):
        raise
    except Exception as error:
        return _crashed(kind, wrong.name, error)
    difference = wrong.outside or replaced.refutation(wrong.inputs())
    return _outcome(kind, wrong.name, replaced, difference)


def drawn(seed: int) -> list[Outcome]:
    """Ask about a targeted mutant, if it is really wrong, and its twin."""
    mutant = targeted.draw(seed)
    what = f"{seed}: {', '.join(mutant.what)}"
    (replaced,) = proving.replaced(mutant.original, mutant.mutant)
    difference = replaced.refutation(mutant.inputs)
    if difference is None:
        return [Outcome("not wrong", what)]
    outcomes = []
    for kind, model in ((mutant.kind, mutant.mutant), ("twin", mutant.twin)):
        try:
            (replaced,) = proving.proven(mutant.original, model)
        except Exception as error:
            outcomes.append(_crashed(kind, what, error))
            continue
        if kind == "twin":
            difference = replaced.refuted() if replaced.answer().proven else None
        outcomes.append(_outcome(kind, what, replaced, difference))
    return outcomes


def general(subject: str, strategy: str | None, fuse: bool, share: int, seed: int) -> list[Outcome]:
    """Ask about mutants of one conversion, where they change the nodes of an operator."""
    original, right = subjects.get(subject).model, mutating.converted(subject, strategy, fuse)
    known = [replaced.content for replaced in proving.replaced(original, right)]
    found = []
    for kind, make in mutating.classes(subject, right, strategy, fuse).items():
        rng = Random(f"{kind} {subject} {strategy} {fuse} {seed}")
        places = list(make())
        rng.shuffle(places)
        for mutation in places[:share]:
            what = f"{subject} {strategy} {'fused' if fuse else 'not fused'}: {mutation.what}"
            try:
                operators = proving.proven(original, mutation.make())
            except SpatialError:
                continue  # refused without a proof
            except Exception as error:
                found.append(_crashed(kind, what, error))
                continue
            for replaced, before in zip(operators, known, strict=True):
                if replaced.content == before:
                    continue
                wrong = replaced.refuted(seed) if replaced.answer().proven else None
                found.append(_outcome(kind, what, replaced, wrong))
    return found


def forms(names: Iterable[str]) -> Iterator[tuple[str, str | None, bool]]:
    """Yield subjects in every form and strategy that makes a model of its own."""
    for subject in names:
        seen = set()
        for strategy, fuse in (*mutating.FORMS, *((name, False) for name in STRATEGY_NAMES)):
            try:
                data = mutating.converted(subject, strategy, fuse).SerializeToString(
                    deterministic=True
                )
            except SpatialError:
                continue
            if data not in seen:
                seen.add(data)
                yield subject, strategy, fuse


def table(found: Sequence[Outcome]) -> str:
    """How many of each class were asked about, and what was answered."""
    lines = [
        "| class | asked about | disproved | proven | of these wrong | crashes |",
        "|---|---|---|---|---|---|",
    ]
    for kind in [*dict.fromkeys(o.kind for o in found), "all"]:
        own = [o for o in found if kind in (o.kind, "all")]
        numbers = (
            len(own),
            sum(o.disproved for o in own),
            sum(o.proven for o in own),
            sum(o.proven and o.wrong is not None for o in own),
            sum(bool(o.crash) for o in own),
        )
        lines.append(f"| {kind} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def main() -> int:
    """Run a campaign; 1 if there is a wrong proof or a crash."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("campaign", choices=["written", "targeted", "general"])
    parser.add_argument("--number", type=int, default=2000, help="wrong models (targeted)")
    parser.add_argument("--first", type=int, default=0, help="first seed (targeted)")
    parser.add_argument(
        "--share", type=int, default=1, help="mutants per class and model (general)"
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[0], help="(general)")
    parser.add_argument("--cells", type=int, default=0, help="cells of the grid instead (general)")
    parser.add_argument("--only", nargs="*", default=subjects.NAMES, help="subjects (general)")
    parser.add_argument("-j", type=int, default=2)
    options = parser.parse_args()
    started = time.monotonic()
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(options.j, mp_context=context, initializer=mutating.limit) as pool:
        if options.campaign == "written":
            found = list(pool.map(written, range(len(WRONG))))
        elif options.campaign == "targeted":
            seeds = itertools.count(options.first)
            found, wrong = [], 0
            while wrong < options.number:
                count = max(options.j * 8, min(400, options.number - wrong))
                for outcomes in pool.map(drawn, itertools.islice(seeds, count), chunksize=4):
                    found += outcomes
                    wrong += outcomes[0].wrong is not None
            print(f"next seed {next(seeds)}")
        else:
            jobs = []
            for seed in options.seeds:
                names = options.only
                if options.cells:
                    names = Random(f"cells {seed}").sample(subjects.CELLS, options.cells)
                jobs += [pool.submit(general, *form, options.share, seed) for form in forms(names)]
            found = [outcome for job in jobs for outcome in job.result()]
    print(table(found))
    bad = [o for o in found if o.crash or (o.proven and o.wrong is not None)]
    for outcome in bad:
        print(f"{'CRASH' if outcome.crash else 'WRONG PROOF'} {outcome.kind}: {outcome.what}")
        print(f"    {outcome.crash or outcome.wrong}")
    for outcome in found:
        if outcome.proven and outcome.wrong is None and outcome.kind != "twin":
            print(f"proven, no difference found: {outcome.kind}: {outcome.what}")
    reasons = Counter(o.reason.split(":")[0][:60] for o in found if o.reason)
    print("not proven because", dict(reasons.most_common(8)))
    print(f"{time.monotonic() - started:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
