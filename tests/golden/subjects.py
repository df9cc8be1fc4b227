"""The models whose results must not change, what they are fed, and what must come out.

Subjects are built when they run; only their names are made beforehand. Every model comes from a builder
or from the nets in models/, and nothing here looks into the package.
"""

import functools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import cases
import chain_models
import grid
import movement_models
import numpy as np
import onnx
import patch_models
import pytest
import reference
import regions
import running
from onnx import TensorProto, helper, numpy_helper
from patch_models import one_hot
from vocabulary import LOWERINGS

MODELS = Path(__file__).parents[2] / "models"

#: What sums of a convolution may be off, of the largest output. Seven layers are off by 1e-6 or so.
TOLERANCE = 2e-5

#: Regions of each kind, all from one seed.
SEED, REGIONS = 1, 10
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
    found = [*of_cases(), *of_grid(), *of_nets(), *of_regions(), *of_chains()]
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


# ---------------------------------------------------------------- the grid


def of_grid() -> Iterator[Subject]:
    """Yield each cell; every seventh as local functions too, every fifth by one of the lowerings."""
    for number, cell in enumerate(grid.CELLS):
        yield Subject(f"grid {cell.name}", partial(_cell, cell.name))
        if number % 7 == 0:
            yield Subject(f"function {cell.name}", partial(_cell, cell.name), {"mode": "function"})
        name = LOWERINGS[number // 5 % len(LOWERINGS)]
        if number % 5 == 0:
            options = {"prefer": name, "max_rank": 5 if number % 3 else None}
            yield Subject(f"{name} {cell.name}", partial(_cell, cell.name), options)


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
    case = regions.build(Random(f"{SEED} {number}"), kind)
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
            assert running.difference(output, wanted, case.tolerance) is None

    return Built(case.model, [(case.feeds, check)], running.SETTINGS)


# ---------------------------------------------------------------- chains

#: What replaces the symbolic dims of the models, at most: each is a multiple of the blocks.
SIZES = {"n": 2, "h": 12, "w": 18, "t": 12, "c": 3, "m": 24}

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

#: Alone, one-hot convolutions are faster than what they are: they stay.
PATCHES = {
    "one-hot": lambda: patch_models.channels_first(
        one_hot((3, 3), 3), ("n", 3, "h", "w"), strides=[2, 2]
    ),
    "one-hot, channels last": lambda: patch_models.channels_last(
        one_hot((2, 4), 3), ("n", "h", "w", 3), strides=[2, 3]
    ),
    "tf2onnx": lambda: patch_models.tf2onnx((2, 9, 11, 3), stride=2),
    "unfold": lambda: patch_models.im2col((2, 2, 12, 18), 3, 1, 1, computed=False),
    "unfold, computed": lambda: patch_models.im2col(("n", 2, "h", "w"), 3, 2, 1, computed=True),
}


def spelled_feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Small integers of the declared type, all sums of which are exact."""
    (x,) = model.graph.input
    shape = [d.dim_value or SIZES[d.dim_param] for d in x.type.tensor_type.shape.dim]
    numbers = np.random.default_rng(1).integers(-50, 50, shape)
    return {"x": numbers.astype(helper.tensor_dtype_to_np_dtype(x.type.tensor_type.elem_type))}


def of_chains() -> Iterator[Subject]:
    """Yield what standard nodes spell, optimized."""
    for name, build in (BLOCKS | PATCHES).items():
        yield Subject(f"chain {name}", partial(_chain, build, closely), {"chains": True})
    for name, model in movement_models.FORMS.items():
        for limit in (None, 4):
            yield Subject(
                f"movement {name}, rank {limit or 'any'}",
                partial(_chain, lambda model=model: model, exactly),
                {"chains": True, "max_rank": limit},
            )


def _chain(build: Callable[[], onnx.ModelProto], check: Callable[..., None]) -> Built:
    model = build()
    feeds = spelled_feeds(model)
    expected = running.run(model, feeds, running.LEVELS[0])
    return Built(model, [(feeds, partial(check, expected))])
