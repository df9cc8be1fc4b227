"""Random graphs with spatial operators, which feed all random tests.

    @given(case=graphs.graphs("row"))           one of hypothesis
    graphs.build(Random("row 5"), "row")        one of a seed, for campaigns and where some are counted

A kind is a spelling, of which the graph has one node, or one of the walks of `regions`. Sizes are small
and chosen so that the operators' rules hold; zero-sized dims, crops of everything, pads larger than the
image and blocks larger than the dim all come up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from random import Random
from typing import Any

import definitions
import ml_dtypes
import numpy as np
import onnx
import regions
import running
from building import ELEMENT_TYPES, feeds_of, one_node
from hypothesis import strategies as st
from running import Case
from spelled import REORG, ROWS, VOLUME, Blocks, Row, Windows, numpy_type
from vocabulary import Call, InputFacts, NodeFacts, read

#: For `@given`: true generators, because of 100 that hypothesis makes itself half are the same.
randoms = st.randoms(use_true_random=True)

OPSETS = range(11, running.newest_opset() + 1)
NEWEST_IR = running.ir_version_of(OPSETS[-1])

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
    type_ = numpy_type(dtype)
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
            f"{self.op_type} on {data.dtype}{list(data.shape)}, "
            f"{[(p.dtype.name, p.tolist()) for p in parameters]}, {self.attributes}"
        )


# Nodes


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


#: By the style of a row, numbers of blocked axes and of others behind the batch.
_AXES = {"size": ((2,), (1,)), "nd": ((0, 1, 1, 2, 2, 2, 3, 4), (0, 1, 1, 2))}
_AXES["axes"] = ((1, 2, 2, 3, 3, 4), (0,))


def _blocks(rng: Random, row: Row) -> Blocks:
    blocked, rest = (rng.choice(counts) for counts in _AXES[row.style])
    most = 3 if blocked <= 2 else 2
    blocks = [rng.choice((1, 2, 2, 3, 4)[: most + 2]) for _ in range(blocked)]
    if row.style == "size":
        blocks = [rng.randint(2, 4)] * 2
    if prod(blocks) > 36:
        blocks = [min(b, 2) for b in blocks]
    cells = [_dim(rng, most=most) for _ in blocks]
    pairs = [_split(rng, cell * b) for cell, b in zip(cells, blocks, strict=True)]
    begins, ends = (tuple(pair[i] for pair in pairs) for i in (0, 1))
    tail = tuple(_dim(rng) for _ in range(rest))
    return Blocks(tuple(blocks), begins, ends, tuple(cells), tail, _dim(rng))


def _windows(rng: Random, row: Row) -> Windows:
    """Strides beyond the kernel and, as far as the padding admits, windows beyond the image."""
    axes, channels = 3 if row.operator == VOLUME else 2, _dim(rng, most=2)
    if row.operator == REORG:  # cells often leave channels over
        stride = rng.choice((1, 2, 2, 2, 3))
        cells = stride * stride
        channels = cells * rng.randint(1, 3) + rng.choice((0, 0, rng.randrange(cells)))
        sizes = stride * _dim(rng), stride * _dim(rng)
        return Windows((stride,), (), (), sizes, channels, "", _dim(rng))
    kernel = tuple(rng.choice((1, 2, 2, 3, 3, 4)) for _ in range(axes))
    strides = tuple(k if rng.random() < 0.25 else rng.randint(1, 4) for k in kernel)
    rates = tuple(1 if axes == 3 or rng.random() < 0.5 else rng.randint(1, 3) for _ in kernel)
    found = [_dim(rng, most=9 if axes == 2 else 6) for _ in kernel]
    if row.padding == "VALID":  # C division: -stride < span gives 0
        known = zip(found, kernel, strides, rates, strict=True)
        found = [max(d, (k - 1) * r + 2 - 2 * s) for d, k, s, r in known]
    return Windows(kernel, strides, rates, tuple(found), channels, row.padding, _dim(rng, most=2))


def node(rng: Random, row: Row) -> Sample:
    """A node of a row; of two parameters that may be attributes, either one may stay an input."""
    if row.is_block:
        names = set(row.parameters) if row.attributes else set()
        if row.style == "nd" and names and rng.random() < 0.5:
            names = {rng.choice(row.parameters)}
        given = _blocks(rng, row)
        types = [rng.choice(row.types) for _ in row.parameters]
        fixed = names if given.block else ()  # an empty INTS has no type
        call = row.blocks(given, types, front=int(row.style == "axes"), fixed=fixed)
        if row.style == "size" and rng.random() < 0.2:
            call.attributes["Tidx"] = 3
    else:
        call = row.windows(_windows(rng, row), first=row.style == "openvino")
    data = array(rng, rng.choice([*ELEMENT_TYPES]), call.shape)
    inputs = (data, *call.parameters.values())
    return Sample(row.op_type, rng.choice(row.domains), inputs, call.attributes)


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
    data = array(rng, rng.choice([*ELEMENT_TYPES]), tuple(shape))
    ints = {"sizes": sizes, "splits": splits, "order": order, "joins": joins}
    return Sample("Rearrange", "onnx_spatial", (data,), ints)


def retyped(rng: Random, sample: Sample, types: Sequence[str]) -> Sample:
    """The same node on data of one of the types."""
    data, *parameters = sample.inputs
    name = "string" if data.dtype == object else data.dtype.name
    if name in types:
        return sample
    return replace(sample, inputs=(array(rng, rng.choice(types), data.shape), *parameters))


#: Rows that spell the same, by a name; `Rearrange` is an operator of this package alone.
SPELLINGS: dict[str, list[Row]] = {"rearrange": []}
for _row in ROWS:
    if _row.dialect != "prepared":
        SPELLINGS.setdefault(f"{_row.dialect} {_row.operator}", []).append(_row)


def sample(rng: Random, *spellings: str) -> Sample:
    """A node in one of these spellings, or in any."""
    rows = SPELLINGS[rng.choice(spellings or [*SPELLINGS])]
    return node(rng, rng.choice(rows)) if rows else rearrange(rng)


# Models around them


@dataclass(frozen=True)
class Form:
    """How a model says what is in a sample: what is known before it runs, and in which version."""

    shape: tuple[int | str | None, ...] | None
    run_time: frozenset[int]
    opset: int
    ir_version: int

    def model(self, sample: Sample) -> onnx.ModelProto:
        """A model of one node."""
        known = {"shape": self.shape, "run_time": self.run_time, "domain": sample.domain}
        known |= {"opset": self.opset, "ir_version": self.ir_version}
        return one_node(sample.op_type, sample.inputs, **known, **sample.attributes)

    def case(self, sample: Sample) -> NodeCase:
        """A model of one node, with what it gives."""
        model = self.model(sample)
        known = (model, feeds_of(model, sample.inputs), {"y": sample.expected})
        return NodeCase(*known, about=f"{sample}\n{self}", sample=sample, form=self)


@dataclass(kw_only=True)
class NodeCase(Case):
    """A case of one node."""

    sample: Sample
    form: Form


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
    return Form(shape, run_time, opset, rng.randint(running.ir_version_of(opset), NEWEST_IR))


def one(rng: Random, *spellings: str) -> NodeCase:
    """A graph of one node in any form."""
    found = sample(rng, *spellings)
    return form(rng, found).case(found)


KINDS = (*SPELLINGS, *regions.KINDS)


def build(rng: Random, kind: str) -> Case:
    """A graph of a kind."""
    return one(rng, kind) if kind in SPELLINGS else regions.build(rng, kind)


def graphs(*kinds: str) -> st.SearchStrategy[Any]:
    """Graphs of these kinds."""
    return st.builds(build, randoms, st.sampled_from(kinds))


def check(case: Case, model: onnx.ModelProto) -> None:
    """A converted model gives what the case says, optimised or not."""
    assert running.mistakes(model, case) == {}, case.about
