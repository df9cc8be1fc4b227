"""Random walks around SpaceToBatch -> .. -> BatchToSpace.

    case = regions.build(rng, kind)               a model, what it is fed, what must come out

A model is a walk: each step reads one of the values that are there, and gives another. Every value is
known while the model is written, so that sizes, pads and crops can be chosen to fit; they need not make
sense. Pads and crops are constants, graph inputs, or computed as TensorFlow does:

    fill = (block - (size + base_begin + base_end) % block) % block
    pads = [base_begin, base_end + fill]        crops = [0, fill]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import onnx
import reference
import running
from building import OPENVINO, TF
from onnx import helper, numpy_helper
from running import Case

#: How much is known of sizes and tables: "run-time" tables are graph inputs.
MODES = {"static": 7, "dynamic": 4, "computed": 6, "run-time": 3}
#: What is not fused is lowered without a comparison of costs, which would take most of the time.
LOWERING = "transpose"
#: How far a result may be off, as a share of the largest element; behind QuantizeLinear a sum in another
#: order may take a whole step.
TOLERANCE, COARSE_TOLERANCE = 1e-4, 0.1

Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class Scene:
    """Axes outside of the blocks (N, C and 0 1 2 for space), which are blocked, and the spelling."""

    outer: str
    letters: str
    block: tuple[int, ...]
    form: str
    unsqueezed: bool

    def of(self, letter: str) -> int:
        """The block of an axis."""
        return self.block[self.letters.index(letter)] if letter in self.letters else 1


@dataclass(frozen=True)
class Region:
    """What lies behind a SpaceToBatch: its pads, what of them is not computed and what is, its tables,
    and the region around it."""

    about: Scene
    pads: Pairs
    base: Pairs
    fill: Value | None
    tables: list[str]
    around: Region | None


@dataclass(frozen=True)
class Value:
    """A tensor: one letter for each axis (U for one of size 1 that was added), what it holds, where."""

    name: str
    axes: str
    array: np.ndarray
    region: Region | None = None

    @property
    def spatial(self) -> str:
        """The axes that a convolution slides along, in order."""
        return self.axes.replace("N", "").replace("C", "")

    def size(self, letter: str) -> int:
        return self.array.shape[self.axes.index(letter)]


@dataclass
class Maker:
    """What a model is made of so far; `rng` decides everything."""

    rng: Random
    mode: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    stored: list[onnx.TensorProto] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers = np.random.default_rng(self.rng.getrandbits(32))
        self.opset = self.rng.choice((14, 15, 17, 18, 19, 21))
        self.domain = self.rng.choice((TF, "com.microsoft"))

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def constant(self, values: Any, stem: str = "const", *, fed: bool = False) -> str:
        """The name of a table in the model, or of a graph input; lists become int64."""
        array = values if isinstance(values, np.ndarray) else np.array(list(values), np.int64)
        name = f"{stem}_{len(self.arrays)}"
        self.arrays[name] = array
        if fed:
            self.inputs.append(_info(name, array, array.shape))
            self.feeds[name] = array
        else:
            self.stored.append(numpy_helper.from_array(array, name))
        return name

    def image(self, *shape: int) -> np.ndarray:
        """Random float32 numbers, none of them near 0."""
        numbers = self.numbers.uniform(0.1, 2.0, shape) * self.numbers.choice((-1, 1), shape)
        return numbers.astype(np.float32)

    def input(self, array: np.ndarray, axes: str, like: str = "") -> Value:
        """A graph input, of which as much is declared as the mode admits."""
        name = f"x_{len(self.arrays)}"
        dims: Any = array.shape
        if self.mode != "static":
            symbol = like or self.rng.choice(("", name))
            dims = [
                size if a == "C" else f"{symbol}_{a}" if symbol else None
                for a, size in zip(axes, array.shape, strict=True)
            ]
        self.inputs.append(_info(name, array, dims))
        self.feeds[name] = self.arrays[name] = array
        return Value(name, axes, array)

    def node(
        self, op_type: str, inputs: Sequence[Value | str], axes: str = "", /, **attributes: Any
    ) -> Value:
        """A node of one output, in the region of its first input."""
        names = [i if isinstance(i, str) else i.name for i in inputs]
        output = f"{op_type.lower()}_{len(self.arrays)}"
        node = helper.make_node(
            op_type, names, [output], f"{op_type}_{len(self.arrays)}", **attributes
        )
        self.nodes.append(node)
        read = {name: self.arrays[name] for name in names}
        infos = [_info(n, a, a.shape) for n, a in read.items()]
        (array,) = map(np.asarray, reference.run(self._model([node], infos, [output], []), read))
        self.arrays[output] = array
        region = inputs[0].region if isinstance(inputs[0], Value) else None
        return Value(output, axes, array, region)

    def turned(self, value: Value, axes: str) -> Value:
        """With the axes in another order: a Transpose, or a Reshape where none but ones move."""
        if value.axes == axes:
            return value
        perm = [value.axes.index(letter) for letter in axes]
        large = [a for a in perm if value.array.shape[a] != 1]
        if (
            self.mode == "static"
            and large == sorted(large)
            and value.array.size
            and self.chance(0.5)
        ):
            sizes = [value.array.shape[axis] for axis in perm]
            return self.node("Reshape", [value, self.constant(sizes)], axes)
        return self.node("Transpose", [value], axes, perm=perm)

    def case(self) -> Case:
        """The model; its outputs are the values that nothing reads."""
        read = {name for node in self.nodes for name in node.input}
        names = [n for node in self.nodes for n in node.output if n not in read]
        model = self._model(self.nodes, self.inputs, names, self.stored)
        coarse = any(node.op_type == "QuantizeLinear" for node in self.nodes)
        tolerance = COARSE_TOLERANCE if coarse else TOLERANCE
        return Case(model, self.feeds, {name: self.arrays[name] for name in names}, tolerance)

    def _model(self, nodes: Any, inputs: Any, outputs: list[str], stored: Any) -> onnx.ModelProto:
        infos = [
            _info(n, self.arrays[n], [None] * self.arrays[n].ndim)
            if n in self.arrays
            else onnx.ValueInfoProto(name=n)
            for n in outputs
        ]
        graph = helper.make_graph(nodes, "region", inputs, infos, stored)
        domains = sorted({"", *(node.domain for node in nodes)})
        imports = [helper.make_opsetid(d, 1 if d else self.opset) for d in domains]
        ir_version = max(running.ir_version_of(self.opset), 8)
        return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


def _info(name: str, array: np.ndarray, dims: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims)


# Blocks


def scene(rng: Random) -> Scene:
    way = rng.choice(("last",) * 5 + ("first",) * 3 + ("unsqueezed",) * 2)
    digits = "012"[: 1 if way == "unsqueezed" else rng.choice((1, 2, 2, 2, 3))]
    outer = f"NC{digits}" if way == "first" else f"N{digits}C"
    form = rng.choice(("ND",) * 4 + ("OpenVINO",))
    letters = outer[1:] if way == "first" or form == "OpenVINO" else digits
    about = blocked(rng, Scene(outer, letters, (), form, way == "unsqueezed"))
    square = letters == digits and len(digits) == 2 and about.block in ((2, 2), (3, 3))
    return replace(about, form="4-D") if square and form == "ND" and rng.random() < 0.5 else about


def blocked(rng: Random, about: Scene) -> Scene:
    """The scene with other blocks."""
    most = 4 if len(about.letters) < 3 else 2
    same = rng.choice((0, 2, 2, 3))
    block = [1 if a == "C" else min(same, most) or rng.randint(1, most) for a in about.letters]
    form = "ND" if about.form == "4-D" else about.form
    return replace(about, block=tuple(block), form=form)


def filling(make: Maker, x: Value, about: Scene, base: Pairs) -> Value:
    """The arithmetic on the shape of a value."""
    shape = make.node("Shape", [x])
    sizes = make.node("Gather", [shape, make.constant(x.axes.index(a) for a in about.letters)])
    blocks = make.constant(about.block)
    total = make.node("Add", [sizes, make.constant(sum(pair) for pair in base)])
    if make.chance(0.2):  # -(size + base) mod block
        return make.node("Mod", [make.node("Neg", [total]), blocks])
    lack = make.node("Sub", [blocks, make.node("Mod", [total, blocks])])
    if make.chance(0.5):
        return make.node("Mod", [lack, blocks])
    whole = make.node("Mul", [make.node("Div", [lack, blocks]), blocks])
    return make.node("Sub", [lack, whole])


def tables_of(make: Maker, about: Scene, pairs: Pairs, fill: Value | None) -> list[str]:
    """The block and the amounts of an operator; `fill` is added to the ends of the pairs."""
    front = about.form == "OpenVINO"  # with an entry for the batch
    fed = make.mode == "run-time" and make.chance(0.8)
    begins, ends = ([*[0] * front, *(pair[i] for pair in pairs)] for i in (0, 1))
    block = make.constant([*[1] * front, *about.block], "block")
    if fill is None:
        if front:
            return [block, *(make.constant(side, "amounts", fed=fed) for side in (begins, ends))]
        return [block, make.constant(np.array([begins, ends]).T.copy(), "table", fed=fed)]
    low = make.constant(begins)
    if front:
        fill = make.node("Concat", [make.constant([0]), fill], axis=0)
    high = make.node("Add", [make.constant(ends), fill]) if any(ends) else fill
    if front:
        return [block, low, high.name]
    one = make.constant([1])
    columns = [make.node("Unsqueeze", [side, one]) for side in (low, high)]
    return [block, make.node("Concat", columns, axis=1).name]


def spatial(make: Maker, stem: str, value: Value, tables: list[str], about: Scene) -> Value:
    """A SpaceToBatch or BatchToSpace in one of the forms "ND", "4-D" and "OpenVINO"."""
    if about.form == "4-D":
        inputs, known = [value, tables[1]], {"block_size": about.block[0]}
        return make.node(stem, inputs, value.axes, domain=make.domain, **known)
    op_type, domain = (stem, OPENVINO) if about.form == "OpenVINO" else (f"{stem}ND", make.domain)
    return make.node(op_type, [value, *tables], value.axes, domain=domain)


def enter(make: Maker, about: Scene, x: Value) -> Value:
    """A SpaceToBatch, whose pads may come from the shape of what it reads."""
    x, base = make.turned(x, about.outer), []
    for letter in about.letters:
        b = about.of(letter)
        random = (make.rng.randint(0, b + 1), make.rng.randint(0, 2 * b))
        ways = [(0, 0), (b, b), (b // 2, b - b // 2), (2 * b, 0), random]
        base.append((0, 0) if letter == "C" else make.rng.choice(ways))
    lack = [-(x.size(a) + sum(p)) % about.of(a) for a, p in zip(about.letters, base, strict=True)]
    pads = [(low, high + more) for (low, high), more in zip(base, lack, strict=True)]
    fill = filling(make, x, about, base) if make.mode == "computed" else None
    tables = tables_of(make, about, base if fill else pads, fill)
    entry = spatial(make, "SpaceToBatch", x, tables, about)
    value = replace(entry, region=Region(about, pads, base, fill, tables, x.region))
    return unsqueezed(make, value) if about.unsqueezed else value


def leave(make: Maker, value: Value, *, other: bool = False) -> Value:
    """A BatchToSpace, with crops of any kind that leave something; or one of other blocks."""
    region = value.region
    assert region is not None
    about = region.about
    if other:
        order = make.rng.sample(range(len(about.block)), len(about.block))
        block = tuple(about.block[i] for i in order)
        about = replace(about, block=block, form="ND" if about.form == "4-D" else about.form)
    rest = "".join(a for a in about.outer[1:] if a not in about.letters)
    value = make.turned(squeezed(make, value), f"N{about.letters}{rest}")
    room = [value.size(a) * b for a, b in zip(about.letters, about.block, strict=True)]
    none: Pairs = [(0, 0)] * len(room)
    some = [(make.rng.randint(0, b + 1), make.rng.randint(0, b + 1)) for b in about.block]
    some = [(0, 0) if a == "C" else pair for a, pair in zip(about.letters, some, strict=True)]
    ways: list[tuple[Pairs, Value | None]] = [(none, None), (some, None)]
    if region.fill is not None:
        ways += [(none, region.fill)] * 4 + [(region.base, region.fill)] * 2
    else:
        ends = zip(region.pads, region.base, strict=True)
        ways += [
            ([(0, high - base) for (_, high), (_, base) in ends], None),
            (region.pads, None),
        ] * 2
    make.rng.shuffle(ways)
    pairs, fill = none, None
    for pairs, fill in [*ways, (none, None)]:
        added = fill.array.tolist() if fill else [0] * len(pairs)
        if all(r > sum(p) + more for r, p, more in zip(room, pairs, added, strict=True)):
            break
    whole = region.base if fill else region.pads
    shared = not other and pairs == whole and fill is region.fill and make.chance(0.5)
    tables = region.tables if shared else tables_of(make, about, pairs, fill)
    return replace(spatial(make, "BatchToSpace", value, tables, about), region=region.around)


# Steps from a value to the next; around what wants the channels in a certain place stand Transposes

Step = Callable[[Maker, Value], Value]


def unsqueezed(make: Maker, value: Value) -> Value:
    """A 1-D image with an axis of size 1; or without it, where it has one."""
    adds = "U" not in value.axes
    at = make.rng.choice((1, 2)) if adds else value.axes.index("U")
    axes = value.axes[:at] + "U" + value.axes[at:] if adds else value.axes.replace("U", "")
    op_type = "Unsqueeze" if adds else "Squeeze"
    return make.node(op_type, [value, make.constant([at])], axes)


def squeezed(make: Maker, value: Value) -> Value:
    return unsqueezed(make, value) if "U" in value.axes else value


def unary(make: Maker, value: Value) -> Value:
    """The first of them keep zeros."""
    kinds = ("Relu", "Tanh", "LeakyRelu", "Neg", "Abs", "Sigmoid", "Softplus")
    return make.node(make.rng.choice(kinds), [value], value.axes)


def operand(make: Maker, value: Value) -> Value:
    """A constant or an input that is a scalar, or one number per channel, on either side."""
    op_type = make.rng.choice(("Add", "Add", "Mul", "Sub", "Div", "Max", "PRelu"))
    array = make.image(value.size("C"))
    array = np.abs(array) if op_type == "PRelu" else array
    behind = len(value.axes) - 1 - value.axes.index("C")
    array = array[:1] if make.chance(0.4) else array.reshape(-1, *[1] * behind)
    inputs = [value, make.constant(array, fed=op_type == "Add" and make.chance(0.2))]
    if op_type not in ("Div", "PRelu") and make.chance(0.3):
        inputs.reverse()
    return replace(make.node(op_type, inputs, value.axes), region=value.region)


def batch_normalization(make: Maker, value: Value) -> Value:
    value = make.turned(value, "NC" + value.spatial)
    tables = [make.image(value.size("C")) for _ in range(3)]
    tables.append(np.abs(make.image(value.size("C"))))
    return make.node("BatchNormalization", [value, *map(make.constant, tables)], value.axes)


def there_and_back(make: Maker, value: Value) -> Value:
    """To integers and back, of the whole tensor or per channel."""
    for op_type in ("QuantizeLinear", "DequantizeLinear"):
        each, axis = make.chance(0.4), value.axes.index("C")
        count = value.size("C") if each else ()
        scale = make.numbers.uniform(0.02, 0.05, count).astype(np.float32)
        zero = make.numbers.integers(120, 136, count).astype(np.uint8)
        tables = [make.constant(np.array(scale)), make.constant(np.array(zero))]
        value = make.node(op_type, [value, *tables], value.axes, **({"axis": axis} if each else {}))
    return value


def matmul(make: Maker, value: Value) -> Value:
    value = make.turned(value, "N" + value.spatial + "C")
    weights = make.constant(make.image(value.size("C"), make.rng.randint(1, 4)) / 2)
    return make.node("MatMul", [value, weights], value.axes)


def conv(make: Maker, value: Value) -> Value:
    """A Conv of any kernel, pads, dilations and groups; or a ConvTranspose."""
    value, rng = make.turned(value, "NC" + value.spatial), make.rng
    letters, turned = value.axes[2:], make.chance(0.1)
    kernel, low, high, dilations = [], [], [], []
    same, auto = make.chance(0.4), not turned and make.chance(0.15)
    for letter in letters:
        k = 1 if letter == "U" else rng.choice((1, 2, 3, 3))
        d = rng.choice((1, 1, 2)) if letter != "U" and not auto else 1
        begin, end = ((k - 1) * d // 2, (k - 1) * d - (k - 1) * d // 2) if same else (0, 0)
        while not turned and not same and (k - 1) * d + 1 > value.size(letter):
            k, d = (k, 1) if d > 1 else (k - 1, 1)
        kernel, dilations = [*kernel, max(k, 1)], [*dilations, d]
        low, high = [*low, begin], [*high, end]
    outputs, have, group = rng.randint(1, 4), value.size("C"), 1
    known: dict[str, Any] = {"kernel_shape": kernel, "dilations": dilations, "pads": low + high}
    if auto:
        known["auto_pad"] = "SAME_UPPER" if same else "VALID"
        del known["pads"]
    if turned:
        known["pads"] = [0] * len(known["pads"])
        weights = make.image(have, outputs, *kernel)
        inputs = [value, make.constant(weights, "kernel")]
        return make.node("ConvTranspose", inputs, value.axes, **known)
    if outputs % have == 0 and make.chance(0.3):
        group = known["group"] = have
    weights = make.image(outputs, have // group, *kernel)
    bias = [make.constant(make.image(outputs))] * make.chance(0.4)
    weight = make.constant(weights / np.float32(weights[0].size ** 0.5), "kernel")
    return make.node("Conv", [value, weight, *bias], value.axes, **known)


# What is declined


def strided(make: Maker, value: Value) -> Value:
    value = make.turned(value, "NC" + value.spatial)
    strides = [1 if a == "U" else make.rng.choice((1, 2)) for a in value.axes[2:]]
    weights = make.image(2, value.size("C"), *[1] * len(strides))
    return make.node("Conv", [value, make.constant(weights)], value.axes, strides=strides)


def pool(make: Maker, value: Value) -> Value:
    """Without zeros around, of which onnx's evaluator computes too few windows or fails."""
    value = make.turned(value, "NC" + value.spatial)
    kernel = [min(value.size(a), make.rng.randint(1, 2)) for a in value.axes[2:]]
    zeros = {"pads": [0] * 2 * len(kernel)} if make.chance(0.5) else {}
    kind = make.rng.choice(("MaxPool", "AveragePool"))
    return make.node(kind, [value], value.axes, kernel_shape=kernel, **zeros)


def gated_by_mean(make: Maker, value: Value) -> Value:
    """Scaled by a maximum over space or over the batch."""
    axes = [value.axes.index(a) for a in make.rng.choice(("N", value.spatial))]
    given = make.opset >= 18
    inputs = [value, make.constant(axes)] if given else [value]
    largest = make.node("ReduceMax", inputs, value.axes, **({} if given else {"axes": axes}))
    return make.node("Mul", [value, largest], value.axes)


def positional(make: Maker, value: Value) -> Value:
    """Plus what is not the same everywhere in space, or over the batch."""
    letters = make.rng.choice(("N", *value.spatial, value.axes))
    shape = [value.size(a) if a in letters else 1 for a in value.axes]
    table = make.constant(make.image(*shape), fed=make.chance(0.5))
    return make.node("Add", [value, table], value.axes)


def padded(make: Maker, value: Value) -> Value:
    """A Pad in space or of the channels, of zeros or not."""
    letter = make.rng.choice([a for a in value.axes if a not in "NU"])
    pads = [make.rng.randint(0, 2) if a == letter else 0 for a in value.axes * 2]
    number = [make.constant(np.array(0.5, np.float32))] * make.chance(0.3)
    return make.node("Pad", [value, make.constant(pads), *number], value.axes)


def sliced(make: Maker, value: Value) -> Value:
    letter = make.rng.choice([a for a in value.axes if a not in "NU"])
    start = make.rng.randint(0, max(value.size(letter) - 1, 0))
    bounds = [make.constant([v]) for v in (start, 2**31, value.axes.index(letter))]
    return make.node("Slice", [value, *bounds], value.axes)


def dense(make: Maker, value: Value) -> Value:
    """A layer on rows: Reshape [-1, C], MatMul, and back."""
    value = make.turned(value, "N" + value.spatial + "C")
    rows = make.node("Reshape", [value, make.constant([-1, value.size("C")])])
    product = make.node("MatMul", [rows, make.constant(make.image(value.size("C"), 3))])
    leading = make.constant(range(len(value.axes) - 1))
    sizes = make.node("Gather", [make.node("Shape", [value]), leading])
    target = make.node("Concat", [sizes, make.constant([3])], axis=0)
    return make.node("Reshape", [product, target], value.axes)


#: What commutes with BatchToSpace, and how often each comes up.
COMMUTING: dict[Step, int] = {
    conv: 10, unary: 5, operand: 6, batch_normalization: 2, there_and_back: 1, matmul: 1,
    lambda make, x: make.turned(x, make.rng.choice(("NC" + x.spatial, "N" + x.spatial + "C"))): 3,
    lambda make, x: make.node("Softmax", [x], x.axes, axis=x.axes.index("C")): 1,
    lambda make, x: make.node("Concat", [x, unary(make, x)], x.axes, axis=x.axes.index("C")): 1,
}  # fmt: skip
DECLINED: Sequence[Step] = (
    strided, pool, gated_by_mean, positional, padded, sliced, dense,
    lambda make, x: make.node(
        "Softmax", [x], x.axes, axis=x.axes.index(make.rng.choice(("N", *x.spatial)))),
    lambda make, x: make.node(
        "Gather", [x, make.constant(range(x.size("N"))[::-1])], x.axes, axis=x.axes.index("N")),
)  # fmt: skip


def combined(make: Maker, a: Value, b: Value) -> Value | None:
    """A sum or product of two values, if they have the same sizes."""
    a, b = squeezed(make, a), squeezed(make, b)
    if sorted(a.axes) != sorted(b.axes) or any(a.size(x) != b.size(x) for x in a.axes):
        return None
    return make.node(make.rng.choice(("Add", "Mul")), [a, make.turned(b, a.axes)], a.axes)


# Walks

#: One region after another; branches of one region and of several, that meet; and anything at all.
KINDS = ("row", "graph", "anything")


def build(rng: Random, kind: str) -> Case:
    """A case of a kind."""
    make = Maker(rng, rng.choices([*MODES], [*MODES.values()])[0])
    about, wild = scene(rng), kind == "anything"
    sizes = {a: max(1, rng.randint(2, 5) * about.of(a) - rng.randint(0, 3)) for a in about.outer}
    sizes |= {"N": rng.choice((1, 1, 2)), "C": rng.choice((1, 2, 3))}
    shape = [sizes[a] for a in about.outer]
    alive = [make.input(make.image(*shape), about.outer, "same") for _ in range(1 + wild)]
    for _ in range(rng.randint(4, 7 if kind == "row" else 10)):
        value = alive[-1] if kind == "row" else rng.choice(alive[-3:])
        if value.array.size == 0 or value.array.size > 1 << 14:
            continue
        if value.region is None and make.chance(0.6):
            about = blocked(rng, about) if make.chance(0.3) else about
            found: Value | None = enter(make, about, squeezed(make, value))
        elif value.region is not None and make.chance(0.2):
            found = leave(make, value, other=wild and make.chance(0.2))
        elif wild and value.region is not None and make.chance(0.05):
            found = enter(make, about, squeezed(make, value))
        elif kind != "row" and make.chance(0.3):
            found = combined(make, value, rng.choice(alive))
        else:
            declined = wild and make.chance(0.3)
            steps = DECLINED if declined else rng.choices([*COMMUTING], [*COMMUTING.values()])
            found = rng.choice(steps)(make, value)
        alive += [] if found is None else [found]
    read = {name for node in make.nodes for name in node.input}
    for value in alive:
        while value.region is not None and value.name not in read:
            value = leave(make, value)
            if value.array.size == 0 or make.chance(0.1 * wild):
                break
    return make.case()
