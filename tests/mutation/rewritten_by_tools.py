"""Right conversions as tools rewrite them: optimisers, onnxruntime's saved models, float16, tf2onnx.

The tools are optional: `pip install onnxslim onnxsim onnxconverter-common`, and for tf2onnx the models
that `exporting` writes. Those that are not there are left out, and named in `missing`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import bases
import numpy as np
import onnx
import onnxruntime
import running
import subjects
from drawn import Equivalent, converted
from nets import Feeds

import onnx_spatial
from onnx_spatial import SpatialError

#: Class of nets that were exported with the operators and without.
EXPORTS = "tf2onnx with and without the operators"
#: Environment variable with the folder of these, which `exporting` writes.
FOLDER = "ONNX_SPATIAL_EXPORTED"

_LEVELS = onnxruntime.GraphOptimizationLevel


def _saved(
    level: onnxruntime.GraphOptimizationLevel,
) -> Callable[[onnx.ModelProto], onnx.ModelProto]:
    """Let onnxruntime optimise a model and save it."""

    def run(model: onnx.ModelProto) -> onnx.ModelProto:
        with tempfile.TemporaryDirectory() as folder:
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = level
            options.optimized_model_filepath = f"{folder}/model.onnx"
            options.log_severity_level = 4
            onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            return onnx.load(options.optimized_model_filepath)

    return run


def _onnxslim(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnxslim

    return onnxslim.slim(model)


def _onnxsim(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnxsim

    return onnxsim.simplify(model)[0]


def _float16(model: onnx.ModelProto) -> onnx.ModelProto:
    from onnxconverter_common import float16

    return float16.convert_float_to_float16(model, keep_io_types=True)


#: float16 by default, and where the user allows it.
_STRICTLY, _WITHIN = "float16", "float16 within a tolerance"
_OPTIONS = {_WITHIN: {"rtol": 0.02, "outputs_only": True}}
_MODULES = {
    "onnxslim": "onnxslim",
    "onnxsim": "onnxsim",
    _STRICTLY: "onnxconverter_common",
    _WITHIN: "onnxconverter_common",
}
TOOLS: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "onnxslim": _onnxslim,
    "onnxsim": _onnxsim,
    "onnxruntime, basic": _saved(_LEVELS.ORT_ENABLE_BASIC),
    "onnxruntime, extended": _saved(_LEVELS.ORT_ENABLE_EXTENDED),
    "onnxruntime, all": _saved(_LEVELS.ORT_ENABLE_ALL),
    _STRICTLY: _float16,
    _WITHIN: _float16,
}


def missing() -> list[str]:
    """Name the tools that cannot be imported."""
    absent = [t for t, m in _MODULES.items() if importlib.util.find_spec(m) is None]
    return absent if any(_originals()) else [*absent, EXPORTS]


@dataclass(frozen=True)
class Source:
    """A model, data for it, and whether it computes with reals."""

    model: Callable[[], onnx.ModelProto]
    feeds: Callable[[], Feeds]
    arithmetic: bool = True


@cache
def sources() -> dict[str, Source]:
    """Return originals by name: exported ones, those of models/, the nets, the grid."""
    found = {}
    for path in _originals():
        found[f"exported/{path.stem}"] = Source(partial(onnx.load, path), partial(_recorded, path))
    for name in (*subjects.NAMES, *subjects.CELLS):
        found[name] = Source(
            lambda n=name: subjects.get(n).model,
            lambda n=name: subjects.get(n).feeds(np.random.default_rng(5)),
            name not in subjects.CELLS and subjects.get(name).arithmetic,
        )
    for name, net in bases.everything().items():
        if name not in found:
            found[name] = Source(
                lambda n=net: n.model, lambda n=net: n.feeds(np.random.default_rng(5))
            )
    first = [n for n in found if n not in subjects.CELLS]
    return {n: found[n] for n in (*first, *subjects.CELLS)}


def _recorded(path: Path) -> Feeds:
    """Return the inputs that TensorFlow ran."""
    inputs = [v.name for v in onnx.load(path).graph.input]
    with np.load(path.with_suffix(".npz")) as arrays:
        return {name: arrays[name.removesuffix(":0")] for name in inputs}


def _rewritten(tool: str) -> Callable[[int], Equivalent | None]:
    def draw(number: int) -> Equivalent | None:
        names = [n for n, s in sources().items() if s.arithmetic or tool != _WITHIN]
        if number >= 2 * len(names):
            return None
        name, fuse = names[number % len(names)], number < len(names)
        original = sources()[name].model()
        try:
            model = onnx_spatial.convert(original, verify=False, fuse=fuse).model
        except SpatialError:
            return None
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                made = TOOLS[tool](copy)
            except (Exception, SystemExit):
                return None  # the tool refuses the model
        if not _loads(made):
            return None
        what = f"{name}{'' if fuse else ' not fused'}: {tool}"
        return Equivalent(
            what,
            original,
            made,
            feeds=sources()[name].feeds,
            less_exact=tool == _STRICTLY,
            options=_OPTIONS.get(tool, {}),
        )

    return draw


def _exported(number: int) -> Equivalent | None:
    """One net as tf2onnx exports it with the operators and without."""
    pairs = [(p, p.with_name(f"{p.stem}.tf2onnx-default.onnx")) for p in _originals()]
    if number >= len(pairs):
        return None
    first, second = pairs[number]
    other = converted(onnx.load(second))
    if not _loads(other):
        return None
    what = f"{first.stem}: tf2onnx without the operators"
    return Equivalent(what, onnx.load(first), other, feeds=partial(_recorded, first))


def _loads(model: onnx.ModelProto) -> bool:
    try:
        running.session(model, running.LEVELS[0])
    except Exception:  # whatever onnxruntime says
        return False
    return True


def _originals() -> Iterator[Path]:
    if FOLDER not in os.environ:
        return
    for path in sorted(Path(os.environ[FOLDER]).glob("*.onnx")):
        if path.with_name(f"{path.stem}.tf2onnx-default.onnx").exists():
            yield path


#: Draws of each class: of a number, which takes the sources in turn.
CLASSES: dict[str, Callable[[int], Equivalent | None]] = {
    **{tool: _rewritten(tool) for tool in TOOLS if tool not in missing()},
    EXPORTS: _exported,
}
