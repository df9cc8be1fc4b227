"""Measure how far rounding alone moves the outputs of a model.

    original    x -> [Conv] -> a -> [Sin] -> y
    perturbed   x -> [Conv] -> a -> a * (1 + r) + s -> [Sin] -> y * (1 + r)

Two right forms of one model round differently: other kernels, another order of sums, fused nodes. A
net may amplify that without bound (a sharp Softmax, Sin of large numbers, 1 / x, GridSample), or jump
(ArgMax, TopK, QuantizeLinear), so no fixed tolerance fits all. The original itself tells: it runs again
with every computed real off by a few units in the last place at random, and with onnxruntime's
optimisations on. As far as its outputs move then, those of another right form may move too.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from onnx_spatial.errors import ModelFileError
from onnx_spatial.graph import files, shapes, walk
from onnx_spatial.verify import double, exactness
from onnx_spatial.verify.figures import NOT_NUMBERS, errors
from onnx_spatial.verify.program import Program
from onnx_spatial.verify.sessions import RunFailure, Session
from onnx_spatial.verify.values import Array, is_float

#: Runs with perturbed reals, for each set of inputs.
RUNS = 3
#: Seconds after which no further run is begun; there is always one.
SECONDS = 6.0
#: A computed real is off by up to so many units in the last place, and the result of a sum of products
#: by as many of the mean magnitude of the tensor: its small elements are rests of larger numbers.
UNITS = 4.0
#: What enters QuantizeLinear is off by up to this share of a step where integer kernels may take the
#: place of real ones.
STEP = 0.25

#: A difference may be so many times as large as what was measured; up to the second factor it is
#: left undecided.
ACCEPTED, UNDECIDED = 4.0, 64.0
#: This share of elements may always jump: a rare event may be missing from the runs measured.
RARE = 1e-5

#: Operators that give an input's number, or a whole one, without rounding.
_EXACT = (
    exactness.MOVEMENT
    | exactness.DISCRETE
    | frozenset(
        "Abs Clip DequantizeLinear Dropout GlobalMaxPool Max MaxPool MaxRoiPool MaxUnpool Min Neg "
        "Optional OptionalGetElement ReduceMax ReduceMin Relu ThresholdedRelu".split()
    )
)
#: Operators of the default domain whose result is about as large as what they compute it from.
_ELEMENTWISE = frozenset(
    "Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Div Elu Erf Exp Gelu HardSigmoid HardSwish "
    "LeakyRelu Log LogSoftmax Mish Mul PRelu Pow Reciprocal Selu Sigmoid Sin Sinh Softmax Softplus "
    "Softsign Sqrt Swish Tan Tanh".split()
)
_REALS = (onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)


class Verdict(Enum):
    """What measured rounding says of a difference."""

    ACCEPTED = "rounding explains it"
    UNDECIDED = "it may be rounding, or not"
    DIFFERS = "rounding does not explain it"


class Movement:
    """How far an output moved in runs that round differently.

    Args:
        expected: the original's output.

    Attributes:
        runs: how many there were.
        jumps: largest share of elements that became others, of types without distances and whole
            numbers; of reals those that became or ceased to be finite.
        mean, p50, p99, largest: of the distances between numbers, the largest of all runs.
        optimised: the output with onnxruntime's optimisations; None if it was not measured.
    """

    def __init__(self, expected: Array) -> None:
        self._expected = expected
        self.runs = 0
        self.optimised: Array | None = None
        self.jumps = self.mean = self.p50 = self.p99 = self.largest = 0.0
        self._each: npt.NDArray[np.float32] | float = 0.0

    def add(self, actual: Array) -> None:
        """Take note of another run."""
        self.runs += 1
        found = _Distance(self._expected, actual)
        self.jumps = max(self.jumps, found.jumps)
        self.mean = max(self.mean, found.mean)
        self.p50, self.p99 = max(self.p50, found.p50), max(self.p99, found.p99)
        self.largest = max(self.largest, found.largest)
        if found.each is not None:
            self._each = np.maximum(self._each, found.each)

    def verdict(self, actual: Array, *, each: bool = False) -> Verdict:
        """Whether rounding explains the difference between the output and another form's.

        Args:
            actual: the other form's output.
            each: whether every element is held to its own movement, however small it is beside others.
        """
        found = _Distance(self._expected, actual)
        if self._explains(found, ACCEPTED, each):
            return Verdict.UNDECIDED if self._is_noise else Verdict.ACCEPTED
        explained = self._explains(found, UNDECIDED, each)
        return Verdict.UNDECIDED if explained else Verdict.DIFFERS

    @property
    def amount(self) -> str:
        """The movement in words, to stand behind "by"."""
        if not is_float(self._expected.dtype):
            return f"{self.jumps:.2g} of the elements"
        with np.errstate(all="ignore"):
            sizes = np.abs(self._expected[np.isfinite(self._expected)])
        largest = float(sizes.max()) if sizes.size else 0.0
        return f"{self.largest / largest if largest else 0.0:.2g} of the largest value"

    @property
    def _is_noise(self) -> bool:
        """Whether rounding leaves so little of the output that it tells nothing."""
        if not is_float(self._expected.dtype):
            return self.jumps > 0.5
        with np.errstate(all="ignore"):
            sizes = np.abs(self._expected.astype(np.float64))
            sizes = sizes[np.isfinite(sizes)]
        return bool(sizes.size) and ACCEPTED * self.p99 > np.quantile(sizes, 0.99)

    def _explains(self, found: _Distance, factor: float, each: bool) -> bool:
        rare = found.jumps <= RARE
        if not rare and found.jumps > min(factor * self.jumps, (1 + self.jumps) / 2):
            return False
        if found.each is None:
            return True
        if not is_float(self._expected.dtype):
            return rare or found.mean <= factor * self.mean
        if found.p50 > factor * self.p50 or found.p99 > factor * self.p99:
            return False
        if found.largest <= factor * self.largest and not each:
            return True
        # Behind 1 / x few elements move by far the most: each is compared with its own movement.
        limit = factor * np.maximum(self._each, 0.0 if each else self.p99)
        return bool((found.each > limit).mean() <= RARE)


class _Distance:
    """How far two arrays of one shape and type are apart; see `Movement`."""

    def __init__(self, expected: Array, actual: Array) -> None:
        self.jumps = self.mean = self.p50 = self.p99 = self.largest = 0.0
        self.each: npt.NDArray[np.float32] | None = None
        if not expected.size:
            return
        if expected.dtype.kind in NOT_NUMBERS:
            self.jumps = float((expected != actual).mean())
            return
        found, _ = errors(expected, actual)
        finite = np.isfinite(found)
        near = found[finite]
        self.each = np.where(finite, found, 0.0).astype(np.float32)
        whole = not is_float(expected.dtype)
        self.jumps = float((found > 0).mean() if whole else 1.0 - finite.mean())
        if near.size:
            self.mean, self.largest = float(near.mean()), float(near.max())
            p50, p99 = np.quantile(near, (0.5, 0.99), method="higher")
            self.p50, self.p99 = float(p50), float(p99)


class _Run(Enum):
    """How a run differs from the original's."""

    OPTIMISED = "onnxruntime may optimise"
    PERTURBED = "computed reals are off at random"


class Rounding:
    """What rounding does to the outputs of a model; measured when it is asked for.

    Args:
        program: the model.
        source: the same as a file that onnxruntime loads as it is; None if it has operators that
            onnxruntime lacks, or is a part of a model.
        seconds: after which no further run is begun.
    """

    def __init__(
        self, program: Program, source: files.Source | None = None, seconds: float = SECONDS
    ) -> None:
        self._program = program
        self._source = source
        self._seconds = seconds
        self._types: Mapping[str, int] | None = None
        self._programs: dict[bool, Program] = {}
        self._feeds: Mapping[str, Array] | None = None
        self._measured: dict[bool, dict[str, Movement]] = {}

    def of(
        self, feeds: Mapping[str, Array], outputs: Mapping[str, Any], *, optimised: bool
    ) -> Mapping[str, Movement]:
        """How far each output moves, by name; nothing where it cannot be measured.

        Args:
            feeds, outputs: of a run of the original.
            optimised: whether optimisations may have their part in it.
        """
        if feeds is not self._feeds:
            self._feeds, self._measured = feeds, {}
        if optimised not in self._measured:
            self._measured[optimised] = self._measure(feeds, outputs, optimised)
        return self._measured[optimised]

    def _measure(
        self, feeds: Mapping[str, Array], outputs: Mapping[str, Any], optimised: bool
    ) -> dict[str, Movement]:
        quantised = optimised and self._quantises
        found: dict[str, Movement] = {}
        if optimised and not quantised:
            plain = self.of(feeds, outputs, optimised=False)
            found = {name: copy.copy(movement) for name, movement in plain.items()}
        kinds = [_Run.OPTIMISED] * optimised + [_Run.PERTURBED] * (0 if found else RUNS)
        started = time.monotonic()
        for kind in kinds:
            try:
                if kind is _Run.OPTIMISED:
                    again = self._optimised(feeds)
                else:
                    again = self._perturbed(quantised).run(feeds)
            except (RunFailure, ModelFileError, MemoryError):
                continue
            for name, expected in outputs.items():
                actual = again.get(name)
                if is_comparable(actual, expected):
                    movement = found.setdefault(name, Movement(expected))
                    movement.add(actual)
                    if kind is _Run.OPTIMISED:
                        movement.optimised = actual
            if time.monotonic() - started > self._seconds:
                break
        return found

    @property
    def _quantises(self) -> bool:
        return any(n.op_type == "QuantizeLinear" for _, _, n in walk.nodes(self._program.flat))

    def _optimised(self, feeds: Mapping[str, Array]) -> Mapping[str, Any]:
        """Run the original with onnxruntime's optimisations, as a whole or in parts."""
        program = self._program
        if self._source is not None:
            data = self._source.data or files.serialize(self._source.proto, self._source.name)
            return Session(data, optimise=True, folder=self._source.folder).run(feeds)
        again = Program(program.flat, program.positions(), program.folder, optimise=True)
        try:
            return again.run(feeds)
        finally:
            again.close()

    def _perturbed(self, quantised: bool) -> Program:
        if quantised not in self._programs:
            if self._types is None:
                self._types = exactness.element_types(self._program)
            model, sites = perturbed(self._program, self._types, quantised=quantised)
            self._programs[quantised] = Program(model, sites, self._program.folder)
        return self._programs[quantised]

    def close(self) -> None:
        """Let go of the sessions."""
        for program in self._programs.values():
            program.close()
        self._programs.clear()
        self._feeds, self._measured = None, {}


def is_comparable(actual: Any, expected: Any) -> TypeGuard[Array]:
    """Whether a value is an array of the shape and type of another."""
    return (
        isinstance(expected, np.ndarray)
        and isinstance(actual, np.ndarray)
        and expected.shape == actual.shape
        and expected.dtype == actual.dtype
    )


def perturbed(
    program: Program, types: Mapping[str, int], *, quantised: bool = False
) -> tuple[onnx.ModelProto, list[int]]:
    """A model whose computed reals are off at random, with the positions of its sites.

    Args:
        program: the model.
        types: element types of its values by name.
        quantised: whether to move what enters QuantizeLinear by shares of a step.
    """
    model = onnx.ModelProto()
    model.CopyFrom(program.flat)
    nodes = [node for _, _, node in walk.nodes(model)]
    for index in program.positions():
        if not any(a.name == shapes.NUMBER for a in nodes[index].attribute):
            nodes[index].attribute.append(helper.make_attribute(shapes.NUMBER, index))
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    writer = _Writer(model, types, opset, quantised)
    writer.graph(model.graph)
    sites = []
    for index, (_, _, node) in enumerate(walk.nodes(model)):
        for number in reversed(range(len(node.attribute))):
            if node.attribute[number].name == shapes.NUMBER:
                del node.attribute[number]
                sites.append(index)
    return model, sites


class _Writer:
    """Puts the perturbation behind every node that rounds."""

    def __init__(
        self, model: onnx.ModelProto, types: Mapping[str, int], opset: int, quantised: bool
    ) -> None:
        self._types = types
        self._opset = opset
        self._quantised = quantised
        self._weights = {t.name: tuple(t.dims) for t in model.graph.initializer}
        self._seed = 0.0

    def graph(self, graph: onnx.GraphProto) -> None:
        """Perturb what a graph computes, and the graphs in it."""
        fixed = _constant_values(graph)
        nodes = []
        for node in list(graph.node):
            for _, body in walk.subgraphs(node):
                self.graph(body)
            nodes += self._before(node, fixed)
            nodes.append(node)
            nodes += self._behind(node, fixed)
        del graph.node[:]
        graph.node.extend(nodes)

    def _before(self, node: onnx.NodeProto, fixed: set[str]) -> list[onnx.NodeProto]:
        if not self._quantised or node.op_type != "QuantizeLinear" or node.input[0] in fixed:
            return []
        kind = self._types.get(node.input[0])
        if kind not in _REALS:
            return []
        scale, name = node.input[1], f"{node.output[0]} step"
        if math.prod(self._weights.get(scale, (2,))) != 1:  # of one axis: weights
            return []
        made = [
            self._random(node.input[0], f"{name} random", STEP),
            helper.make_node("Mul", [f"{name} random", scale], [f"{name} noise"]),
            helper.make_node("Add", [node.input[0], f"{name} noise"], [name]),
        ]
        node.input[0] = name
        return made

    def _behind(self, node: onnx.NodeProto, fixed: set[str]) -> list[onnx.NodeProto]:
        standard = node.domain in ("", "ai.onnx")
        ours = any(a.name == shapes.NUMBER for a in node.attribute)
        exact = standard and node.op_type in _EXACT
        if ours or exact or fixed.issuperset(walk.reads(node)) or any(walk.subgraphs(node)):
            return []
        elementwise = standard and node.op_type in _ELEMENTWISE
        made = []
        for number, name in enumerate(node.output):
            kind = self._types.get(name)
            if name and kind in _REALS:
                node.output[number] = f"{name} exact"
                made += self._moved(node, f"{name} exact", name, kind, elementwise)
        return made

    def _moved(
        self, node: onnx.NodeProto, x: str, y: str, kind: int, elementwise: bool
    ) -> list[onnx.NodeProto]:
        """y = x * (1 + r), and + r * mean |x| behind a sum of products."""
        size = UNITS * double.EPSILON[kind]
        weights = self._weights.get(node.input[1], ()) if len(node.input) > 1 else ()
        if not elementwise and len(weights) > 1:
            terms = math.prod(weights) / max(1, weights[0])
            size *= 1 + 0.1 * math.sqrt(terms)
        # onnxruntime draws float and double only: float16 is moved as float.
        short = kind == onnx.TensorProto.FLOAT16
        wide = f"{y} wide" if short else x
        made = [helper.make_node("Cast", [x], [wide], to=onnx.TensorProto.FLOAT)] if short else []
        made.append(self._random(wide, f"{y} random", size))
        made.append(helper.make_node("Mul", [wide, f"{y} random"], [f"{y} change"]))
        total = [wide, f"{y} change"]
        if not elementwise and self._opset >= 9:  # Where
            dtype = np.float64 if kind == onnx.TensorProto.DOUBLE else np.float32
            made += self._mean_magnitude(wide, y, dtype, _other_axes(node, len(weights)))
            made.append(helper.make_node("Mul", [f"{y} mean", f"{y} random"], [f"{y} shift"]))
            total.append(f"{y} shift")
        result = f"{y} moved" if short else y
        made.append(helper.make_node("Sum", total, [result]))
        if short:
            made.append(helper.make_node("Cast", [result], [y], to=kind))
        return made

    def _mean_magnitude(
        self, x: str, y: str, dtype: type[np.floating[Any]], axes: Sequence[int]
    ) -> list[onnx.NodeProto]:
        """Mean |x| over some axes, or all if none are named; 0 where that is no number."""

        def constant(name: str, value: Any, kind: type[np.generic] = dtype) -> onnx.NodeProto:
            tensor = onnx.numpy_helper.from_array(np.array(value, kind))
            return helper.make_node("Constant", [], [name], value=tensor)

        made = [
            constant(f"{y} limit", float(np.finfo(dtype).max)),
            constant(f"{y} zero", 0.0),
            helper.make_node("Abs", [x], [f"{y} magnitude"]),
        ]
        inputs = [f"{y} magnitude"]
        given: dict[str, Any] = {}
        if axes and self._opset >= 18:
            made.append(constant(f"{y} axes", axes, np.int64))
            inputs.append(f"{y} axes")
        elif axes:
            given = {"axes": list(axes)}
        names = [f"{y} {part}" for part in ("average", "limit", "finite", "zero", "mean")]
        average, limit, finite, zero, mean = names
        return [
            *made,
            helper.make_node("ReduceMean", inputs, [average], keepdims=1, **given),
            helper.make_node("Less", [average, limit], [finite]),
            helper.make_node("Where", [finite, average, zero], [mean]),
        ]

    def _random(self, x: str, name: str, size: float) -> onnx.NodeProto:
        self._seed += 1.0
        return helper.make_node(
            "RandomUniformLike", [x], [name], low=-size, high=size, seed=self._seed
        )


def _other_axes(node: onnx.NodeProto, rank: int) -> Sequence[int]:
    """The axes of what a sum of products gives that do not tell its channels; none if unknown."""
    if node.op_type == "Gemm":
        return [0]
    if node.op_type == "MatMul":
        return [-2] if rank > 1 else []
    is_conv = node.op_type in ("Conv", "ConvTranspose") and rank > 2
    return [0, *range(2, rank)] if is_conv else []


def _constant_values(graph: onnx.GraphProto) -> set[str]:
    """Names of the values of a graph that no run changes."""
    fed = {v.name for v in graph.input}
    found = {t.name for t in graph.initializer} - fed
    produced = {name for node in graph.node for name in node.output}
    for node in walk.in_order(graph):
        random = node.op_type in exactness.RANDOM
        if not random and found.issuperset(walk.reads(node)) and not fed & set(walk.reads(node)):
            found.update(name for name in node.output if name)
    return found & (produced | found)
