"""Right conversions as tools rewrite them: onnxslim, onnxsim, and models that onnxruntime saves.

The tools are optional: `pip install onnxslim onnxsim`. Those that are not there are named by `missing`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import bases
import numpy as np
import onnx
import onnxruntime
import running
import subjects
from bases import Equivalent

import onnx_spatial
from onnx_spatial import SpatialError

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


@cache
def sources() -> list[str]:
    """Name the originals: models/ and small ones, the nets, the grid."""
    return list(dict.fromkeys((*subjects.NAMES, *bases.everything(), *subjects.CELLS)))


def draw(tool: str, number: int) -> Equivalent | None:
    """Let a tool rewrite a conversion; None if there is none, or the tool refuses it."""
    names = sources()
    if number >= 2 * len(names):
        return None
    name, fuse = names[number % len(names)], number < len(names)
    base = bases.everything().get(name) or subjects.get(name)
    original = base.model
    try:
        converted = onnx_spatial.convert(original, verify=False, fuse=fuse).model
    except SpatialError:
        return None
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            made = TOOLS[tool](bases.copied(converted))
            running.session(made, running.LEVELS[0])
        except (Exception, SystemExit):  # whatever tools raise
            return None
    what = f"{name}{'' if fuse else ' not fused'}: {tool}"
    return Equivalent(what, original, made, partial(base.random, np.random.default_rng(5)))
