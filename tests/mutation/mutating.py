"""Break converted models in every way that is known, and see whether `verify` notices.

    python tests/mutation/mutating.py --share 2 --right 2000 -j 2

prints, class by class, how many wrong versions were made, how many of them differ from the original on
any legal input (`judging`), and how many of these `verify` flags; then how many right conversions it
flags.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from random import Random

if __name__ in ("__main__", "__mp_main__"):  # what pytest's `pythonpath` does
    _TESTS = Path(__file__).parents[1]
    sys.path[:0] = [str(_TESTS), str(_TESTS / "campaign"), str(_TESTS / "mutation")]

import judging
import mutations
import numpy as np
import onnx
import subjects
from judging import Judge
from mutations import Mutation, Mutations

import onnx_spatial
from onnx_spatial import SpatialError

#: Strategy (None: the cheapest) and whether to fuse, of the conversions that are broken.
FORMS: tuple[tuple[str | None, bool], ...] = (
    (None, True),
    (None, False),
    ("transpose", False),
    ("gather", False),
    ("slices", False),
    ("tap-concat", False),
    ("space-to-depth", False),
    ("separable-gather", True),
)


#: Bytes that a process of the campaign may have.
_MEMORY = 4 * 2**30


@dataclass(frozen=True)
class Outcome:
    """One mutant.

    Attributes:
        kind: its class.
        subject, strategy, fuse: what was broken.
        what: the mistake.
        differs: "loud", "silent", or "" where no input tells.
        why: how it differs.
        status: of `verify`: "passed", "failed", "unverified".
        message: of `verify`.
    """

    kind: str
    subject: str
    strategy: str | None
    fuse: bool
    what: str
    differs: str
    why: str
    status: str
    message: str


def classes(
    subject: str, converted: onnx.ModelProto, strategy: str | None, fuse: bool
) -> Mapping[str, Callable[[], Mutations]]:
    """Every class of mistakes, for one converted model."""
    original = subjects.get(subject).model
    feeds = subjects.get(subject).feeds(np.random.default_rng(5))

    def misread() -> Mutations:
        for mutation in mutations.misread(original):
            yield Mutation(mutation.what, lambda m=mutation: convert(m.make(), strategy, fuse))

    return {
        "permutation swapped": lambda: mutations.permutation_swapped(converted),
        "Transposes exchanged": lambda: mutations.transposes_exchanged(converted),
        "attribute lost": lambda: mutations.attribute_lost(converted),
        "pads off by one": lambda: mutations.pads_off_by_one(converted),
        "pads on the wrong side": lambda: mutations.pads_on_the_wrong_side(converted),
        "crops dropped or off by one": lambda: mutations.crops(converted),
        "kernel positions": lambda: mutations.kernel_positions(converted),
        "rates ignored": lambda: mutations.rates(converted),
        "parameters misread": misread,
        "wrong dtype path": lambda: mutations.dtype_paths(converted),
        "channels as in torch": lambda: mutations.channel_order(converted, original),
        "batch minor-major": lambda: mutations.batch_order(converted, original),
        "one weight": lambda: mutations.one_weight(converted),
        "inputs and outputs": lambda: mutations.interface(converted),
        "shape arithmetic": lambda: mutations.shape_arithmetic(converted),
        "size baked in": lambda: mutations.sizes_baked_in(
            converted, judging.shapes(converted, feeds)
        ),
        "readers mixed up": lambda: mutations.readers_mixed_up(converted),
    }


def convert(model: onnx.ModelProto, strategy: str | None, fuse: bool) -> onnx.ModelProto:
    """The converted model, not verified."""
    return onnx_spatial.convert(model, verify=False, prefer=strategy, fuse=fuse).model


@cache
def converted(subject: str, strategy: str | None, fuse: bool) -> onnx.ModelProto:
    return convert(subjects.get(subject).model, strategy, fuse)


@cache
def _judge(subject: str) -> Judge:
    return Judge.of(subjects.get(subject))


@cache
def _noise(subject: str, strategy: str | None, fuse: bool) -> float:
    return _judge(subject).noise(converted(subject, strategy, fuse))


def run(subject: str, strategy: str | None, fuse: bool, share: int, seed: int) -> list[Outcome]:
    """What became of up to `share` mutants of each class of one converted model."""
    return [outcome for outcome, _ in mutants(subject, strategy, fuse, share, seed)]


def mutants(
    subject: str, strategy: str | None, fuse: bool, share: int, seed: int
) -> Iterator[tuple[Outcome, onnx.ModelProto]]:
    """Up to `share` mutants of each class of one converted model."""
    original = subjects.get(subject).model
    for kind in classes(subject, converted(subject, strategy, fuse), strategy, fuse):
        found = broken(subject, strategy, fuse, kind, seed)
        for what, mutant, (differs, why) in itertools.islice(found, share):
            verdict = onnx_spatial.verify(original, mutant, onnx_spatial.VerifyOptions(seed=seed))
            made = (kind, subject, strategy, fuse, what, differs, why)
            yield Outcome(*made, verdict.status, verdict.message), mutant


def broken(
    subject: str, strategy: str | None, fuse: bool, kind: str, seed: int
) -> Iterator[tuple[str, onnx.ModelProto, tuple[str, str]]]:
    """Mutants of one class in random order: the mistake, the model, and how it differs as a `Judge`
    says it; two empty texts where no input tells.
    """
    right = converted(subject, strategy, fuse)
    same = right.SerializeToString(deterministic=True)
    places = list(classes(subject, right, strategy, fuse)[kind]())
    Random(f"{kind} {subject} {strategy} {fuse} {seed}").shuffle(places)
    for mutation in places:
        try:
            mutant = mutation.make()
        except SpatialError:
            continue  # other parameters than these are refused at once
        if mutant.SerializeToString(deterministic=True) != same:
            difference = _judge(subject).difference(mutant, _noise(subject, strategy, fuse))
            yield mutation.what, mutant, difference or ("", "")


def flagged(subject: str, strategy: str | None, fuse: bool, seeds: range) -> list[tuple[str, str]]:
    """Verdicts on a right conversion, one for each seed: status and message."""
    model, right = subjects.get(subject).model, converted(subject, strategy, fuse)
    verdicts = (
        onnx_spatial.verify(model, right, onnx_spatial.VerifyOptions(seed=seed)) for seed in seeds
    )
    return [(v.status, v.message) for v in verdicts]


def forms(names: Iterable[str] = subjects.NAMES) -> Iterator[tuple[str, str | None, bool]]:
    """Subjects in every form that makes a model of its own."""
    for subject in names:
        seen = set()
        for strategy, fuse in FORMS:
            data = converted(subject, strategy, fuse).SerializeToString(deterministic=True)
            if data not in seen:
                seen.add(data)
                yield subject, strategy, fuse


def cells(number: int, seed: int) -> Iterator[tuple[str, str | None, bool]]:
    """So many cells of the zoo's grid, each in one form, drawn at random."""
    rng = Random(f"cells {seed}")
    for subject in rng.sample(subjects.CELLS, min(number, len(subjects.CELLS))):
        yield rng.choice(list(forms([subject])))


def table(found: list[Outcome]) -> str:
    """How many of each class were made, differ and were flagged."""
    lines = [
        "| class | made | differ: refused | differ: other numbers | flagged of these | "
        "missed | same, passed | same, flagged |",
        "|---|" + "---|" * 7,
    ]
    kinds = [*dict.fromkeys(o.kind for o in found)]
    for kind in [*kinds, "all"]:
        own = [o for o in found if kind in (o.kind, "all")]
        wrong = [o for o in own if o.differs]
        right = [o for o in own if not o.differs]
        caught = sum(o.status != "passed" for o in wrong)
        counts = Counter(o.differs for o in wrong)
        stricter = sum(o.status == "failed" for o in right)
        lines.append(
            f"| {kind} | {len(own)} | {counts['loud']} | {counts['silent']} | {caught} | "
            f"{len(wrong) - caught} | {len(right) - stricter} | {stricter} |"
        )
    return "\n".join(lines)


def _place(outcome: Outcome) -> str:
    form = f"{outcome.subject} {outcome.strategy} {'fused' if outcome.fuse else 'not fused'}"
    return f"{outcome.kind}: {form}: {outcome.what}"


def limit() -> None:
    """As the command does: a wrong size may make onnxruntime ask for all the memory there is."""
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))


def main() -> int:
    """Run the campaign; 1 if anything was missed or wrongly flagged."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=int, default=3, help="mutants per class and model")
    parser.add_argument("--right", type=int, default=0, help="runs of right conversions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-j", type=int, default=2)
    parser.add_argument("--save", type=Path, help="write every outcome as JSON")
    parser.add_argument("--only", nargs="*", default=[], help="subjects, or cells of the grid")
    parser.add_argument("--cells", type=int, default=0, help="so many cells of the grid instead")
    options = parser.parse_args()
    started = time.monotonic()
    if options.cells:
        made = list(cells(options.cells, options.seed))
    else:
        made = list(forms(options.only or subjects.NAMES))
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(options.j, mp_context=context, initializer=limit) as pool:
        jobs = [pool.submit(run, *form, options.share, options.seed) for form in made]
        found = list(itertools.chain.from_iterable(job.result() for job in jobs))
        each = -(-options.right // len(made))
        right = [pool.submit(flagged, *form, range(1, 1 + each)) for form in made]
        verdicts = [(form, v) for form, job in zip(made, right, strict=True) for v in job.result()]
    print(table(found))
    missed = [o for o in found if o.differs and o.status == "passed"]
    doubted = sum(1 for o in found if o.differs and o.status == "unverified")
    print(f"{doubted} of those that are flagged are unverified, all others failed")
    for o in missed:
        print(
            f"MISSED {o.kind}: {o.subject} {o.strategy} {o.fuse}: {o.what}\n    {o.why}\n    {o.message}"
        )
    for o in found:
        if not o.differs and o.status == "failed":
            print(f"stricter {_place(o)}\n    {o.message}")
    counts = Counter(status for _, (status, _) in verdicts)
    print(f"{len(verdicts)} runs of {len(made)} right conversions: {dict(counts)}")
    wrong = [(form, message) for form, (status, message) in verdicts if status != "passed"]
    for form, message in wrong[:20]:
        print("WRONGLY FLAGGED", form, message)
    print(f"{time.monotonic() - started:.0f} s")
    if options.save:
        options.save.write_text(json.dumps([asdict(o) for o in found], indent=1))
    return 1 if missed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
