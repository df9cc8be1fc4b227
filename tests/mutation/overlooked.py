"""Wrong conversions in what a comparison overlooks: nodes and weights that are not looked at.

Most have a twin whose mistake counts only where the data is large somewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import bases
import numpy as np
import onnx
from bases import tailed
from damaged_values import pick
from drawn import Deception, converted, converted_net, data
from nets import TF, Net, Rng, net, weight
from onnx import TensorProto, helper, numpy_helper

#: Said of a mistake that counts only for such data.
_HIDDEN = " where data is large"


def _tail(head: str, name: str, text: str, hidden: bool, **options: Any) -> Net:
    """Build a tail that gives `gy`, and let that be the output always or for large data only."""
    text = bases.gated(text) if hidden else f"{text}; y = Identity (gy)"
    return tailed(head, name + (_HIDDEN if hidden else ""), text, **options)


def _head(number: int, *names: str) -> str:
    names = names or tuple(bases.HEADS)
    return names[number % len(names)]


def _scaled(array: np.ndarray, at: int, by: float) -> np.ndarray:
    """Change one number of a weight."""
    wrong = array.copy()
    wrong.reshape(-1)[at] *= by
    return wrong


def _copied(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _without(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Copy a model without an initializer."""
    copy = _copied(model)
    kept = [t for t in copy.graph.initializer if t.name != name]
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(kept)
    return copy


def _stored_elsewhere(rng: Rng, number: int) -> Deception | None:
    """A Constant becomes an initializer with another value, or the other way round."""
    head, to_initializer = _head(number // 4), number % 2 == 0
    channels = bases.HEADS[head].channels
    array = weight("moved", channels, scale=1.0)
    base = _tail(
        head, "constant", "gy = Mul (z, cw)", number // 2 % 2 == 0, constants={"cw": array}
    )
    other = _scaled(array, int(rng.integers(channels)), (1.01, 1.5, -1)[int(rng.integers(3))])
    plain = converted(base.model)
    if to_initializer:
        base = replace(base, model=_as_constant(base.model, "cw", array))
        wrong = _without(plain, "cw")
        wrong.graph.initializer.append(numpy_helper.from_array(other, "cw"))
    else:
        wrong = _as_constant(plain, "cw", other)
    feeds = data(base, rng, ("outlier", "large", "images"))
    what = (
        f"{base.name}: {'Constant' if to_initializer else 'initializer'} moved with another value"
    )
    return Deception(what, base.model, converted(base.model), wrong, feeds)


def _as_constant(model: onnx.ModelProto, name: str, array: np.ndarray) -> onnx.ModelProto:
    copy = _without(model, name)
    node = helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))
    copy.graph.node.insert(0, node)
    return copy


def _sparse(rng: Rng, number: int) -> Deception | None:
    """A number of a sparse initializer changes."""
    head = _head(number // 2)
    channels = bases.HEADS[head].channels
    array = np.zeros(channels, np.float32)
    array[[0, -1]] = (1.5, -0.7)
    dense = _tail(head, "sparse", "gy = Mul (z, cw)", number % 2 == 1, constants={"cw": array})

    def sparse(model: onnx.ModelProto, last: float) -> onnx.ModelProto:
        copy = _without(model, "cw")
        held = numpy_helper.from_array(np.array([1.5, last], np.float32), "cw")
        places = numpy_helper.from_array(np.array([0, channels - 1]), "cw_places")
        copy.graph.sparse_initializer.append(helper.make_sparse_tensor(held, places, [channels]))
        return copy

    original = sparse(dense.model, -0.7)
    wrong = sparse(converted(dense.model), (-0.71, 0.7)[int(rng.integers(2))])
    feeds = data(dense, rng, ("outlier", "large"))
    right = converted(original)
    return Deception(dense.name, original, right, wrong, feeds, definition=dense.model)


def _last_state(rng: Rng, number: int) -> Deception | None:
    """A recurrent node gives only its last state, and a weight of it changes."""
    hidden = number % 2 == 0
    kind, outputs, gates = (
        ("LSTM", "none, state", 4),
        ("GRU", "none, state", 3),
        ("RNN", "none, state", 1),
        ("LSTM", "none, state, cell", 4),
    )[number // 2 % 4]
    weights = {
        "lw": weight("lw", 1, 5 * gates, 3),
        "lr": weight("lr", 1, 5 * gates, 5),
        "lb": weight("lb", 1, 10 * gates, scale=0.1),
    }
    name = [*weights][int(rng.integers(3))]
    changed = _scaled(weights[name], int(rng.integers(5 * gates)), 1.5)
    text = (
        "a = ReduceMean <axes = [2], keepdims = 0> (z); b = Transpose <perm = [1, 0, 2]> (a); "
        f"{outputs} = {kind} <hidden_size = 5> (b, lw, lr, lb); gy = Tanh (state)"
    )
    head = _head(number // 8, "space_to_batch", "beside", "batch_to_space")

    def model(stored: dict[str, np.ndarray]) -> Net:
        made = _tail(head, kind, text, hidden, constants=stored)
        for node in made.model.graph.node:
            node.output[:] = ["" if n == "none" else n for n in node.output]
        return made

    base, other = model(weights), model(weights | {name: changed})
    feeds = data(base, rng, ("outlier", "images") if hidden else ("normal", "images"))
    what = f"{base.name}: {name} of {outputs!r}"
    return Deception(what, base.model, converted(base.model), converted(other.model), feeds)


def _second_output(rng: Rng, number: int) -> Deception | None:
    """Only the second output of a node changes."""
    kind, text, one = (
        ("Split", "a, b = Split <axis = 3> (z, halves)", "$1"),
        ("TopK", "a, b = TopK (z, #1)", "##1"),
        ("LayerNormalization", "a, b = LayerNormalization (z, gamma)", "$1"),
    )[number % 3]
    head = _head(number // 6, "space_to_batch", "batch_to_space", "patches", "beside")
    channels = bases.HEADS[head].channels
    stored = {"halves": np.array([1, channels - 1]), "gamma": np.ones(channels, np.float32)}
    damage = (f"c = Add (b, {one})", "c = Neg (b)")[int(rng.integers(2))]
    base, other = (
        _tail(
            head,
            f"second output of {kind}",
            f"{text}; {middle}; gy = Cast <to = 1> (c)",
            number // 3 % 2 == 0,
            constants=stored,
        )
        for middle in ("c = Identity (b)", damage)
    )
    feeds = data(base, rng, ("outlier", "images", "ties"))
    what = f"{base.name}: {damage}"
    return Deception(what, base.model, converted(base.model), converted(other.model), feeds)


#: Bodies of a function from v to o.
_BODIES = (
    ("o = Relu (v)", "o = LeakyRelu <alpha = 0.001> (v)"),
    (
        "c = Constant <value = float {1.7}> () o = Mul (v, c)",
        "c = Constant <value = float {1.701}> () o = Mul (v, c)",
    ),
    ("o = Sigmoid (v)", "o = HardSigmoid (v)"),
    ("o = Round (v)", "c = Constant <value = float {0.5}> () a = Add (v, c) o = Floor (a)"),
    ("a = Neg (v) o = Max (a, v)", "a = Neg (v) o = Max (v, v)"),
)


def _function(rng: Rng, number: int) -> Deception | None:
    """The body of a local function changes, whose operand has no known type."""
    bodies = _BODIES[int(rng.integers(len(_BODIES)))]
    base, other = (
        _tail(
            _head(number // 2),
            "function",
            "gy = my.body (z)",
            number % 2 == 0,
            functions=f'<domain: "my", opset_import: ["" : 17]> body (v) => (o) {{ {body} }}',
        )
        for body in bodies
    )
    feeds = data(base, rng, ("outlier", "images", "ties", "normal", "large"))
    what = f"{base.name}: {bodies[1]}, not {bodies[0]}"
    return Deception(what, base.model, converted(base.model), converted(other.model), feeds)


_FLAT = "f = Flatten <axis = 1> (z); e = {} <axis = 1> (f); p = Shape (z); gy = Reshape (e, p)"
_ROI = (
    "c = Transpose <perm = [0, 3, 1, 2]> (z); "
    "gy = RoiAlign <{}output_height = 3, output_width = 3> (c, rois, which)"
)
#: Operators that mean something else in a later opset: both opsets, nodes, how the later one says it.
_MEANINGS = (
    *(
        (f"{op} from {before} to {after}", before, after, f"gy = {op}{axis} (z)", _FLAT.format(op))
        for op, axis, before, after in (
            ("Softmax", "", 12, 13),
            ("LogSoftmax", "", 12, 13),
            ("Hardmax", "", 12, 13),
            ("Softmax", " <axis = 1>", 12, 13),
            ("Softmax", "", 11, 15),
            ("LogSoftmax", "", 11, 17),
        )
    ),
    (
        "RoiAlign from 15 to 16",
        15,
        16,
        _ROI.format(""),
        _ROI.format('coordinate_transformation_mode = "output_half_pixel", '),
    ),
)


def _raised(rng: Rng, number: int) -> Deception | None:
    """The opset is raised under an operator whose meaning changed."""
    name, before, after, text, meaning = _MEANINGS[number % len(_MEANINGS)]
    base, definition = (
        _tail(
            _head(number // len(_MEANINGS)),
            name,
            given,
            number // 2 % 2 == 0,
            opset=opset,
            constants={
                "rois": np.array([[0, 0, 3.3, 3.7]], np.float32),
                "which": np.zeros(1, np.int64),
            },
        )
        for given, opset in ((text, before), (meaning, max(after, 13)))
    )
    right = converted(base.model)
    wrong = _copied(right)
    for imported in wrong.opset_import:
        if not imported.domain:
            imported.version = after
    feeds = data(base, rng, ("outlier", "normal", "images"))
    return Deception(base.name, base.model, right, wrong, feeds, definition=definition.model)


def _far_node(rng: Rng, number: int) -> Deception | None:
    """Many nodes change harmlessly, and one behind the 64th is wrong."""
    count = 90 + 40 * (number % 3)
    wrong_one = int(rng.integers(65, count))

    def model(swap: bool, wrong: int) -> Net:
        nodes, last = [], "z"
        for i in range(count):
            value = f"${(i % 7) / 64 + (1 / 64 if i == wrong else 0)}"
            operands = f"{value}, {last}" if swap else f"{last}, {value}"
            nodes.append(f"a{i} = Add ({operands})")
            last = f"a{i}"
        nodes += [f"mean = Mul ({last}, $0.01)", "gy = Tanh (mean)"]
        return _tail(_head(number // 3), f"{count} nodes", "; ".join(nodes), number % 2 == 0)

    base, other = model(False, -1), model(True, wrong_one)
    feeds = data(base, rng, ("outlier", "offset", "images", "ties"))
    what = f"{base.name}: number {wrong_one} wrong"
    return Deception(what, base.model, converted(base.model), converted(other.model), feeds)


@cache
def _wide(channels: int, kind: str, hidden: bool) -> tuple[Net, onnx.ModelProto]:
    """Build a dilated convolution of many channels; (net, conversion)."""
    dtype = {"float": np.float32, "float16": np.float16}[kind]
    text = (
        f"u = {TF}.SpaceToBatchND (x, block, ring); t = Transpose <perm = [0, 3, 1, 2]> (u); "
        "k = Conv (t, w0, b0); l = Transpose <perm = [0, 2, 3, 1]> (k); "
        f"{'gy' if hidden else 'y'} = {TF}.BatchToSpaceND (l, block, none)"
    )
    base = net(
        f"{channels} channels {kind}{_HIDDEN if hidden else ''}",
        f"{kind}[n,h,w,{channels}] x",
        bases.gated(text) if hidden else text,
        {
            **bases.BLOCK,
            "ring": np.full((2, 2), 2),
            "w0": weight("w0", 16, channels, 3, 3, dtype=dtype),
            "b0": weight("b0", 16, dtype=dtype, scale=0.3),
        },
        step={"h": 2, "w": 2},
    )
    return base, converted(base.model)


def _many_channels(rng: Rng, number: int) -> Deception | None:
    """A region, most of float16, loses or changes a few per cent of the magnitudes it sums."""
    channels = (256, 128, 512)[number % 3]
    kind = ("float16", "float16", "float")[number // 2 % 3]
    base, right = _wide(channels, kind, number % 2 == 0)
    wrong = _copied(right)
    stored = {len(t.dims): t for t in wrong.graph.initializer if 16 in t.dims[:1]}
    weights, bias = (numpy_helper.to_array(stored[rank]).copy() for rank in (4, 1))
    share = (0.03, 0.02, 0.04)[int(rng.integers(3))]
    chosen = rng.random(weights.shape) < share
    way = ("dropped", "of another sign", "doubled", "in the bias")[number // 3 % 4]
    if way == "in the bias":
        magnitude = np.abs(weights.astype(float)).sum((1, 2, 3)).mean()
        bias += bias.dtype.type(0.4 * share * magnitude)
    else:
        weights[chosen] *= {"dropped": 0, "of another sign": -1, "doubled": 2}[way]
    for array in (weights, bias):
        tensor = stored[array.ndim]
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    what = f"{base.name}: {share:.0%} of the products {way}"
    return Deception(what, base.model, right, wrong, data(base, rng, ("outlier", "normal")))


def _one_bit(rng: Rng, number: int) -> Deception | None:
    """One bit of a stored weight differs."""
    pool = [k for k in bases.everything() if not k.endswith(("relu", "mean", "norm"))]
    key = pick(number, pool)
    base, right = bases.everything()[key], converted_net(key)
    wrong = _copied(right)
    read = {name for node in wrong.graph.node for name in node.input}
    held = read.intersection(t.name for t in base.model.graph.initializer)
    reals = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT8)
    stored = [
        t
        for t in wrong.graph.initializer
        if t.name in held and t.data_type in reals and np.prod(t.dims) > 2
    ]
    tensor = stored[int(rng.integers(len(stored)))]
    array = numpy_helper.to_array(tensor).copy()
    at, bit = int(rng.integers(array.size)), (0, 0, 1, 6)[int(rng.integers(4))]
    raw = array.reshape(-1).view(f"u{array.itemsize}")
    raw[at] ^= np.array(1 << bit, raw.dtype)
    what = f"{key}: bit {bit} of element {at} of {tensor.name!r}"
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return Deception(what, base.model, right, wrong, fact="a stored weight has other bytes")


CLASSES: dict[str, Callable[[Rng, int], Deception | None]] = {
    "Constant and initializer": _stored_elsewhere,
    "sparse initializer": _sparse,
    "last state only": _last_state,
    "second output": _second_output,
    "function body": _function,
    "opset raised": _raised,
    "behind the 64th changed node": _far_node,
    "region of many channels": _many_channels,
    "one bit of a weight": _one_bit,
}
