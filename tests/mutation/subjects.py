"""What is converted and then broken, the data that is fed to it, and whether a changed one differs.

    net  =  a model, the legal sizes of its open dims, from which each run draws
    region  =  a net whose nodes become a convolution
    pair  =  an original, a changed model, and how they differ in a run

A subject knows which inputs are legal by itself, and originals run in onnx's reference evaluator with
the tests' own definitions of the operators (`reference`): the package under test is not asked.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import graphs
import grid
import numpy as np
import onnx
import reference
import running
from mutation import mutations
from onnx import helper
from parsing import model

ZOO = Path(__file__).parents[2] / "models"

Feeds = dict[str, np.ndarray]
Rng = np.random.Generator

#: Ways to fill an input with reals, the likeliest to show a difference first.
KINDS = ("normal", "ties", "images", "large", "constants", "zeros", "nan")


@dataclass(frozen=True)
class Net:
    """A model with the legal sizes of its inputs.

    Attributes:
        name: what it is.
        model: the original.
        dims: of each input: numbers, or letters of open dims.
        sizes: legal ones of open dims, if they are not all below 30 (of a batch: below 4).
        bounds: of inputs of integers.
    """

    name: str
    model: onnx.ModelProto
    dims: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, range] = field(default_factory=dict)
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def feeds(self, rng: Rng, kind: str = "normal") -> Feeds:
        """Draw data of random legal sizes."""
        known: dict[str, int] = {}
        found = {}
        for info in self.model.graph.input:
            if info.name not in self.dims:
                continue
            shape = []
            for dim in self.dims[info.name].split():
                legal = self.sizes.get(dim, range(1, 4 if dim == "n" else 30))
                drawn = known.setdefault(dim, int(rng.choice(legal)))
                shape.append(int(dim) if dim.isdigit() else drawn)
            dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            if info.name in self.bounds:
                found[info.name] = rng.integers(*self.bounds[info.name], shape).astype(dtype)
            else:
                found[info.name] = _filled(rng, tuple(shape), dtype, kind, self.model)
        return found


def _filled(
    rng: Rng, shape: tuple[int, ...], dtype: np.dtype, kind: str, model: onnx.ModelProto
) -> np.ndarray:
    """Draw an array of one of `KINDS`, or of any bits."""
    if kind == "bits" or dtype.kind in "Ob":
        name = "string" if dtype.kind == "O" else dtype.name
        bits = graphs.array(Random(int(rng.integers(1 << 30))), name, shape)
        if name == "float16":  # whose signalling NaNs kernels of onnxruntime's own make quiet
            bits.view(np.uint16)[np.isnan(bits)] |= 0x0200
        return bits
    if dtype.kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    stored = [a.reshape(-1)[:64] for a in mutations.constants(model.graph).values()]
    numbers = np.concatenate([a for a in stored if a.dtype.kind in "fiu"] + [[0.0, 1.0]])
    draw: dict[str, Callable[[], np.ndarray]] = {
        "normal": lambda: rng.uniform(-1.5, 1.5, shape),
        "ties": lambda: rng.integers(-16, 17, shape) / 2,
        "images": lambda: rng.integers(0, 256, shape),
        "large": lambda: rng.uniform(-4500, 4500, shape),
        "constants": lambda: rng.choice(numbers.astype(np.float64), shape),
        "zeros": lambda: rng.choice([-0.0, 0.0, 1.0, -1.0], shape),
        "nan": lambda: np.where(rng.random(shape) < 0.1, np.nan, rng.uniform(-1.5, 1.5, shape)),
    }
    with np.errstate(over="ignore", invalid="ignore"):
        return draw[kind]().astype(dtype)


#: Inputs of the nets of models/, their sizes, bounds of integers.
_ZOO: dict[str, tuple] = {
    "deeplab": ({"image": "n h w 3"}, {"h": range(5, 30), "w": range(5, 30)}),
    "leftover": ({"image": "n h w 4", "rate": "2"}, {}, {"rate": (1, 5)}),
    "openvino_style": ({"data": "n 4 15 13"},),
    "raft": (
        {"first": "n h w 3", "second": "n h w 3"},
        {"h": range(6, 31, 6), "w": range(6, 31, 6)},
    ),
    "video": ({"clip": "n 8 16 12 3"}, {}, {"clip": (0, 256)}),
    "wavenet": ({"audio": "n h 4"},),
    "wavenet_noncausal": ({"audio": "n h 4"},),
    # Below 8 onnx's evaluator and onnxruntime disagree about MaxPool.
    "yolov2_dynamic": ({"image": "n h w 3"}, {"h": range(8, 31, 4), "w": range(8, 31, 4)}),
}

# ---------------------------------------------------------------- regions

_BETWEEN = (
    "r = Relu (v)",
    "a = Add (v, bias) r = Relu (a)",
    "a = Add (v, bias) m = BatchNormalization (a, gamma, beta, mean, var) r = Relu (m)",
    "s = Sigmoid (v) a = Tanh (v) r = Mul (s, a)",
    "r = LeakyRelu <alpha = 0.1> (v)",
)


def _dilated(between: str, kind: str = "float", axes: int = 2) -> Net:
    """SpaceToBatch, Conv, other nodes from `v` to `r`, Conv, BatchToSpace."""
    front, back = ("[0, 2, 1]", "[0, 2, 1]") if axes == 1 else ("[0, 3, 1, 2]", "[0, 2, 3, 1]")
    rng, one = np.random.default_rng(0), (1,) * axes
    shapes = {"w0": (4, 3, *[3] * axes), "w1": (4, 4, *one), "bias": (4, *one)}
    shapes |= dict.fromkeys(("b0", "gamma", "beta", "mean", "var"), (4,))
    reals = {n: rng.uniform(-0.4, 0.4, s) + (n in ("gamma", "var")) for n, s in shapes.items()}
    dims = "n h 3" if axes == 1 else "n h w 3"
    text = f"""g ({kind}[{dims.replace(" ", ",")}] x) => ({kind} y) {{
        u = tf.SpaceToBatchND (x, block, ring) t = Transpose <perm = {front}> (u)
        v = Conv (t, w0, b0) {between} o = Conv (r, w1) l = Transpose <perm = {back}> (o)
        y = tf.BatchToSpaceND (l, block, none) }}"""
    dtype = np.float16 if kind == "float16" else np.float32
    made = model(
        text,
        **{n: a.astype(dtype) for n, a in reals.items()},
        block=[2] * axes,
        ring=[[2, 2]] * axes,
        none=[[0, 0]] * axes,
    )
    operators = " ".join(re.findall(r"= ([A-Z]\w+)", between))
    name = f"dilated{axes}d {operators} {kind}"
    return _net(name, made, {"x": dims}, range(2, 30, 2))


def _patched(stride: int, kernel: int, padding: str, function: str = "Relu") -> Net:
    """ExtractImagePatches and a 1x1 Conv, which become a strided Conv."""
    text = f"""g (float[n,h,w,3] x) => (float y) {{
        z = tf.ExtractImagePatches <ksizes = [1, {kernel}, {kernel}, 1], rates = [1, 1, 1, 1],
            strides = [1, {stride}, {stride}, 1], padding = "{padding}"> (x)
        t = Transpose <perm = [0, 3, 1, 2]> (z) k = Conv (t, pw) y = {function} (k) }}"""
    weight = np.random.default_rng(0).standard_normal((4, 3 * kernel * kernel, 1, 1))
    made = model(text, pw=weight.astype(np.float32) / kernel)
    least = 1 if padding == "SAME" else kernel
    name = f"patches {kernel} by {stride} {padding} {function}"
    return _net(name, made, {"x": "n h w 3"}, range(least, 30))


def _net(name: str, made: onnx.ModelProto, dims: dict[str, str], legal: range) -> Net:
    made.graph.output[0].type.tensor_type.ClearField("shape")
    return Net(name, made, dims, {"h": legal, "w": legal})


def _regions() -> Iterator[Net]:
    yield from map(_dilated, _BETWEEN)
    yield from (_dilated(between, axes=1) for between in _BETWEEN[:4])
    yield _dilated(_BETWEEN[0], "float16")
    yield from (_patched(8, 8, "SAME"), _patched(16, 16, "VALID"), _patched(8, 11, "SAME"))
    yield from (_patched(8, 3, "SAME"), _patched(16, 5, "VALID", "Sigmoid"))


#: Nets whose operators become part of a convolution.
NETS = {made.name: made for made in _regions()}


# ---------------------------------------------------------------- all of them


@dataclass(frozen=True)
class _Cell(Net):
    """A cell of the grid, which knows its inputs."""

    def feeds(self, rng: Rng, kind: str = "normal") -> Feeds:
        return grid.feeds(grid.get(self.name), rng)


@cache
def get(name: str) -> Net:
    """A subject by name."""
    if name in _ZOO:
        return Net(name, onnx.load(ZOO / name / "model.onnx"), *_ZOO[name])
    return NETS[name] if name in NETS else _Cell(name, grid.model(grid.get(name)))


def moves(name: str) -> bool:
    """Whether a subject only moves data, so that every bit counts."""
    return name not in _ZOO and name not in NETS


#: Names of those that are looked at in every form: nets, and cells of open sizes.
_OPEN = (
    *(f"{row}/{form}" for row in ("tf_space_to_batch_nd", "openvino_batch_to_space")
      for form in ("dynamic", "computed")),
    "tf_batch_to_space/dynamic",
    "tf_extract_image_patches_same/dynamic",
    "tf_extract_volume_patches_valid/dynamic",
    "openvino_extract_image_patches_same_lower/dynamic",
)  # fmt: skip
NAMES = (*_ZOO, *_OPEN)
#: Names of the cells of the grid, which are too many to be looked at in every form.
CELLS = tuple(cell.name for cell in grid.CELLS)


#: Sums differ by rounding up to this share of the largest value; of float16 the second.
ROUNDING = 1e-4, 2e-2


@dataclass(frozen=True)
class Pair:
    """An original and a model that is, or is not, a right conversion of it.

    Attributes:
        name: base and change.
        original, changed: the models.
        wrong: says how they differ in a run; None if they do not, as far as was tried.
        right: the right conversion that was broken, if it is one.
    """

    name: str
    original: onnx.ModelProto
    changed: onnx.ModelProto
    wrong: Callable[[], str | None] = lambda: None
    right: onnx.ModelProto | None = None


class Judge:
    """What an original gives on some inputs; `exact`: every bit counts, because data is only moved."""

    def __init__(
        self, original: onnx.ModelProto, feeds: Iterable[Feeds], exact: bool = False
    ) -> None:
        stored = {t.name for t in original.graph.initializer}
        self._inputs = [v.name for v in original.graph.input if v.name not in stored]
        self._outputs = [v.name for v in original.graph.output]
        self._exact = exact
        self._cases = [(each, [*map(np.asarray, reference.run(original, each))]) for each in feeds]

    def difference(self, changed: onnx.ModelProto) -> tuple[str, str] | None:
        """("loud", why) if it does not load or run or has other inputs; ("silent", how) if it gives
        other outputs; None if nothing differs.
        """
        if any(map(_ends_the_process, changed.graph.node)):
            return "loud", "onnxruntime ends the process while it loads"
        for level in running.LEVELS:
            try:
                session = running.session(changed, level)
            except Exception as error:  # onnxruntime's errors have no common class
                return "loud", f"does not load: {str(error)[:120]}"
            if [o.name for o in session.get_outputs()] != self._outputs:
                return "silent", "its outputs have other names, or another order"
            if [i.name for i in session.get_inputs()] != self._inputs:
                return "loud", "its inputs have other names"
            for given, expected in self._cases:
                sizes = {n: a.shape for n, a in given.items()}
                try:
                    results = running.run_session(session, given)
                except Exception as error:  # as above
                    return "loud", f"does not run at {sizes}: {str(error)[:120]}"
                if not all(map(running.same_bits if self._exact else alike, expected, results)):
                    return "silent", f"other values at {sizes}"
        return None


def alike(wanted: np.ndarray, given: np.ndarray) -> bool:
    """Whether nothing but rounding differs."""
    return apart(wanted, given) <= ROUNDING[wanted.dtype == np.float16]


def apart(wanted: np.ndarray, given: np.ndarray) -> float:
    """The largest error by the largest value; infinite where NaNs, infinities or shapes differ."""
    if given.shape != wanted.shape or given.dtype != wanted.dtype:
        return math.inf
    if wanted.dtype.kind != "f":
        return 0.0 if running.same_bits(wanted, given) else math.inf
    a, b = wanted.astype(np.float64), given.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return math.inf
    a, b = a[finite], b[finite]
    if not np.isfinite(b).all():
        return math.inf
    return float(np.abs(a - b).max(initial=0) / (np.abs(a).max(initial=0) or 1.0))


def moved(original: onnx.ModelProto, changed: onnx.ModelProto, feeds: Feeds) -> str | None:
    """Return how a model that only moves data differs from the original on one input; None if not."""
    found = Judge(original, [feeds], exact=True).difference(changed)
    return found and ": ".join(found)


def shapes(model: onnx.ModelProto, feeds: Feeds) -> dict[str, Any]:
    """What every Shape of the main graph gives on one input, by name."""
    kept = {v.name for v in model.graph.output}
    names = [n.output[0] for n in model.graph.node if n.op_type == "Shape"]
    wanted = [n for n in names if n not in kept]
    if not wanted:
        return {}
    more = onnx.ModelProto()
    more.CopyFrom(model)
    more.graph.output.extend(onnx.ValueInfoProto(name=n) for n in wanted)
    results = running.run(more, feeds, running.LEVELS[0])
    return dict(zip(wanted, results[len(kept) :], strict=True))


def _ends_the_process(node: onnx.NodeProto) -> bool:
    """A Split with more results than its attribute says; of other sizes it is just refused."""
    said = [attribute.i for attribute in node.attribute if attribute.name == "num_outputs"]
    return node.op_type == "Split" and any(count < len(node.output) for count in said)
