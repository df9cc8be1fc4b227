"""Right conversions whose ordinary nodes compute the same in another way.

Weights are folded, operators are written out, divisions become products, as optimisers and exporters do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import bases
import numpy as np
from bases import Equivalent, converted, equivalent, tailed
from nets import Rng, weight


@dataclass(frozen=True)
class Same:
    """Two tails of a head that mean the same.

    Attributes:
        name: the difference.
        first, second: nodes from z to y.
        constants: of both.
        other: constants of the second with other values.
        opset: of both.
    """

    name: str
    first: str
    second: str
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    other: dict[str, np.ndarray] = field(default_factory=dict)
    opset: int = 18


def _read(table: str) -> list[Same]:
    """Read a table: a name, maybe with an opset, then both tails; deeper lines go on."""
    rows: list[list[str]] = []
    for line in table.strip("\n").splitlines():
        if line.startswith("        "):
            rows[-1][-1] += line
        elif line.startswith("    "):
            rows[-1].append(line)
        else:
            rows.append([line])
    found = []
    for name, first, second in rows:
        name, _, opset = name.partition(" | ")
        found.append(Same(name, first, second, opset=int(opset or 18)))
    return found


def _folded(channels: int) -> list[Same]:
    """BatchNormalization, Mul and Add folded into a Conv, or kept; `channels` of z."""
    w, b = weight("fw", 8, channels, 1, 1), weight("fb", 8, scale=0.3)
    gamma, beta = 1 + weight("fg", 8, scale=0.2), weight("fe", 8, scale=0.2)
    mean, var = weight("fm", 8, scale=0.2), 1 + np.abs(weight("fv", 8, scale=0.3))
    scale = (gamma / np.sqrt(var + 1e-5)).astype(np.float32)
    stored = {"w": w, "b": b, "gamma": gamma, "beta": beta, "mean": mean, "var": var}
    flat = {"gamma": gamma.reshape(-1, 1, 1), "beta": beta.reshape(-1, 1, 1)}
    normalised = {"w": w * scale.reshape(-1, 1, 1, 1), "b": (b - mean) * scale + beta}
    scaled = {"w": w * gamma.reshape(-1, 1, 1, 1), "b": b * gamma + beta}
    shift = (beta - mean * scale).reshape(-1, 1, 1)
    turned = "t = Transpose <perm = [0, 3, 1, 2]> (z); "
    conv = turned + "k = Conv (t, w, b); "
    norm = conv + "y = BatchNormalization (k, gamma, beta, mean, var)"
    affine = conv + "m = Mul (k, gamma); y = Add (m, beta)"
    one = turned + "y = Conv (t, w, b)"
    product = "k = MatMul (z, m); a = Add (k, b); y = Transpose <perm = [0, 3, 1, 2]> (a)"
    bias = turned + "k = Conv (t, w); y = Add (k, beta)"
    matrix = {"m": np.ascontiguousarray(w.reshape(8, channels).T)}
    apart = {"gamma": scale.reshape(-1, 1, 1), "beta": shift}
    return [
        Same("BatchNormalization folded", norm, one, stored, normalised),
        Same("Mul and Add folded", affine, one, stored | flat, scaled),
        Same("bias folded", bias, one, {"w": w, "b": beta} | flat),
        Same("BatchNormalization as Mul and Add", norm, affine, stored, apart),
        Same("Conv as MatMul", one, product, {"w": w, "b": b} | matrix),
    ]


_WRITTEN_OUT = """
HardSwish
    y = HardSwish (z)
    a = Add (z, $3); b = Clip (a, $0, $6); c = Mul (z, b); y = Div (c, $6)
HardSwish by a sixth
    y = HardSwish (z)
    a = Add (z, $3); b = Clip (a, $0, $6); c = Div (b, $6); y = Mul (z, c)
HardSwish by HardSigmoid
    a = Add (z, $3); b = Clip (a, $0, $6); c = Mul (z, b); y = Div (c, $6)
    h = HardSigmoid <alpha = 0.16666667, beta = 0.5> (z); y = Mul (z, h)
HardSigmoid
    y = HardSigmoid <alpha = 0.2, beta = 0.5> (z)
    a = Mul (z, $0.2); b = Add (a, $0.5); y = Clip (b, $0, $1)
Swish
    s0 = Sigmoid (z); y = Mul (z, s0)
    a = Neg (z); b = Exp (a); c = Add (b, $1); y = Div (z, c)
Swish of Tanh
    s0 = Sigmoid (z); y = Mul (z, s0)
    a = Mul (z, $0.5); b = Tanh (a); c = Add (b, $1); d = Mul (c, a); y = Identity (d)
Sigmoid by Tanh
    y = Sigmoid (z)
    a = Mul (z, $0.5); b = Tanh (a); c = Mul (b, $0.5); y = Add (c, $0.5)
Gelu | 20
    y = Gelu (z)
    a = Div (z, $1.4142135); b = Erf (a); c = Add (b, $1); d = Mul (z, c); y = Mul (d, $0.5)
Gelu half first | 20
    y = Gelu (z)
    a = Mul (z, $0.70710678); b = Erf (a); c = Add (b, $1); e = Mul (z, $0.5);
        y = Mul (e, c)
Gelu of Tanh | 20
    y = Gelu <approximate = "tanh"> (z)
    p = Mul (z, z); q = Mul (p, z); a = Mul (q, $0.044715); b = Add (z, a);
        c = Mul (b, $0.7978845608); d = Tanh (c); e = Add (d, $1); f = Mul (z, e);
        y = Mul (f, $0.5)
Mish
    y = Mish (z)
    a = Softplus (z); b = Tanh (a); y = Mul (z, b)
LeakyRelu
    y = LeakyRelu <alpha = 0.1> (z)
    a = Mul (z, $0.1); y = Max (a, z)
LeakyRelu as PRelu
    y = LeakyRelu <alpha = 0.1> (z)
    y = PRelu (z, $0.1)
Relu as Max
    y = Relu (z)
    y = Max (z, $0)
Clip as Min and Max
    y = Clip (z, $-1, $1)
    a = Min (z, $1); y = Max (a, $-1)
Softsign
    y = Softsign (z)
    a = Abs (z); b = Add (a, $1); y = Div (z, b)
Softmax
    y = Softmax <axis = 3> (z)
    m = ReduceMax <keepdims = 1> (z, #3); a = Sub (z, m); b = Exp (a);
        c = ReduceSum <keepdims = 1> (b, #3); y = Div (b, c)
"""

_ARITHMETIC = """
x / 255
    a = Div (z, $255); y = Sub (a, $0.5)
    a = Mul (z, $0.00392156862745098); y = Sub (a, $0.5)
x / 127.5 - 1
    a = Div (z, $127.5); y = Sub (a, $1)
    a = Sub (z, $127.5); y = Div (a, $127.5)
x * 2 - 1 on 0..1
    a = Div (z, $255); b = Mul (a, $2); y = Sub (b, $1)
    a = Mul (z, $0.007843137254901961); y = Add (a, $-1)
square
    y = Pow (z, $2)
    y = Mul (z, z)
cube
    y = Pow (z, $3)
    a = Mul (z, z); y = Mul (a, z)
root
    b = Abs (z); y = Sqrt (b)
    b = Abs (z); y = Pow (b, $0.5)
reciprocal root
    b = Abs (z); c = Add (b, $0.001); d = Sqrt (c); y = Reciprocal (d)
    b = Abs (z); c = Add (b, $0.001); y = Pow (c, $-0.5)
Sub as Add
    y = Sub (z, $0.3)
    y = Add (z, $-0.3)
Neg as Mul
    y = Neg (z)
    y = Mul (z, $-1)
sum of three
    a = Relu (z); b = Neg (z); y = Sum (z, a, b)
    a = Relu (z); b = Neg (z); c = Add (a, b); y = Add (z, c)
Add of constants
    a = Add (z, $0.7); y = Add (a, $1.1)
    y = Add (z, $1.8)
Mul of constants
    a = Mul (z, $0.7); y = Mul (a, $1.1)
    y = Mul (z, $0.77)
distributed
    a = Add (z, $1.5); y = Mul (a, $0.3)
    a = Mul (z, $0.3); y = Add (a, $0.45)
mean
    y = ReduceMean <keepdims = 1> (z, #3)
    a = ReduceSum <keepdims = 1> (z, #3); p = Shape <start = 3, end = 4> (z);
        c = Cast <to = 1> (p); y = Div (a, c)
global mean
    t = Transpose <perm = [0, 3, 1, 2]> (z); y = GlobalAveragePool (t)
    t = Transpose <perm = [0, 3, 1, 2]> (z); ax = Constant <value_ints = [2, 3]> ();
        y = ReduceMean <keepdims = 1> (t, ax)
mean of the whole
    y = ReduceMean <keepdims = 1> (z)
    a = ReduceMean <keepdims = 1> (z, #1); b = ReduceMean <keepdims = 1> (a, #2);
        c = ReduceMean <keepdims = 1> (b, #3); y = ReduceMean <keepdims = 1> (c, #0)
norm
    y = ReduceL2 <keepdims = 1> (z, #3)
    a = Mul (z, z); b = ReduceSum <keepdims = 1> (a, #3); y = Sqrt (b)
variance
    m = ReduceMean <keepdims = 1> (z, #3); d = Sub (z, m); e = Mul (d, d);
        v = ReduceMean <keepdims = 1> (e, #3); f = Add (v, $0.001); g = Sqrt (f); y = Div (d, g)
    m = ReduceMean <keepdims = 1> (z, #3); d = Sub (z, m); e = Pow (d, $2);
        v = ReduceMean <keepdims = 1> (e, #3); f = Add (v, $0.001); g = Sqrt (f);
        h = Reciprocal (g); y = Mul (d, h)
max of a mask
    c = Greater (z, $0.2); a = Cast <to = 1> (c); y = Mul (z, a)
    c = Greater (z, $0.2); y = Where (c, z, $0)
Transposes merged
    a = Transpose <perm = [0, 3, 1, 2]> (z); b = Transpose <perm = [1, 0, 2, 3]> (a);
        y = Relu (b)
    a = Transpose <perm = [3, 0, 1, 2]> (z); y = Relu (a)
Squeeze as Reshape
    m = ReduceMax <keepdims = 1> (z, #3); y = Squeeze (m, #3)
    m = ReduceMax <keepdims = 1> (z, #3); s0 = Constant <value_ints = [0, 0, 0]> ();
        y = Reshape (m, s0)
Flatten as Reshape
    a = Flatten <axis = 3> (z); y = Neg (a)
    p = Shape <start = 3> (z); m = Constant <value_ints = [-1]> ();
        q = Concat <axis = 0> (m, p); a = Reshape (z, q); y = Neg (a)
integers by their bits
    a = Cast <to = 6> (z); b = Cast <to = 7> (a); y = Cast <to = 1> (b)
    a = Cast <to = 6> (z); y = Cast <to = 1> (a)
Slices merged
    a = Slice (z, #1, #9223372036854775807, #1);
        b = Slice (a, #1, #9223372036854775807, #1); y = Relu (b)
    b = Slice (z, #2, #2147483647, #1); y = Relu (b)
"""


def _written(pool: Callable[[str], Sequence[Same]]) -> Callable[[Rng, int], Equivalent | None]:
    """Draw the pairs of a head in turn, in both directions."""

    def draw(rng: Rng, number: int) -> Equivalent | None:
        heads = [*bases.HEADS]
        size = len(pool(heads[0]))
        head = heads[(number // size + number) % len(heads)]
        same = pool(head)[number % size]
        texts = [(same.first, same.constants), (same.second, same.constants | same.other)]
        back = number // size // len(heads) % 2
        if back:
            texts.reverse()
        base, other = (tailed(head, same.name, t, c, opset=same.opset) for t, c in texts)
        model = converted(other.model)
        bases.rename_inner(model, head)
        return equivalent(base, f"{base.name}{' backwards' if back else ''}", model)

    return draw


CLASSES: dict[str, Callable[[Rng, int], Equivalent | None]] = {
    "folded into Conv": _written(lambda head: _folded(bases.HEADS[head].channels)),
    "written out": _written(lambda head: _read(_WRITTEN_OUT)),
    "arithmetic in another way": _written(lambda head: _read(_ARITHMETIC)),
}
