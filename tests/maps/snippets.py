"""Nodes of every operator that has an index map, and random chains of them.

A snippet computes y of x: an int64[A,B,C] at opset 18, if nothing else stands in front. In text #2 is a
list of one number, ##2 a number (`parsing`), `s` the shape of x, `a`, `b`, `c` its sizes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import onnx
import parsing
from maps import maps

#: What a snippet may read.
_SIZES = "s = Shape(x) a = Gather(s, #0) b = Gather(s, #1) c = Gather(s, #2)"
_ELSE = "else_branch = e () => (v) { v = Identity(x) }"
_PLACES = "n = Gather(s, ##{axis}) i = Range(##0, n, ##1)"
#: [opset] [input:] nodes; what is computed with is a list of numbers or the places on an axis.
_TABLE = """
y = Identity(x)
y = Reshape(x, #-1)
9: y = Reshape(x, s)
t = Concat<axis=0>(#0, #-1) y = Reshape(x, t)
t = Concat<axis=0>(c, #-1, a) y = Reshape(x, t)
t = Concat<axis=0>(a, c, b) y = Reshape<allowzero=1>(x, t)
d = Mul(b, c) t = Concat<axis=0>(#0, d) y = Reshape(x, t)
int64[A,12,C]: t = Constant<value_ints=[0,3,4,-1]>() y = Reshape(x, t)
int64[A,12,C]: t = Constant<value_ints=[-1,2,6]>() y = Reshape(x, t)
int64[A,4,6]: t = Constant<value_ints=[0,6,4]>() y = Reshape(x, t)
y = Flatten(x)
y = Flatten<axis=-1>(x)
9: y = Flatten<axis=3>(x)
y = Flatten<axis=0>(x)
int64[A,1,C]: y = Squeeze(x, #1)
int64[A,1,C]: y = Squeeze(x, #-2)
12: int64[A,1,1]: y = Squeeze<axes=[-1,1]>(x)
int64[2,1,C]: y = Squeeze(x)
y = Squeeze(x)
y = Unsqueeze(x, #0)
t = Constant<value_ints=[1,-1]>() y = Unsqueeze(x, t)
9: y = Unsqueeze<axes=[1,3]>(x)
y = Transpose(x)
y = Transpose<perm=[1,2,0]>(x)
y = Transpose<perm=[2,0,1]>(x)
float[A,C,4,6]: y = SpaceToDepth<blocksize=2>(x)
float[A,2,6,6]: y = SpaceToDepth<blocksize=3>(x)
float[A,8,H,W]: y = DepthToSpace<blocksize=2>(x)
float[A,8,H,W]: y = DepthToSpace<blocksize=2, mode="CRD">(x)
9: float[A,12,H,W]: y = DepthToSpace<blocksize=2>(x)
t = Concat<axis=0>(a, b, c) y = Expand(x, t)
t = Concat<axis=0>(#2, a, #1, c) y = Expand(x, t)
int64[A,1,C]: t = Concat<axis=0>(#3, #1) y = Expand(x, t)
int64[1,B]: t = Concat<axis=0>(b, #2, #1) y = Expand(x, t)
t = Concat<axis=0>(#1, #2, #3) y = Tile(x, t)
t = Concat<axis=0>(b, #1, a) y = Tile(x, t)
t = Concat<axis=0>(#1, #0, #1) y = Tile(x, t)
y = Slice(x, #0, #2)
y = Slice(x, #1, #9223372036854775807, #-1)
y = Slice(x, #-1, #-9223372036854775808, #1, #-1)
y = Slice(x, #-9223372036854775808, #2147483647, #1, #2)
y = Slice(x, #-3, #-1, #2)
y = Slice(x, #5, #-7, #1, #-2)
p = Concat<axis=0>(#1, #0) q = Concat<axis=0>(a, #-1) t = Concat<axis=0>(#0, #-1) y = Slice(x, p, q, t)
p = Sub(b, #2) y = Slice(x, p, b, #1)
h = Div(b, #2) y = Slice(x, h, #-1, #1, #2)
9: y = Slice<starts=[0,-2], ends=[1,100], axes=[0,2]>(x)
t = Constant<value_ints=[0,1,2,0,0,3]>() y = Pad(x, t)
int64[A,4,5]: t = Constant<value_ints=[1,-1,0,0,-1,2]>() y = Pad(x, t, ##7)
int64[3,B,5]: t = Constant<value_ints=[-2,0,0,1,0,-2]>() y = Pad(x, t)
m = Mod(b, #2) t = Concat<axis=0>(#0, m, #0, #0, #1, a) y = Pad(x, t)
t = Concat<axis=0>(#1, c, #2, #0) q = Constant<value_ints=[2,-3]>() y = Pad(x, t, ##3, q)
10: float[A,B]: y = Pad<pads=[1,0,0,2], value=3.0>(x)
y = Concat<axis=1>(x, x)
y = Concat<axis=-1>(x, x, x)
p = Slice(x, #0, #1, #1) y = Concat<axis=1>(p, x, p)
int64[A,6,C]: t = Concat<axis=0>(#1, #2, #3) u, y, v = Split<axis=1>(x, t)
int64[A,6,C]: u, v = Split<axis=-2, num_outputs=2>(x) y = Concat<axis=0>(v, u)
int64[A,7,C]: u, v = Split<axis=1, num_outputs=2>(x) y = Identity(v)
h = Div(b, #2) q = Sub(b, h) t = Concat<axis=0>(h, q) u, v = Split<axis=1>(x, t) y = Concat<axis=1>(v, u)
12: int64[A,6]: u, y = Split<axis=1, split=[2,4]>(x)
13: int64[A,6]: u, y = Split<axis=1>(x)
y = Gather<axis=1>(x, #0)
y = Gather<axis=-1>(x, ##-1)
int64[A,5,C]: t = Constant<value=int64[2,2]{0,4,-5,2}>() y = Gather<axis=1>(x, t)
@1 y = Gather<axis=1>(x, i)
@1 j = Sub(i, n) y = Gather<axis=1>(x, j)
@1 j = Div(i, ##2) y = Gather<axis=1>(x, j)
@1 j = Mod(i, ##2) y = Gather<axis=1>(x, j)
@1 k = Sub(n, ##1) j = Sub(k, i) y = Gather<axis=1>(x, j)
@1 j = Min(i, ##2) k = Mod(j, n) y = Gather<axis=1>(x, k)
int64[2,3]: t = Constant<value=int64[2,2]{0,-1,2,1}>() y = GatherElements<axis=1>(x, t)
int64[A,3]: t = Constant<value=int64[1,2]{0,-1}>() y = GatherElements<axis=-1>(x, t)
int64[4,3,C]: t = Constant<value=int64[2,2]{0,2,-1,1}>() y = GatherND(x, t)
int64[4,C]: t = Constant<value=int64[3,1]{0,3,-2}>() y = GatherND(x, t)
int64[2,3,C]: t = Constant<value=int64[2,1]{0,-1}>() y = GatherND<batch_dims=1>(x, t)
y = Shape(x)
15: y = Shape<start=-2>(x)
15: y = Shape<start=1, end=-1>(x)
15: y = Shape<start=-7, end=9>(x)
y = Size(x)
y = Range(##0, ##5, ##2)
@1 y = Range(##-2, n, ##3)
@1 k = Sub(n, ##2) y = Range(k, n, ##1)
y = ConstantOfShape<value=int64[1]{3}>(s)
t = Concat<axis=0>(b, #2) y = ConstantOfShape(t)
p = Sub(b, #1) y = ConstantOfShape<value=int64[1]{2}>(p)
t = Constant<value=int64[2,4]{0,0,0,0,0,0,0,0}>() y = EyeLike<k=1>(t)
t = Constant<value=int64[3,2]{0,0,0,0,0,0}>() y = EyeLike<k=-1>(t)
t = ConstantOfShape<value=int64[1]{1}>(b) y = NonZero(t)
y = Cast<to=7>(s)
t = Cast<to=6>(b) y = Cast<to=7>(t)
t = Sub(b, #2) u = Cast<to=9>(t) y = Cast<to=7>(u)
t = Cast<to=1>(s) u = Div(t, $2) v = Ceil(u) y = Cast<to=7>(v)
t = Cast<to=11>(s) u = Cast<to=1>(t) v = Floor(u) y = Cast<to=7>(v)
t = Cast<to=1>(x) y = Cast<to=7>(t)
y = Add(x, #3)
y = Sub(#3, x)
y = Mul(x, x)
y = Neg(x)
y = Abs(x)
y = Sign(x)
y = Max(x, #1002)
@1 y = Add(i, #-3)
@1 y = Mul(i, i)
@1 j = Sub(i, ##2) y = Neg(j)
@1 j = Sub(i, ##2) y = Abs(j)
@1 j = Sub(i, ##2) y = Sign(j)
@1 j = Sub(i, ##3) y = Div(j, ##2)
@1 j = Sub(i, ##3) y = Div(j, ##-2)
@1 j = Sub(i, ##3) y = Mod(j, ##2)
@1 j = Sub(i, ##3) y = Mod<fmod=1>(j, ##2)
@1 y = Max(i, ##2, n)
@1 y = Min(i, ##2, ##-1)
@1 y = Max(i, ##0, ##1, ##0, ##1, ##0, ##1, ##0, ##1, ##0, ##1, ##0, ##1, ##0, ##1, ##0, ##3)
@1 y = Mod(i, n)
@1 j = Add(i, n) y = Mod(j, n)
@1 j = Equal(i, ##2) y = Cast<to=7>(j)
@1 j = Less(i, ##2) k = Not(j) y = Cast<to=7>(k)
@1 j = LessOrEqual(i, ##2) k = Greater(n, ##3) l = And(j, k) y = Cast<to=7>(l)
@1 j = GreaterOrEqual(i, ##2) k = Less(n, ##3) l = Or(j, k) y = Cast<to=7>(l)
@1 j = Less(i, ##2) k = Greater(i, ##0) l = Xor(j, k) y = Cast<to=7>(l)
@2 j = Less(i, ##2) y = Where(j, x, #5)
@2 j = Equal(i, ##1) y = Where(j, ##0, x)
@1 j = Greater(i, ##1) y = Where(j, n, i)
t = Concat<axis=0>(b, #2) y = ReduceProd<keepdims=0>(t)
y = ReduceSum(s, #0)
13: y = ReduceMax(s)
t = Constant<value_ints: ints = []>() y = ReduceMin<noop_with_empty_axes=1>(s, t)
u = Concat<axis=0>(a, #2, #3, c) t = Concat<axis=0>(#2, #2) v = Reshape(u, t) y = ReduceProd(v, #-1)
u = Concat<axis=0>(s, s) t = Concat<axis=0>(#3, #2) v = Reshape(u, t) y = ReduceMin(v, #0)
float[A,B]: y = Sum(x)
float[A,B]: y = Sum(x, x)
q = Less(b, #3) p = Squeeze(q) y = If(p)<then_branch = t () => (u) { u = Transpose(x) }, ELSE>
q = Equal(a, #2) p = Squeeze(q) y = If(p)<then_branch = t () => (u) { u = Neg(x) }, ELSE>
"""


#: These fail at some sizes in onnxruntime.
_FAILING = """
t = Constant<value_ints=[0,-2,0,0,0,0]>() y = Pad(x, t)
t = Concat<axis=0>(a, #0, c) y = Reshape<allowzero=1>(x, t)
t = Constant<value_ints=[0,2,-1]>() u = Constant<value_ints=[-1,3]>() v = Reshape(x, t) y = Reshape(v, u)
float[A,C,H,6]: y = SpaceToDepth<blocksize=2>(x)
float[A,C,H,W]: y = DepthToSpace<blocksize=2>(x)
y = Squeeze(x, #1)
t = Concat<axis=0>(a, #2, c) y = Expand(x, t)
y = Gather<axis=1>(x, #2)
t = Constant<value=int64[1,2]{0,3}>() y = GatherND(x, t)
t = Constant<value=int64[1,1,4]{0,0,0,1}>() y = GatherElements<axis=-1>(x, t)
t = Concat<axis=0>(#1, #2) u, y = Split<axis=1>(x, t)
p = Sub(b, #3) y = ConstantOfShape(p)
p = Sub(b, #2) t = Concat<axis=0>(#1, p, #1) y = Tile(x, t)
@1 k = Sub(n, ##2) y = Div(i, k)
"""


@dataclass(frozen=True)
class Snippet:
    """Nodes from x to y.

    Attributes:
        opset: of the model.
        declared: type and dims of x.
        nodes: as text.
    """

    opset: int
    declared: str
    nodes: str

    def __str__(self) -> str:
        return self.nodes

    @property
    def model(self) -> onnx.ModelProto:
        """A model of what is needed for y."""
        nodes = f"{_SIZES} {self.nodes}" if self.opset >= 11 else f"s = Shape(x) {self.nodes}"
        made = maps.parse(f"f ({self.declared} x) => (y) {{ {nodes} }}", self.opset)
        return needed(made)


def needed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without nodes that its outputs do not depend on: maps do not look at those."""
    wanted = {value.name for value in model.graph.output}
    for node in reversed([*model.graph.node]):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            wanted.update(n for a in node.attribute for inner in a.g.node for n in inner.input)
        else:
            model.graph.node.remove(node)
    return model


def _read(line: str) -> Snippet:
    *options, nodes = line.split(": ") if ": ints" not in line else [line]
    opset = next((int(o) for o in options if o.isdigit()), 18)
    declared = next((o for o in options if "[" in o), "int64[A,B,C]")
    if nodes.startswith("@"):
        nodes = f"{_PLACES.format(axis=nodes[1])} {nodes[3:]}"
    return Snippet(opset, declared, nodes.replace("ELSE", _ELSE))


SNIPPETS, FAILING = ([_read(line) for line in t.strip().splitlines()] for t in (_TABLE, _FAILING))
#: Those that a chain may be made of.
LINKS = [s.nodes for s in SNIPPETS if (s.opset, s.declared) == (18, "int64[A,B,C]")]


def assignments(model: onnx.ModelProto, rng: Random, count: int) -> Iterator[dict[str, int]]:
    """Draw sizes of a model's dims."""
    for _ in range(count):
        yield {name: rng.randint(1, 7) for name in maps.names_of(model)}


def chain(rng: Random, length: int) -> onnx.ModelProto:
    """Snippets one behind the other that run at one set of sizes."""
    sizes = {name: rng.randint(1, 6) for name in "ABC"}
    declared = ",".join(str(sizes[n]) if rng.random() < 0.15 else n for n in sizes)
    texts, value, model = [], "x", maps.parse(f"f (int64[{declared}] x) => (y) {{ y = Neg(x) }}")
    for number in range(length):
        text = f"{_SIZES} {rng.choice(LINKS)}"
        made = {o for n in parsing.nodes(text)[0] for o in n.output}
        names = {name: f"{name}{number}" for name in made} | {"x": value}
        renamed = "".join(names.get(word, word) for word in _words(text))
        body = " ".join([*texts, renamed])
        tried = needed(maps.parse(f"f (int64[{declared}] x) => (y{number}) {{ {body} }}"))
        try:
            result = maps.run(tried, maps.feeds_of(tried, sizes, {}))
        except Exception:  # onnxruntime's errors have no common class
            continue
        if result.dtype == "int64" and 0 < result.size <= 500 and result.ndim <= 6:
            texts, value, model = [*texts, renamed], f"y{number}", tried
    return model


def _words(text: str) -> list[str]:
    return re.findall(r"#*\$?-?\w+|\W", text)
