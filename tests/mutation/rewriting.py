"""Right conversions that are written in another way: by other options, names, orders, and by tools.

The tools are onnxslim, onnxsim and onnxruntime's optimisers. The first two are optional
(`pip install onnxslim onnxsim`); those that are not there are named by `missing`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import editing
import numpy as np
import onnx
import onnxruntime
import running
import subjects
from editing import copied, spliced
from judging import Pair, alike
from onnx import TensorProto, helper

import onnx_spatial
from onnx_spatial import SpatialError


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
        editing.renamed(model, _NAMES[kind](rng, _inner(model), known))
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
        for spot in editing.spots(model):
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
            model.CopyFrom(editing.edited(model, number, lambda h, i, n: editing.behind(h, i, put)))
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
