"""Random changes of chains: whatever `optimize` rewrites must compute what the file computes.

python tests/chains/campaign_of_chains.py --cases 5000 --seed 1
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import starmap

import chain_models as forms
import click
import movement_models
import numpy as np
import onnx
import patch_models
import running
from adapter import Plan, plan
from onnx import AttributeProto, helper, numpy_helper

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
    *[lambda _, form=form: _copy(form) for form in movement_models.FORMS.values()],
    lambda rng: _arithmetic(_copy(rng.choice([*movement_models.FORMS.values()])), rng),
    lambda rng: _one_hot(rng),
    lambda rng: _im2col(rng),
)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(model.SerializeToString())


def _arithmetic(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """Put functions of single elements between some nodes of a chain."""
    graph = model.graph
    for number, node in reversed(list(enumerate(graph.node))):
        moved = node.input[0] if node.input else ""
        if node.op_type not in ("Reshape", "Transpose", "Concat") or rng.random() < 0.5:
            continue
        kinds = {value.name: value.type.tensor_type.elem_type for value in graph.input}
        if kinds.get(moved, 1) != 1 or any(moved == t.name for t in graph.initializer):
            continue
        name = f"{moved}.changed.{number}"
        node.input[0] = name
        added = [helper.make_node(rng.choice(["Neg", "Relu", "Abs", "Sigmoid"]), [moved], [name])]
        if rng.random() < 0.3:  # the value has another reader
            added.append(helper.make_node("ReduceMax", [moved], [f"{name}.max"], keepdims=0))
            graph.output.append(helper.make_tensor_value_info(f"{name}.max", 1, []))
        for each in reversed(added):
            graph.node.insert(number, each)
    return model


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


CHANGES = (_constant, _attribute, _node)


def case(number: int, seed: int) -> str:
    """Return how a random model fared: "right", "wrong", "left", "none" or "does not run"."""
    rng = random.Random(f"{seed}/{number}")
    model = rng.choice(FORMS)(rng)
    for _ in range(rng.choice([0, 1, 1, 2])):
        rng.choice(CHANGES)(model, rng)
    del model.graph.value_info[:]  # which holds no more
    model.graph.output[0].type.tensor_type.ClearField("shape")
    limit = rng.choice([None, None, 4])
    runs = []
    for _ in range(4):
        feeds = {v.name: _data(v, rng) for v in model.graph.input}
        try:
            runs.append((feeds, running.run(model, feeds, running.LEVELS[0])))
        except Exception:  # of many types
            continue
    if not runs:
        return "does not run"
    result = plan(model, chains=True, max_rank=limit)
    if result.model is None:
        return "left" if result.chains else "none"
    made = result.model
    right = all(_computes(made, feeds, expected) for feeds, expected in runs)
    return "right" if right and (limit or _is_better(result)) else "wrong"


def _is_better(result: Plan) -> bool:
    """Tell whether there are fewer nodes, or those of a better price."""
    prices = [(s.before_us, s.estimated_us) for s in result.chains if s.before_us and s.lowering]
    return all(0.8 * a >= (b or 0) for a, b in prices) and (
        bool(prices) or result.nodes[1] < result.nodes[0]
    )


def _computes(
    model: onnx.ModelProto, feeds: dict[str, np.ndarray], expected: list[np.ndarray]
) -> bool:
    try:
        outputs = running.run(model, feeds, running.LEVELS[0])
    except Exception:  # of many types
        return False
    return all(starmap(_close, zip(outputs, expected, strict=True)))


def _data(value: onnx.ValueInfoProto, rng: random.Random) -> np.ndarray:
    dims = value.type.tensor_type.shape.dim
    shape = [d.dim_value or rng.choice(SIZES[d.dim_param]) for d in dims]
    array = np.random.default_rng(rng.randrange(1 << 30)).random(shape, np.float32)
    return array.astype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and float(abs(a - b).max(initial=0)) < 1e-4


@click.command(help=__doc__.split("\n\n")[0] if __doc__ else None)
@click.option("--cases", default=500, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(cases: int, seed: int) -> None:
    """Print the counts, and the numbers of wrong cases."""
    outcomes = {number: case(number, seed) for number in range(cases)}
    print(dict(Counter(outcomes.values())))
    print("wrong:", [number for number, outcome in outcomes.items() if outcome == "wrong"])


if __name__ == "__main__":
    main()
