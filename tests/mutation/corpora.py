"""Build pairs of models of which it is known whether they compute the same.

    own        conversions of nets, of exported files and of tests/grid                    right
    right      conversions as onnxslim, onnxsim and onnxruntime's optimisers rewrite them  right
    renamed    conversions with other names, in another order                              right
    mutants    conversions with one mistake (`mutations`)                                  wrong
    wrong      models written by hand, mistakes in nets and for rare sizes                 wrong

benchmarks/verdicts.py asks `verify` about them, `test_proofs` the prover alone. The truth never comes
from the package's verifier: originals run in onnx's reference evaluator with the definitions of the
tests, results in onnxruntime, on several data sets. onnxslim and onnxsim are optional; those that are
not there are named by `missing`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import itertools
import resource
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import grid
import mutations
import numpy as np
import onnx
import onnxruntime
import running
import subjects
import wrong_models
from mutations import Mutation, Mutations, copied, spliced
from onnx import TensorProto, helper
from subjects import KINDS, Pair, alike
from wrong_models import DAMAGES

import onnx_spatial
from onnx_spatial import SpatialError
from onnx_spatial.conversion.options import LOWERING_NAMES


def converted(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    """Return the conversion, not verified."""
    return onnx_spatial.convert(model, verify=False, **options).model


# ---------------------------------------------------------------- names

#: Rewrites a model in place; whether there was a place for it.
Rewriting = Callable[[onnx.ModelProto, Random, onnx.ModelProto], bool]


def _inner(model: onnx.ModelProto) -> list[str]:
    """Names of values that are computed in the main graph and are not its outputs."""
    kept = {v.name for v in (*model.graph.output, *model.graph.input)}
    return [o for n in model.graph.node for o in n.output if o and o not in kept]


def _exchanged(rng: Random, own: list[str], known: list[str]) -> dict[str, str]:
    """Names of the original mean other values: as where two tools count on their own."""
    count = min(len(own), len(known))
    taken = dict(zip(rng.sample(own, count), rng.sample(known, count), strict=True))
    return taken | {n: f"{n}_other" for n in own if n not in taken and n in known}


_NAMES: dict[str, Callable[[Random, list[str], list[str]], dict[str, str]]] = {
    "names renumbered": lambda rng, own, known: {n: f"v{i}" for i, n in enumerate(own)},
    "names exchanged": _exchanged,
}


def _renaming(kind: str) -> Rewriting:
    def rename(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> bool:
        outputs = {v.name for v in model.graph.output}
        known = [n for n in _inner(original) if n not in outputs]
        mutations.renamed(model, _NAMES[kind](rng, _inner(model), known))
        return True

    return rename


# ---------------------------------------------------------------- constants, order, notes


def _to_initializers(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> bool:
    for node in [n for n in model.graph.node if n.op_type == "Constant"]:
        if node.attribute and node.attribute[0].name == "value":
            model.graph.initializer.add().CopyFrom(node.attribute[0].t)
            model.graph.initializer[-1].name = node.output[0]
            model.graph.node.remove(node)
    return True


def _to_constants(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> bool:
    inputs = {v.name for v in model.graph.input}
    for tensor in [t for t in model.graph.initializer if t.name not in inputs]:
        node = helper.make_node("Constant", [], [tensor.name], value=tensor)
        model.graph.node.insert(0, node)
        model.graph.initializer.remove(tensor)
    return True


def _constants_copied(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> bool:
    """Each reader of an initializer has one of its own."""
    stored = {t.name: t for t in model.graph.initializer}
    for number, node in enumerate(model.graph.node):
        for at, name in enumerate(node.input):
            if name in stored:
                node.input[at] = f"{name}_of_{number}_{at}"
                model.graph.initializer.add().CopyFrom(stored[name])
                model.graph.initializer[-1].name = node.input[at]
    return True


def _reads(node: onnx.NodeProto) -> set[str]:
    """Names that a node or its bodies read, those of the bodies' own values included."""
    graphs = [g for a in node.attribute for g in (a.g, *a.graphs)]
    inner = [_reads(n) for g in graphs for n in g.node]
    return {*node.input, *(v.name for g in graphs for v in g.output)}.union(*inner)


def _reordered(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> bool:
    waiting = [onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node]
    coming = {o for node in waiting for o in node.output}
    del model.graph.node[:]
    while waiting:
        node = rng.choice([n for n in waiting if not _reads(n) & coming - {""}])
        waiting.remove(node)
        coming.difference_update(node.output)
        model.graph.node.append(node)
    return True


def _bare(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> bool:
    """Names of nodes, docs, shapes of values and metadata are gone."""
    for node in model.graph.node:
        node.name = node.doc_string = ""
        del node.metadata_props[:]
    for notes in (model.metadata_props, model.graph.metadata_props, model.graph.value_info):
        del notes[:]
    model.doc_string = model.graph.doc_string = ""
    model.graph.name, model.producer_name = "other", "other"
    return True


# ---------------------------------------------------------------- nodes without effect

_CASTS = f"m = Cast <to = {TensorProto.DOUBLE}> (s); t = Cast <to = {TensorProto.FLOAT}> (m)"


def _turns(rng: Random, rank: int) -> str:
    perm = rng.sample(range(rank), rank)
    back = [perm.index(axis) for axis in range(rank)]
    return f"m = Transpose <perm = {perm}> (s); t = Transpose <perm = {back}> (m)"


def _inserting(make: Callable[[Random, int], str]) -> Rewriting:
    """Put nodes behind a value of reals that follows from data, of rank 3 or more."""

    def insert(model: onnx.ModelProto, rng: Random, original: onnx.ModelProto) -> bool:
        graph = onnx.shape_inference.infer_shapes(copied(model), data_prop=True).graph
        infos = (*graph.value_info, *graph.output, *graph.input)
        known = {v.name: v.type.tensor_type for v in infos}
        made, places = {v.name for v in model.graph.input}, []
        for spot in mutations.spots(model):
            if spot.holder is not model.graph or not made.intersection(spot.node.input):
                continue
            if spot.node.op_type in ("Shape", "Size"):
                continue
            made.update(spot.node.output)
            kind = known.get(spot.node.output[0])
            if kind is not None and kind.elem_type == TensorProto.FLOAT and len(kind.shape.dim) > 2:
                places.append((spot.number, len(kind.shape.dim)))
        if places:
            number, rank = rng.choice(places)
            put = spliced(make(rng, rank))
            model.CopyFrom(
                mutations.edited(model, number, lambda h, i, n: mutations.behind(h, i, put))
            )
        return bool(places)

    return insert


_REWRITINGS: dict[str, Rewriting] = {
    **{kind: _renaming(kind) for kind in _NAMES},
    "Constants to initializers": _to_initializers,
    "initializers to Constants": _to_constants,
    "constants copied": _constants_copied,
    "another order": _reordered,
    "bare": _bare,
    "Identity inserted": _inserting(lambda rng, rank: "t = Identity (s)"),
    "Casts inserted": _inserting(lambda rng, rank: _CASTS),
    "Transposes inserted": _inserting(_turns),
}
#: Options of conversions that are as right as the usual one.
_OPTIONS: dict[str, dict[str, Any]] = {
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

#: Ways to write a conversion, without tools.
CLASSES = (*_OPTIONS, *_REWRITINGS)
#: Names of the originals, those of the grid last.
SOURCES = (*subjects.NETS, *subjects.NAMES, *subjects.CELLS)


def draw(kind: str, number: int, seed: int = 0) -> Pair | None:
    """Draw a conversion that is written in another way; None if there is none, or a tool refuses it.

    Args:
        kind: one of CLASSES or TOOLS.
        number: of one of `SOURCES`, fused or, from their count on, not.
        seed: of what is drawn.
    """
    name, fuse = SOURCES[number % len(SOURCES)], number < len(SOURCES)
    base = subjects.get(name)
    try:
        plain = converted(base.model, fuse=fuse)
        made = converted(base.model, **{"fuse": fuse, **_OPTIONS.get(kind, {})})
    except SpatialError:
        return None
    if kind in TOOLS:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                made = TOOLS[kind](made)
                running.session(made, running.LEVELS[0])
            except (Exception, SystemExit):  # whatever tools raise
                return None
    elif kind in _REWRITINGS:
        made = copied(made)
        if not _REWRITINGS[kind](made, Random(f"{kind} {number} {seed}"), base.model):
            return None

    def wrong() -> str | None:
        feeds = base.feeds(np.random.default_rng(5))
        first, second = (running.run(m, feeds, running.LEVELS[0]) for m in (plain, made))
        return None if all(map(alike, first, second)) else "other values"

    return Pair(f"{kind} {number}: {name}: {'' if fuse else 'not fused'}", base.model, made, wrong)


ROOT = Path(__file__).resolve().parents[2]

#: Places for a mistake that are tried before a model is given up, and inputs on which one is run.
TRIES, INPUTS = 8, 24
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
}


def own(wanted: Wanted) -> Iterator[Task]:
    """Convert nets and files in all ways, cells of the grid in both modes."""
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
    yield from _converted(f"{path.parent.name}/{path.stem}", onnx.load(path), MODES)


def converted_cell(name: str) -> Iterator[Pair]:
    """Convert a cell of the grid in both modes."""
    yield from _converted(f"grid {name}", grid.model(grid.get(name)), [*MODES][:2])


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
        yield partial(rewritten, tool, number, 0)


def renamed(wanted: Wanted) -> Iterator[Task]:
    """Draw right conversions that look like wrong ones."""
    for number, kind in itertools.product(range(len(subjects.NETS)), CLASSES):
        yield partial(rewritten, kind, number, wanted.seed)


def rewritten(kind: str, number: int, seed: int) -> Iterator[Pair]:
    """Write a conversion in another way."""
    yield from filter(None, [draw(kind, number, seed)])


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

    def classes(self) -> Mapping[str, Callable[[], Mutations]]:
        """Every class of mistakes, for the converted model."""
        model, original = _right(self), self.original
        subject = subjects.get(self.subject)
        feeds = subject.feeds(np.random.default_rng(5))

        def misread() -> Mutations:
            for mutation in mutations.misread(original):
                yield Mutation(mutation.what, lambda m=mutation: self.convert(m.make()))

        return {
            **{kind: lambda make=make: make(model) for kind, make in mutations.CLASSES.items()},
            "parameters misread": misread,
            "size baked in": lambda: mutations.sizes_baked_in(model, subjects.shapes(model, feeds)),
        }

    def mutants(self, kind: str, seed: int) -> Iterator[Pair]:
        """Yield mutants of one class in random order."""
        right = _right(self)
        same = right.SerializeToString(deterministic=True)
        places = list(self.classes()[kind]())
        Random(f"{kind} {self} {seed}").shuffle(places)
        for mutation in places:
            try:
                mutant = mutation.make()
            except SpatialError:
                continue  # other parameters than these are refused at once
            if mutant.SerializeToString(deterministic=True) != same:
                name = f"{self}: {kind}: {mutation.what}"
                yield Pair(name, self.original, mutant, partial(self._difference, mutant), right)

    def _difference(self, mutant: onnx.ModelProto) -> str | None:
        found = _judge(self).difference(mutant)
        return found and ": ".join(found)


@cache
def _right(form: Form) -> onnx.ModelProto:
    return form.convert(form.original)


@cache
def _judge(form: Form) -> subjects.Judge:
    exact = subjects.moves(form.subject)
    rng = np.random.default_rng([ord(c) for c in form.subject])
    subject, kinds = subjects.get(form.subject), ("bits",) if exact else KINDS
    feeds = (subject.feeds(rng, kinds[number % len(kinds)]) for number in range(INPUTS))
    return subjects.Judge(form.original, feeds, exact)


def forms(names: Iterable[str] = subjects.NAMES) -> Iterator[Form]:
    """Yield subjects in every form that makes a model of its own."""
    for subject in names:
        seen = set()
        ways = WAYS[:1] if subject in subjects.NETS else WAYS
        for form in (Form(subject, *way) for way in ways):
            try:
                data = _right(form).SerializeToString(deterministic=True)
            except SpatialError:
                continue  # a lowering that does not take it
            if data not in seen:
                seen.add(data)
                yield form


#: Each mutant of a net is drawn from one of so many parts of its forms and classes.
PARTS = 24


def mutants(wanted: Wanted) -> Iterator[Task]:
    """Break conversions of models/, small models and cells of the grid, in turn."""
    nets = [
        [partial(mutant, name, part, PARTS, wanted.seed) for part in range(PARTS)]
        for name in subjects.NAMES
    ]
    names = Random(wanted.seed).sample(subjects.CELLS, len(subjects.CELLS))
    cells = [partial(mutant, name, 0, 1, wanted.seed) for name in names]
    yield from _in_turn(*nets, *(cells[number::5] for number in range(5)))


def mutant(subject: str, part: int, parts: int, seed: int) -> Iterator[Pair]:
    """Draw a mutant of a subject that gives other numbers, from a part of its forms and classes."""
    drawn = [(form, kind) for form in forms([subject]) for kind in form.classes()]
    Random(f"{subject} {seed}").shuffle(drawn)
    tried = (pair for form, kind in drawn[part::parts] for pair in _tries(form, kind, seed))
    yield from itertools.islice((p for p in tried if (p.wrong() or "").startswith("silent")), 1)


def _tries(form: Form, kind: str, seed: int) -> Iterator[Pair]:
    return itertools.islice(form.mutants(kind, seed), TRIES)


# ---------------------------------------------------------------- wrong on purpose


def wrong(wanted: Wanted) -> Iterator[Task]:
    """Draw mutants of nets, models by hand and models wrong for rare sizes, in turn."""
    numbers = Random(wanted.seed).sample(range(len(wrong_models.WRONG)), len(wrong_models.WRONG))
    yield from _in_turn(
        (partial(mutant, name, 0, 1, wanted.seed) for name in subjects.NETS),
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


CORPORA = {
    "own": own,
    "right": right,
    "renamed": renamed,
    "mutants": mutants,
    "wrong": wrong,
}
#: Corpora of pairs that compute the same.
RIGHT = ("own", "right", "renamed")


def fitting(corpus: str, pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield the pairs of which the runs say what their corpus says."""
    yield from (pair for pair in pairs if (pair.wrong() is None) == (corpus in RIGHT))
