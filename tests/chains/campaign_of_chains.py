"""Random chains and near misses: what `optimize` rewrites computes what the file computes, bit by bit.

    python tests/chains/campaign_of_chains.py --cases 5000 --seed 1

A chain is one of the known spellings, changed at random: another number, permutation or node, a pad that
is not zero, a value with another reader, functions of single elements between, all in a local function.
Or it is a random graph of moves among arithmetic. Data and weights are whole numbers, so sums are exact.
Nothing is verified: proofs alone decide what is rewritten.
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":  # what pytest's `pythonpath` does
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

import chain_models as forms
import click
import holders
import movement_models as movements
import numpy as np
import onnx
import patch_models
import running
from adapter import Plan, plan
from chain_models import Net
from onnx import AttributeProto, helper, numpy_helper

from onnx_spatial.chains.pricing import MARGIN, MOST_MORE

SIZES = {
    "n": (1, 2, 3),
    "h": (1, 2, 3, 4, 5, 6, 8, 12),
    "w": (2, 4, 6, 8, 9, 10),
    "t": (2, 4, 5, 6, 10),
    "c": (1, 2, 4, 8),
    "m": (12, 24, 36),
}

FORMS: tuple[Callable[[random.Random], onnx.ModelProto], ...] = (
    lambda rng: forms.six_dims(pads=(rng.randint(0, 4), 2 * rng.randint(0, 2))),
    lambda rng: forms.six_dims(("n", "h", "w", 3)),
    lambda rng: forms.six_dims(("n", "h", "w", 3), pads=(0, 0)),
    lambda rng: forms.depth_to_space(d=rng.choice([2, 3, 4])),
    lambda rng: forms.stacked(rates=rng.choice([(2, 2), (2, 3), (4, 2)])),
    lambda rng: forms.channels_first(),
    lambda rng: forms.one_dim(),
    lambda rng: forms.uneven(),
    lambda rng: forms.volume(),
    lambda rng: forms.lowered("transpose", ("n", 8, 12, 3)),
    lambda rng: forms.lowered("transpose", (2, "h", "w", 3)),
    lambda rng: forms.lowered("transpose", ("n", "h", "w", 3)),
    *[lambda _, form=form: _copy(form) for form in movements.FORMS.values()],
    lambda rng: _one_hot(rng),
    lambda rng: _im2col(rng),
)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(model.SerializeToString())


def _one_hot(rng: random.Random) -> onnx.ModelProto:
    kernel, channels = rng.choice([(2, 2), (3, 3), (1, 4)]), rng.choice([1, 2, 3])
    major = rng.choice(["place", "channel"])
    attributes = {"strides": [rng.choice([1, 2, 3])] * 2, "dilations": [rng.choice([1, 1, 2])] * 2}
    weight = patch_models.one_hot(kernel, channels, major=major)
    if rng.random() < 0.5:
        return patch_models.channels_first(weight, ("n", channels, 9, "w"), **attributes)
    return patch_models.channels_last(weight, ("n", 8, "w", channels), **attributes)


def _im2col(rng: random.Random) -> onnx.ModelProto:
    kernel, stride, pad = rng.choice([2, 3]), rng.choice([1, 2]), rng.choice([0, 1])
    return patch_models.im2col((2, 3, 7, 8), kernel, stride, pad, computed=rng.random() < 0.5)


def _constant(model: onnx.ModelProto, rng: random.Random) -> None:
    """Change an integer of a constant, or swap two."""
    integers = [
        t for t in model.graph.initializer if t.data_type in (6, 7) and min(t.dims, default=1)
    ]
    if integers:
        tensor = rng.choice(integers)
        array = numpy_helper.to_array(tensor).copy()
        i, j = (rng.randrange(array.size) for _ in range(2))
        flat = array.reshape(-1)
        flat[[i, j]] = (flat[i] + rng.choice([-1, 1, 2]),) * 2 if i == j else flat[[j, i]]
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    """Swap two axes of a permutation, or change an integer."""
    nodes = [a for n in model.graph.node for a in n.attribute]
    known = [a for a in nodes if a.name == "perm" or a.type == AttributeProto.INT]
    if known:
        attribute = rng.choice(known)
        if attribute.name == "perm":
            i, j = rng.sample(range(len(attribute.ints)), 2)
            perm = list(attribute.ints)
            perm[i], perm[j] = perm[j], perm[i]
            attribute.ints[:] = perm
        else:
            attribute.i += rng.choice([-1, 1])


def _node(model: onnx.ModelProto, rng: random.Random) -> None:
    """Leave out a node, or let it read its inputs in another order."""
    node = rng.choice(model.graph.node)
    if rng.random() < 0.5 and len(node.input) > 1:
        node.input[:] = rng.sample(list(node.input), len(node.input))
    elif len(node.output) == 1:
        node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))


def _pad(model: onnx.ModelProto, rng: random.Random) -> None:
    """Pad with ones, or with what is there, in the place of zeros."""
    pads = [n for n in model.graph.node if n.op_type == "Pad" and len(n.input) == 2]
    if pads and rng.random() < 0.5:
        model.graph.initializer.append(numpy_helper.from_array(np.float32(1), "one"))
        rng.choice(pads).input.append("one")
    elif pads:
        rng.choice(pads).attribute.append(helper.make_attribute("mode", "edge"))


def _functions(model: onnx.ModelProto, rng: random.Random) -> None:
    """Put functions of single elements between some nodes of a chain; let others read them, too."""
    graph = model.graph
    kinds = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    stored = {tensor.name for tensor in graph.initializer}
    for number, node in reversed(list(enumerate(graph.node))):
        moved = node.input[0] if node.input else ""
        if node.op_type not in ("Reshape", "Transpose", "Conv") or rng.random() < 0.6:
            continue
        if kinds.get(moved, 1) != 1 or moved in stored:
            continue
        node.input[0] = name = f"{moved}.changed.{number}"
        op_type, attributes = rng.choice([*((f, {}) for f in FUNCTIONS), *WITH_ATTRIBUTES[:3]])
        graph.node.insert(number, helper.make_node(op_type, [moved], [name], **attributes))


def _output(model: onnx.ModelProto, rng: random.Random) -> None:
    """Make a value in a chain an output, or let another node read it."""
    graph = model.graph
    known = {value.name for value in graph.output}
    moving = [n for n in graph.node if n.op_type in ("Pad", "Reshape", "Transpose", "Slice")]
    names = [n.output[0] for n in moving if n.output[0] not in known]
    if names:
        name = rng.choice(names)
        if rng.random() < 0.5:
            graph.node.append(helper.make_node("ReduceMax", [name], [f"{name}.max"], keepdims=0))
            name = f"{name}.max"
        value = helper.make_empty_tensor_value_info(name)
        value.type.tensor_type.elem_type = graph.input[0].type.tensor_type.elem_type
        graph.output.append(value)


#: The outcomes of chains that are right.
GOOD = frozenset({"right", "left", "does not run"})

CHANGES = (_constant, _constant, _attribute, _attribute, _node, _pad, _functions, _output)


#: Exact ones: others may round the last elements of a tensor in another way.
FUNCTIONS = ("Relu", "Neg", "Abs", "Floor")
WITH_ATTRIBUTES: tuple[tuple[str, dict[str, object]], ...] = (
    ("LeakyRelu", {"alpha": 0.3}),
    ("ThresholdedRelu", {"alpha": 0.2}),
    ("Shrink", {"lambd": 0.3, "bias": 0.1}),
    ("Cast", {"to": onnx.TensorProto.INT32}),
    ("IsInf", {"detect_positive": 0}),
)


class RandomGraph:
    """A random graph of one value after another, with some that are read again."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.net = rng, Net(rng.choice([13, 17, 18]))
        sizes = (1, 2, 2, 3, 4, 6, 8, 16)
        self.shape = [rng.choice(sizes) for _ in range(rng.randint(1, 5))]
        self.unknown = rng.choice([0, 0, 1])  # whether the batch is
        self.name, self.dims, self.read = "x", list(self.shape), list[str]()

    def step(self) -> None:
        """Add a random node."""
        kinds = [self._split, self._split, self._transpose, self._transpose, self._merge]
        kinds += [
            self._function,
            self._gate,
            self._number,
            self._ones,
            self._depth,
            self._shaped,
            self._part,
        ]
        self.rng.choice(kinds)()
        if self.rng.random() < 0.07:
            self.read.append(self.name)

    def _reshape(self, dims: list[int]) -> None:
        target = list(dims)
        if self.unknown:
            if math.prod(dims[1:]) != math.prod(self.dims[1:]):
                return
            target[0] = self.rng.choice([-1, 0])
        self.name, self.dims = self.net("Reshape", self.name, target), dims

    def _split(self) -> None:
        axis = self.rng.randrange(self.unknown, len(self.dims)) if len(self.dims) > 1 else 0
        size = self.dims[axis]
        factors = [f for f in (2, 3, 4, 8) if size % f == 0]
        if factors and len(self.dims) < 7 and not (self.unknown and axis == 0):
            f = self.rng.choice(factors)
            pair = [f, size // f] if self.rng.random() < 0.5 else [size // f, f]
            self._reshape([*self.dims[:axis], *pair, *self.dims[axis + 1 :]])

    def _merge(self) -> None:
        if len(self.dims) > 1 + self.unknown:
            at = self.rng.randrange(self.unknown, len(self.dims) - 1)
            self._reshape(
                [*self.dims[:at], self.dims[at] * self.dims[at + 1], *self.dims[at + 2 :]]
            )

    def _shaped(self) -> None:
        """Any other shape of as many elements."""
        if len(self.dims) > 1 + self.unknown:
            lead, rest = self.dims[: self.unknown], self.dims[self.unknown :]
            total = math.prod(rest)
            part = self.rng.choice([f for f in range(1, total + 1) if total % f == 0])
            self._reshape([*lead, part, total // part])

    def _transpose(self) -> None:
        perm = list(range(len(self.dims)))
        tail = perm[self.unknown :]
        self.rng.shuffle(tail)
        perm = perm[: self.unknown] + tail
        self.name = self.net("Transpose", self.name, perm=perm)
        self.dims = [self.dims[p] for p in perm]

    def _gate(self) -> None:
        """Add a function of several nodes that reads the value twice."""
        inner = self.net(self.rng.choice(FUNCTIONS), self.name)
        pair = [self.name, inner]
        self.rng.shuffle(pair)
        self.name = self.net(self.rng.choice(["Add", "Mul", "Max"]), *pair)

    def _function(self) -> None:
        if self.rng.random() < 0.4:
            self.name = self.net(self.rng.choice(FUNCTIONS), self.name)
            return
        op_type, attributes = self.rng.choice(WITH_ATTRIBUTES)
        self.name = self.net(op_type, self.name, **attributes)
        if op_type in ("Cast", "IsInf"):
            self.name = self.net("Cast", self.name, to=onnx.TensorProto.FLOAT)

    def _number(self) -> None:
        inputs: list[object] = [self.name, np.float32(self.rng.choice([0.5, 2, 3]))]
        self.rng.shuffle(inputs)
        self.name = self.net(self.rng.choice(["Mul", "Add", "Sub"]), *inputs)

    def _ones(self) -> None:
        ones = [i for i, d in enumerate(self.dims) if d == 1 and i >= self.unknown]
        if ones and len(self.dims) > 1 and self.rng.random() < 0.5:
            axis = self.rng.choice(ones)
            self.name = self.net("Squeeze", self.name, [axis])
            self.dims = self.dims[:axis] + self.dims[axis + 1 :]
        elif len(self.dims) < 7:
            axis = self.rng.randint(self.unknown, len(self.dims))
            self.name = self.net("Unsqueeze", self.name, [axis])
            self.dims = [*self.dims[:axis], 1, *self.dims[axis:]]

    def _part(self) -> None:
        """Take one place along an axis, by Gather, or by Slice or Split and Squeeze."""
        axes = [i for i, d in enumerate(self.dims) if 1 < d < 9 and i >= self.unknown]
        if len(self.dims) < 3 or not axes:
            return
        axis = self.rng.choice(axes)
        place = self.rng.randrange(self.dims[axis])
        kind = self.rng.choice(["Gather", "Slice", "Split"])
        if kind == "Gather":
            self.name = self.net("Gather", self.name, np.array(place), axis=axis)
        elif kind == "Slice":
            part = self.net("Slice", self.name, [place], [place + 1], [axis])
            self.name = self.net("Squeeze", part, [axis])
        else:
            extra = {"num_outputs": self.dims[axis]} if self.net.opset >= 18 else {}
            parts = self.net("Split", self.name, outputs=self.dims[axis], axis=axis, **extra)
            self.name = self.net("Squeeze", parts[place], [axis])
        del self.dims[axis]

    def _depth(self) -> None:
        if len(self.dims) != 4:
            return
        n, c, h, w = self.dims
        if c % 4 == 0 and self.rng.random() < 0.5:
            mode = self.rng.choice(["DCR", "CRD"])
            self.name = self.net("DepthToSpace", self.name, blocksize=2, mode=mode)
            self.dims = [n, c // 4, h * 2, w * 2]
        elif h % 2 == w % 2 == 0:
            self.name = self.net("SpaceToDepth", self.name, blocksize=2)
            self.dims = [n, c * 4, h // 2, w // 2]

    def model(self) -> onnx.ModelProto:
        """The graph as a model."""
        shape = ["n" if self.unknown and not i else d for i, d in enumerate(self.shape)]
        end = self.net("Sin", self.name)
        model = movements.finished(self.net, shape, end, len(self.dims))
        for name in dict.fromkeys(self.read):
            output = helper.make_empty_tensor_value_info(name)
            output.type.tensor_type.elem_type = 1
            model.graph.output.append(output)
        return model


def _changed(rng: random.Random) -> onnx.ModelProto:
    model = rng.choice(FORMS)(rng)
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32 and array.size > 1 and tensor.dims[0] != array.size:
            tensor.CopyFrom(numpy_helper.from_array(np.rint(array), tensor.name))
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        rng.choice(CHANGES)(model, rng)
    del model.graph.value_info[:]  # which holds no more
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return holders.in_function(model) if rng.random() < 0.1 else model


def _moved(rng: random.Random) -> onnx.ModelProto:
    graph = RandomGraph(rng)
    for _ in range(rng.randint(2, 14)):
        graph.step()
    return graph.model()


def case(number: int, seed: int) -> str:
    """Return how a random model fared: "right", "left", "does not run", or what is wrong with it."""
    rng = random.Random(f"{seed}/{number}")
    model = rng.choice([_changed, _changed, _moved])(rng)
    limit = rng.choice([None, None, None, 2, 3, 4, 5])
    runs = []
    for _ in range(4):
        feeds = {v.name: _data(v, rng) for v in model.graph.input}
        try:
            outputs = running.run(model, feeds, running.LEVELS[0])
        except Exception:  # of many types
            continue
        if all(array.size for array in outputs):  # proofs assume that every size is at least 1
            runs.append((feeds, outputs))
    if not runs:
        return "does not run"
    result = plan(model, chains=True, max_rank=limit)
    if result.model is None:
        return "left"
    for feeds, expected in runs:
        try:
            outputs = running.run(result.model, feeds, running.LEVELS[0])
        except Exception:  # of many types
            return "fails"
        # What copies keeps the sign of a zero, which a sum loses.
        if [_bits(a) for a in outputs] != [_bits(a) for a in expected]:
            return "wrong"
    return "right" if limit is not None else _judged(result)


def _judged(result: Plan) -> str:
    """Return whether each chain is better by its price, and the file has no more nodes than that."""
    done = [site for site in result.chains if site.lowering]
    if any((s.estimated_us or 0) > MARGIN * s.before_us for s in done if s.before_us):
        return "slower"
    return "larger" if result.nodes[1] > result.nodes[0] + MOST_MORE * len(done) else "right"


def _bits(array: np.ndarray) -> tuple[tuple[int, ...], bytes]:
    return array.shape, (array if array.dtype == bool else array + 0).tobytes()


def _data(value: onnx.ValueInfoProto, rng: random.Random) -> np.ndarray:
    dims = value.type.tensor_type.shape.dim
    shape = [d.dim_value or rng.choice(SIZES[d.dim_param]) for d in dims]
    array = np.random.default_rng(rng.randrange(1 << 30)).integers(-9, 10, shape)
    return array.astype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))


@click.command(help=__doc__.split("\n\n")[0] if __doc__ else None)
@click.option("--cases", default=500, show_default=True)
@click.option("--first", default=0, show_default=True, help="Number of the first case.")
@click.option("--seed", default=1, show_default=True)
def main(cases: int, first: int, seed: int) -> None:
    """Print the counts, and the numbers of the cases that went wrong."""
    outcomes = {number: case(number, seed) for number in range(first, first + cases)}
    print(dict(Counter(outcomes.values())))
    print({n: outcome for n, outcome in outcomes.items() if outcome not in GOOD})


if __name__ == "__main__":
    main()
