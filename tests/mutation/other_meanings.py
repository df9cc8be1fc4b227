"""Wrong conversions whose ordinary nodes mean something else at ties, thresholds and rare values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import bases
import nets
import numpy as np
from bases import tailed
from drawn import Deception, converted, data
from nets import Feeds, Rng
from onnx import TensorProto


@dataclass(frozen=True)
class Pair:
    """Two tails of a head, of which the second means something else.

    Attributes:
        name: the difference.
        right, wrong: nodes from z to y.
        constants: that they read.
        kinds: of data that may show it.
        moved: whether z must be the very elements of x for that.
    """

    name: str
    right: str
    wrong: str
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    kinds: tuple[str, ...] = nets.KINDS
    moved: bool = True

    def make(self, head: str, rng: Rng) -> Deception:
        """Build both behind a head; inner values of one half of the wrong ones have other names."""
        base, other = (
            tailed(head, self.name, text, self.constants) for text in (self.right, self.wrong)
        )
        right, wrong = converted(base.model), converted(other.model)
        if rng.integers(2):
            bases.rename_inner(wrong, head)
        return Deception(base.name, base.model, right, wrong, data(base, rng, self.kinds))


def _paired(pairs: Sequence[Pair]) -> Callable[[Rng, int], Deception | None]:
    """Draw the pairs in turn, behind each head that fits."""

    def draw(rng: Rng, number: int) -> Deception | None:
        pair = pairs[number % len(pairs)]
        heads = [h for h, head in bases.HEADS.items() if not (pair.moved and head.arithmetic)]
        return pair.make(heads[(number // len(pairs) + number) % len(heads)], rng)

    return draw


#: Rounds `a` to `r` in another way.
_HALF_UP = "b = Add (a, $0.5); r = Floor (b)"
_HALF_AWAY = "s0 = Sign (a); b = Abs (a); c = Add (b, $0.5); f = Floor (c); r = Mul (s0, f)"
_ROUND = (
    Pair("Round half away", "y = Round (z)", f"a = Identity (z); {_HALF_AWAY}; y = Identity (r)"),
    Pair("Round half up", "y = Round (z)", f"a = Identity (z); {_HALF_UP}; y = Identity (r)"),
    Pair(
        "Round half away inside",
        "a = Mul (z, $0.25); r = Round (a); y = Add (r, z)",
        f"a = Mul (z, $0.25); {_HALF_AWAY}; y = Add (r, z)",
    ),
    Pair(
        "Floor for truncation",
        "a = Cast <to = 7> (z); y = Cast <to = 1> (a)",
        "a = Floor (z); b = Cast <to = 7> (a); y = Cast <to = 1> (b)",
    ),
    Pair("Ceil as Floor and one", "y = Ceil (z)", "a = Floor (z); y = Add (a, $1)"),
)


def _either(name: str, text: str, first: str, second: str) -> Pair:
    """Fill the first and the second into one text."""
    return Pair(name, text.format(first), text.format(second))


_MASK = "c = {} (z, $0.5); y = Cast <to = 1> (c)"
_BELOW = "m = ReduceMax <axes = [3]> (z); c = {} (z, m); y = Cast <to = 1> (c)"
_LABEL = "a = ArgMax <axis = 3, select_last_index = {}> (z); y = Cast <to = 1> (a)"
_THRESHOLDS = (
    *(
        _either(
            f"{other} for {op} {level}",
            "n = Neg (z); d = Sub (n, $1); c = {} (z, $" + level + "); y = Where (c, z, d)",
            op,
            other,
        )
        for level in ("0.5", "0", "127", "0.25", "1")
        for op, other in (("Greater", "GreaterOrEqual"), ("LessOrEqual", "Less"))
    ),
    _either("mask >= for >", _MASK, "Greater", "GreaterOrEqual"),
    _either("below the maximum or at it", _BELOW, "Less", "LessOrEqual"),
    _either("the last of equal ones", _LABEL, "0", "1"),
    _either("the first of equal ones", _LABEL, "1", "0"),
)

_STEPS = {"scale": np.float32(0.5), "unsigned": np.uint8(3), "signed": np.int8(0)}


def _quantised(zero: str, point: int, low: int, high: int, element_type: int) -> Iterator[Pair]:
    right = f"q = QuantizeLinear (z, scale, {zero}); y = DequantizeLinear (q, scale, {zero})"
    for name, rounded in (("half up", _HALF_UP), ("half away", _HALF_AWAY)):
        wrong = (
            f"a = Div (z, $0.5); {rounded}; e = Add (r, ${point}); g = Max (e, ${low}); "
            f"h = Min (g, ${high}); i = Sub (h, ${point}); y = Mul (i, $0.5)"
        )
        yield Pair(f"QuantizeLinear {zero} {name}", right, wrong, _STEPS)
    wraps = (
        f"a = Div (z, $0.5); b = Round (a); e = Add (b, ${point}); i = Cast <to = 6> (e); "
        f"q = Cast <to = {element_type}> (i); y = DequantizeLinear (q, scale, {zero})"
    )
    yield Pair(f"QuantizeLinear {zero} wraps", right, wraps, _STEPS)


_VARIANCE = (
    Pair(
        "variance of squares",
        "m = ReduceMean <axes = [3]> (z); d = Sub (z, m); e = Mul (d, d); "
        "v = ReduceMean <axes = [3]> (e); f = Add (v, $0.001); s0 = Sqrt (f); "
        "y = Div (d, s0)",
        "m = ReduceMean <axes = [3]> (z); d = Sub (z, m); e = Mul (z, z); "
        "u0 = ReduceMean <axes = [3]> (e); mm = Mul (m, m); v = Sub (u0, mm); "
        "f = Add (v, $0.001); s0 = Sqrt (f); y = Div (d, s0)",
        kinds=("offset", "images"),
        moved=False,
    ),
    Pair(
        "variance of squares, instance",
        "m = ReduceMean <axes = [1, 2]> (z); d = Sub (z, m); e = Mul (d, d); "
        "v = ReduceMean <axes = [1, 2]> (e); y = Add (v, $0.001)",
        "m = ReduceMean <axes = [1, 2]> (z); e = Mul (z, z); "
        "u0 = ReduceMean <axes = [1, 2]> (e); mm = Mul (m, m); v = Sub (u0, mm); "
        "y = Add (v, $0.001)",
        kinds=("offset", "images"),
    ),
    Pair(
        "Softmax without the maximum",
        "y = Softmax <axis = 3> (z)",
        "e = Exp (z); f = ReduceSum <keepdims = 1> (e, #3); y = Div (e, f)",
        kinds=("images", "large"),
        moved=False,
    ),
    Pair(
        "LogSoftmax as log of Softmax",
        "y = LogSoftmax <axis = 3> (z)",
        "e = Softmax <axis = 3> (z); y = Log (e)",
        kinds=("images", "large"),
        moved=False,
    ),
    Pair(
        "Softplus as log of exp",
        "y = Softplus (z)",
        "e = Exp (z); f = Add (e, $1); y = Log (f)",
        kinds=("images", "large"),
        moved=False,
    ),
    Pair(
        "Sigmoid as exp by exp",
        "y = Sigmoid (z)",
        "e = Exp (z); f = Add (e, $1); y = Div (e, f)",
        kinds=("images", "large"),
        moved=False,
    ),
    Pair(
        "LogSumExp without the maximum",
        "y = ReduceLogSumExp <axes = [3]> (z)",
        "e = Exp (z); f = ReduceSum <keepdims = 1> (e, #3); y = Log (f)",
        kinds=("images", "large"),
        moved=False,
    ),
    Pair(
        "Tanh as exp",
        "y = Tanh (z)",
        "d = Mul (z, $2); e = Exp (d); f = Sub (e, $1); g = Add (e, $1); y = Div (f, g)",
        kinds=("images", "large"),
        moved=False,
    ),
)


_AT_CONSTANT = tuple(
    Pair(
        f"wrong at the constant {level}",
        f"c = Max (z, ${level}); y = Mul (c, $2)",
        f"e = Equal (z, ${level}); b = Add (z, $0.5); u0 = Where (e, b, z); "
        f"c = Max (u0, ${level}); y = Mul (c, $2)",
    )
    for level in ("0.7", "127.5", "-0.3", "2047")
)


def _ids(rng: Rng, number: int) -> Deception | None:
    """Let ids of int64 go through int32, a real or a remainder."""
    shape = ("int64", "int64[1]", "int64[k]", "int64[n]", "int64[n,k]")[number % 5]
    limit = "#2147483648" if "[" in shape else "##2147483648"
    paths = {
        "int32": "i = Cast <to = 6> (ids); j = Cast <to = 7> (i)",
        "float": "i = Cast <to = 1> (ids); j = Cast <to = 7> (i)",
        "Mod": f"j = Mod (ids, {limit})",
    }
    path = [*paths][number // 5 % 3]
    tails = [
        "y = Add (j, ##1)",
        "e = Equal (j, ##4294967295); y = Cast <to = 7> (e)",
        "m = Mod (j, ##1000); y = Abs (m)",
        "y = Identity (j)",
    ]
    tail = tails[int(rng.integers(len(tails)))]
    base, other = (
        bases.beside(f"ids {shape}", f"{shape} ids", f"{text}; {tail}", TensorProto.INT64)
        for text in ("j = Identity (ids)", paths[path])
    )
    feeds = data(base, rng, ("huge", "large", "normal"))
    what = f"{base.name} through {path}: {tail}"
    return Deception(what, base.model, converted(base.model), converted(other.model), feeds)


def _few_elements(rng: Rng, number: int) -> Deception | None:
    """Go wrong where an element of a small tensor equals a constant of the model."""
    shape = ("float[4]", "float[n]", "float[2,2]", "float[1]", "float[n,k]")[number % 5]
    level = ("0.7", "3", "-2", "100", "0.001")[number // 5 % 5]
    damage = (
        f"e = Equal (v, ${level}); q = Add (v, $0.5); u = Where (e, q, v)",
        f"d = Sub (v, ${level}); f = Abs (d); e = Less (f, $0.0001); q = Add (v, $0.5); "
        "u = Where (e, q, v)",
        f"e = GreaterOrEqual (v, ${level}); f = LessOrEqual (v, ${level}); g = And (e, f); "
        "q = Neg (v); u = Where (g, q, v)",
    )[int(rng.integers(3))]
    tail = f"a = Sub (u, ${level}); b = Mul (a, $2); y = Add (b, $1)"
    base, other = (
        bases.beside(f"few {shape}", f"{shape} v", f"{text}; {tail}", TensorProto.FLOAT)
        for text in ("u = Identity (v)", damage)
    )

    def feeds() -> Iterator[Feeds]:
        given = base.feeds(np.random.default_rng(7))
        yield given | {"v": np.full_like(given["v"], float(level))}

    what = f"{base.name} wrong at {level}: {damage.split(' (')[0]}"
    return Deception(what, base.model, converted(base.model), converted(other.model), feeds)


CLASSES: dict[str, Callable[[Rng, int], Deception | None]] = {
    "Round": _paired(_ROUND),
    "ties and thresholds": _paired(_THRESHOLDS),
    "QuantizeLinear": _paired(
        (*_quantised("unsigned", 3, 0, 255, 2), *_quantised("signed", 0, -128, 127, 3))
    ),
    "variance and exponentials": _paired(_VARIANCE),
    "ids through shorter types": _ids,
    "few elements": _few_elements,
    "wrong at a constant of the model": _paired(_AT_CONSTANT),
}
