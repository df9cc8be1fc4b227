"""Right conversions whose ordinary nodes compute the same in another way.

Weights are folded, operators are written out, divisions become products, as optimisers and exporters do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import bases
import editing
import nets
import numpy as np
import onnx
from bases import tailed
from drawn import Equivalent, converted, converted_net
from nets import Rng, weight
from onnx import numpy_helper


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
    apart = {
        "gamma": scale.reshape(-1, 1, 1),
        "beta": (beta - mean * scale).reshape(-1, 1, 1),
    }
    turned = "t = Transpose <perm = [0, 3, 1, 2]> (z); "
    conv = turned + "k = Conv (t, w, b); "
    norm = conv + "y = BatchNormalization (k, gamma, beta, mean, var)"
    affine = conv + "m = Mul (k, gamma); y = Add (m, beta)"
    one = turned + "y = Conv (t, w, b)"
    product = "k = MatMul (z, m); a = Add (k, b); y = Transpose <perm = [0, 3, 1, 2]> (a)"
    bias = turned + "k = Conv (t, w); y = Add (k, beta)"
    matrix = {"m": np.ascontiguousarray(w.reshape(8, channels).T)}
    return [
        Same("BatchNormalization folded", norm, one, stored, normalised),
        Same("Mul and Add folded", affine, one, stored | flat, scaled),
        Same("bias folded", bias, one, {"w": w, "b": beta} | flat),
        Same("BatchNormalization as Mul and Add", norm, affine, stored, apart),
        Same("Conv as MatMul", one, product, {"w": w, "b": b} | matrix),
    ]


_WRITTEN_OUT = (
    Same(
        "HardSwish",
        "y = HardSwish (z)",
        "a = Add (z, $3); b = Clip (a, $0, $6); c = Mul (z, b); y = Div (c, $6)",
    ),
    Same(
        "HardSwish by a sixth",
        "y = HardSwish (z)",
        "a = Add (z, $3); b = Clip (a, $0, $6); c = Div (b, $6); y = Mul (z, c)",
    ),
    Same(
        "HardSwish by HardSigmoid",
        "a = Add (z, $3); b = Clip (a, $0, $6); c = Mul (z, b); y = Div (c, $6)",
        "h = HardSigmoid <alpha = 0.16666667, beta = 0.5> (z); y = Mul (z, h)",
    ),
    Same(
        "HardSigmoid",
        "y = HardSigmoid <alpha = 0.2, beta = 0.5> (z)",
        "a = Mul (z, $0.2); b = Add (a, $0.5); y = Clip (b, $0, $1)",
    ),
    Same(
        "Swish",
        "s0 = Sigmoid (z); y = Mul (z, s0)",
        "a = Neg (z); b = Exp (a); c = Add (b, $1); y = Div (z, c)",
    ),
    Same(
        "Swish of Tanh",
        "s0 = Sigmoid (z); y = Mul (z, s0)",
        "a = Mul (z, $0.5); b = Tanh (a); c = Add (b, $1); d = Mul (c, a); y = Identity (d)",
    ),
    Same(
        "Sigmoid by Tanh",
        "y = Sigmoid (z)",
        "a = Mul (z, $0.5); b = Tanh (a); c = Mul (b, $0.5); y = Add (c, $0.5)",
    ),
    Same(
        "Gelu",
        "y = Gelu (z)",
        "a = Div (z, $1.4142135); b = Erf (a); c = Add (b, $1); d = Mul (z, c); y = Mul (d, $0.5)",
        opset=20,
    ),
    Same(
        "Gelu half first",
        "y = Gelu (z)",
        "a = Mul (z, $0.70710678); b = Erf (a); c = Add (b, $1); e = Mul (z, $0.5); y = Mul (e, c)",
        opset=20,
    ),
    Same(
        "Gelu of Tanh",
        'y = Gelu <approximate = "tanh"> (z)',
        "p = Mul (z, z); q = Mul (p, z); a = Mul (q, $0.044715); b = Add (z, a); "
        "c = Mul (b, $0.7978845608); d = Tanh (c); e = Add (d, $1); f = Mul (z, e); "
        "y = Mul (f, $0.5)",
        opset=20,
    ),
    Same(
        "Mish",
        "y = Mish (z)",
        "a = Softplus (z); b = Tanh (a); y = Mul (z, b)",
    ),
    Same(
        "LeakyRelu",
        "y = LeakyRelu <alpha = 0.1> (z)",
        "a = Mul (z, $0.1); y = Max (a, z)",
    ),
    Same(
        "LeakyRelu as PRelu",
        "y = LeakyRelu <alpha = 0.1> (z)",
        "y = PRelu (z, $0.1)",
    ),
    Same(
        "Relu as Max",
        "y = Relu (z)",
        "y = Max (z, $0)",
    ),
    Same(
        "Clip as Min and Max",
        "y = Clip (z, $-1, $1)",
        "a = Min (z, $1); y = Max (a, $-1)",
    ),
    Same(
        "Softsign",
        "y = Softsign (z)",
        "a = Abs (z); b = Add (a, $1); y = Div (z, b)",
    ),
    Same(
        "Softmax",
        "y = Softmax <axis = 3> (z)",
        "m = ReduceMax <keepdims = 1> (z, #3); a = Sub (z, m); b = Exp (a); "
        "c = ReduceSum <keepdims = 1> (b, #3); y = Div (b, c)",
    ),
)


_ARITHMETIC = (
    Same(
        "x / 255",
        "a = Div (z, $255); y = Sub (a, $0.5)",
        "a = Mul (z, $0.00392156862745098); y = Sub (a, $0.5)",
    ),
    Same(
        "x / 127.5 - 1",
        "a = Div (z, $127.5); y = Sub (a, $1)",
        "a = Sub (z, $127.5); y = Div (a, $127.5)",
    ),
    Same(
        "x * 2 - 1 on 0..1",
        "a = Div (z, $255); b = Mul (a, $2); y = Sub (b, $1)",
        "a = Mul (z, $0.007843137254901961); y = Add (a, $-1)",
    ),
    Same(
        "square",
        "y = Pow (z, $2)",
        "y = Mul (z, z)",
    ),
    Same(
        "cube",
        "y = Pow (z, $3)",
        "a = Mul (z, z); y = Mul (a, z)",
    ),
    Same(
        "root",
        "b = Abs (z); y = Sqrt (b)",
        "b = Abs (z); y = Pow (b, $0.5)",
    ),
    Same(
        "reciprocal root",
        "b = Abs (z); c = Add (b, $0.001); d = Sqrt (c); y = Reciprocal (d)",
        "b = Abs (z); c = Add (b, $0.001); y = Pow (c, $-0.5)",
    ),
    Same(
        "Sub as Add",
        "y = Sub (z, $0.3)",
        "y = Add (z, $-0.3)",
    ),
    Same(
        "Neg as Mul",
        "y = Neg (z)",
        "y = Mul (z, $-1)",
    ),
    Same(
        "sum of three",
        "a = Relu (z); b = Neg (z); y = Sum (z, a, b)",
        "a = Relu (z); b = Neg (z); c = Add (a, b); y = Add (z, c)",
    ),
    Same(
        "Add of constants",
        "a = Add (z, $0.7); y = Add (a, $1.1)",
        "y = Add (z, $1.8)",
    ),
    Same(
        "Mul of constants",
        "a = Mul (z, $0.7); y = Mul (a, $1.1)",
        "y = Mul (z, $0.77)",
    ),
    Same(
        "distributed",
        "a = Add (z, $1.5); y = Mul (a, $0.3)",
        "a = Mul (z, $0.3); y = Add (a, $0.45)",
    ),
    Same(
        "mean",
        "y = ReduceMean <keepdims = 1> (z, #3)",
        "a = ReduceSum <keepdims = 1> (z, #3); p = Shape <start = 3, end = 4> (z); "
        "c = Cast <to = 1> (p); y = Div (a, c)",
    ),
    Same(
        "global mean",
        "t = Transpose <perm = [0, 3, 1, 2]> (z); y = GlobalAveragePool (t)",
        "t = Transpose <perm = [0, 3, 1, 2]> (z); ax = Constant <value_ints = [2, 3]> (); "
        "y = ReduceMean <keepdims = 1> (t, ax)",
    ),
    Same(
        "mean of the whole",
        "y = ReduceMean <keepdims = 1> (z)",
        "a = ReduceMean <keepdims = 1> (z, #1); b = ReduceMean <keepdims = 1> (a, #2); "
        "c = ReduceMean <keepdims = 1> (b, #3); y = ReduceMean <keepdims = 1> (c, #0)",
    ),
    Same(
        "norm",
        "y = ReduceL2 <keepdims = 1> (z, #3)",
        "a = Mul (z, z); b = ReduceSum <keepdims = 1> (a, #3); y = Sqrt (b)",
    ),
    Same(
        "variance",
        "m = ReduceMean <keepdims = 1> (z, #3); d = Sub (z, m); e = Mul (d, d); "
        "v = ReduceMean <keepdims = 1> (e, #3); f = Add (v, $0.001); g = Sqrt (f); "
        "y = Div (d, g)",
        "m = ReduceMean <keepdims = 1> (z, #3); d = Sub (z, m); e = Pow (d, $2); "
        "v = ReduceMean <keepdims = 1> (e, #3); f = Add (v, $0.001); g = Sqrt (f); "
        "h = Reciprocal (g); y = Mul (d, h)",
    ),
    Same(
        "max of a mask",
        "c = Greater (z, $0.2); a = Cast <to = 1> (c); y = Mul (z, a)",
        "c = Greater (z, $0.2); y = Where (c, z, $0)",
    ),
    Same(
        "Transposes merged",
        "a = Transpose <perm = [0, 3, 1, 2]> (z); b = Transpose <perm = [1, 0, 2, 3]> (a); "
        "y = Relu (b)",
        "a = Transpose <perm = [3, 0, 1, 2]> (z); y = Relu (a)",
    ),
    Same(
        "Squeeze as Reshape",
        "m = ReduceMax <keepdims = 1> (z, #3); y = Squeeze (m, #3)",
        "m = ReduceMax <keepdims = 1> (z, #3); s0 = Constant <value_ints = [0, 0, 0]> (); "
        "y = Reshape (m, s0)",
    ),
    Same(
        "Flatten as Reshape",
        "a = Flatten <axis = 3> (z); y = Neg (a)",
        "p = Shape <start = 3> (z); m = Constant <value_ints = [-1]> (); "
        "q = Concat <axis = 0> (m, p); a = Reshape (z, q); y = Neg (a)",
    ),
    Same(
        "integers by their bits",
        "a = Cast <to = 6> (z); b = Cast <to = 7> (a); y = Cast <to = 1> (b)",
        "a = Cast <to = 6> (z); y = Cast <to = 1> (a)",
    ),
    Same(
        "Slices merged",
        "a = Slice (z, #1, #9223372036854775807, #1); "
        "b = Slice (a, #1, #9223372036854775807, #1); y = Relu (b)",
        "b = Slice (z, #2, #2147483647, #1); y = Relu (b)",
    ),
)


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
        return Equivalent(f"{base.name}{' backwards' if back else ''}", base.model, model, base)

    return draw


def _folded_regions(rng: Rng, number: int) -> Equivalent | None:
    """Fold the BatchNormalization or Add behind a Conv of a converted region."""
    pool = [k for k in bases.everything() if _foldable(converted_net(k))]
    key = sorted(pool)[number % len(pool)]
    base = bases.everything()[key]
    model = onnx.ModelProto()
    model.CopyFrom(converted_net(key))
    places = _foldable(model)
    count = 1 + int(rng.integers(len(places)))
    for _ in range(count):
        places = _foldable(model)
        if places:
            _fold(model, places[int(rng.integers(len(places)))], bool(rng.integers(2)))
    return Equivalent(f"{key}: {count} folded into Conv", base.model, model, base)


def _foldable(model: onnx.ModelProto) -> list[tuple[int, int]]:
    """List the positions of a Conv and of the node behind it that can be folded into it."""
    graph = model.graph
    stored = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    producers = {o: i for i, n in enumerate(graph.node) for o in n.output}
    readers: dict[str, int] = {}
    for node in graph.node:
        for name in node.input:
            readers[name] = readers.get(name, 0) + 1
    kept = {v.name for v in graph.output}
    found = []
    for i, node in enumerate(graph.node):
        conv = producers.get(node.input[0]) if node.input else None
        if node.op_type not in ("BatchNormalization", "Add", "Mul") or conv is None:
            continue
        first = graph.node[conv]
        if first.op_type != "Conv" or first.input[1] not in stored:
            continue
        if readers[first.output[0]] > 1 or first.output[0] in kept:
            continue
        given = [stored.get(n) for n in node.input[1:]]
        channels = stored[first.input[1]].shape[0]
        if any(a is None for a in given) or any(a.size not in (1, channels) for a in given):
            continue
        if node.op_type != "BatchNormalization":
            rank = stored[first.input[1]].ndim
            if given[0].size > 1 and (
                given[0].ndim < rank - 1 or given[0].shape[-rank + 2 :].count(1) != rank - 2
            ):
                continue
        found.append((conv, i))
    return found


def _fold(model: onnx.ModelProto, place: tuple[int, int], keep: bool) -> None:
    """Fold a node into the Conv in front; `keep`: the Conv's result keeps its name, as by onnxsim."""
    graph = model.graph
    conv, node = (graph.node[i] for i in place)
    stored = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    w = stored[conv.input[1]].astype(np.float64)
    b = stored[conv.input[2]].astype(np.float64) if len(conv.input) > 2 else np.zeros(w.shape[0])
    given = [stored[n].astype(np.float64).reshape(-1) for n in node.input[1:]]
    if node.op_type == "Add":
        b = b + given[0]
    elif node.op_type == "Mul":
        w, b = (
            w * np.broadcast_to(given[0], b.shape).reshape(-1, *(1,) * (w.ndim - 1)),
            b * given[0],
        )
    else:
        epsilon = editing.attribute(node, "epsilon") or 1e-5
        scale = given[0] / np.sqrt(given[3] + epsilon)
        w, b = w * scale.reshape(-1, *(1,) * (w.ndim - 1)), (b - given[2]) * scale + given[1]
    dtype = stored[conv.input[1]].dtype
    names = [f"{conv.output[0]}_folded_w", f"{conv.output[0]}_folded_b"]
    for name, array in zip(names, (w, b), strict=True):
        graph.initializer.append(numpy_helper.from_array(array.astype(dtype), name))
    conv.input[1:] = names
    if keep and node.output[0] not in {v.name for v in graph.output}:
        nets.renamed(model, {node.output[0]: conv.output[0]})
    else:
        conv.output[0] = node.output[0]
    del graph.node[place[1]]


CLASSES: dict[str, Callable[[Rng, int], Equivalent | None]] = {
    "folded into Conv": _written(lambda head: _folded(bases.HEADS[head].channels)),
    "folded in regions": _folded_regions,
    "written out": _written(lambda head: _WRITTEN_OUT),
    "arithmetic in another way": _written(lambda head: _ARITHMETIC),
}
