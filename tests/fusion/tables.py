"""Pads and crops, in every way that files have them: constants, graph inputs, arithmetic on shapes.

The arithmetic is what TensorFlow's `required_space_to_batch_paddings` becomes in converted models:

    fill = (block - (size + base_begin + base_end) % block) % block
    pads = [base_begin, base_end + fill]        crops = [0, fill]

with Shape, Gather, Cast, Slice, Add, Div, Mul, Sub (or Mod), Concat and Unsqueeze, in the many ways
in which one can write it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from making import BLOCK_FED, Maker, Value
from onnx import TensorProto

Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class Fill:
    """What must be added to sizes to make whole blocks: a computed vector, one entry per axis."""

    name: str
    values: tuple[int, ...]


def written(make: Maker, form: str, block: Sequence[int], pairs: Pairs, *, fed: bool) -> list[str]:
    """Names of the tables of an operator, pads or crops as constants or (fed) as graph inputs."""
    put = make.fed if fed else make.constant
    if form == "OpenVINO":
        begins = np.array([0, *(begin for begin, _ in pairs)], np.int64)
        ends = np.array([0, *(end for _, end in pairs)], np.int64)
        blocks = make.constant(np.array([1, *block], np.int64), "block")
        return [blocks, put(begins, "begins"), put(ends, "ends")]
    dtype = make.rng.choice((np.int32, np.int64))
    table = np.array(pairs, dtype).reshape(-1, 2)
    return [blocks_of(make, block), put(table, "table")]


def blocks_of(make: Maker, block: Sequence[int]) -> str:
    """The block as a constant; rarely as a graph input."""
    array = np.array(block, make.rng.choice((np.int32, np.int64)))
    rare = make.mode == "run-time" and make.chance(0.05)
    if rare:
        make.obstacles.add(BLOCK_FED)
    return make.fed(array, "block") if rare else make.constant(array, "block")


def fill_of(make: Maker, source: Value, letters: str, block: Sequence[int], base: Pairs) -> Fill:
    """The arithmetic on the shape of a value that has the sizes of the axes `letters`."""
    integers = Arithmetic(make, make.rng.choice((np.int32, np.int32, np.int64)))
    sizes = integers.sizes(source, letters)
    blocks = integers.constant(list(block))
    total = integers.node("Add", sizes, integers.constant([sum(pair) for pair in base]))
    if make.chance(0.2):  # -(size + base) mod block
        found = integers.modulo(integers.node("Neg", total), blocks, python=True)
    else:
        rest = integers.modulo(total, blocks)
        found = integers.modulo(integers.node("Sub", blocks, rest), blocks)
    return Fill(found.name, tuple(int(v) for v in found.known.value))


def computed(
    make: Maker, form: str, block: Sequence[int], pairs: Pairs, fill: Fill | None
) -> list[str]:
    """Names of tables that hold `pairs`, with `fill` added to the ends."""
    dtype = np.int64 if fill is None else make.known[fill.name].value.dtype
    integers = Arithmetic(make, dtype)
    begins = integers.constant([begin for begin, _ in pairs])
    ends = integers.constant([end for _, end in pairs])
    if fill is not None:
        filler = Value(fill.name, "", make.known[fill.name])
        plain = make.chance(0.5) and not any(end for _, end in pairs)
        ends = filler if plain else integers.node("Add", ends, filler)
    if form == "OpenVINO":
        zero = integers.constant([0])
        blocks = make.constant(np.array([1, *block], np.int64), "block")
        tables = [integers.concat([zero, begins]), integers.concat([zero, ends])]
        return [blocks, *(t.name for t in tables)]
    return [blocks_of(make, block), integers.table(begins, ends, len(pairs)).name]


class Arithmetic:
    """Nodes on small vectors of integers."""

    def __init__(self, make: Maker, dtype: object) -> None:
        self.make, self.dtype = make, np.dtype(dtype)

    def constant(self, values: Sequence[int]) -> Value:
        name = self.make.constant(np.array(values, self.dtype))
        return Value(name, "", self.make.known[name])

    def node(self, op_type: str, *inputs: Value, **attributes: object) -> Value:
        return self.make.node(op_type, inputs, stem=op_type.lower(), **attributes)

    def concat(self, parts: Sequence[Value]) -> Value:
        return self.node("Concat", *parts, axis=0)

    def one(self, vector: Value, at: int) -> Value:
        """One entry as a vector of one."""
        make = self.make
        if make.chance(0.3):
            return make.node("Gather", [vector, make.constant([at])], stem="gather")
        bounds = [make.constant([at]), make.constant([at + 1]), make.constant([0])]
        return make.node("Slice", [vector, *bounds], stem="slice")

    def cast(self, vector: Value) -> Value:
        if vector.known.value.dtype == self.dtype:
            return vector
        to = TensorProto.INT32 if self.dtype == np.int32 else TensorProto.INT64
        return self.node("Cast", vector, to=to)

    def sizes(self, source: Value, letters: str) -> Value:
        """A vector of the sizes of axes."""
        make, places = self.make, [source.axes.index(letter) for letter in letters]
        if len(places) == 1 and make.opset >= 15 and make.chance(0.3):
            (at,) = places
            return self.cast(self.node("Shape", source, start=at, end=at + 1))
        whole = self.node("Shape", source)
        if make.chance(0.3) and places != list(range(len(source.axes))):
            order = places + [i for i in range(len(source.axes)) if i not in places]
            whole = make.node("Gather", [whole, make.constant(order)], stem="gather")
            places = list(range(len(places)))
        whole = self.cast(whole)
        if places == list(range(places[0], places[-1] + 1)) and make.chance(0.6):
            bounds = [make.constant([places[0]]), make.constant([places[-1] + 1])]
            axes = [make.constant([0])] if make.chance(0.7) else []
            return make.node("Slice", [whole, *bounds, *axes], stem="slice")
        return self.concat([self.one(whole, at) for at in places])

    def modulo(self, a: Value, b: Value, *, python: bool = False) -> Value:
        """a mod b: written out where a is not negative, unless Mod is asked for."""
        if python or self.make.chance(0.3):
            return self.node("Mod", a, b)
        whole = self.node("Mul", self.node("Div", a, b), b)
        return self.node("Sub", a, whole)

    def table(self, begins: Value, ends: Value, count: int) -> Value:
        """[count, 2] of two vectors."""
        make = self.make
        way = make.rng.choice(("rows", "rows", "columns", "flat", "transposed"))
        if way == "columns":
            one = make.constant([1])
            columns = [make.node("Unsqueeze", [v, one], stem="column") for v in (begins, ends)]
            return self.node("Concat", *columns, axis=1)
        if way == "transposed":
            both = self.concat([begins, ends])
            shaped = make.node("Reshape", [both, make.constant([2, count])], stem="rows")
            return self.node("Transpose", shaped, perm=[1, 0])
        pairs = [self.concat([self.one(begins, i), self.one(ends, i)]) for i in range(count)]
        if way == "flat":
            flat = self.concat(pairs) if len(pairs) > 1 else pairs[0]
            return make.node("Reshape", [flat, make.constant([count, 2])], stem="table")
        zero = make.constant([0])
        rows = [make.node("Unsqueeze", [pair, zero], stem="row") for pair in pairs]
        return self.concat(rows) if len(rows) > 1 else rows[0]
