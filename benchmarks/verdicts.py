"""Judge `onnx_spatial.verify` by pairs of models of which the truth is known.

    python -m benchmarks.verdicts [--corpus NAME ...] [--limit N] [--jobs N] [--seed N]
                                  [--exports FOLDER ...] [--json FILE]

`tests/mutation/corpora.py` says what the pairs are and where their truth comes from. The table has, for
each corpus, what `verify` says of its pairs, and whether the gates hold. Pairs that count against a gate
are listed with the verdict's message; exit code 1 if a gate does not hold. With --limit 40 it takes some
minutes.
"""

import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path

import click
from mutation import corpora
from mutation.corpora import Task, Wanted
from mutation.subjects import Pair

import onnx_spatial
from benchmarks import results
from onnx_spatial import SpatialError, Verification

#: Pairs of a corpus at most, without --limit.
MAX_PAIRS = 2000
#: What can become of a pair: "refused" raises an error for users, "crashed" any other.
ANSWERS = ("proven", "sampled", "FAILED", "UNVERIFIED", "refused", "crashed")


@dataclass(frozen=True)
class Answer:
    """What `verify` says of a pair.

    Attributes:
        corpus, name: of the pair.
        answer: one of ANSWERS.
        message: of the verdict, or of the error.
        unproven: what is not proven, and why.
        seconds: of processor time.
    """

    corpus: str
    name: str
    answer: str
    message: str
    unproven: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Gate:
    """What has to hold for a corpus.

    Attributes:
        words: it, in words.
        counts: whether an answer counts against it.
        share: of the answers that may count against it.
    """

    words: str
    counts: Callable[[Answer], bool]
    share: float = 0.0

    def against(self, answers: Sequence[Answer]) -> list[Answer]:
        """Return the answers that count against it; crashes always do."""
        return [a for a in answers if a.answer == "crashed" or self.counts(a)]

    def holds(self, answers: Sequence[Answer]) -> bool:
        """Tell whether few enough answers count against it."""
        return len(self.against(answers)) <= self.share * len(answers)


def _silent(answer: Answer) -> bool:
    return answer.answer == "sampled" and not answer.unproven


_NOT_PROVEN = Gate("none is proven", lambda a: a.answer == "proven")
_NOT_FAILED = Gate("none is FAILED", lambda a: a.answer in ("FAILED", "refused"))

GATES = {
    "own": [
        Gate("98 % are proven", lambda a: a.answer != "proven", 0.02),
        _NOT_FAILED,
        Gate(
            "UNVERIFIED only for want of sizes",
            lambda a: a.answer == "UNVERIFIED" and "--shape" not in a.message,
        ),
    ],
    "right": [_NOT_FAILED],
    "mutants": [
        _NOT_PROVEN,
        Gate("97 % are FAILED", lambda a: a.answer not in ("FAILED", "refused"), 0.03),
        Gate(
            "the rest is sampled, with a reason", lambda a: a.answer == "UNVERIFIED" or _silent(a)
        ),
    ],
    "wrong": [_NOT_PROVEN],
}


def ask(corpus: str, pair: Pair, seed: int) -> Answer:
    """Ask the public interface about a pair."""
    started = time.process_time()
    options = onnx_spatial.VerifyOptions(seed=seed)
    unproven: tuple[str, ...] = ()
    try:
        found = onnx_spatial.verify(pair.original, pair.changed, options)
    except SpatialError as error:
        answer, message = "refused", str(error)
    except Exception as error:  # a mistake of the package, which is listed
        answer, message = "crashed", f"{type(error).__name__}: {error}"
    else:
        answer, message = read(found), found.message
        unproven = tuple(map(str, found.unproven))
    seconds = round(time.process_time() - started, 2)
    return Answer(corpus, pair.name, answer, message, unproven, seconds)


def read(found: Verification) -> str:
    """Return a verdict as one of ANSWERS."""
    return str(found.evidence) if found.status == "passed" else found.status.upper()


def _asked(corpus: str, seed: int, task: Task) -> list[Answer]:
    try:
        return [ask(corpus, pair, seed) for pair in corpora.fitting(corpus, task())]
    except Exception as error:  # a mistake of the corpus, or of the conversion
        message = f"no pair was made: {type(error).__name__}: {error}"
        return [Answer(corpus, str(task), "crashed", message)]


def answers(corpus: str, wanted: Wanted, jobs: int = 1) -> Iterator[Answer]:
    """Yield what `verify` says of so many pairs of a corpus, the same for any number of jobs.

    Pairs are made and judged in other processes.

    Raises:
        BrokenProcessPool: a model ended its process.
    """
    tasks = corpora.CORPORA[corpus](wanted)
    context = multiprocessing.get_context("forkserver")
    call = partial(_asked, corpus, wanted.seed)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=corpora.limit) as pool:
        batches = iter(lambda: [*islice(tasks, 4 * jobs)], [])
        found = chain.from_iterable(chain.from_iterable(pool.map(call, each) for each in batches))
        yield from islice(found, wanted.count)


def table(found: Sequence[Answer]) -> Iterator[str]:
    """Yield a table of answers and gates, and all that counts against a gate."""
    rows, listed = [], dict[Answer, list[str]]()
    for corpus, gates in GATES.items():
        own = [answer for answer in found if answer.corpus == corpus]
        counts = Counter(answer.answer for answer in own)
        said = [f"{gate.words}: {'yes' if gate.holds(own) else 'NO'}" for gate in gates]
        for gate in gates:
            for answer in gate.against(own):
                listed.setdefault(answer, []).append(gate.words)
        seconds = sum(answer.seconds for answer in own)
        numbers = (counts[each] or "" for each in ANSWERS)
        if own:
            rows.append((corpus, len(own), *numbers, "; ".join(said), f"{seconds:.0f}"))
    yield results.table(("corpus", "pairs", *ANSWERS, "gates", "CPU s"), rows)
    for answer, words in listed.items():
        yield f"\n{answer.corpus}: {answer.name}\n  counts against: {', '.join(words)}"
        yield f"  {answer.answer}: {answer.message}"
        yield from (f"  not proven: {reason}" for reason in answer.unproven[:3])


def hold(found: Sequence[Answer]) -> bool:
    """Tell whether every gate holds."""
    groups = {c: [answer for answer in found if answer.corpus == c] for c in GATES}
    return all(gate.holds(own) for corpus, own in groups.items() for gate in GATES[corpus])


_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command(help=__doc__)
@click.option("--corpus", "names", type=click.Choice(list(GATES)), multiple=True)
@click.option("--limit", type=click.IntRange(1), default=MAX_PAIRS, help="pairs of each at most")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="processes")
@click.option("--seed", default=0, show_default=True)
@click.option("--exports", type=_FOLDER, multiple=True, help="more models for `own`")
@click.option("--json", "output", type=click.Path(path_type=Path), help="write every answer")
def main(
    names: Sequence[str],
    limit: int,
    jobs: int,
    seed: int,
    exports: Sequence[Path],
    output: Path | None,
) -> None:
    """Print the table."""
    wanted, found = Wanted(limit, seed, tuple(exports)), []
    for corpus in names or GATES:
        given = answers(corpus, wanted, jobs)
        with click.progressbar(given, length=limit, label=corpus, file=sys.stderr) as shown:
            found += shown
    click.echo("\n".join(table(found)))
    for tool in corpora.missing():
        click.echo(f"\nright: without {tool}, which is not installed")
    if output is not None:
        output.write_text(json.dumps([asdict(each) for each in found], indent=1), "utf-8")
    raise SystemExit(0 if hold(found) else 1)


if __name__ == "__main__":
    main()
