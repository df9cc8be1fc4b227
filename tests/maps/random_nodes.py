"""Random nodes for index maps: each function appends one operator, with what feeds its parameters.

The attributes are legal at one set of sizes at most: where other sizes make onnxruntime fail, no map
may be found.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

import maps
import numpy as np
import onnx
import running
from onnx import TensorProto, helper, numpy_helper

FAR = (2**31 - 1, -(2**31) + 1, 2**63 - 1, -(2**63))


class Sketch:
    """A model under construction, and the shape of its latest value at one set of sizes.

    Attributes:
        value: name of the latest value.
        shape: of the latest value; None until `settle` has run the model.
        whole: whether the latest value holds integers that the map computes with.
    """

    def __init__(
        self,
        rng: Random,
        opset: int,
        *,
        static: bool,
        rank: int | None = None,
        floats: bool = False,
    ) -> None:
        self.rng, self.opset = rng, opset
        rank = rng.randint(1, 4) if rank is None else rank
        self.sizes = {f"D{axis}": rng.choice((1, 2, 2, 3, 4, 5, 6)) for axis in range(rank)}
        self.shape = tuple(self.sizes.values())
        self.declared = [
            size if static or rng.random() < 0.15 else name for name, size in self.sizes.items()
        ]
        self.float = opset < 11 or floats
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []
        self.value, self.whole = "x", False

    def name(self) -> str:
        """A name that nothing has."""
        return f"v{len(self.nodes)}_{len(self.stored)}"

    def add(
        self, op_type: str, inputs: Sequence[str], outputs: int = 1, **attributes: object
    ) -> str:
        """Append a node; return its first output."""
        names = [f"{self.name()}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, names, **attributes))
        return names[0]

    def store(self, value: object, dtype: type = np.int64) -> str:
        """Add a constant, as an initializer or a node."""
        array = np.asarray(value, dtype)
        if self.rng.random() < 0.3:
            return self.add("Constant", [], value=numpy_helper.from_array(array))
        self.stored.append(numpy_helper.from_array(array, f"c{self.name()}"))
        return self.stored[-1].name

    def step(self, op_type: str, *others: str, **attributes: object) -> None:
        """Apply an operator to the latest value."""
        self.value = self.add(op_type, [self.value, *others], **attributes)

    def axis(self) -> int:
        """A random axis, counted from either side."""
        rank = len(self.shape)
        return self.rng.randrange(-rank, rank)

    def either_side(self, axes: Sequence[int], rank: int) -> list[int]:
        """Axes, some of them counted from behind."""
        return [axis - self.rng.choice((0, rank)) for axis in axes]

    def integer(self, wanted: int) -> str:
        """A list of one integer, computed from a size more often than not."""
        rng = self.rng
        if rng.random() < 0.4 or not self.shape:
            return self.store([wanted])
        same = [place for place, size in enumerate(self.shape) if size == wanted]
        place = rng.choice(same) if same else rng.randrange(len(self.shape))
        size = self.shape[place]
        value = self.add("Gather", [self.add("Shape", [self.value]), self.store([place])])
        if rng.random() < (0.1 if same else 0.3) and self.opset >= 10:
            by = rng.randint(1, 3)
            kind = rng.choice(("Div", "Mod", "Mul"))
            value = self.add(kind, [value, self.store([by])])
            size = {"Div": size // by, "Mod": size % by, "Mul": size * by}[kind]
        if wanted != size:
            value = self.add("Add", [value, self.store([wanted - size])])
        return value

    def integers(self, wanted: Sequence[int]) -> str:
        """A list of integers, as a constant or from sizes."""
        if self.rng.random() < 0.4 or not wanted:
            return self.store(list(wanted))
        return self.add("Concat", [self.integer(v) for v in wanted], axis=0)

    def parameter(self, name: str, since: int, wanted: Sequence[int]) -> tuple[list[str], dict]:
        """Integers as an attribute, or as an input since some opset."""
        if self.opset < since:
            return [], {name: list(wanted)}
        return [self.integers(wanted)], {}

    def _needed(self) -> list[onnx.NodeProto]:
        """The nodes that the latest value depends on; maps do not look at others."""
        wanted, kept = {self.value}, []
        for node in reversed(self.nodes):
            if wanted.intersection(node.output):
                kept.append(node)
                wanted.update(node.input)
                for attribute in node.attribute:
                    wanted.update(n for inner in attribute.g.node for n in inner.input)
        return kept[::-1]

    def model(self) -> onnx.ModelProto:
        """The model so far."""
        element = TensorProto.FLOAT if self.float else TensorProto.INT64
        x = helper.make_tensor_value_info("x", element, self.declared)
        y = onnx.ValueInfoProto(name=self.value)
        nodes = self._needed()
        if self.value == "x":
            nodes, y = [helper.make_node("Identity", ["x"], ["y"])], onnx.ValueInfoProto(name="y")
        graph = helper.make_graph(nodes, "random", [x], [y], self.stored)
        imports = [helper.make_opsetid("", self.opset)]
        ir = running.ir_version_of(self.opset)
        return helper.make_model(graph, opset_imports=imports, ir_version=ir)


Append = Callable[[Sketch], None]
#: What appends a node of an operator: those that move data, and those whose results the map computes.
MOVES: dict[str, Append] = {}
NUMBERS: dict[str, Append] = {}


def kind(
    *names: str, needs: Callable[[Sketch], object] = bool, numbers: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function for operators; where a sketch lacks what it needs, it adds an Identity."""

    def registered(function: Callable[..., None]) -> Callable[..., None]:
        def applied(s: Sketch, name: str) -> None:
            more = {"op_type": name} if len(names) > 1 else {}
            function(s, **more) if needs(s) else s.step("Identity")

        for name in names:
            (NUMBERS if numbers else MOVES)[name] = partial(applied, name=name)
        return function

    return registered


def _has_rows(s: Sketch) -> bool:
    return bool(s.shape) and all(s.shape) and s.opset >= 11


def _is_image(s: Sketch) -> bool:
    return len(s.shape) == 4 and all(s.shape)


def _shuffled(s: Sketch) -> dict[str, object]:
    perm = s.rng.sample(range(len(s.shape)), len(s.shape))
    return {"perm": perm} if perm and s.rng.random() < 0.85 else {}


def _mode(s: Sketch) -> dict[str, object]:
    return {"mode": s.rng.choice(("DCR", "CRD"))} if s.opset >= 11 and s.rng.random() < 0.8 else {}


def _part(s: Sketch) -> dict[str, object]:
    ends = [n for n in ("start", "end") if s.opset >= 15 and s.rng.random() < 0.4]
    return {name: s.rng.randint(-5, 5) for name in ends}


#: Operators whose attributes are all there is to draw.
ATTRIBUTES: dict[str, Callable[[Sketch], dict[str, object]]] = {
    "Identity": lambda s: {},
    "Flatten": lambda s: {
        "axis": s.rng.randint(-len(s.shape) if s.opset > 10 else 0, len(s.shape))
    },
    "Transpose": _shuffled,
    "SpaceToDepth": lambda s: {"blocksize": s.rng.choice((1, 2, 2, 3))},
    "DepthToSpace": lambda s: {"blocksize": s.rng.choice((1, 2, 2)), **_mode(s)},
    "Shape": _part,
    "Size": lambda s: {},
}


@kind("Identity", "Flatten", "Transpose")
@kind("SpaceToDepth", "DepthToSpace", needs=_is_image)
@kind("Shape", "Size", numbers=True)
def by_attributes(s: Sketch, op_type: str) -> None:
    s.step(op_type, **ATTRIBUTES[op_type](s))
    s.whole |= op_type in ("Shape", "Size")


@kind("Reshape")
def reshape(s: Sketch) -> None:
    target, left = [], list(s.shape)
    while left:
        size = left.pop(0)
        while left and s.rng.random() < 0.4:
            size *= left.pop(0)
        if s.rng.random() < 0.3:
            factor = s.rng.choice([d for d in (1, 2, 3, size) if d and size % d == 0])
            target += [factor, size // factor if factor else 0]
        else:
            target.append(size)
    if s.rng.random() < 0.2:
        target.insert(s.rng.randint(0, len(target)), 1)
    asked = list(target)
    if s.rng.random() < 0.5 and asked:
        asked[s.rng.randrange(len(asked))] = -1
    for place, size in enumerate(target[: len(s.shape)]):
        if size == s.shape[place] and s.rng.random() < 0.6:
            asked[place] = 0
    more = {"allowzero": 1} if s.opset >= 14 and s.rng.random() < 0.15 else {}
    s.step("Reshape", s.integers(asked), **more)


@kind("Squeeze", "Unsqueeze")
def squeeze(s: Sketch, op_type: str) -> None:
    ones = [a for a, d in enumerate(s.shape) if d == 1]
    rank, axes = len(s.shape), ones[:1]
    if op_type == "Unsqueeze" or not ones or s.rng.random() < 0.5:
        count = s.rng.randint(1, 2)
        op_type, rank = "Unsqueeze", rank + count
        axes = s.rng.sample(range(rank), count)
    elif s.rng.random() < 0.15:
        s.step("Squeeze")
        return
    axes = sorted(axes) if s.opset < 11 else s.either_side(axes, rank)
    inputs, more = ([], {"axes": axes}) if s.opset < 13 else ([s.store(axes)], {})
    s.step(op_type, *inputs, **more)


@kind("Slice", needs=lambda s: s.shape)
def slice_(s: Sketch) -> None:
    rank = len(s.shape)
    axes = s.rng.sample(range(rank), s.rng.randint(1, rank))
    sizes = [s.shape[a] for a in axes]
    starts, ends = [s.rng.randint(0, d // 2) for d in sizes], sizes  # something is left
    if s.rng.random() < 0.5:
        starts, ends = (
            [s.rng.choice((*FAR, *range(-d - 2, d + 3), *range(-d - 2, d + 3))) for d in sizes]
            for _ in range(2)
        )
    if s.opset < 10:
        s.step("Slice", starts=starts, ends=ends, axes=axes)
        return
    more = [s.store(s.either_side(axes, rank))]
    if s.rng.random() < 0.6:
        more.append(s.store([s.rng.choice((1, 1, 2, 3, -1, -1, -2)) for _ in axes]))
    far = any(abs(v) > 100 for v in (*starts, *ends))
    s.step("Slice", *(s.store(v) if far else s.integers(v) for v in (starts, ends)), *more)


@kind("Pad", needs=lambda s: s.shape and (s.opset >= 11 or not s.whole))
def pad(s: Sketch) -> None:
    rank = len(s.shape)
    axes = list(range(rank))
    named = s.opset >= 18 and s.rng.random() < 0.4
    if named:
        axes = s.rng.sample(axes, s.rng.randint(1, rank))
    amounts = [s.rng.choice((0, 0, 1, 2, 3, -1, -2)) for _ in range(2 * len(axes))]
    inputs, more = s.parameter("pads", 11, amounts)
    if s.opset < 11:
        if s.rng.random() < 0.5:
            more["value"] = float(s.rng.randint(1, 9))
    else:
        given = named or s.rng.random() < 0.5
        value = s.store(s.rng.randint(0, 9), np.float32 if s.float else np.int64)
        inputs.append(value if given and s.rng.random() < 0.7 else "")
        if named:
            inputs.append(s.store(s.either_side(axes, rank)))
    s.step("Pad", *inputs, **more)


@kind("Concat", needs=lambda s: s.shape)
def concat(s: Sketch) -> None:
    parts = []
    for _ in range(s.rng.randint(1, 3)):
        part = s.value
        if s.rng.random() < 0.4 and s.opset >= 10:
            ends = [s.store([v]) for v in (s.rng.randint(0, 1), 100, 0)]
            part = s.add("Slice", [part, *ends])
        parts.append(part)
    s.value = s.add("Concat", parts, axis=s.axis() if s.opset >= 11 else 0)


@kind("Split", needs=lambda s: s.shape and s.opset >= 11)
def split(s: Sketch) -> None:
    axis, count = s.axis(), s.rng.randint(1, 3)
    size = s.shape[axis]
    inputs, more = [], {"num_outputs": count} if s.opset >= 18 else {}
    if s.rng.random() < 0.5:
        cuts = sorted(s.rng.randint(0, size) for _ in range(count - 1))
        parts = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
        inputs, more = s.parameter("split", 13, parts)
    s.add("Split", [s.value, *inputs], outputs=count, axis=axis, **more)
    names = s.rng.sample(list(s.nodes[-1].output), count)
    s.value = names[0] if s.rng.random() < 0.5 else s.add("Concat", names, axis=axis)


def _random(s: Sketch, shape: Sequence[int], *sizes: int) -> str:
    """Stored places on axes of these sizes in turn, counted from either side."""
    count, low = int(np.prod(shape)), -1 if s.opset >= 11 else 0
    turns = [sizes[i % len(sizes)] for i in range(count)]
    return s.store(np.array([s.rng.randint(low * d, d - 1) for d in turns], int).reshape(shape))


def _indices(s: Sketch, size: int, shape: Sequence[int]) -> str:
    """Random places on an axis."""
    draw = s.rng.random()
    if draw < 0.25 or len(shape) != 1:
        return _random(s, shape, size)
    if draw < 0.5:
        return s.store([s.rng.choice((0, 0, -1)) for _ in range(shape[0])])
    ranges = (0, size, 1), (0, size, 2), (1, size, 1), (-1, size - 1, 1)
    *ends, delta = s.rng.choice(ranges)
    result = s.add("Range", [*(s.add("Squeeze", [s.integer(v)]) for v in ends), s.store(delta)])
    if s.rng.random() < 0.5:
        by = s.integer(s.rng.randint(1, size))
        result = s.add(s.rng.choice(("Mod", "Div", "Min" if s.opset > 11 else "Div")), [result, by])
    return result


@kind("Gather", needs=_has_rows)
def gather(s: Sketch) -> None:
    axis = s.axis()
    shape = s.rng.choice(((), (1,), (2,), (3,), (2, 2)))
    s.step("Gather", _indices(s, s.shape[axis], shape), axis=axis)


@kind("GatherElements", needs=_has_rows)
def gather_elements(s: Sketch) -> None:
    axis = s.axis()
    shape = [s.rng.randint(1, 4 if a == axis else d) for a, d in enumerate(s.shape)]
    s.step("GatherElements", _random(s, shape, s.shape[axis]), axis=axis)


@kind("GatherND", needs=lambda s: _has_rows(s) and s.opset >= 12)
def gather_nd(s: Sketch) -> None:
    batch = s.rng.randint(0, 1) if len(s.shape) > 1 else 0
    depth = s.rng.randint(1, min(2, len(s.shape) - batch))
    sizes = s.shape[batch : batch + depth]
    s.step("GatherND", _random(s, [*s.shape[:batch], 2, depth], *sizes), batch_dims=batch)


@kind("Expand", "Tile")
def expand(s: Sketch, op_type: str) -> None:
    if op_type == "Tile":
        s.step("Tile", s.integers([s.rng.choice((0, 1, 1, 2, 3)) for _ in s.shape]))
        return
    target = [s.rng.choice((1, d)) if d != 1 else s.rng.choice((1, 2, 3)) for d in s.shape]
    target = [s.rng.randint(1, 2) for _ in range(s.rng.randint(0, 1))] + target
    if s.rng.random() < 0.3:
        target = target[s.rng.randint(0, len(target)) :]
    s.step("Expand", s.integers(target))


@kind("ConstantOfShape", "NonZero", "EyeLike", numbers=True)
def constants(s: Sketch, op_type: str) -> None:
    s.whole = True
    if op_type == "EyeLike":
        zeros = np.zeros((s.rng.randint(1, 4), s.rng.randint(1, 4)))
        s.value = s.add("EyeLike", [s.store(zeros)], k=s.rng.randint(-2, 2))
        return
    value = numpy_helper.from_array(np.array([s.rng.randint(0, 3)], np.int64))
    sizes = s.integers([d + s.rng.choice((0, 0, 0, 1, -1)) for d in s.shape])
    s.value = s.add("ConstantOfShape", [sizes], value=value)
    if op_type == "NonZero":
        if s.rng.random() < 0.7:
            s.step("Reshape", s.store([-1]))
        s.step("NonZero")


@kind("Range", needs=lambda s: s.opset >= 11, numbers=True)
def range_(s: Sketch) -> None:
    numbers = [s.rng.randint(-2, 2), s.rng.randint(1, 8), s.rng.choice((1, 1, 2, 3, 1, 1, -1))]
    scalars = [s.add("Squeeze", [s.integer(v)]) for v in numbers]
    if s.rng.random() < 0.7:
        scalars[2] = s.store(numbers[2])
    s.value, s.whole = s.add("Range", scalars), True


def _places(s: Sketch) -> str:
    """Integers that broadcast with the latest value: the places along one of its axes."""
    if not s.shape:
        return s.integer(s.rng.randint(-3, 3))
    axis = s.rng.randrange(len(s.shape))
    size = s.add("Gather", [s.add("Shape", [s.value]), s.store(axis)])
    places = s.add("Range", [s.store(0), size, s.store(1)])
    behind = len(s.shape) - 1 - axis
    return s.add("Reshape", [places, s.store([-1, *[1] * behind])]) if behind else places


BINARY = ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Sum")
LOGIC = ("And", "Or", "Xor", "Not")
COMPARE = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
UNARY = ("Neg", "Abs", "Sign")


def _truth(s: Sketch, value: str) -> str:
    return s.add(s.rng.choice(COMPARE), [value, s.integer(s.rng.randint(-1, 3))])


@kind(*BINARY, *LOGIC, *COMPARE, *UNARY, needs=lambda s: s.opset >= 13, numbers=True)
def elementwise(s: Sketch, op_type: str) -> None:
    """An operator on integers that the map knows; on data, that of an unknown function."""
    if op_type == "Sum":  # onnxruntime has none of integers
        more = [s.value] * s.rng.choice((0, 1, 2, 17)) if s.float else []
        s.step("Sum" if s.float else "Identity", *more)
        return
    if s.rng.random() < 0.8 or op_type in ("Div", "Mod", *LOGIC):
        s.value, s.whole, s.shape = _places(s), True, (1,)
    value, other, more = s.value, s.value, {}
    if s.whole and (op_type in UNARY or (op_type in ("Div", "Mod") and s.rng.random() < 0.5)):
        value = s.add("Sub", [value, s.integer(s.rng.randint(-3, 3))])
    if s.whole:
        by = s.rng.choice((1, 2, 3, 4, -2)) if op_type in ("Div", "Mod") else s.rng.randint(-3, 4)
        other = s.integer(by)
    if op_type == "Mod" and s.rng.random() < 0.4:
        more = {"fmod": 1}
    row = [value] if op_type in UNARY else [value, other]
    if op_type in ("Max", "Min") and s.whole:
        row += [s.integer(s.rng.randint(-3, 4))] * s.rng.choice((0, 1, 1, 16))
    if op_type in LOGIC:
        row = [_truth(s, value) for _ in range(1 if op_type == "Not" else 2)]
    s.value = s.add(op_type, row, **more)
    if op_type in (*LOGIC, *COMPARE):
        s.step("Cast", to=TensorProto.INT64)


@kind("Where", needs=lambda s: s.opset >= 13 and not s.float)
def where(s: Sketch) -> None:
    condition = _truth(s, _places(s))
    other = s.rng.choice((s.value, s.store(s.rng.randint(0, 5)), s.integer(2)))
    s.value = s.add("Where", [condition, *s.rng.sample([s.value, other], 2)])


@kind("Cast", needs=lambda s: not s.float, numbers=True)
def cast(s: Sketch) -> None:
    if s.whole:
        s.step("Cast", to=s.rng.choice((TensorProto.BOOL, TensorProto.INT32, TensorProto.INT64)))
    elif s.rng.random() < 0.3:  # a detour through reals
        dtype = s.rng.choice((np.float32, np.float64))
        s.step("Cast", to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        s.step(s.rng.choice(("Div", "Mul")), s.store(s.rng.choice((0.5, 2, 3)), dtype))
        s.step(s.rng.choice(("Ceil", "Floor")))
    s.step("Cast", to=TensorProto.INT64)


REDUCTIONS = ("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin")


@kind(*REDUCTIONS, needs=lambda s: s.opset >= 13, numbers=True)
def reduce(s: Sketch, op_type: str) -> None:
    sizes, rank = s.add("Shape", [s.value]), 1
    if s.rng.random() < 0.5:
        twice = s.add("Concat", [sizes, sizes], axis=0)
        sizes, rank = s.add("Reshape", [twice, s.store([2, len(s.shape)])]), 2
    more: dict[str, object] = {"keepdims": s.rng.randint(0, 1)} if s.rng.random() < 0.7 else {}
    inputs, as_input = [sizes], s.opset >= (13 if op_type == "ReduceSum" else 18)
    if s.rng.random() < 0.7:
        axes = s.either_side(s.rng.sample(range(rank), s.rng.randint(1, rank)), rank)
        if as_input:
            inputs.append(s.store([] if s.rng.random() < 0.2 else axes))
        else:
            more["axes"] = axes
    if as_input and s.rng.random() < 0.3:
        more["noop_with_empty_axes"] = 1
    s.value, s.whole = s.add(op_type, inputs, **more), True


@kind("If")
def if_(s: Sketch) -> None:
    """A branch on a size: two ways to move the latest value."""
    size = s.add("Squeeze", [s.integer(s.rng.randint(1, 4))])
    condition = s.add(s.rng.choice(("Less", "Greater", "Equal")), [size, s.store(2)])
    branches = {}
    for name in ("then_branch", "else_branch"):
        output, node = f"{s.name()}_{name}", s.rng.choice(("Identity", "Transpose", "Neg"))
        node = "Identity" if s.whole or s.opset < 13 else node
        nodes = [helper.make_node(node, [s.value], [output])]
        branches[name] = helper.make_graph(nodes, name, [], [onnx.ValueInfoProto(name=output)])
    s.value = s.add("If", [condition], **branches)


def at_random(rng: Random, kind: str) -> Sketch:
    """One operator between a few nodes, on static or symbolic sizes, at some opset."""
    opset = rng.choice((9, 11, 12, 13, 15, 17, 18, 18, 20))
    depth = "Depth" in kind
    sketch = Sketch(
        rng,
        opset,
        static=rng.random() < 0.25,
        rank=4 if depth else None,
        floats=depth or kind == "Sum" or rng.random() < 0.2,
    )
    if depth:  # known sizes, which the block divides, next to symbolic ones
        known = (2, 3) if kind == "SpaceToDepth" else (1,)
        sketch.shape = tuple(s * 4 if axis in known else s for axis, s in enumerate(sketch.shape))
        sketch.sizes = dict(zip(sketch.sizes, sketch.shape, strict=True))
        sketch.declared = [
            size if axis in known else name
            for axis, (name, size) in enumerate(sketch.sizes.items())
        ]
    {**MOVES, **NUMBERS}[kind](sketch)
    return sketch


def chain(rng: Random, length: int, numbers: Sequence[str] = ()) -> Sketch:
    """Operators behind each other that run at one set of sizes; some compute numbers."""
    sketch = Sketch(rng, rng.choice((11, 13, 17, 18)), static=rng.random() < 0.1)
    names = [*MOVES, *(numbers or rng.sample(list(NUMBERS), 2))]
    for _ in range(length):
        before = copy.copy(sketch)
        before.nodes, before.stored = [*sketch.nodes], [*sketch.stored]
        {**MOVES, **NUMBERS}[rng.choice(names)](sketch)
        model = sketch.model()
        try:
            result = maps.run(model, maps.feeds_of(model, sketch.sizes, {}))
        except Exception:  # onnxruntime's errors have no common class
            sketch = before
            continue
        sketch.shape = result.shape
        if result.size > 500 or result.ndim > 6:
            sketch = before
    return sketch


def sizes_of(sketch: Sketch, rng: Random, count: int) -> list[dict[str, int]]:
    """The sizes that a model was made for, and others."""
    others = [{name: rng.randint(1, 7) for name in sketch.sizes} for _ in range(count)]
    return [dict(sketch.sizes), *others]
