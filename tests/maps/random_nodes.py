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


#: What appends a node of an operator: those that move data, and those whose results the map computes.
MOVES: dict[str, Callable[[Sketch], None]] = {}
NUMBERS: dict[str, Callable[[Sketch], None]] = {}


def kind(
    *names: str, needs: Callable[[Sketch], object] = bool, numbers: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function for operators; where a sketch lacks what it needs, it adds an Identity."""

    def registered(function: Callable[..., None]) -> Callable[..., None]:
        def applied(s: Sketch, name: str = names[0]) -> None:
            several = {"op_type": name} if len(names) > 1 and numbers else {}
            function(s, **several) if needs(s) else identity(s)

        for name in names:
            (NUMBERS if numbers else MOVES)[name] = partial(applied, name=name)
        return applied

    return registered


@kind("Identity")
def identity(s: Sketch) -> None:
    s.step("Identity")


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


@kind("Flatten")
def flatten(s: Sketch) -> None:
    rank = len(s.shape)
    lowest = -rank if s.opset >= 11 else 0
    s.step("Flatten", axis=s.rng.randint(lowest, rank))


@kind("Squeeze")
def squeeze(s: Sketch) -> None:
    ones = [a for a, d in enumerate(s.shape) if d == 1]
    if not ones or s.rng.random() < 0.5:
        unsqueeze(s)
        return
    if s.rng.random() < 0.15:
        s.step("Squeeze")
        return
    axes = [a - s.rng.choice((0, len(s.shape))) for a in s.rng.sample(ones, 1)]
    inputs, more = ([], {"axes": axes}) if s.opset < 13 else ([s.store(axes)], {})
    s.step("Squeeze", *inputs, **more)


@kind("Unsqueeze")
def unsqueeze(s: Sketch) -> None:
    count = s.rng.randint(1, 2)
    rank = len(s.shape) + count
    axes = [a - s.rng.choice((0, rank)) for a in s.rng.sample(range(rank), count)]
    if s.opset < 11:
        axes = sorted(a % rank for a in axes)
    inputs, more = ([], {"axes": axes}) if s.opset < 13 else ([s.store(axes)], {})
    s.step("Unsqueeze", *inputs, **more)


@kind("Transpose")
def transpose(s: Sketch) -> None:
    perm = s.rng.sample(range(len(s.shape)), len(s.shape))
    s.step("Transpose", **({"perm": perm} if perm and s.rng.random() < 0.85 else {}))


def _bound(s: Sketch, size: int) -> int:
    if s.rng.random() < 0.15:
        return s.rng.choice(FAR)
    return s.rng.randint(-size - 2, size + 2)


@kind("Slice", needs=lambda s: s.shape)
def slice_(s: Sketch) -> None:
    rank = len(s.shape)
    axes = s.rng.sample(range(rank), s.rng.randint(1, rank))
    if s.rng.random() < 0.5:  # something is left
        pairs = [(s.rng.randint(0, s.shape[a] // 2), s.shape[a]) for a in axes]
    else:
        pairs = [(_bound(s, s.shape[a]), _bound(s, s.shape[a])) for a in axes]
    starts, ends = [p[0] for p in pairs], [p[1] for p in pairs]
    axes = [a - s.rng.choice((0, rank)) for a in axes]
    if s.opset < 10:
        axes = [a % rank for a in axes]
        s.step("Slice", starts=starts, ends=ends, axes=axes)
        return
    more = [s.store(axes)]
    if s.rng.random() < 0.6:
        more.append(s.store([s.rng.choice((1, 1, 2, 3, -1, -1, -2)) for _ in axes]))
    far = any(abs(v) > 100 for v in (*starts, *ends))
    lists = [s.store(v) if far else s.integers(v) for v in (starts, ends)]
    s.step("Slice", *lists, *more)


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
            inputs.append(s.store([a - s.rng.choice((0, rank)) for a in axes]))
    s.step("Pad", *inputs, **more)


@kind("Concat", needs=lambda s: s.shape)
def concat(s: Sketch) -> None:
    parts = []
    for _ in range(s.rng.randint(1, 3)):
        part = s.value
        if s.rng.random() < 0.4:
            first = s.rng.randint(0, 1)
            if s.opset >= 10:
                part = s.add("Slice", [part, s.store([first]), s.store([100]), s.store([0])])
        parts.append(part)
    s.value = s.add("Concat", parts, axis=s.axis() if s.opset >= 11 else 0)


@kind("Split", needs=lambda s: s.shape and s.opset >= 11)
def split(s: Sketch) -> None:
    axis, count = s.axis(), s.rng.randint(1, 3)
    size = s.shape[axis]
    if s.rng.random() < 0.5:
        cuts = sorted(s.rng.randint(0, size) for _ in range(count - 1))
        parts = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
        inputs, more = s.parameter("split", 13, parts)
    else:
        inputs, more = [], {"num_outputs": count} if s.opset >= 18 else {}
    s.add("Split", [s.value, *inputs], outputs=count, axis=axis, **more)
    names = list(s.nodes[-1].output)
    s.rng.shuffle(names)
    if s.rng.random() < 0.5:
        s.value = names[0]
    else:
        s.value = s.add("Concat", names, axis=axis)


def _indices(s: Sketch, size: int, shape: Sequence[int]) -> str:
    """Random places on an axis."""
    kind = s.rng.random()
    if kind < 0.25 or len(shape) != 1:
        low = -size if s.opset >= 11 else 0
        return s.store(
            np.array([s.rng.randint(low, size - 1) for _ in range(int(np.prod(shape)))]).reshape(
                shape
            )
        )
    if kind < 0.5:
        return s.store([s.rng.choice((0, 0, -1)) for _ in range(shape[0])])
    start, limit, delta = s.rng.choice(
        ((0, size, 1), (0, size, 2), (1, size, 1), (-1, size - 1, 1))
    )
    scalars = [s.add("Squeeze", [s.integer(v)]) for v in (start, limit)]
    result = s.add("Range", [*scalars, s.store(delta)])
    if s.rng.random() < 0.5:
        by = s.integer(s.rng.randint(1, size))
        result = s.add(s.rng.choice(("Mod", "Div", "Min" if s.opset > 11 else "Div")), [result, by])
    return result


@kind("Gather", needs=lambda s: s.shape and all(s.shape) and s.opset >= 11)
def gather(s: Sketch) -> None:
    axis = s.axis()
    shape = s.rng.choice(((), (1,), (2,), (3,), (2, 2)))
    s.step("Gather", _indices(s, s.shape[axis], shape), axis=axis)


@kind("GatherElements", needs=lambda s: s.shape and all(s.shape) and s.opset >= 11)
def gather_elements(s: Sketch) -> None:
    axis = s.axis()
    shape = [s.rng.randint(1, 4 if a == axis else d) for a, d in enumerate(s.shape)]
    size = s.shape[axis]
    numbers = [s.rng.randint(-size, size - 1) for _ in range(int(np.prod(shape)))]
    s.step("GatherElements", s.store(np.array(numbers).reshape(shape)), axis=axis)


@kind("GatherND", needs=lambda s: s.shape and all(s.shape) and s.opset >= 12)
def gather_nd(s: Sketch) -> None:
    batch = s.rng.randint(0, 1) if len(s.shape) > 1 else 0
    depth = s.rng.randint(1, min(2, len(s.shape) - batch))
    shape = [*s.shape[:batch], 2, depth]
    numbers = [
        s.rng.randint(-s.shape[batch + i % depth], s.shape[batch + i % depth] - 1)
        for i in range(int(np.prod(shape)))
    ]
    s.step("GatherND", s.store(np.array(numbers).reshape(shape)), batch_dims=batch)


@kind("Expand")
def expand(s: Sketch) -> None:
    target = [s.rng.choice((1, d)) if d != 1 else s.rng.choice((1, 2, 3)) for d in s.shape]
    target = [s.rng.randint(1, 2) for _ in range(s.rng.randint(0, 1))] + target
    if s.rng.random() < 0.3:
        target = target[s.rng.randint(0, len(target)) :]
    s.step("Expand", s.integers(target))


@kind("Tile")
def tile(s: Sketch) -> None:
    s.step("Tile", s.integers([s.rng.choice((0, 1, 1, 2, 3)) for _ in s.shape]))


@kind("SpaceToDepth", needs=lambda s: len(s.shape) == 4 and all(s.shape))
def space_to_depth(s: Sketch) -> None:
    s.step("SpaceToDepth", blocksize=s.rng.choice((1, 2, 2, 3)))


@kind("DepthToSpace", needs=lambda s: len(s.shape) == 4 and all(s.shape))
def depth_to_space(s: Sketch) -> None:
    mode = {"mode": s.rng.choice(("DCR", "CRD"))} if s.opset >= 11 and s.rng.random() < 0.8 else {}
    s.step("DepthToSpace", blocksize=s.rng.choice((1, 2, 2)), **mode)


@kind("Shape", "Size", numbers=True)
def shape(s: Sketch, op_type: str) -> None:
    if op_type == "Size":
        s.step("Size")
    else:
        more = {}
        if s.opset >= 15:
            if s.rng.random() < 0.4:
                more["start"] = s.rng.randint(-5, 5)
            if s.rng.random() < 0.4:
                more["end"] = s.rng.randint(-5, 5)
        s.step("Shape", **more)
    s.whole = True


@kind("ConstantOfShape", numbers=True)
def constant_of_shape(s: Sketch) -> None:
    value = numpy_helper.from_array(np.array([s.rng.randint(0, 3)], np.int64))
    s.value = s.add(
        "ConstantOfShape",
        [s.integers([d + s.rng.choice((0, 0, 0, 1, -1)) for d in s.shape])],
        value=value,
    )
    s.whole = True


@kind("EyeLike", numbers=True)
def eye_like(s: Sketch) -> None:
    zeros = np.zeros((s.rng.randint(1, 4), s.rng.randint(1, 4)))
    s.value = s.add("EyeLike", [s.store(zeros)], k=s.rng.randint(-2, 2))
    s.whole = True


@kind("Range", needs=lambda s: s.opset >= 11, numbers=True)
def range_(s: Sketch) -> None:
    numbers = [s.rng.randint(-2, 2), s.rng.randint(1, 8), s.rng.choice((1, 1, 2, 3))]
    if s.rng.random() < 0.1:
        numbers[2] = -1
    scalars = [s.add("Squeeze", [s.integer(v)]) for v in numbers]
    if s.rng.random() < 0.7:
        scalars[2] = s.store(numbers[2])
    s.value, s.whole = s.add("Range", scalars), True


@kind("NonZero", numbers=True)
def non_zero(s: Sketch) -> None:
    constant_of_shape(s)
    if s.rng.random() < 0.7:
        s.step("Reshape", s.store([-1]))
    s.step("NonZero")


def _places(s: Sketch) -> str:
    """Integers that broadcast with the latest value: the places along one of its axes."""
    if not s.shape:
        return s.integer(s.rng.randint(-3, 3))
    axis = s.rng.randrange(len(s.shape))
    size = s.add("Gather", [s.add("Shape", [s.value]), s.store(axis)])
    places = s.add("Range", [s.store(0), size, s.store(1)])
    behind = len(s.shape) - 1 - axis
    if behind:
        places = s.add("Reshape", [places, s.store([-1, *[1] * behind])])
    return places


BINARY = ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Sum")
LOGIC = ("And", "Or", "Xor")
COMPARE = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")


@kind(
    *BINARY,
    *LOGIC,
    *COMPARE,
    "Neg",
    "Abs",
    "Sign",
    "Not",
    needs=lambda s: s.opset >= 13,
    numbers=True,
)
def elementwise(s: Sketch, op_type: str) -> None:
    """An operator on integers that the map knows; on data, that of an unknown function."""
    kind = op_type
    if kind == "Sum":  # onnxruntime has none of integers
        if not s.float:
            return identity(s)
        s.step("Sum", *[s.value] * s.rng.choice((0, 1, 2, 17)))
        return None
    if s.rng.random() < 0.8 or kind in ("Div", "Mod", *LOGIC, "Not"):
        s.value, s.whole = _places(s), True
        s.shape = (1,)
    value = s.value
    if kind in ("Neg", "Abs", "Sign"):
        value = s.add("Sub", [value, s.integer(s.rng.randint(-3, 3))]) if s.whole else value
        s.value = s.add(kind, [value])
        return None
    if kind in ("Not", *LOGIC):
        truths = [
            s.add(s.rng.choice(COMPARE), [value, s.integer(s.rng.randint(-1, 3))])
            for _ in range(1 if kind == "Not" else 2)
        ]
        truth = s.add(kind, truths)
        s.value = s.add("Cast", [truth], to=TensorProto.INT64)
        return None
    if not s.whole:
        other = value
    elif kind in ("Div", "Mod"):
        other = s.integer(s.rng.choice((1, 2, 3, 4, -2)))
        if s.rng.random() < 0.5:
            value = s.add("Sub", [value, s.integer(s.rng.randint(-3, 3))])
    else:
        other = s.integer(s.rng.randint(-3, 4))
    if kind in COMPARE:
        truth = s.add(kind, [value, other])
        s.value = s.add("Cast", [truth], to=TensorProto.INT64)
        return None
    more = {"fmod": 1} if kind == "Mod" and s.rng.random() < 0.4 else {}
    row = [value, other]
    if kind in ("Max", "Min") and s.whole:
        row += [s.integer(s.rng.randint(-3, 4))] * s.rng.choice((0, 1, 1, 16))
    s.value = s.add(kind, row, **more)
    return None


@kind("Where", needs=lambda s: s.opset >= 13 and not s.float)
def where(s: Sketch) -> None:
    condition = s.add(s.rng.choice(COMPARE), [_places(s), s.integer(s.rng.randint(0, 3))])
    other = s.rng.choice((s.value, s.store(s.rng.randint(0, 5)), s.integer(2)))
    pair = [s.value, other]
    s.rng.shuffle(pair)
    s.value = s.add("Where", [condition, *pair])


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


@kind(
    "ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", needs=lambda s: s.opset >= 13, numbers=True
)
def reduce(s: Sketch, op_type: str) -> None:
    sizes = s.add("Shape", [s.value])
    rank = len(s.shape)
    if s.rng.random() < 0.5:
        sizes = s.add("Reshape", [s.add("Concat", [sizes, sizes], axis=0), s.store([2, rank])])
        rank = 2
    else:
        rank = 1
    more: dict[str, object] = {"keepdims": s.rng.randint(0, 1)} if s.rng.random() < 0.7 else {}
    inputs = [sizes]
    as_input = s.opset >= (13 if op_type == "ReduceSum" else 18)
    if s.rng.random() < 0.7:
        axes = [
            a - s.rng.choice((0, rank)) for a in s.rng.sample(range(rank), s.rng.randint(1, rank))
        ]
        if as_input:
            if s.rng.random() < 0.2:
                axes = []
            inputs.append(s.store(axes))
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
        output = f"{s.name()}_{name}"
        node = s.rng.choice(("Identity", "Transpose", "Neg"))
        if s.whole or s.opset < 13:
            node = "Identity"
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
