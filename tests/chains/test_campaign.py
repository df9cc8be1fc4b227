"""Random chains and near misses: what `optimize` rewrites computes what the file computes, bit by bit.

A chain is one of the known spellings, changed at random: another number, permutation or node, a pad
that is not zero, a value with another reader, functions of single elements between, all in a local
function. Or it is a random graph of moves among arithmetic. Data and weights are whole numbers, so sums
are exact. Nothing is verified: proofs alone decide what is rewritten. A failure names its case.
"""

import math
from collections import Counter
from collections.abc import Callable
from random import Random

import chain_models as forms
import holders
import movement_models as movements
import numpy as np
import onnx
import patch_models
import pytest
import running
from adapter import plan
from chain_models import Net
from onnx import AttributeProto, helper, numpy_helper

from onnx_spatial.chains.pricing import MARGIN, MAX_MORE

SIZES = {
    "n": (1, 2, 3), "h": (1, 2, 3, 4, 5, 6, 8, 12), "w": (2, 4, 6, 8, 9, 10), "t": (2, 4, 5, 6, 10),
    "c": (1, 2, 4, 8), "m": (12, 24, 36),
}  # fmt: skip
ANY = ("n", "h", "w", 3)
#: Functions of single elements that are exact: others may round the last of a tensor in another way.
FUNCTIONS: tuple[tuple[str, dict[str, object]], ...] = (
    ("Relu", {}), ("Neg", {}), ("Abs", {}), ("LeakyRelu", {"alpha": 0.3}),
    ("Shrink", {"lambd": 0.3, "bias": 0.1}), ("Cast", {"to": onnx.TensorProto.INT32}),
    ("IsInf", {"detect_positive": 0}),
)  # fmt: skip
#: The outcomes of cases that are right.
GOOD = frozenset({"right", "left", "does not run"})


def one_hot(rng: Random) -> onnx.ModelProto:
    kernel, channels = rng.choice([(2, 2), (3, 3), (1, 4)]), rng.choice([1, 2, 3])
    attributes = {"strides": [rng.choice([1, 2, 3])] * 2, "dilations": [rng.choice([1, 1, 2])] * 2}
    weight = patch_models.one_hot(kernel, channels, major=rng.choice(["place", "channel"]))
    if rng.random() < 0.5:
        return patch_models.channels_first(weight, ("n", channels, 9, "w"), **attributes)
    return patch_models.channels_last(weight, ("n", 8, "w", channels), **attributes)


def im2col(rng: Random) -> onnx.ModelProto:
    kernel, stride, pad = rng.choice([2, 3]), rng.choice([1, 2]), rng.choice([0, 1])
    return patch_models.im2col((2, 3, 7, 8), kernel, stride, pad, computed=rng.random() < 0.5)


#: Steps of a random graph.
STEPS = (
    *("split", "split", "transpose", "transpose", "merge", "shape", "function", "gate", "number"),
    *("one", "depth", "part"),
)
FORMS: tuple[Callable[[Random], onnx.ModelProto], ...] = (
    lambda rng: forms.six_dims(pads=(rng.randint(0, 4), 2 * rng.randint(0, 2))),
    lambda rng: forms.six_dims(ANY, pads=rng.choice([(2, 2), (0, 0)])),
    lambda rng: forms.depth_to_space(d=rng.choice([2, 3, 4])),
    lambda rng: forms.stacked(rates=rng.choice([(2, 2), (2, 3), (4, 2)])),
    lambda rng: rng.choice([forms.channels_first, forms.one_dim, forms.uneven, forms.volume])(),
    lambda rng: forms.lowered("transpose", rng.choice([("n", 8, 12, 3), (2, "h", "w", 3), ANY])),
    *[lambda _, form=form: onnx.ModelProto.FromString(form.SerializeToString())
      for form in movements.FORMS.values()],
    one_hot,
    im2col,
)  # fmt: skip


def change(model: onnx.ModelProto, rng: Random) -> None:
    """Change one thing, if the model has it."""
    graph = model.graph
    what = rng.choice("table table attribute attribute node pad functions output".split())
    pads = [n for n in graph.node if n.op_type == "Pad" and len(n.input) == 2]
    if what == "table":  # another integer, or two of them exchanged
        tables = [t for t in graph.initializer if t.data_type in (6, 7) and min(t.dims, default=1)]
        if tables:
            tensor = rng.choice(tables)
            array = numpy_helper.to_array(tensor).copy()
            i, j = (rng.randrange(array.size) for _ in range(2))
            flat = array.reshape(-1)
            flat[[i, j]] = (flat[i] + rng.choice([-1, 1, 2]),) * 2 if i == j else flat[[j, i]]
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    elif what == "attribute":
        known = [a for n in graph.node for a in n.attribute if a.name == "perm" or a.i]
        if known:
            attribute = rng.choice(known)
            if attribute.type == AttributeProto.INT:
                attribute.i += rng.choice([-1, 1])
            else:
                i, j = rng.sample(range(len(attribute.ints)), 2)
                perm = list(attribute.ints)
                perm[i], perm[j] = perm[j], perm[i]
                attribute.ints[:] = perm
    elif what == "node":  # is gone, or reads its inputs in another order
        node = rng.choice(graph.node)
        if rng.random() < 0.5 and len(node.input) > 1:
            node.input[:] = rng.sample(list(node.input), len(node.input))
        elif len(node.output) == 1:
            node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))
    elif what == "pad" and pads:
        if rng.random() < 0.5:
            graph.initializer.append(numpy_helper.from_array(np.float32(1), "one"))
            rng.choice(pads).input.append("one")
        else:
            rng.choice(pads).attribute.append(helper.make_attribute("mode", "edge"))
    elif what == "functions":
        insert_functions(graph, rng)
    elif what == "output":  # a value in the chain is one, or another node reads it
        known_names = {value.name for value in graph.output}
        moving = [n for n in graph.node if n.op_type in ("Pad", "Reshape", "Transpose", "Slice")]
        names = [n.output[0] for n in moving if n.output[0] not in known_names]
        if names:
            name = rng.choice(names)
            if rng.random() < 0.5:
                node = helper.make_node("ReduceMax", [name], [f"{name}.max"], keepdims=0)
                graph.node.append(node)
                name = f"{name}.max"
            element_type = graph.input[0].type.tensor_type.elem_type
            graph.output.add(name=name).type.tensor_type.elem_type = element_type


def insert_functions(graph: onnx.GraphProto, rng: Random) -> None:
    """Put functions of single elements between some nodes of a chain."""
    kinds = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    stored = {tensor.name for tensor in graph.initializer}
    for number, node in reversed(list(enumerate(graph.node))):
        moved = node.input[0] if node.input else ""
        if node.op_type not in ("Reshape", "Transpose", "Conv") or rng.random() < 0.6:
            continue
        if kinds.get(moved, 1) == 1 and moved not in stored:
            node.input[0] = name = f"{moved}.changed.{number}"
            op_type, attributes = rng.choice(FUNCTIONS[:5])
            graph.node.insert(number, helper.make_node(op_type, [moved], [name], **attributes))


def moves(rng: Random) -> onnx.ModelProto:
    """A random graph of one value after another, with some that are read again."""
    net = Net(rng.choice([13, 17, 18]))
    dims = [rng.choice((1, 2, 2, 3, 4, 6, 8, 16)) for _ in range(rng.randint(1, 5))]
    unknown = rng.choice([0, 0, 1])  # whether the batch is
    shape, name, read = ["n", *dims[1:]] if unknown else list(dims), "x", list[str]()
    for _ in range(rng.randint(2, 14)):
        step, rank = rng.choice(STEPS), len(dims)
        axis = rng.randrange(unknown, rank) if rank > unknown else -1
        size = dims[axis] if axis >= 0 else 0
        target = None
        parts = [f for f in (2, 3, 4, 8) if size and size % f == 0]
        if step == "split" and rank < 7 and parts:
            pair = rng.sample([f := rng.choice(parts), size // f], 2)
            target = [*dims[:axis], *pair, *dims[axis + 1 :]]
        elif step == "merge" and unknown <= axis < rank - 1:
            target = [*dims[:axis], size * dims[axis + 1], *dims[axis + 2 :]]
        elif step == "shape" and rank > 1 + unknown:  # any other of as many elements
            total = math.prod(dims[unknown:])
            part = rng.choice([f for f in range(1, total + 1) if total % f == 0])
            target = [*dims[:unknown], part, total // part]
        elif step == "transpose":
            perm = [*range(unknown), *rng.sample(range(unknown, rank), rank - unknown)]
            name, dims = net("Transpose", name, perm=perm), [dims[p] for p in perm]
        elif step == "gate":  # a function of several nodes that reads the value twice
            pair = rng.sample([name, net("Neg", name)], 2)
            name = net(rng.choice(["Add", "Mul", "Max"]), *pair)
        elif step == "function":
            op_type, attributes = rng.choice(FUNCTIONS)
            name = net(op_type, name, **attributes)
            if op_type in ("Cast", "IsInf"):
                name = net("Cast", name, to=onnx.TensorProto.FLOAT)
        elif step == "number":
            inputs = rng.sample([name, np.float32(rng.choice([0.5, 2, 3]))], 2)
            name = net(rng.choice(["Mul", "Add", "Sub"]), *inputs)
        elif step == "one" and size == 1 and rank > 1:
            name, dims = net("Squeeze", name, [axis]), dims[:axis] + dims[axis + 1 :]
        elif step == "one" and rank < 7:
            at = rng.randint(unknown, rank)
            name, dims = net("Unsqueeze", name, [at]), [*dims[:at], 1, *dims[at:]]
        elif step == "part" and rank > 2 and 1 < size < 9:
            name, dims = part_of(net, rng, name, axis, size), dims[:axis] + dims[axis + 1 :]
        elif step == "depth" and rank == 4:
            n, c, h, w = dims
            if c % 4 == 0 and rng.random() < 0.5:
                mode = rng.choice(["DCR", "CRD"])
                name = net("DepthToSpace", name, blocksize=2, mode=mode)
                dims = [n, c // 4, h * 2, w * 2]
            elif h % 2 == w % 2 == 0:
                name, dims = net("SpaceToDepth", name, blocksize=2), [n, c * 4, h // 2, w // 2]
        if target is not None:
            known = [rng.choice([-1, 0]), *target[1:]] if unknown else target
            name, dims = net("Reshape", name, known), target
        if rng.random() < 0.07:
            read.append(name)
    model = movements.finished(net, shape, net("Sin", name), len(dims))
    for each in dict.fromkeys(read):
        model.graph.output.add(name=each).type.tensor_type.elem_type = 1
    return model


def part_of(net: Net, rng: Random, name: str, axis: int, size: int) -> str:
    """One place along an axis, by Gather, or by Slice or Split and Squeeze."""
    place, kind = rng.randrange(size), rng.choice(["Gather", "Slice", "Split"])
    if kind == "Gather":
        return net("Gather", name, np.array(place), axis=axis)
    if kind == "Slice":
        return net("Squeeze", net("Slice", name, [place], [place + 1], [axis]), [axis])
    extra = {"num_outputs": size} if net.opset >= 18 else {}
    return net("Squeeze", net("Split", name, outputs=size, axis=axis, **extra)[place], [axis])


def changed(rng: Random) -> onnx.ModelProto:
    """One of the known spellings with a few changes."""
    model = rng.choice(FORMS)(rng)
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32 and array.size > 1 and tensor.dims[0] != array.size:
            tensor.CopyFrom(numpy_helper.from_array(np.rint(array), tensor.name))
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        change(model, rng)
    del model.graph.value_info[:]  # which holds no more
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return holders.in_function(model) if rng.random() < 0.1 else model


def data_of(value: onnx.ValueInfoProto, rng: Random) -> np.ndarray:
    dims = value.type.tensor_type.shape.dim
    shape = [d.dim_value or rng.choice(SIZES[d.dim_param]) for d in dims]
    array = np.random.default_rng(rng.randrange(1 << 30)).integers(-9, 10, shape)
    return array.astype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))


def bits(array: np.ndarray) -> tuple[tuple[int, ...], bytes]:
    """What copies keeps the sign of a zero, which a sum loses."""
    return array.shape, (array if array.dtype == bool else array + 0).tobytes()


def outcome(number: int, seed: int) -> str:
    """How a random model fared: "right", "left", "does not run", or what is wrong with it."""
    rng = Random(f"{seed}/{number}")
    model = rng.choice([changed, changed, moves])(rng)
    limit = rng.choice([None, None, None, 2, 3, 4, 5])
    runs = []
    for _ in range(4):
        feeds = {v.name: data_of(v, rng) for v in model.graph.input}
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
        outputs = running.run(result.model, feeds, running.LEVELS[0])
        if [bits(a) for a in outputs] != [bits(a) for a in expected]:
            return "wrong"
    done = [site for site in result.chains if site.lowering]
    if limit is not None:
        return "right"
    if any((s.estimated_us or 0) > MARGIN * s.before_us for s in done if s.before_us):
        return "slower"
    # Windows and dilated convolutions of unknown sizes compute these in more nodes.
    is_larger = result.nodes[1] > result.nodes[0] + MAX_MORE * len(done)
    return "larger" if is_larger and {s.op_type for s in done} == {"Rearrange"} else "right"


@pytest.mark.parametrize(
    ("cases", "seed", "rewritten"),
    [(24, 3, 5), pytest.param(5000, 4, 1200, marks=pytest.mark.slow)],
)
def test_random_chains(cases, seed, rewritten):
    found = {number: outcome(number, seed) for number in range(cases)}
    assert {number: each for number, each in found.items() if each not in GOOD} == {}
    assert Counter(found.values())["right"] >= rewritten
