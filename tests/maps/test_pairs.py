"""Equal graphs are proven, different ones are not; runs at all small sizes tell which are which."""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx
import onnxruntime
import pytest
from maps import maps
from parsing import rows

from onnx_spatial.maps.cases import Case

#: Chains that fail or lose digits before onnxruntime 1.32 only. The prover assumes the worst.
MENDED = {"Split into more parts than elements"}
NEW = tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 32)


@dataclass(frozen=True)
class Pair:
    """Two models of the same inputs, as text, and sizes where they differ, if not at small ones."""

    original: str
    converted: str
    opset: int = 18
    sizes: tuple[dict[str, int], ...] = ()

    def models(self) -> tuple[onnx.ModelProto, onnx.ModelProto]:
        """Both models."""
        return maps.parse(self.original, self.opset), maps.parse(self.converted, self.opset)

    def difference(self) -> maps.Sizes | None:
        """Return the first sizes at which runs differ."""
        original, converted = self.models()
        sizes = [*maps.up_to(6, maps.names_of(original)), *self.sizes]
        return maps.first_difference(original, converted, sizes)


def read(table: str) -> Iterator[tuple[str, Pair]]:
    """Read pairs of a table as of `parsing.rows`; options are inputs, "opset 17", "N = 300".

    The input is a list x of N integers, and the original keeps it, if nothing else is said.
    """
    for name, options, original, nodes in rows(table):
        inputs, opset, sizes = "int64[N] x", 18, []
        for option in options:
            if option.startswith("opset "):
                opset = int(option[6:])
            elif " = " in option:
                sizes.append({"N": int(option.split(" = ")[1])})
            else:
                inputs = option
        texts = (f"f ({inputs}) => (y) {{ {t} }}" for t in (original or "y = Identity(x)", nodes))
        yield name, Pair(*texts, opset, tuple(sizes))


#: Blocks of 2 along H with one zero on either side.
BLOCKS = """f (int64[N,H,3] x) => (y) <int32[1] b={2}, int32[1,2] p={1,1}>
    { y = tf.SpaceToBatchND(x, b, p) }"""
MOVED = """f (int64[N,H,3] x) => (y)
    <int64[6] pads={0,1,0,0,1,0}, int64[4] split={0,-1,2,3}> {
        p = Pad(x, pads) r = Reshape(p, split) t = Transpose<perm=[2,0,1,3]>(r)
        s = Shape(p) h = Gather(s, #1) cells = Div(h, #2)
        target = Concat<axis=0>(#-1, cells, #3) m = Reshape(t, target) y = Identity(m)
    }"""


def moved(old: str, new: str, *sizes: dict[str, int]) -> Pair:
    """The chain of the blocks with a change."""
    assert old in MOVED
    return Pair(BLOCKS, MOVED.replace(old, new), sizes=sizes)


def turned(number: str, *sizes: dict[str, int]) -> Pair:
    """The chain of the blocks, whose rows are rotated by a number that is mostly 0."""
    rotated = "u = Slice(m, k, #9223372036854775807, #1) v = Slice(m, #0, k, #1)"
    rotated = f"{number} k = Cast<to=7>(q) {rotated} y = Concat<axis=1>(u, v)"
    return moved("y = Identity(m)", rotated, *sizes)


_PARTS = """a = Slice(p, #0, #9223372036854775807, #1, #2)
    b = Slice(p, #1, #9223372036854775807, #1, #2) {} = Concat<axis=0>(a, b)"""
_EITHER = """c = Greater(h, #4) d = Squeeze(c) y = If(d)<
    then_branch = g() => (u) {{ u = Identity(m) }}, else_branch = e() => (v) {{ {} }}>"""

EQUAL = {
    "blocks": Pair(BLOCKS, MOVED),
    "blocks, rotated by 0": turned("q = Less(h, #2)"),
    "blocks, by slices": moved("y = Identity(m)", _PARTS.format("y")),
    "blocks, either way": moved("y = Identity(m)", _EITHER.format(_PARTS.format("v"))),
} | dict(
    read("""
Tile, of copies in a row
    y = Tile(x, #2) --> y = Concat<axis=0>(x, x)
strings
    c = Constant<value_strings=["a","b"]>() s = Shape(x) e = Concat<axis=0>(s, #2)
    y = Expand(c, e) -->
    k = Constant<value_strings=["a","b","c"]>() c = Slice(k, #0, #2) s = Shape(x)
    e = Concat<axis=0>(s, #2) y = Expand(c, e)
a list, read by its places
    n = Size(x) r = Range(##0, n, ##1) y = Gather(x, r)
a list, read by negative places
    n = Size(x) r = Range(##0, n, ##1) q = Sub(r, n) y = Gather(x, q)
a list, turned around twice
    b = Slice(x, #-1, #-9223372036854775807, #0, #-1)
    y = Slice(b, #-1, #-9223372036854775807, #0, #-1)
a list, cut in two
    s = Shape(x) a = Div(s, #2) b = Sub(s, a) k = Concat<axis=0>(a, b) u, v = Split<axis=0>(x, k)
    y = Concat<axis=0>(u, v)
a function, with names of its own | int64[N,M] x
    a = Transpose(x) b = own.g(a) y = Identity(b) } <domain: "own", opset_import: ["": 18]>
    g (x) => (y) { a = Transpose(x) y = Identity(a)
a function, with an attribute of its calls | int64[N,M] x
    a = own.g<perm=[1,0]>(x) y = own.g<perm=[1,0]>(a) } <domain: "own", opset_import: ["": 18]>
    g <perm> (x) => (y) { y = Transpose<perm: ints = @perm>(x)
branches, with names of their own | int64[N,M] x
    s = Shape(x) n = ReduceMax<keepdims=0>(s) c = Greater(n, ##3) y = If(c)<
    then_branch = g() => (u) { a = Transpose(x) u = Transpose(a) },
    else_branch = h() => (u) { a = Identity(x) u = Identity(a) }>
zeros, padded from nothing
    s = Shape(x) y = ConstantOfShape<value=int64[1]{0}>(s) -->
    s = Shape(x) e = Slice(x, #0, #0) p = Concat<axis=0>(#0, s) y = Pad(e, p)
""")
)

#: A list of all elements may have more places than a single size: fails from 2^27 elements on.
((_, FLAT),) = read("""
flat | int64[N,M] x
    y = Reshape(x, #-1) -->
    f = Reshape(x, #-1) n = Size(x) r = Range(##0, n, ##1) c = Less(r, ##134217729)
    b = Mul(n, ##-5) m = Where(c, r, b) g = Gather(f, m) s = Shape(g) y = Reshape(x, s)
""")

DIFFERENT = {
    "axes in another order": moved("[2,0,1,3]", "[0,2,1,3]"),
    "pads on the wrong side": moved("{0,1,0,0,1,0}", "{0,2,0,0,0,0}"),
    "cells and offsets exchanged": moved("{0,-1,2,3}", "{0,2,-1,3}"),
    "a Reshape that copies another dim": moved("{0,-1,2,3}", "{-1,0,2,3}"),
    "slices one too far": moved(
        "y = Identity(m)", _PARTS.format("y").replace("#0,", "#1,", 1).replace("p, #1", "p, #0")
    ),
    "rotated beyond a size": turned("q = Greater(h, #1000)", {"N": 1, "H": 1000}),
    "rotated in one batch": turned("i = Gather(s, #0) q = Equal(i, #3)"),
    "rotated where a product overflows": turned("a = Mul(h, #1152921504606846976) q = Less(a, #1)"),
    "one branch is wrong": moved(
        "y = Identity(m)", _EITHER.format("w = Transpose<perm=[0,2,1,3]>(r) v = Reshape(w, target)")
    ),
} | dict(
    read("""
strings
    c = Constant<value_strings=["a","b"]>() s = Shape(x) e = Concat<axis=0>(s, #2)
    y = Expand(c, e) -->
    c = Constant<value_strings=["a","x"]>() s = Shape(x) e = Concat<axis=0>(s, #2)
    y = Expand(c, e)
a function whose values are those of its caller | int64[N,M] x
    a = Transpose(x) b = own.g(a) y = Identity(b) } <domain: "own", opset_import: ["": 18]>
    g (x) => (y) { a = Transpose(x) y = Identity(x)
a function, with another attribute | int64[N,M] x
    a = own.g<perm=[1,0]>(x) y = own.g<perm=[0,1]>(a) } <domain: "own", opset_import: ["": 18]>
    g <perm> (x) => (y) { y = Transpose<perm: ints = @perm>(x)
a wrong branch for large sizes | int64[N,M] x
    s = Shape(x) n = ReduceMax<keepdims=0>(s) c = Greater(n, ##3) y = If(c)<
    then_branch = g() => (u) { a = Transpose(x) u = Reshape(a, s) },
    else_branch = h() => (v) { v = Identity(x) }>
a wrong branch for small sizes | int64[N,M] x
    s = Shape(x) n = ReduceMax<keepdims=0>(s) c = Greater(n, ##3) y = If(c)<
    then_branch = g() => (u) { u = Identity(x) },
    else_branch = h() => (v) { a = Transpose(x) v = Reshape(a, s) }>
an operand more than there may be | int64[2,M] x
    y = Identity(x, x)
an attribute that there is not | int64[2,M] x
    a = Transpose<slow = 1>(x) y = Transpose(a)
an operator that there is not | int64[2,M] x
    a = Inverted(x) y = Inverted(a)
BatchNormalization of other channels | float[N,2,H] x
    y = Identity(x) -->
    g = Constant<value_floats=[1.0,1.0,1.0]>() t = BatchNormalization(x, g, g, g, g) h = Shape(t)
    y = Reshape(x, h)
a bias of other channels | float[N,2,H] x
    w = ConstantOfShape<value=float[1]{1}>(d) d = Constant<value_ints=[4,2,1]>() t = Conv(x, w)
    y = Shape(t) -->
    w = ConstantOfShape<value=float[1]{1}>(d) d = Constant<value_ints=[4,2,1]>()
    b = Constant<value_floats=[1.0,1.0,1.0]>() t = Conv(x, w, b) y = Shape(t)
Gather beyond the end, for its shape
    n = Size(x) r = Range(##0, n, ##1) p = Add(r, ##5) g = Gather(x, p) t = Shape(g)
    y = Reshape(x, t)
one of many stored indices beyond the end
    l = ConstantOfShape<value=int64[1]{0}>(#69) i = Concat<axis=0>(l, #5) g = Gather(x, i)
    a = Shape(g) b = Sub(a, a) c = Shape(x) t = Add(b, c) y = Reshape(x, t)
If on a list
    n = Size(x) r = Range(##0, n, ##1) c = Equal(r, ##0) y = If(c)<
    then_branch = g() => (u) { u = Identity(x) }, else_branch = h() => (v) { v = Identity(x) }>
Range from a list
    z = Constant<value_ints=[0,5]>() n = Size(x) r = Range(z, n, ##1) y = Gather(x, r)
Split into more parts than elements
    a, b = Split<axis=0, num_outputs=2>(x) y = Concat<axis=0>(a, b)
Tile, of each element in a row
    y = Tile(x, #2) --> r = Unsqueeze(x, #1) p = Concat<axis=1>(r, r) y = Reshape(p, #-1)
Tile by a negative number
    s = Shape(x) y = ConstantOfShape<value=int64[1]{0}>(s) -->
    s = Shape(x) t = Sub(s, #2) c = Tile(#0, t) d = ConstantOfShape<value=int64[1]{0}>(#2)
    y = Concat<axis=0>(c, d)
Reshape by -1 beside 0
    k = Constant<value_ints=[0,-1]>() s = Shape(x) c = Slice(x, #1, s) d = Unsqueeze(c, #1)
    e = Reshape(d, k) g = Reshape(e, #-1) h = Slice(x, #0, #1) y = Concat<axis=0>(h, g)
NonZero of two lists
    o = ConstantOfShape<value=int64[1]{1}>(#5) a = NonZero(o) e = Shape(a) five = Gather(e, ##1)
    n = Size(x) r = Range(##0, n, ##1) l = Less(r, five) b = NonZero(l) q = Squeeze(b, #0)
    y = Gather(x, q)
int64 overflows in a sum of a choice
    s = Shape(x) c = Greater(s, #2) t = Where(c, #9223372036854775806, #0) u = Add(t, s)
    l = Less(u, #0) e = Cast<to=7>(l) q = Add(s, e) y = Reshape(x, q)
Split into nothing said | int64[4] x
    a, b = Split<axis=0>(x) y = Concat<axis=0>(a, b)
Reshape by a scalar | int64[4] x
    y = Reshape(x, ##4)
ReduceMean of nothing | float[N,M] x
    o = Concat<axis=0>(#1, #1) y = ConstantOfShape(o) -->
    e = Constant<value_ints: ints = []>() r = ReduceMean<noop_with_empty_axes=1>(x, e)
    s = Shape(r) y = ConstantOfShape(s)
Squeeze of no axes | int64[1,N] x
    e = Slice(#0, #1, #1) y = Squeeze(x, e)
Cast without saturation | float[N] x | opset 19
    t = Mul(x, $1e9) y = Cast<to=17, saturate=1>(t) -->
    t = Mul(x, $1e9) y = Cast<to=17, saturate=0>(t)
GatherND of other batches | int64[N,3] x
    y = Slice(x, #0, #2, #0) -->
    i = Constant<value=int64[2,3,1]{0,1,2,0,1,2}>() y = GatherND<batch_dims=1>(x, i)
""")
)


@pytest.mark.parametrize("name", EQUAL)
def test_equal_chains_are_proven(name):
    assert EQUAL[name].difference() is None
    comparison = maps.compare(*EQUAL[name].models())
    assert comparison.equal, comparison.reason


@pytest.mark.parametrize("name", DIFFERENT)
def test_wrong_chains_are_not_proven(name):
    mended = NEW and name in MENDED
    assert DIFFERENT[name].difference() is not None or mended, "they do not differ in a run"
    assert not maps.compare(*DIFFERENT[name].models()).equal


def test_a_list_of_all_elements_is_longer_than_a_size():
    assert FLAT.difference() is None
    comparison = maps.compare(*FLAT.models())
    assert comparison.reason is not None and comparison.reason.startswith("Gather")


HALVED = """f (int64[N,H,W] x) => (y) <int32[1] b={2}, int32[1,2] p={0,0}>
    { y = tf.SpaceToBatchND(x, b, p) }"""
EXCHANGED = """f (int64[N,H,W] x) => (y) <int64[1] one={1}, int64[1] two={2},
    int64[1] last={2}, int64[1] minus={-1}> {
        s = Shape(x) h = Gather(s, one) cells = Div(h, two) w = Gather(s, last)
        t = Concat<axis=0>(minus, w, cells) y = Reshape(x, t)
    }"""


def test_sizes_with_names_of_other_symbols():
    # [2N, H/2, W] and [2N, W, H/2]: equal only if W is taken for H/2.
    original, converted = maps.parse(HALVED), maps.parse(EXCHANGED)
    case = Case()
    (_,) = case.all(lambda: maps.operator_map(case, original)[0].index())
    names = {atom.key.name for atom in case.symbols} - {"N", "H"}
    assert len(names) > 2
    for name in names:
        for model in (original, converted):
            model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = name
        assert not maps.compare(original, converted).equal
