"""Wrong conversions that a comparison on small and usual data may miss, by classes.

Every draw comes with data on which it differs from the right conversion, or with the fact that makes it
wrong. Mistakes in nets are drawn in `corpora`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import mutations
import nets
import numpy as np
import onnx
import rewriting
import running
import subjects
from judging import Judge, Pair
from nets import KINDS, Net, Rng, copied
from onnx import TensorProto, helper, numpy_helper
from rewriting import converted


def _deceived(name: str, base: Net, right: onnx.ModelProto, changed: onnx.ModelProto) -> Pair:
    """Return a pair of which data of each kind may show that it is wrong."""

    def wrong() -> str | None:
        rng = np.random.default_rng(7)
        feeds = (base.feeds(rng, kind) for kind in KINDS)
        found = Judge(right, right, feeds, run=running.run).difference(changed)
        return found and ": ".join(found)

    return Pair(name, base.model, changed, wrong)


def _head(number: int) -> str:
    return [*subjects.HEADS][number % len(subjects.HEADS)]


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
    ("y = Softmax <axis = 3> (z)", "e = Exp (z); f = ReduceSum <axes = [3]> (e); y = Div (e, f)"),
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


def _nearly(rng: Rng, number: int) -> Pair:
    first, second = _NEARLY[number % len(_NEARLY)]
    head = _head(number // len(_NEARLY) + number)
    base, other = (subjects.tailed(head, "nearly", text) for text in (first, second))
    wrong = converted(other.model)
    # No value behind the head means something else than in the original.
    tail = {o for node in nets.parsed(second)[0] for o in node.output} - {"y"}
    nets.renamed(wrong, {name: f"{name}_again" for name in tail})
    return _deceived(f"{head}: {second}, not {first}", base, converted(base.model), wrong)


_ROI = (
    "c = Transpose <perm = [0, 3, 1, 2]> (z); "
    "y = RoiAlign <output_height = 3, output_width = 3> (c, rois, which)"
)
#: Nodes that mean something else in a later opset, and both opsets.
_RAISED = (
    ("y = Softmax (z)", 12, 13),
    ("y = LogSoftmax (z)", 11, 17),
    ("y = Hardmax (z)", 12, 13),
    ("y = Softmax <axis = 1> (z)", 12, 13),
    (_ROI, 15, 16),
)


def _raised(rng: Rng, number: int) -> Pair:
    text, before, after = _RAISED[number % len(_RAISED)]
    stored = {"rois": np.array([[0, 0, 3.3, 3.7]], np.float32), "which": np.zeros(1, np.int64)}
    base = subjects.tailed(_head(number // len(_RAISED)), text, text, stored, opset=before)
    right = converted(base.model)
    wrong = copied(right)
    for imported in wrong.opset_import:
        if not imported.domain:
            imported.version = after
    return _deceived(f"{base.name} from opset {before} to {after}", base, right, wrong)


def _in_a_rewriting(rng: Rng, number: int) -> Pair | None:
    """A mistake in a right conversion that is written in another way."""
    kinds = [*rewriting.CLASSES]
    made = rewriting.draw(kinds[number % len(kinds)], number // len(kinds))
    if made is None or made.wrong() is not None:
        return None
    places = [*mutations.CLASSES.values()]
    found = next(drawn for find in rng.permutation(places) if (drawn := [*find(made.changed)]))
    mistake = found[int(rng.integers(len(found)))]
    base, changed = subjects.get(made.name.split(": ")[1]), mistake.make()
    pair = _deceived(f"{made.name}; {mistake.what}", base, made.changed, changed)
    return None if base.rounds or base.missing else pair


def _sparse(rng: Rng, number: int) -> Pair:
    """A number of a sparse initializer changes."""
    head = _head(number)
    channels = subjects.HEADS[head].channels
    array = np.zeros(channels, np.float32)
    dense = subjects.tailed(head, "sparse", "y = Mul (z, cw)", {"cw": array})

    def sparse(last: float) -> Net:
        copy = copied(dense.model)
        kept = [t for t in copy.graph.initializer if t.name != "cw"]
        del copy.graph.initializer[:]
        copy.graph.initializer.extend(kept)
        held = numpy_helper.from_array(np.array([1.5, last], np.float32), "cw")
        places = numpy_helper.from_array(np.array([0, channels - 1]), "cw_places")
        copy.graph.sparse_initializer.append(helper.make_sparse_tensor(held, places, [channels]))
        return Net(dense.name, copy, dense.dims, dense.step)

    base, other = sparse(-0.7), sparse(float(rng.choice([-0.71, 0.7])))
    return _deceived(base.name, base, converted(base.model), converted(other.model))


def _one_bit(rng: Rng, number: int) -> Pair | None:
    """One bit of a stored weight differs."""
    starts = ("dilated", "patches", "deeplab", "wavenet", "raft")
    names = [n for n in (*subjects.NAMES, *subjects.NETS) if n.startswith(starts)]
    base = subjects.get(Random(5).sample(names, len(names))[number % len(names)])
    wrong = converted(base.model)
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
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    what = f"{base.name}: bit {bit} of element {at} of {tensor.name!r}"
    return Pair(what, base.model, wrong, lambda: "a stored weight has other bytes")


#: Draws of each class: of a generator and a number, which takes its bases in turn.
CLASSES: dict[str, Callable[[Rng, int], Pair | None]] = {
    "nearly the same": _nearly,
    "opset raised": _raised,
    "mistake in a rewriting": _in_a_rewriting,
    "sparse initializer": _sparse,
    "one bit of a weight": _one_bit,
}


def draw(kind: str, number: int, seed: int = 0) -> Pair | None:
    """Draw a wrong conversion of a class; None if the base has no place for it."""
    rng = np.random.default_rng([seed, number, *map(ord, kind)])
    return CLASSES[kind](rng, number)
