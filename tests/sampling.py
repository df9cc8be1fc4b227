"""Random nodes in every spelling, and random models around them.

Everything is drawn from a `random.Random`: the campaigns seed one, hypothesis hands in its own.
Sizes are small and chosen so that the operator's rules hold; zero-sized dims, crops of
everything, pads larger than the image and blocks larger than the dim all come up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from random import Random
from typing import Any

import definitions
import ml_dtypes
import numpy as np
import onnx
import running
from building import ELEMENT_TYPES, OPENVINO, TF, feeds_of, one_node
from hypothesis import strategies as st
from vocabulary import LOWERINGS, Call, InputFacts, NodeFacts, read

#: For `@given`: true generators, because of 100 that hypothesis makes itself half are the same.
randoms = st.randoms(use_true_random=True)

OPSETS = range(11, running.newest_opset() + 1)
NEWEST_IR = running.ir_version_of(OPSETS[-1])
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

#: Bit patterns that arithmetic would not keep: NaNs with payloads (quiet and signalling), -0.0,
#: infinities, the smallest subnormal, the largest number.
EXTREMES = {
    "float16": (0x7E01, 0x7D01, 0xFD55, 0x8000, 0x7C00, 0xFC00, 0x0001, 0x7BFF),
    "bfloat16": (0x7FC1, 0x7F81, 0xFFAA, 0x8000, 0x7F80, 0xFF80, 0x0001, 0x7F7F),
    "float32": (0x7FC00001, 0x7F800001, 0xFFA55AA5, 0x80000000, 0x7F800000, 0xFF800000, 1),
    "float64": (
        0x7FF8000000000001,
        0x7FF0000000000001,
        0xFFF5AA5AA5AA5AA5,
        1 << 63,
        0x7FF << 52,
        1,
    ),
}
TEXTS = ("", " ", "a", "zażółć", "naïve\n", "NaN", "0", "a long text that is on the heap, surely")


def array(rng: Random, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Elements of random bits, of which a third are extremes of the type."""
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    count = prod(shape)
    if dtype == "string":
        texts = [f"{numbers.choice(TEXTS)}{i if i % 3 else ''}" for i in range(count)]
        return np.array(texts, object).reshape(shape)
    if dtype == "bool":
        return numbers.integers(0, 2, count).astype(bool).reshape(shape)
    type_ = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    unsigned = np.dtype(f"u{type_.itemsize}")
    bits = np.frombuffer(numbers.bytes(count * type_.itemsize), unsigned).copy()
    if dtype in EXTREMES:
        extremes = np.array(EXTREMES[dtype], unsigned)
    else:
        info = np.iinfo(type_)
        extremes = np.array([info.min, info.max, 0, 1, info.max - 1], type_).view(unsigned)
    chosen = numbers.random(count) < 1 / 3
    bits[chosen] = numbers.choice(extremes, count)[chosen]
    return bits.view(type_).reshape(shape)


@dataclass(frozen=True)
class Sample:
    """A node in some spelling with data that it accepts."""

    spelling: str
    op_type: str
    domain: str
    inputs: tuple[np.ndarray, ...]
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def expected(self) -> np.ndarray:
        """By definition."""
        return definitions.node(self.op_type, self.inputs, self.attributes)

    @property
    def call(self) -> Call:
        """The node as it is read."""
        lists = {k: tuple(v) if isinstance(v, list) else v for k, v in self.attributes.items()}
        facts = tuple(InputFacts.of(value) for value in self.inputs)
        return read(NodeFacts(self.op_type, self.domain, facts, lists))

    def __str__(self) -> str:
        data, *parameters = self.inputs
        return (
            f"{self.spelling}: {self.op_type} on {data.dtype}{list(data.shape)}, "
            f"{[(p.dtype.name, p.tolist()) for p in parameters]}, {self.attributes}"
        )


# Nodes


def _dtype(rng: Random) -> str:
    return rng.choice(list(ELEMENT_TYPES))


def _dim(rng: Random, *, zero: float = 0.02, most: int = 3) -> int:
    return 0 if rng.random() < zero else rng.randint(1, most)


def _split(rng: Random, total: int) -> tuple[int, int]:
    """(begin, end) with begin + end <= total: often nothing, rarely all."""
    kind = rng.random()
    if kind < 0.3:
        return 0, 0
    if kind < 0.35:
        begin = rng.randint(0, total)
        return begin, total - begin
    begin = rng.randint(0, max(0, total - 1))
    return (begin, 0) if kind < 0.5 else (begin, rng.randint(0, max(0, total - 1 - begin)))


def blocking(
    rng: Random, forward: bool, blocked: int, rest: int, block: int | None = None
) -> tuple[tuple[int, ...], list[int], list[tuple[int, int]]]:
    """Shape of the data, block and amounts that fit; `block` is for all axes alike."""
    most = 3 if blocked <= 2 else 2
    blocks = [block or rng.choice((1, 2, 2, 3, 4)[: most + 2]) for _ in range(blocked)]
    if prod(blocks) > 36:
        blocks = [min(b, 2) for b in blocks]
    batch = _dim(rng)
    cells = [_dim(rng, most=most) for _ in range(blocked)]
    amounts = [_split(rng, cell * b) for cell, b in zip(cells, blocks, strict=True)]
    tail = [_dim(rng) for _ in range(rest)]
    if not forward:
        return (batch * prod(blocks), *cells, *tail), blocks, amounts
    axes = zip(cells, blocks, amounts, strict=True)
    return (batch, *(cell * b - sum(pair) for cell, b, pair in axes), *tail), blocks, amounts


def _table(rng: Random, amounts: list[tuple[int, int]]) -> np.ndarray:
    return np.array(amounts, _tf_integer(rng)).reshape(len(amounts), 2)


def _tf_integer(rng: Random) -> str:
    return rng.choice(("int32", "int64"))


def tf4d(rng: Random, forward: bool) -> Sample:
    """TensorFlow's 4-D operators with `block_size`."""
    size = rng.randint(2, 4)
    shape, _, amounts = blocking(rng, forward, 2, 1, size)
    inputs = (array(rng, _dtype(rng), shape), _table(rng, amounts))
    attributes = {"block_size": size} | ({"Tidx": 3} if rng.random() < 0.2 else {})
    return Sample("tf4d", "SpaceToBatch" if forward else "BatchToSpace", TF, inputs, attributes)


def tfnd(rng: Random, forward: bool) -> Sample:
    """TensorFlow's ND operators, 0 to 4 blocked axes, ranks 1 to 7."""
    axes, rest = rng.choice((0, 1, 1, 2, 2, 2, 3, 4)), rng.choice((0, 1, 1, 2))
    shape, block, amounts = blocking(rng, forward, axes, rest)
    data = array(rng, _dtype(rng), shape)
    inputs = (data, np.array(block, _tf_integer(rng)), _table(rng, amounts))
    return Sample("tfnd", "SpaceToBatchND" if forward else "BatchToSpaceND", TF, inputs)


def leftover(rng: Random, forward: bool) -> Sample:
    """What tf2onnx leaves of the ND operators: renamed, in the default domain."""
    name = "SpaceToDepth" if forward else "DepthToSpace"
    return Sample("leftover", name, "", tfnd(rng, forward).inputs)


def openvino(rng: Random, forward: bool) -> Sample:
    """OpenVINO's operators, ranks 2 to 5, with an entry for the batch."""
    shape, block, amounts = blocking(rng, forward, rng.choice((1, 2, 2, 3, 3, 4)), 0)
    lists = [1, *block], *([0, *(pair[i] for pair in amounts)] for i in (0, 1))
    data = array(rng, _dtype(rng), shape)
    inputs = (data, *(np.array(values, rng.choice(INTEGERS)) for values in lists))
    return Sample("openvino", "SpaceToBatch" if forward else "BatchToSpace", OPENVINO, inputs)


def attributes(rng: Random, forward: bool) -> Sample:
    """Parameters as INTS attributes, matrices row by row: all of them or some."""
    spelling = rng.choice(("tf4d", "tfnd", "tfnd", "openvino"))
    found = SPELLINGS_OF_BLOCKS[spelling](rng, forward)
    data, *parameters = found.inputs
    half = "pads" if forward else "crops"
    table = "paddings" if forward else "crops"
    names = {
        "tf4d": [table],
        "tfnd": ["block_shape", table],
        "openvino": ["block_shape", f"{half}_begin", f"{half}_end"],
    }[spelling]
    # Which parameters move: all; of two, either one may stay an input.
    moved = {rng.choice(names)} if spelling == "tfnd" and rng.random() < 0.5 else set(names)
    ints, kept = {}, []
    for name, values in zip(names, parameters, strict=True):
        if name in moved and values.size:  # an empty INTS has no type
            ints[name] = [int(v) for v in values.reshape(-1)]
        else:
            kept.append(values)
    given = {**found.attributes, **ints}
    return Sample("attributes", found.op_type, found.domain, (data, *kept), given)


def _patches(rng: Random, axes: int) -> tuple[list[tuple[int, ...]], Callable[[str], np.ndarray]]:
    """Kernel, strides and rates; and what draws sizes that a padding accepts."""
    strides, rates = (4, 3) if axes == 2 else (4, 1)
    kernel = [rng.choice((1, 2, 2, 3, 3, 4)) for _ in range(axes)]
    steps = [k if rng.random() < 0.25 else rng.randint(1, strides) for k in kernel]
    apart = [1 if rng.random() < 0.5 else rng.randint(1, rates) for _ in range(axes)]

    def sizes(padding: str) -> tuple[int, ...]:
        found = [_dim(rng, most=9 if axes == 2 else 6) for _ in range(axes)]
        if padding == "VALID":  # C division: -stride < span gives 0
            least = [(k - 1) * r + 2 - 2 * s for k, s, r in zip(kernel, steps, apart, strict=True)]
            found = [max(pair) for pair in zip(found, least, strict=True)]
        return tuple(found)

    return [tuple(kernel), tuple(steps), tuple(apart)], sizes


def patches_tf(rng: Random, axes: int) -> Sample:
    """TensorFlow's ExtractImagePatches and ExtractVolumePatches, strides beyond the kernel included."""
    (kernel, strides, rates), sizes = _patches(rng, axes)
    padding = rng.choice(("SAME", "SAME", "VALID"))
    data = array(rng, _dtype(rng), (_dim(rng, most=2), *sizes(padding), _dim(rng, most=2)))
    given = {"ksizes": kernel, "strides": strides} | ({"rates": rates} if axes == 2 else {})
    ints = {name: [1, *values, 1] for name, values in given.items()}
    name, op_type = ("image-tf", "Image") if axes == 2 else ("volume", "Volume")
    return Sample(name, f"Extract{op_type}Patches", TF, (data,), {**ints, "padding": padding})


def image_openvino(rng: Random) -> Sample:
    """OpenVINO's ExtractImagePatches, whose windows may exceed the image."""
    values, sizes = _patches(rng, 2)
    auto_pad = rng.choice(("valid", "same_upper", "same_lower"))
    data = array(rng, _dtype(rng), (_dim(rng, most=2), _dim(rng), *sizes(auto_pad)))
    ints = dict(zip(("sizes", "strides", "rates"), map(list, values), strict=True))
    return Sample(
        "image-openvino", "ExtractImagePatches", OPENVINO, (data,), {**ints, "auto_pad": auto_pad}
    )


def reorg(rng: Random) -> Sample:
    """OpenVINO's ReorgYolo; cells often leave channels over."""
    stride = rng.choice((1, 2, 2, 2, 3))
    cells = stride * stride
    channels = cells * rng.randint(1, 3) + rng.choice((0, 0, rng.randrange(cells)))
    image = (stride * _dim(rng), stride * _dim(rng))
    data = array(rng, _dtype(rng), (_dim(rng), channels, *image))
    given = stride if rng.random() < 0.5 else [stride]
    return Sample("reorg-openvino", "ReorgYolo", OPENVINO, (data,), {"stride": given})


def rearrange(rng: Random) -> Sample:
    """Factors in any order on any axes; one of each axis of the input follows from its size."""
    rank = rng.randint(1, 4)
    splits = [rng.choice((1, 1, 2, 2, 3)) for _ in range(rank)]
    shape, sizes = [], []
    for count in splits:
        factors = [rng.choice((1, 2, 2, 3)) for _ in range(count)]
        unknown = rng.randrange(count)
        known = prod(factors) // factors[unknown]
        shape.append(known * _dim(rng))
        sizes += [-1 if i == unknown else size for i, size in enumerate(factors)]
    order = rng.sample(range(len(sizes)), len(sizes))
    joins, left = [], len(sizes)
    while left:
        joins.append(rng.randint(rng.choice((0, 1, 1, 1)), min(left, 3)))
        left -= joins[-1]
    data = array(rng, _dtype(rng), tuple(shape))
    ints = {"sizes": sizes, "splits": splits, "order": order, "joins": joins}
    return Sample("rearrange", "Rearrange", "onnx_spatial", (data,), ints)


def retyped(rng: Random, sample: Sample, types: Sequence[str]) -> Sample:
    """The same node on data of one of the types."""
    data, *parameters = sample.inputs
    name = "string" if data.dtype == object else data.dtype.name
    if name in types:
        return sample
    return replace(sample, inputs=(array(rng, rng.choice(types), data.shape), *parameters))


SPELLINGS_OF_BLOCKS: dict[str, Callable[[Random, bool], Sample]] = {
    "tf4d": tf4d,
    "tfnd": tfnd,
    "openvino": openvino,
    "leftover": leftover,
    "attributes": attributes,
}

#: Every operator in every spelling.
SPELLINGS: dict[str, Callable[[Random], Sample]] = {
    **{
        f"{spelling}-{'s2b' if forward else 'b2s'}": lambda rng, m=make, f=forward: m(rng, f)
        for spelling, make in SPELLINGS_OF_BLOCKS.items()
        for forward in (True, False)
    },
    "image-tf": lambda rng: patches_tf(rng, 2),
    "image-openvino": image_openvino,
    "volume": lambda rng: patches_tf(rng, 3),
    "reorg-openvino": reorg,
    "rearrange": rearrange,
}


# Models around them


@dataclass(frozen=True)
class Form:
    """How a model says what is in a sample: what is known before it runs, and in which version."""

    shape: tuple[int | str | None, ...] | None
    run_time: frozenset[int]
    opset: int
    ir_version: int
    strategy: str | None

    def model(self, sample: Sample) -> onnx.ModelProto:
        """A model of one node."""
        return one_node(
            sample.op_type,
            sample.inputs,
            domain=sample.domain,
            shape=self.shape,
            run_time=self.run_time,
            opset=self.opset,
            ir_version=self.ir_version,
            **sample.attributes,
        )

    def feeds(self, sample: Sample) -> dict[str, np.ndarray]:
        """Inputs of a run of the model."""
        return feeds_of(self.model(sample), sample.inputs)


def form(rng: Random, sample: Sample) -> Form:
    """Any that can express the sample."""
    data, *parameters = sample.inputs
    kind = rng.choice(("static", "symbols", "some", "some", "unknown rank"))
    if kind == "static":
        shape: tuple[int | str | None, ...] | None = data.shape
    elif kind == "symbols":
        shape = tuple(f"d{i}" for i in range(data.ndim))
    elif kind == "some":
        shape = tuple(rng.choice((d, f"d{i}", None)) for i, d in enumerate(data.shape))
    else:
        shape = None
    run_time = frozenset(
        i for i in range(1, len(parameters) + 1) if rng.random() < rng.choice((0, 0.5, 1))
    )
    known = shape == data.shape and not run_time
    lowest = OPSETS[0]
    if data.dtype == ml_dtypes.bfloat16:
        lowest = 13
    if not known and max(data.shape.count(0), sample.expected.shape.count(0)) > 1:
        lowest = 14  # Reshape could not say two zeros that are only known at run time
    opset = rng.randint(lowest, OPSETS[-1])
    # -1 in the operators' own order: no strategy is forced.
    strategy = rng.choice((None, None, *LOWERINGS))
    ir_version = rng.randint(running.ir_version_of(opset), NEWEST_IR)
    return Form(shape, run_time, opset, ir_version, strategy)


def check(sample: Sample, form: Form, model: onnx.ModelProto) -> None:
    """A converted model of the sample gives what the definition says, optimised or not."""
    expected = sample.expected
    for level in running.LEVELS:
        (result,) = running.run(model, form.feeds(sample), level)
        assert running.same_bits(result, expected), f"{sample}\n{form}\nat {level}"
