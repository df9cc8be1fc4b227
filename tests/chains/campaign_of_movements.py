"""Random chains of movement among arithmetic: `optimize` keeps every bit, and is never worse by price.

python tests/chains/campaign_of_movements.py --cases 5000 --seed 1
"""

from __future__ import annotations

import math
import random
from collections import Counter

import click
import movement_models as forms
import numpy as np
import onnx
import running
from adapter import Plan, plan
from chain_models import Net
from onnx import helper

from onnx_spatial.chains.pricing import MARGIN, MOST_MORE

#: Exact ones: others may round the last elements of a tensor in another way.
FUNCTIONS = ("Relu", "Neg", "Abs", "Floor")
WITH_ATTRIBUTES: tuple[tuple[str, dict[str, object]], ...] = (
    ("LeakyRelu", {"alpha": 0.3}),
    ("ThresholdedRelu", {"alpha": 0.2}),
    ("Shrink", {"lambd": 0.3, "bias": 0.1}),
    ("Cast", {"to": onnx.TensorProto.INT32}),
    ("IsInf", {"detect_positive": 0}),
)


class _Graph:
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
        model = forms.finished(self.net, shape, end, len(self.dims))
        for name in dict.fromkeys(self.read):
            output = helper.make_empty_tensor_value_info(name)
            output.type.tensor_type.elem_type = 1
            model.graph.output.append(output)
        return model


def case(number: int, seed: int) -> str:
    """Return how a random model fared: "right", "left", or what is wrong with the result."""
    rng = random.Random(f"{seed}/{number}")
    graph = _Graph(rng)
    for _ in range(rng.randint(2, 14)):
        graph.step()
    model = graph.model()
    limit = rng.choice([None, None, 2, 3, 4, 5])
    result = plan(model, chains=True, max_rank=limit)
    if result.model is None:
        return "left"
    for scale in (1, 2):
        data = forms.feeds(model, scale)
        before, after = (running.run(m, data) for m in (model, result.model))
        if any(a.tobytes() != b.tobytes() for a, b in zip(before, after, strict=True)):
            return "wrong"
    return "right" if limit is not None else _judged(result)


def _judged(result: Plan) -> str:
    """Return whether each chain is better by its price, and the file has no more nodes than that."""
    done = [site for site in result.chains if site.lowering]
    if any((s.estimated_us or 0) > MARGIN * (s.before_us or 0) for s in done):
        return "slower"
    return "larger" if result.nodes[1] > result.nodes[0] + MOST_MORE * len(done) else "right"


@click.command(help=__doc__.split("\n\n")[0] if __doc__ else None)
@click.option("--cases", default=500, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(cases: int, seed: int) -> None:
    """Print the counts, and the numbers of the cases that went wrong."""
    outcomes = {number: case(number, seed) for number in range(cases)}
    print(dict(Counter(outcomes.values())))
    print({n: outcome for n, outcome in outcomes.items() if outcome not in ("right", "left")})


if __name__ == "__main__":
    main()
