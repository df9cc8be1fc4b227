"""The models whose results must not change, what they are fed, and what must come out.

Subjects are built when they run; only their names are made beforehand. Every model comes from a builder
or from the nets in models/, and nothing here looks into the package.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import cases
import chain_models
import definitions
import grid
import movement_models
import numpy as np
import onnx
import patch_models
import pytest
import reference
import regions
import running
from building import TF, feeds_of, one_node
from chain_models import Net
from onnx import TensorProto, helper, numpy_helper
from patch_models import one_hot

MODELS = Path(__file__).parents[2] / "models"

#: What sums of a convolution may be off, of the largest output. Seven layers are off by 1e-6 or so.
TOLERANCE = 2e-5

#: Calls for each lowering.
CALLS = 24
#: Regions of each kind, all from one seed.
SEED, REGIONS = 1, 10
#: The lowerings that can be asked for by name, and the operators that they are for.
LOWERINGS = {
    "transpose": "blocks",
    "gather": "blocks",
    "space-to-depth": "square blocks of rows and columns",
    "row-gather": "blocks and patches",
    "element-gather": "blocks and patches",
    "slices": "blocks and patches",
    "planes": "patches",
}

Feeds = Mapping[str, np.ndarray]
#: Raises an AssertionError if the outputs are not what they must be.
Check = Callable[[Sequence[np.ndarray]], None]


@dataclass(frozen=True)
class Built:
    """A model, and runs of it: what it is fed, and what checks its outputs."""

    model: onnx.ModelProto
    runs: list[tuple[Feeds, Check]]
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """A model and how it is converted.

    Attributes:
        name: of the model and the way, in words.
        build: makes the model.
        options: of `onnx_spatial.convert`.
    """

    name: str
    build: Callable[[], Built]
    options: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.name


def subjects() -> list[Subject]:
    """All of them."""
    found = [*of_cases(), *of_grid(), *of_lowerings(), *of_nets(), *of_regions(), *of_chains()]
    assert len({subject.name for subject in found}) == len(found)
    return found


def exactly(expected: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    """Data movement: every bit survives."""
    for output, wanted in zip(outputs, expected, strict=True):
        assert running.same_bits(output, wanted)


def closely(expected: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    """Sums of floats may be off by a little; all else is exact."""
    for output, wanted in zip(outputs, expected, strict=True):
        assert (output.shape, output.dtype) == (wanted.shape, wanted.dtype)
        if wanted.dtype.kind != "f":
            assert running.same_bits(output, wanted)
        elif wanted.size:
            size = max(1.0, float(np.abs(wanted).max()))
            assert float(np.abs(output - wanted).max()) <= TOLERANCE * size


# ---------------------------------------------------------------- cases


@functools.cache
def positive() -> dict[str, cases.Case]:
    """The cases that onnxruntime can run."""
    return {c.id: c for c in cases.load() if c.error is None and not c.is_complex}


def of_cases() -> Iterator[Subject]:
    """Yield each case static and symbolic, one of them with parameters of the run, by turns."""
    for number, case in enumerate(positive().values()):
        for symbolic in (False, True):
            run_time = len(case.inputs) > 1 and symbolic == (number % 2 == 0)
            form = f"{'symbolic' if symbolic else 'static'} {'run-time' if run_time else 'known'}"
            yield Subject(f"case {case.id} {form}", partial(_case, case.id, symbolic, run_time))


def _case(name: str, symbolic: bool, run_time: bool) -> Built:
    case = positive()[name]
    model = case.model(symbolic=symbolic, run_time_parameters=run_time)
    feeds = case.feeds(run_time_parameters=run_time)
    return Built(model, [(feeds, partial(exactly, [case.expected]))])


def of_lowerings() -> Iterator[Subject]:
    """Yield calls for each lowering, by turns static and symbolic; some with few dims."""
    movable = [c for c in positive().values() if c.expected.size and not c.quantised]
    for lowering, operators in LOWERINGS.items():
        fitting = [
            c for c in movable if ("patches" if "Extract" in c.op_type else "blocks") in operators
        ]
        for number in range(CALLS):
            symbolic, run_time = number % 2 == 1, number % 8 == 5
            form = "symbolic" if symbolic else "static"
            if operators == "square blocks of rows and columns":
                options = {"prefer": lowering}
                build = partial(_square, number, symbolic, run_time)
                yield Subject(f"{lowering} {number} {form}", build, options)
                continue
            case = fitting[number * len(fitting) // CALLS]
            limit = max(4, case.inputs[0].ndim) if number % 5 == 2 else None
            yield Subject(
                f"{lowering} {number} {case.id} {form}",
                partial(_case, case.id, symbolic, run_time),
                {"prefer": lowering, "max_rank": limit},
            )


def _square(number: int, symbolic: bool, run_time: bool) -> Built:
    """Block the last two axes of images, channels first or without any, by the same number."""
    rng = np.random.default_rng(number)
    forward, channels = number % 3 != 0, number % 4 < 2
    b, batch, rows, columns = (int(n) for n in rng.integers((2, 1, 2, 3), (4, 4, 5, 6)))
    block = np.array([1, b, b] if channels else [b, b], np.int64)
    table = rng.integers(0, 3, (2, 2))
    if forward:
        table[:, 1] = -table[:, 0] % b
    table = np.concatenate([[[0, 0]], table]) if channels else table
    sizes = (rows * b, columns * b) if forward else (rows, columns)
    shape = (batch if forward else batch * b * b, *([3] if channels else []), *sizes)
    x = rng.standard_normal(shape).astype(np.float64 if number % 5 == 0 else np.float32)
    op_type, inputs = "SpaceToBatchND" if forward else "BatchToSpaceND", (x, block, table)
    declared = [f"d{i}" for i in range(x.ndim)] if symbolic else "static"
    model = one_node(op_type, inputs, shape=declared, run_time=[2] if run_time else ())
    expected = definitions.node(op_type, inputs, {})
    return Built(model, [(feeds_of(model, inputs), partial(exactly, [expected]))])


# ---------------------------------------------------------------- the grid


def of_grid() -> Iterator[Subject]:
    """Yield each cell; every seventh as local functions, too."""
    for number, cell in enumerate(grid.CELLS):
        yield Subject(f"grid {cell.name}", partial(_cell, cell.name))
        if number % 7 == 0:
            yield Subject(f"function {cell.name}", partial(_cell, cell.name), {"mode": "function"})


def _cell(name: str) -> Built:
    cell = grid.get(name)
    model = grid.model(cell)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    recorded, drawn = grid.recorded_inputs(cell), grid.feeds(cell, rng)
    return Built(
        model,
        [
            (recorded, partial(exactly, grid.recorded_outputs(cell))),
            (drawn, partial(exactly, reference.run(model, drawn))),
        ],
    )


# ---------------------------------------------------------------- nets


def of_nets() -> Iterator[Subject]:
    """Yield the nets in models/, converted and optimized."""
    for path in sorted(MODELS.glob("*/model.onnx")) + sorted(MODELS.glob("chains/*/model.onnx")):
        name = path.parent.relative_to(MODELS).as_posix()
        yield Subject(f"net {name}", partial(_net, path))
        yield Subject(f"net {name} optimized", partial(_net, path), {"chains": True})


def _net(path: Path) -> Built:
    model = onnx.load(str(path))
    folder = path.parent / "test_data_set_0"
    inputs, outputs = (
        [numpy_helper.to_array(_tensor(folder / f"{kind}_{n}.pb")) for n in range(len(values))]
        for kind, values in (("input", model.graph.input), ("output", model.graph.output))
    )
    feeds = {v.name: array for v, array in zip(model.graph.input, inputs, strict=True)}
    return Built(model, [(feeds, partial(closely, outputs))])


def _tensor(path: Path) -> TensorProto:
    return TensorProto.FromString(path.read_bytes())


# ---------------------------------------------------------------- regions


def of_regions() -> Iterator[Subject]:
    """Yield random regions of each kind around SpaceToBatch -> .. -> BatchToSpace."""
    for kind in regions.KINDS:
        for number in range(REGIONS):
            yield Subject(f"region {kind} {number}", partial(_region, kind, number))


def _region(kind: str, number: int) -> Built:
    case = regions.build(SEED, number, kind)
    auto_pads = [
        a for node in case.model.graph.node for a in node.attribute if a.name == "auto_pad"
    ]
    if onnx.__version__ < "1.23" and any(a.s != b"NOTSET" for a in auto_pads):
        pytest.skip(
            "what must come out is not known: older evaluators of onnx take auto_pad wrongly"
        )

    def check(outputs: Sequence[np.ndarray]) -> None:
        for value, output in zip(case.model.graph.output, outputs, strict=True):
            wanted = case.expected[value.name]
            assert regions.difference(output, wanted, regions.tolerance_of(case.model)) is None

    # onnxruntime's own rewriting of quantized models to QLinearConv changes numbers, fused or not.
    return Built(case.model, [(case.feeds, check)], {"session.disable_quant_qdq": "1"})


# ---------------------------------------------------------------- chains

#: What replaces the symbolic dims of the models, at most: each is a multiple of the blocks.
SIZES = {"n": 2, "h": 12, "w": 18, "t": 12, "c": 3, "m": 24, "d": 6}

#: SpaceToBatch -> convolution -> BatchToSpace.
BLOCKS = {
    "six dims": lambda: chain_models.six_dims(),
    "six dims, symbolic": lambda: chain_models.six_dims(("n", "h", "w", 3)),
    "six dims, rate 3": lambda: chain_models.six_dims((2, 9, 15, 3), (3, 3), 3),
    "depth": lambda: chain_models.depth_to_space(),
    "depth, rate 3": lambda: chain_models.depth_to_space(d=3),
    "stacked": lambda: chain_models.stacked(),
    "channels first": lambda: chain_models.channels_first(),
    "one dim": lambda: chain_models.one_dim(),
    "one axis of two": lambda: chain_models.uneven(),
    "volume": lambda: chain_models.volume(),
}

PATCHES = {
    "one-hot": lambda: _first(strides=[2, 2]),
    "one-hot, SAME_UPPER": lambda: _first(auto_pad="SAME_UPPER", strides=[2, 2]),
    "one-hot, SAME_LOWER": lambda: _first(auto_pad="SAME_LOWER", strides=[3, 2]),
    "one-hot, pads": lambda: _first(pads=[0, 2, 1, 3], strides=[2, 1]),
    "one-hot, dilations": lambda: _first(dilations=[2, 3]),
    "one-hot, channel major": lambda: _first(major="channel", pads=[1, 1, 1, 1]),
    "one-hot, channels last": lambda: patch_models.channels_last(
        one_hot((2, 4), 3), ("n", "h", "w", 3), strides=[2, 3]
    ),
    "one-hot, one axis": lambda: patch_models.channels_first(
        one_hot((2,), 2), ("n", 2, "t"), strides=[2]
    ),
    "one-hot, one window": lambda: _flat((2, 3, 8, 10), (3, 3), strides=[8, 10]),
    "one-hot, one row": lambda: _flat((2, 3, 1, 12), (1, 3), strides=[1, 2]),
    "one-hot, one row of windows": lambda: _flat((2, 3, 8, 12), (1, 3), strides=[8, 2]),
    "one-hot, columns": lambda: _flat(("n", 3, "h", "w"), (3, 1), strides=[2, 3]),
    "one-hot, side by side": lambda: _flat(("n", 3, "h", "w"), (2, 3), strides=[2, 3]),
    "one-hot, volume": lambda: _flat(("n", 2, "d", "h", "w"), (2, 1, 2), strides=[1, 2, 2]),
    "one-hot, depthwise": lambda: patch_models.channels_first(
        one_hot((3, 3), 4, group=True), ("n", 4, "h", "w"), group=4
    ),
    "tf2onnx": lambda: patch_models.tf2onnx((2, 9, 11, 3), stride=2),
    "unfold": lambda: patch_models.im2col((2, 2, 12, 18), 3, 1, 1, computed=False),
    "unfold, computed": lambda: patch_models.im2col(("n", 2, "h", "w"), 3, 2, 1, computed=True),
}

#: Patches in front of what multiplies them.
EMBEDDINGS = {
    "MatMul": lambda: _embedding("MatMul", (3, 3), (2, 2), "SAME"),
    "MatMul, rates": lambda: _embedding("MatMul", (2, 3), (1, 2), "VALID", rates=(2, 1)),
    "MatMul, side by side": lambda: _embedding("MatMul", (4, 4), (4, 4), "VALID"),
    "Conv": lambda: _embedding("Conv", (3, 3), (1, 1), "SAME"),
    "Conv, static": lambda: _embedding("Conv", (3, 2), (2, 1), "VALID", shape=(2, 9, 8, 3)),
    "MatMul, overlapping, static": lambda: _embedding(
        "MatMul", (3, 3), (1, 2), "SAME", shape=(2, 9, 8, 3)
    ),
    "MatMul, one row": lambda: _embedding("MatMul", (1, 3), (1, 1), "SAME", shape=(2, 1, 9, 3)),
    "MatMul, larger strides": lambda: _embedding("MatMul", (2, 2), (3, 4), "SAME"),
    "Conv, large and static": lambda: _embedding(
        "Conv", (5, 5), (2, 2), "SAME", shape=(2, 32, 30, 3)
    ),
    "Conv, rates": lambda: _embedding("Conv", (3, 3), (2, 1), "SAME", rates=(2, 3)),
    "Gemm": lambda: _embedding("Gemm", (2, 2), (2, 2), "VALID", shape=(2, 8, 6, 3)),
    "another reader": lambda: _embedding("another", (3, 3), (1, 1), "SAME"),
    "MatMul of a volume": lambda: _embedding("MatMul", (1, 2, 2), (2, 1, 2), "SAME"),
}


def _first(major: str = "place", **attributes: object) -> onnx.ModelProto:
    weight = one_hot((3, 3), 3, major=major)
    return patch_models.channels_first(weight, ("n", 3, "h", "w"), **attributes)


def _flat(
    shape: tuple[int | str, ...], kernel: tuple[int, ...], **attributes: object
) -> onnx.ModelProto:
    return patch_models.channels_first(one_hot(kernel, int(shape[1])), shape, **attributes)


def _embedding(
    reader: str,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    padding: str,
    *,
    rates: tuple[int, ...] | None = None,
    shape: tuple[int | str, ...] = (),
) -> onnx.ModelProto:
    """Patches of three channels, and a product with seven columns behind them."""
    net, axes = Net(), len(kernel)
    given = {"ksizes": [1, *kernel, 1], "strides": [1, *strides, 1], "padding": padding}
    if axes == 2:
        given["rates"] = [1, *(rates or (1, 1)), 1]
    kind = "ExtractImagePatches" if axes == 2 else "ExtractVolumePatches"
    x = patches = net(kind, "x", domain=TF, **given)
    depth = 3 * int(np.prod(kernel))
    weight = chain_models.weights(depth, 7)
    if reader == "Gemm":
        x = net("Gemm", net("Reshape", x, [-1, depth]), weight, chain_models.weights(7))
    elif reader == "Conv":
        x = net("Transpose", x, perm=[0, 3, 1, 2])
        x = net("Conv", x, weight.T.reshape(7, depth, 1, 1), chain_models.weights(7))
    else:
        x = net("Relu", net("Add", net("MatMul", x, weight), chain_models.weights(7)))
    shape = shape or ("n", "d", "h", "w", 3)[:1] + ("d", "h", "w")[3 - axes :] + (3,)
    model = net.model(shape, x)
    if reader == "Gemm":
        del model.graph.output[0].type.tensor_type.shape.dim[2:]
    if reader == "another":
        model.graph.output.append(helper.make_tensor_value_info(patches, 1, [None] * 4))
    model.opset_import.append(helper.make_opsetid(TF, 1))
    return model


def spelled_feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Small integers of the declared type, all sums of which are exact."""
    (x,) = model.graph.input
    shape = [d.dim_value or SIZES[d.dim_param] for d in x.type.tensor_type.shape.dim]
    numbers = np.random.default_rng(1).integers(-50, 50, shape)
    return {"x": numbers.astype(helper.tensor_dtype_to_np_dtype(x.type.tensor_type.elem_type))}


def of_chains() -> Iterator[Subject]:
    """Yield what standard nodes spell, optimized, and patches in front of products."""
    for name, build in (BLOCKS | PATCHES).items():
        yield Subject(f"chain {name}", partial(_chain, build, closely), {"chains": True})
    for name, model in movement_models.FORMS.items():
        for limit in (None, 4):
            yield Subject(
                f"movement {name}, rank {limit or 'any'}",
                partial(_chain, lambda model=model: model, exactly),
                {"chains": True, "max_rank": limit},
            )
    for name, build in EMBEDDINGS.items():
        yield Subject(f"patches, {name}", partial(_embedded, build))


def _chain(build: Callable[[], onnx.ModelProto], check: Callable[..., None]) -> Built:
    model = build()
    feeds = spelled_feeds(model)
    expected = running.run(model, feeds, running.LEVELS[0])
    return Built(model, [(feeds, partial(check, expected))])


def _embedded(build: Callable[[], onnx.ModelProto]) -> Built:
    model = build()
    feeds = spelled_feeds(model)
    return Built(model, [(feeds, partial(closely, reference.run(model, feeds)))])
