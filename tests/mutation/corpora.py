"""Build pairs of models of which it is known whether they compute the same.

    own        conversions of nets, of exported files and of tests/grid                    right
    right      conversions as onnxslim, onnxsim and onnxruntime's optimisers rewrite them  right
    mutants    conversions with one mistake (`mutations`)                                  wrong
    wrong      models written by hand, mistakes in nets and for rare sizes                 wrong

benchmarks/verdicts.py asks `verify` about them, `test_proofs` the prover alone. The truth never comes
from the package's verifier: originals run in onnx's reference evaluator with the definitions of the
tests, results in onnxruntime, on several data sets. onnxslim and onnxsim are optional; those that are
not there are named by `missing`.
"""

import contextlib
import importlib.util
import io
import itertools
import resource
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import grid
import numpy as np
import onnx
import onnxruntime
import running
from mutation import mutations, subjects, wrong_models
from mutation.mutations import Breaker
from mutation.subjects import KINDS, Pair, alike
from mutation.wrong_models import DAMAGES

import onnx_spatial
from onnx_spatial import SpatialError
from onnx_spatial.conversion.options import LOWERING_NAMES


def converted(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    """Return the conversion, not verified."""
    return onnx_spatial.convert(model, verify=False, **options).model


#: Options of conversions that are as right as the usual one.
OPTIONS: dict[str, dict[str, Any]] = {
    "converted": {},
    "converted to functions": {"mode": "function"},
    "converted by Gather": {"prefer": "gather", "fuse": False},
}

# ---------------------------------------------------------------- tools

_LEVELS = onnxruntime.GraphOptimizationLevel


def _saved(
    level: onnxruntime.GraphOptimizationLevel,
) -> Callable[[onnx.ModelProto], onnx.ModelProto]:
    """Let onnxruntime optimise a model and save it."""

    def run(model: onnx.ModelProto) -> onnx.ModelProto:
        with tempfile.TemporaryDirectory() as folder:
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = level
            options.optimized_model_filepath = str(Path(folder) / "model.onnx")
            options.log_severity_level = 4
            providers = ["CPUExecutionProvider"]
            onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
            return onnx.load(options.optimized_model_filepath)

    return run


def _onnxslim(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnxslim

    return onnxslim.slim(model)


def _onnxsim(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnxsim

    ranked = onnx.shape_inference.infer_shapes(model)  # it refuses outputs of unknown ranks
    return onnxsim.simplify(ranked)[0]


TOOLS: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "onnxslim": _onnxslim,
    "onnxsim": _onnxsim,
    "onnxruntime, basic": _saved(_LEVELS.ORT_ENABLE_BASIC),
    "onnxruntime, extended": _saved(_LEVELS.ORT_ENABLE_EXTENDED),
    "onnxruntime, all": _saved(_LEVELS.ORT_ENABLE_ALL),
}


def missing() -> list[str]:
    """Name the tools that cannot be imported."""
    return [tool for tool in ("onnxslim", "onnxsim") if importlib.util.find_spec(tool) is None]


# ---------------------------------------------------------------- draws

#: Names of the originals, those of the grid last.
SOURCES = (*subjects.NETS, *subjects.NAMES, *subjects.CELLS)


def _outputs_of(model: onnx.ModelProto, feeds: subjects.Feeds) -> list[np.ndarray]:
    with contextlib.suppress(Exception):  # of many types
        return running.run(model, feeds, running.LEVELS[0])
    return []


def draw(kind: str, number: int) -> Pair | None:
    """Draw a conversion that is written in another way; None if there is none, or a tool refuses it.

    Args:
        kind: one of OPTIONS or TOOLS.
        number: of one of `SOURCES`, fused or, from their count on, not.
    """
    name, fuse = SOURCES[number % len(SOURCES)], number < len(SOURCES)
    base = subjects.get(name)
    try:
        plain = converted(base.model, fuse=fuse)
        made = converted(base.model, **{"fuse": fuse, **OPTIONS.get(kind, {})})
    except SpatialError:
        return None
    if kind in TOOLS:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                made = TOOLS[kind](made)
                running.session(made, running.LEVELS[0])
            except (Exception, SystemExit):  # whatever tools raise
                return None

    def wrong() -> str | None:
        feeds, name = base.feeds(np.random.default_rng(5)), base.model.graph.input[0].name
        # Tools take every size for 1 or more, and drop inputs that nothing reads.
        for given in (feeds, feeds | {name: feeds[name][:0]}):
            first, second = (_outputs_of(m, given) for m in (plain, made))
            if first and not (second and all(map(alike, first, second))):
                return "other values"
        return None

    return Pair(f"{kind} {number}: {name}: {'' if fuse else 'not fused'}", base.model, made, wrong)


ROOT = Path(__file__).resolve().parents[2]

#: Mistakes that are tried before a model is given up, and inputs on which one is run.
TRIES, INPUTS = 40, 24
#: Draws of a place for a mistake, most of which have none.
DRAWS = 200
#: The conversion of an original with other parameters, beside the mistakes in a conversion.
MISREAD = "parameters misread"
MISTAKES = (*mutations.KINDS, MISREAD)
#: Lowering (None: the cheapest) and whether to fuse, of the conversions that are broken.
WAYS = ((None, True), *((name, False) for name in (None, *LOWERING_NAMES)))
#: Bytes that a process of a campaign may have.
MAX_MEMORY = 4 * 2**30


def limit() -> None:
    """As the command does: a wrong size may make onnxruntime ask for all the memory there is."""
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))


@dataclass(frozen=True)
class Wanted:
    """What is wanted of a corpus.

    Attributes:
        count: how many pairs will be looked at.
        seed: of all that is drawn.
        exports: folders with more models.
    """

    count: int
    seed: int = 0
    exports: tuple[Path, ...] = ()


#: Makes some pairs of a corpus; it can be sent to another process.
Task = Callable[[], Iterator[Pair]]


def _in_turn(*several: Iterable[Any]) -> Iterator[Any]:
    """Yield the first of each, the second of each, and so on, as long as there are some."""
    for row in itertools.zip_longest(*several):
        yield from (each for each in row if each is not None)


# ---------------------------------------------------------------- own

MODES: dict[str, dict[str, Any]] = {
    "lower": {},
    "function": {"mode": "function"},
    "optimize": {"chains": True},
    "optimize, function": {"chains": True, "mode": "function"},
    **{f"lowered by {name}": {"prefer": name} for name in LOWERING_NAMES},
}
#: Those of nets, and of cells of the grid, which hold no chains.
OF_NETS, OF_CELLS = [*MODES][:4], [*MODES][:2] + [*MODES][4:]


def own(wanted: Wanted) -> Iterator[Task]:
    """Convert nets and files in all ways, cells of the grid in both modes and by each lowering."""
    nets = sorted([*ROOT.glob("models/*/model.onnx"), *ROOT.glob("models/chains/*/model.onnx")])
    files = sorted(path for folder in wanted.exports for path in folder.rglob("*.onnx"))
    files += sorted(ROOT.glob("tests/chains/exported/*.onnx"))
    cells = Random(wanted.seed).sample(subjects.CELLS, len(subjects.CELLS))
    yield from (partial(converted_file, path) for path in nets)
    yield from _in_turn(
        (partial(converted_file, path) for path in files),
        (partial(converted_cell, cell) for cell in cells),
    )


def converted_file(path: Path) -> Iterator[Pair]:
    """Convert a file in all ways that give another model."""
    yield from _converted(f"{path.parent.name}/{path.stem}", onnx.load(path), OF_NETS)


def converted_cell(name: str) -> Iterator[Pair]:
    """Convert a cell of the grid in both modes and by each lowering."""
    yield from _converted(f"grid {name}", grid.model(grid.get(name)), OF_CELLS)


def _converted(name: str, original: onnx.ModelProto, ways: Iterable[str]) -> Iterator[Pair]:
    seen = set()
    for way in ways:
        try:
            made = onnx_spatial.convert(original, verify=False, **MODES[way])
        except SpatialError:
            continue  # refused, as some cells are by some modes
        data = made.model.SerializeToString(deterministic=True)
        if made.changed and data not in seen:
            seen.add(data)
            yield Pair(f"{name}: {way}", original, made.model)


# ---------------------------------------------------------------- right ones of others


def right(wanted: Wanted) -> Iterator[Task]:
    """Let each tool rewrite each conversion."""
    there = [tool for tool in TOOLS if tool not in missing()]
    for number, tool in itertools.product(range(2 * len(SOURCES)), there):
        yield partial(rewritten, tool, number)


def rewritten(kind: str, number: int) -> Iterator[Pair]:
    """Write a conversion in another way."""
    yield from filter(None, [draw(kind, number)])


# ---------------------------------------------------------------- mutants of conversions


@dataclass(frozen=True)
class Form:
    """A way to convert a subject."""

    subject: str
    lowering: str | None
    fuse: bool

    def __str__(self) -> str:
        return f"{self.subject} {self.lowering or 'cheapest'}{'' if self.fuse else ' not fused'}"

    @property
    def original(self) -> onnx.ModelProto:
        """The subject."""
        return subjects.get(self.subject).model

    def convert(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Convert a model in this way, and do not verify it."""
        options = {"prefer": self.lowering, "fuse": self.fuse}
        return onnx_spatial.convert(model, verify=False, **options).model

    def mutants(self, kind: str, seed: float) -> Iterator[Pair]:
        """Draw mutants of one kind, those of misread parameters from the original."""
        right, rng = _right(self), Random(f"{kind} {self} {seed}")
        seen = {right.SerializeToString(deterministic=True)}
        for _ in range(DRAWS):
            if kind == MISREAD:
                way = rng.choice(("another number", "attributes changed"))
                drawn = Breaker(self.original).draw(rng, way, mutations.is_site)
            else:
                drawn = _breaker(self).draw(rng, kind)
            try:
                mutant = drawn and (self.convert(drawn[1]) if kind == MISREAD else drawn[1])
            except SpatialError:
                continue  # other parameters than these are refused at once
            if mutant and (data := mutant.SerializeToString(deterministic=True)) not in seen:
                seen.add(data)
                name = f"{self}: {kind}: {drawn[0]}"
                yield Pair(name, self.original, mutant, partial(self._difference, mutant), right)

    def _difference(self, mutant: onnx.ModelProto) -> str | None:
        found = _judge(self).difference(mutant)
        return found and ": ".join(found)


@cache
def _right(form: Form) -> onnx.ModelProto:
    return form.convert(form.original)


@cache
def _breaker(form: Form) -> Breaker:
    feeds = subjects.get(form.subject).feeds(np.random.default_rng(5))
    return Breaker(_right(form), subjects.shapes(_right(form), feeds))


@cache
def _judge(form: Form) -> subjects.Judge:
    exact = subjects.moves(form.subject)
    rng = np.random.default_rng([ord(c) for c in form.subject])
    subject, kinds = subjects.get(form.subject), ("bits",) if exact else KINDS
    feeds = (subject.feeds(rng, kinds[number % len(kinds)]) for number in range(INPUTS))
    return subjects.Judge(form.original, feeds, exact)


def mutants(wanted: Wanted) -> Iterator[Task]:
    """Break conversions of models/, small models and cells of the grid, in turn."""
    names = Random(wanted.seed).sample(subjects.CELLS, len(subjects.CELLS))
    nets = ([partial(mutant, name, n, wanted.seed) for n in range(24)] for name in subjects.NAMES)
    cells = [partial(mutant, name, 0, wanted.seed) for name in names]
    yield from _in_turn(*nets, *(cells[number::5] for number in range(5)))


def mutant(subject: str, number: int, seed: int) -> Iterator[Pair]:
    """Draw a mutant of a subject, converted in any way, that gives other numbers."""
    rng = Random(f"{subject} {number} {seed}")
    for _ in range(TRIES):
        form = Form(subject, *rng.choice(WAYS[:1] if subject in subjects.NETS else WAYS))
        try:
            drawn = [*itertools.islice(form.mutants(rng.choice(MISTAKES), rng.random()), 1)]
        except SpatialError:
            continue  # a lowering that does not take it
        if any((pair.wrong() or "").startswith("silent") for pair in drawn):
            yield from drawn
            return


# ---------------------------------------------------------------- wrong on purpose


def wrong(wanted: Wanted) -> Iterator[Task]:
    """Draw mutants of nets, models by hand and models wrong for rare sizes, in turn."""
    numbers = Random(wanted.seed).sample(range(len(wrong_models.WRONG)), len(wrong_models.WRONG))
    yield from _in_turn(
        (partial(mutant, name, 0, wanted.seed) for name in subjects.NETS),
        (partial(written, number) for number in numbers),
        (partial(rare, 1000 * wanted.seed + number) for number in range(560)),
    )


def written(number: int) -> Iterator[Pair]:
    """Yield one of the wrong models that were written by hand."""
    yield wrong_models.WRONG[number].pair()


def rare(number: int) -> Iterator[Pair]:
    """Draw one of them that is wrong by a number, where something else goes wrong by it."""
    rng = Random(f"rare {number}")
    found = rng.choice([wrong for wrong in wrong_models.WRONG if wrong.is_conditional])
    yield found.pair(rng.choice([*DAMAGES]), rng.choice([None, *LOWERING_NAMES]))


CORPORA = {"own": own, "right": right, "mutants": mutants, "wrong": wrong}
#: Corpora of pairs that compute the same.
RIGHT = ("own", "right")


def fitting(corpus: str, pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield the pairs of which the runs say what their corpus says."""
    yield from (pair for pair in pairs if (pair.wrong() is None) == (corpus in RIGHT))
