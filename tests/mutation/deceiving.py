"""Try to deceive `verify`: wrong models that look right, and right ones that look wrong.

    python tests/mutation/deceiving.py --wrong 40 --right 80 --tools 100 -j 2 --folder FOLDER

draws so many of each class of `deceptions`, `equivalents` and `rewritten_by_tools`, and prints for each
class how many `verify` says PASSED, UNVERIFIED and FAILED of. A wrong one counts if it has a witness:
data on which it differs from the original in onnx's reference evaluator (`judging.witness`), or a fact.
FOLDER gets every outcome, and both files of the offenders; a second run goes on where the first ended.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

if __name__ in ("__main__", "__mp_main__"):  # what pytest's `pythonpath` does
    _TESTS = Path(__file__).parents[1]
    sys.path[:0] = [str(_TESTS), str(_TESTS / "campaign"), str(_TESTS / "mutation")]

import deceptions
import equivalents
import judging
import mutating
import numpy as np
import onnx
import rewritten_by_tools
import running
from drawn import Equivalent, converted

import onnx_spatial
from onnx_spatial import SpatialError

#: Seconds of processor time that a model may take.
_PATIENCE = 120
_CONTEXT = multiprocessing.get_context("forkserver")
#: Draws per process, after which a new one starts.
_SHARE = 400
#: What a verdict on a model in a shorter type has to begin with.
_ERROR = "of the largest value apart"


@dataclass(frozen=True, order=True)
class Draw:
    """A model to be drawn: wrong, right or of a tool, its class, number and seed."""

    side: str
    kind: str
    number: int
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What became of a draw.

    Attributes:
        draw: it.
        what: base and change; "" if there was no place for it.
        shown: how the two models differ, found without `verify`; None if no input shows it.
        must_fail: whether a doubt with which the command exits 0 is not enough.
        doubtful: whether a doubt about a right one is allowed.
        less_exact: whether it differs because it computes in a shorter type, which is to be said.
        status: of `verify`: "passed", "failed", "unverified"; "refused" if it raised an error for
            users; "raised" or "died" if it gave no answer.
        operators_only: of `verify`; the command exits 0 then.
        message: of `verify`.
        seconds: of processor time that it took.
        files: where both models are, if it offends.
    """

    draw: Draw
    what: str = ""
    shown: str | None = None
    must_fail: bool = False
    doubtful: bool = False
    less_exact: bool = False
    status: str = ""
    operators_only: bool = False
    message: str = ""
    seconds: float = 0.0
    files: tuple[str, ...] = ()

    @property
    def caught(self) -> bool:
        """Whether `verify` did not say that a wrong model is right."""
        doubted = self.status == "unverified" and not (self.must_fail and self.operators_only)
        return doubted or self.status in ("failed", "refused")

    @property
    def offends(self) -> bool:
        """Whether `verify` said what it should not have said, or gave no answer."""
        if self.status in ("", "raised", "died"):
            return bool(self.status)
        if self.draw.side == "wrong":
            return self.shown is not None and not self.caught
        if self.less_exact and self.shown is not None:
            return self.status == "passed" or _ERROR not in self.message[:120]
        allowed = ("passed", "unverified") if self.doubtful else ("passed",)
        return self.status not in allowed and self.shown is None


@dataclass(frozen=True)
class Case:
    """Two models to be compared; see `Outcome` for the rest."""

    original: onnx.ModelProto
    changed: onnx.ModelProto
    what: str
    shown: str | None
    must_fail: bool = False
    doubtful: bool = False
    less_exact: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


def case(draw: Draw) -> Case | None:
    """Make the models of a draw; None if there is no place for it."""
    if draw.side == "wrong":
        made = deceptions.draw(draw.kind, draw.number, draw.seed)
        if made is None:
            return None
        shown = made.fact or judging.witness(
            made.definition or made.original, made.right, made.wrong, made.feeds(), made.exact
        )
        return Case(made.original, made.wrong, made.what, shown, made.must_fail)
    if draw.side == "right":
        right = equivalents.draw(draw.kind, draw.number, draw.seed)
    else:
        right = rewritten_by_tools.CLASSES[draw.kind](draw.number)
    if right is None:
        return None
    return Case(
        right.original,
        right.rewritten,
        right.what,
        unlike(right),
        doubtful=right.doubtful,
        less_exact=right.less_exact,
        options=right.options,
    )


def run(draw: Draw, folder: Path | None = None) -> Outcome:
    """Draw a model and ask `verify` about it; the files of offenders are saved in the folder."""
    try:
        drawn = case(draw)
        if drawn is None:
            return Outcome(draw)
        outcome = _answer(draw, drawn)
    except TimeoutError:
        return Outcome(draw, "not known", status="raised", message=f"more than {_PATIENCE} s")
    except Exception as error:  # a mistake of the campaign or of the package, which is listed
        place = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})"
        return Outcome(draw, "not known", status="raised", message=message[:300])
    if folder is None or not outcome.offends:
        return outcome
    own = folder / "models" / re.sub(r"\W+", "_", f"{draw.kind} {draw.number} {draw.seed}")
    own.mkdir(parents=True, exist_ok=True)
    paths = own / "original.onnx", own / "changed.onnx"
    for path, model in zip(paths, (drawn.original, drawn.changed), strict=True):
        onnx.save(model, path)
    return replace(outcome, files=tuple(map(str, paths)))


def _answer(draw: Draw, drawn: Case) -> Outcome:
    started = time.process_time()
    try:
        seed = draw.seed + draw.number
        models = drawn.original, drawn.changed
        verdict = onnx_spatial.verify(
            *models, onnx_spatial.VerifyOptions(seed=seed, **drawn.options)
        )
        answer = (verdict.status, verdict.operators_only, verdict.message)
    except SpatialError as error:
        answer = ("refused", False, str(error))
    seconds = round(time.process_time() - started, 2)
    known = (drawn.what, drawn.shown, drawn.must_fail, drawn.doubtful, drawn.less_exact)
    return Outcome(draw, *known, *answer, seconds)


def unlike(right: Equivalent) -> str | None:
    """Return how a model that should be right differs from the plain conversion in onnxruntime."""
    feeds = right.feeds() if right.feeds else right.base.feeds(np.random.default_rng(11))
    models = converted(right.original), right.rewritten
    for a, b in zip(*(running.run(m, feeds, running.LEVELS[0]) for m in models), strict=True):
        allowed = right.options.get("rtol", 2e-2 if a.dtype == np.float16 else 1e-4)
        error = judging.apart(a, b)
        if error > (0 if right.less_exact else allowed) and not right.rounds:
            return f"{error:.1e} of the largest value apart"
    return None


def draws(
    wrong: int, right: int, tools: int, seed: int, only: Iterable[str] = ()
) -> Iterator[Draw]:
    """Yield so many draws of each class, a first one of every class before a second."""
    sides = (("wrong", deceptions.CLASSES, wrong), ("right", equivalents.CLASSES, right))
    for number in range(max(wrong, right, tools)):
        for side, classes, count in (*sides, ("tool", rewritten_by_tools.CLASSES, tools)):
            for kind in classes if number < count else ():
                if not only or any(o in kind for o in only):
                    yield Draw(side, kind, number, seed)


def table(found: Iterable[Outcome]) -> str:
    """Count the answers, class by class."""
    outcomes = [o for o in found if o.status]
    lines = [
        "| wrong | made | shown to differ | FAILED | UNVERIFIED | PASSED | else | missed |",
        "|---|" + "---|" * 7,
    ]
    lines += _rows([o for o in outcomes if o.draw.side == "wrong"], wrong=True)
    lines += [
        "",
        "| right | runs | PASSED | UNVERIFIED | FAILED | else | flagged |",
        "|---|" + "---|" * 6,
    ]
    lines += _rows([o for o in outcomes if o.draw.side != "wrong"], wrong=False)
    return "\n".join(lines)


def _rows(outcomes: list[Outcome], wrong: bool) -> Iterator[str]:
    for kind in [*dict.fromkeys(o.draw.kind for o in outcomes), "all"]:
        own = [o for o in outcomes if kind in (o.draw.kind, "all")]
        shown = [o for o in own if o.shown is not None] if wrong else own
        counts = [sum(o.status == s for o in shown) for s in ("passed", "unverified", "failed")]
        counts = counts[::-1] if wrong else counts
        first = [len(own), len(shown)] if wrong else [len(own)]
        numbers = [*first, *counts, len(shown) - sum(counts), sum(o.offends for o in own)]
        yield f"| {kind} | {' | '.join(map(str, numbers))} |"


def _limit() -> None:
    mutating.limit()

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, stop)


def _timed(draw: Draw, folder: Path | None) -> Outcome:
    signal.setitimer(signal.ITIMER_PROF, _PATIENCE)
    try:
        return run(draw, folder)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def outcomes(todo: Iterable[Draw], folder: Path | None, processes: int) -> Iterator[Outcome]:
    """Yield what becomes of the draws, from child processes; one that ends its process is named."""
    waiting, alone = dict.fromkeys(todo), 0
    while waiting:
        batch = [*waiting][: 1 if alone else _SHARE * processes]
        broken = []
        with ProcessPoolExecutor(processes, mp_context=_CONTEXT, initializer=_limit) as pool:
            jobs = {pool.submit(_timed, draw, folder): draw for draw in batch}
            for job in as_completed(jobs):
                try:
                    yield job.result()
                    del waiting[jobs[job]]
                except BrokenProcessPool:
                    broken.append(jobs[job])
        if broken and alone:
            yield Outcome(broken[0], "not known", status="died", message="the process ended")
            del waiting[broken[0]]
        # Which of several ended the process is not known: the next ones run one by one.
        alone = alone - 1 if alone else 2 * processes * bool(broken)


def written(outcome: Outcome) -> str:
    """Return a line that `read` reads."""
    return json.dumps(asdict(outcome))


def read(path: Path) -> list[Outcome]:
    """Read the outcomes of an earlier run."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        fields = json.loads(line)
        draw, files = Draw(**fields["draw"]), tuple(fields["files"])
        found.append(Outcome(**fields | {"draw": draw, "files": files}))
    return found


def lines(found: Iterable[Outcome]) -> Iterator[str]:
    """Yield a line for each offender: class, base and change, witness, what `verify` said, files."""
    for o in sorted((o for o in found if o.offends), key=lambda o: o.draw):
        head = f"{o.draw.side}: {o.draw.kind} {o.draw.number}: {o.what}"
        answer = f"{o.status.upper()} {o.message[:200]!r}"
        yield " | ".join([head, o.shown or "", answer, *o.files]).replace("\n", " ")


def main() -> int:
    """Run the campaign; 1 if a wrong model passed or a right one did not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wrong", type=int, default=20, help="wrong models of each class")
    parser.add_argument("--right", type=int, default=20, help="right models of each class")
    parser.add_argument("--tools", type=int, default=20, help="outputs of each tool")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help="classes, by a part of their names")
    parser.add_argument("--folder", type=Path, required=True, help="for outcomes and models")
    parser.add_argument("-j", type=int, default=2, help="processes")
    parser.add_argument("--exported", type=Path, help="folder that exporting.py wrote")
    options = parser.parse_args()
    if options.exported is not None:
        os.environ[rewritten_by_tools.FOLDER] = str(options.exported.resolve())
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "outcomes.jsonl"
    known = {o.draw: o for o in read(path)}
    wanted = list(draws(options.wrong, options.right, options.tools, options.seed, options.only))
    todo = [d for d in wanted if d not in known]
    with path.open("a") as file:
        for outcome in outcomes(todo, options.folder, options.j):
            known[outcome.draw] = outcome
            file.write(written(outcome) + "\n")
            file.flush()
    found = [known[d] for d in wanted if d in known]
    text = "\n".join([table(found), "", *lines(found)])
    (options.folder / "table.md").write_text(text + "\n")
    print(text)
    for tool in rewritten_by_tools.missing():
        print(f"{tool}: not there")
    return 1 if any(o.offends for o in found) else 0


if __name__ == "__main__":
    sys.exit(main())
