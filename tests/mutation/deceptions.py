"""Wrong conversions that a comparison on small and usual data may miss, by classes.

Every draw comes with data on which it differs from the original, or with the fact that makes it wrong;
`Deception.shown` checks the data without the package under test.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache

import bases
import equivalents
import mutations
import numpy as np
import onnx
from bases import Deception, converted, converted_net, copied, data, tailed
from nets import TF, Net, Rng, net, weight
from onnx import TensorProto, helper, numpy_helper


def _head(number: int) -> str:
    return [*bases.HEADS][number % len(bases.HEADS)]


# Nodes that mean nearly the same

_HALF_UP = "b = Add (a, $0.5); r = Floor (b)"
_HALF_AWAY = "b = Sign (a); c = Abs (a); d = Add (c, $0.5); e = Floor (d); r = Mul (b, e)"
_STEPS = "q = QuantizeLinear (z, $0.5, ##u8:3); y = DequantizeLinear (q, $0.5, ##u8:3)"
_CHOICE = "n = Neg (z); d = Sub (n, $1); c = {} (z, $0.5); y = Where (c, z, d)"
_VARIANCE = "m = ReduceMean <axes = [3]> (z); {}; y = Add (v, $0.001)"
#: Nodes from z to y that mean nearly the same: at a tie, at a limit, on large numbers, in words.
_NEARLY = (
    ("y = Round (z)", f"a = Identity (z); {_HALF_AWAY}; y = Identity (r)"),
    ("y = Round (z)", f"a = Identity (z); {_HALF_UP}; y = Identity (r)"),
    ("a = Cast <to = 7> (z); y = Cast <to = 1> (a)", "y = Floor (z)"),
    ("y = Ceil (z)", "a = Floor (z); y = Add (a, $1)"),
    (_CHOICE.format("Greater"), _CHOICE.format("GreaterOrEqual")),
    (_CHOICE.format("LessOrEqual"), _CHOICE.format("Less")),
    (
        "a = ArgMax <axis = 3> (z); y = Cast <to = 1> (a)",
        "a = ArgMax <axis = 3, select_last_index = 1> (z); y = Cast <to = 1> (a)",
    ),
    (
        _STEPS,
        f"a = Div (z, $0.5); {_HALF_UP}; e = Add (r, $3); f = Max (e, $0); g = Min (f, $255); "
        "h = Sub (g, $3); y = Mul (h, $0.5)",
    ),
    (
        _STEPS,
        "a = Div (z, $0.5); b = Round (a); e = Add (b, $3); i = Cast <to = 6> (e); "
        "q = Cast <to = 2> (i); y = DequantizeLinear (q, $0.5, ##u8:3)",
    ),
    ("y = Relu (z)", "y = Clip (z, $0, $6)"),
    ("y = Clip (z, $-1, $1)", "a = Max (z, $-1); y = Min (a, $2)"),
    ("a = Clip (z, $0, $6); y = Relu (a)", "a = Relu (z); y = Clip (a, $0.5, $6)"),
    ("y = Identity (z)", "a = Cast <to = 10> (z); y = Cast <to = 1> (a)"),
    ("a = Cast <to = 6> (z); y = Cast <to = 1> (a)", "y = Identity (z)"),
    ("y = Softmax <axis = 3> (z)", "y = Softmax <axis = 2> (z)"),
    (
        "y = Softmax <axis = 3> (z)",
        "e = Exp (z); f = ReduceSum <axes = [3]> (e); y = Div (e, f)",
    ),
    ("y = LogSoftmax <axis = 3> (z)", "e = Softmax <axis = 3> (z); y = Log (e)"),
    ("y = Softplus (z)", "e = Exp (z); f = Add (e, $1); y = Log (f)"),
    ("y = Sigmoid (z)", "e = Exp (z); f = Add (e, $1); y = Div (e, f)"),
    (
        _VARIANCE.format("d = Sub (z, m); e = Mul (d, d); v = ReduceMean <axes = [3]> (e)"),
        _VARIANCE.format(
            "e = Mul (z, z); u = ReduceMean <axes = [3]> (e); f = Mul (m, m); v = Sub (u, f)"
        ),
    ),
)


def _nearly(rng: Rng, number: int) -> Deception:
    first, second = _NEARLY[number % len(_NEARLY)]
    head = _head(number // len(_NEARLY) + number)
    base, other = (tailed(head, "nearly", text) for text in (first, second))
    wrong = converted(other.model)
    bases.rename_inner(wrong, head)
    right, feeds = converted(base.model), data(base, rng)
    return Deception(f"{head}: {second}, not {first}", base.model, right, wrong, feeds)


_FLAT = "f = Flatten <axis = 1> (z); e = {} <axis = 1> (f); p = Shape (z); y = Reshape (e, p)"
_ROI = (
    "c = Transpose <perm = [0, 3, 1, 2]> (z); "
    "y = RoiAlign <{}output_height = 3, output_width = 3> (c, rois, which)"
)
#: Operators that mean something else in a later opset: both opsets, nodes, how the later one says it.
_RAISED = (
    ("Softmax", 12, 13, "y = Softmax (z)", _FLAT.format("Softmax")),
    ("LogSoftmax", 11, 17, "y = LogSoftmax (z)", _FLAT.format("LogSoftmax")),
    ("Hardmax", 12, 13, "y = Hardmax (z)", _FLAT.format("Hardmax")),
    ("Softmax of axis 1", 12, 13, "y = Softmax <axis = 1> (z)", _FLAT.format("Softmax")),
    (
        *("RoiAlign", 15, 16, _ROI.format("")),
        _ROI.format('coordinate_transformation_mode = "output_half_pixel", '),
    ),
)


def _raised(rng: Rng, number: int) -> Deception:
    """The opset is raised under an operator whose meaning changed."""
    name, before, after, text, meaning = _RAISED[number % len(_RAISED)]
    stored = {"rois": np.array([[0, 0, 3.3, 3.7]], np.float32), "which": np.zeros(1, np.int64)}
    base, definition = (
        tailed(_head(number // len(_RAISED)), name, given, stored, opset=opset)
        for given, opset in ((text, before), (meaning, max(after, 13)))
    )
    right = converted(base.model)
    wrong = copied(right)
    for imported in wrong.opset_import:
        if not imported.domain:
            imported.version = after
    what = f"{base.name} from opset {before} to {after}"
    made = Deception(what, base.model, right, wrong, data(base, rng))
    made.runnable = lambda model: definition.model if model is base.model else model
    return made


# One mistake in a net, or in a right rewriting of it


def _recurrent(kind: str, outputs: str, gates: int) -> Net:
    """A recurrent node that gives only its last state."""
    text = (
        "a = ReduceMean <axes = [2], keepdims = 0> (z); b = Transpose <perm = [1, 0, 2]> (a); "
        f"none, {outputs} = {kind} <hidden_size = 5> (b, lw, lr, lb); y = Tanh (state)"
    )
    weights = {
        "lw": weight("lw", 1, 5 * gates, 3),
        "lr": weight("lr", 1, 5 * gates, 5),
        "lb": weight("lb", 1, 10 * gates, scale=0.1),
    }
    made = tailed("space_to_batch", kind, text, weights)
    for node in made.model.graph.node:
        node.output[:] = ["" if n == "none" else n for n in node.output]
    return made


#: The body of a function that a foreign operator is replaced by where it has to run.
_FOO = (
    '<domain: "acme", opset_import: ["" : 17]> Foo <alpha> (v, w) => (o) '
    "{ a = Constant <value_float: float = @alpha> () b = Mul (v, w) c = Mul (b, a) o = Tanh (c) }"
)


@cache
def _foreign() -> dict[str, Net]:
    """A net with an operator that no runtime has."""
    made = net(
        "foreign",
        "float[n,h,w,3] x0",
        f"x = {TF}.SpaceToBatchND (x0, block, none); a = Relu (x); "
        "v = acme.Foo <alpha = 0.5> (a, fw); t = Transpose <perm = [0, 3, 1, 2]> (v); "
        "c = Conv (t, cw, cb); r = Relu (c); q = Mul (r, m); "
        f"b = Transpose <perm = [0, 2, 3, 1]> (q); y = {TF}.BatchToSpaceND (b, block, none)",
        {
            **bases.BLOCK,
            "fw": weight("fw", 3, scale=1.0),
            "cw": weight("cw", 4, 3, 3, 3),
            "cb": weight("cb", 4, scale=1.0),
            "m": weight("m", 4, 1, 1, scale=1.0),
        },
        domains=("acme",),
        step={"h": 2, "w": 2},
    )
    return {made.name: made}


def _with_foo(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = copied(model)
    copy.functions.append(onnx.parser.parse_function(_FOO))
    return copy


_LAST = "y = Cast <to = 1> (b)"
_BODY = '<domain: "my", opset_import: ["" : 17]> body (v) => (o)'


@cache
def _odd_nets() -> dict[str, Net]:
    """Nets with nodes that a comparison may overlook."""
    found = [
        _recurrent("LSTM", "state", 4),
        _recurrent("GRU", "state", 3),
        _recurrent("RNN", "state", 1),
    ]
    ones, halves = np.ones(3, np.float32), np.array([1, 2])
    for name, text in (
        ("second output of Split", "a, b = Split <axis = 3> (z, halves)"),
        ("second output of TopK", "a, b = TopK (z, #1)"),
        ("second output of LayerNormalization", "a, b = LayerNormalization (z, gamma)"),
    ):
        constants = {"halves": halves, "gamma": ones}
        found.append(tailed("space_to_batch", name, f"{text}; {_LAST}", constants))
    for body in (
        "c = Constant <value = float {1.7}> () m = Mul (v, c) o = LeakyRelu <alpha = 0.1> (m)",
        "a = Neg (v) o = Max (a, v)",
    ):
        text = "y = my.body (z)"
        found.append(tailed("patches", body, text, functions=f"{_BODY} {{ {body} }}"))
    return {made.name: made for made in found}


def _mistake(rng: Rng, right: onnx.ModelProto) -> mutations.Mutation:
    """Draw one of a class that the model has places for."""
    for find in rng.permutation([*mutations.CLASSES.values()]):
        if places := list(find(right)):
            return places[int(rng.integers(len(places)))]
    raise AssertionError("a model without outputs")


def _mistaken(nets: Callable[[], dict[str, Net]]) -> Callable[[Rng, int], Deception]:
    """Make one mistake in each of some nets in turn."""

    def mistaken(rng: Rng, number: int) -> Deception:
        name = [*nets()][number % len(nets())]
        base = nets()[name]
        right = converted(base.model)
        mistake = _mistake(rng, right)
        what = f"{name}: {mistake.what}"
        made = Deception(what, base.model, right, mistake.make(), data(base, rng))
        if name == "foreign":
            made.runnable = _with_foo
        return made

    return mistaken


def _in_a_rewriting(rng: Rng, number: int) -> Deception | None:
    kinds = [*equivalents.CLASSES]
    made = equivalents.draw(kinds[number % len(kinds)], number // len(kinds))
    if made is None or made.rounds or made.shown() is not None:
        return None
    mistake = _mistake(rng, made.rewritten)
    what, wrong = f"{made.what}; {mistake.what}", mistake.make()
    return Deception(what, made.original, made.rewritten, wrong, lambda: [made.feeds()])


# What is stored


def _sparse(rng: Rng, number: int) -> Deception:
    """A number of a sparse initializer changes."""
    head = _head(number)
    channels = bases.HEADS[head].channels
    array = np.zeros(channels, np.float32)
    array[[0, -1]] = (1.5, -0.7)
    dense = tailed(head, "sparse", "y = Mul (z, cw)", {"cw": array})

    def sparse(model: onnx.ModelProto, last: float) -> onnx.ModelProto:
        copy = copied(model)
        kept = [t for t in copy.graph.initializer if t.name != "cw"]
        del copy.graph.initializer[:]
        copy.graph.initializer.extend(kept)
        held = numpy_helper.from_array(np.array([1.5, last], np.float32), "cw")
        places = numpy_helper.from_array(np.array([0, channels - 1]), "cw_places")
        copy.graph.sparse_initializer.append(helper.make_sparse_tensor(held, places, [channels]))
        return copy

    original = sparse(dense.model, -0.7)
    wrong = sparse(converted(dense.model), float(rng.choice([-0.71, 0.7])))
    made = Deception(dense.name, original, converted(original), wrong, data(dense, rng))
    made.runnable = lambda model: dense.model if model is original else model
    return made


def _pick(number: int, *starts: str) -> str:
    """Take the nets with such names in turn, in an order of their own."""
    names = [name for name in bases.everything() if name.startswith(starts or "")]
    return sorted(names, key=lambda name: zlib.crc32(name.encode()))[number % len(names)]


def _one_bit(rng: Rng, number: int) -> Deception | None:
    """One bit of a stored weight differs."""
    key = _pick(number, "dilated", "patches", "deeplab", "wavenet", "raft")
    base, right = bases.everything()[key], converted_net(key)
    wrong = copied(right)
    read = {name for node in wrong.graph.node for name in node.input}
    held = read.intersection(t.name for t in base.model.graph.initializer)
    reals = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT8)
    stored = [
        t
        for t in wrong.graph.initializer
        if t.name in held and t.data_type in reals and np.prod(t.dims) > 2
    ]
    if not stored:
        return None
    tensor = stored[int(rng.integers(len(stored)))]
    array = numpy_helper.to_array(tensor).copy()
    at, bit = int(rng.integers(array.size)), int(rng.choice([0, 1, 6]))
    raw = array.reshape(-1).view(f"u{array.itemsize}")
    raw[at] ^= np.array(1 << bit, raw.dtype)
    what = f"{key}: bit {bit} of element {at} of {tensor.name!r}"
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return Deception(what, base.model, right, wrong, fact="a stored weight has other bytes")


#: Draws of each class: of a generator and a number, which takes its bases in turn.
CLASSES: dict[str, Callable[[Rng, int], Deception | None]] = {
    "nearly the same": _nearly,
    "opset raised": _raised,
    "mistake in a net": _mistaken(bases.whole),
    "mistake in an odd net": _mistaken(_odd_nets),
    "mistake beside a foreign operator": _mistaken(_foreign),
    "mistake in a rewriting": _in_a_rewriting,
    "sparse initializer": _sparse,
    "one bit of a weight": _one_bit,
}


def draw(kind: str, number: int, seed: int = 0) -> Deception | None:
    """Draw a wrong conversion of a class; None if the base has no place for it."""
    rng = np.random.default_rng([seed, number, *map(ord, kind)])
    return CLASSES[kind](rng, number)
