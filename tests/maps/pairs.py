"""Pairs of models that are equal, and pairs that are not though a prover may think so."""

from __future__ import annotations

from dataclasses import dataclass

import maps
import onnx


@dataclass(frozen=True)
class Pair:
    """Two models of the same inputs.

    Attributes:
        original: text of the first.
        converted: text of the second.
        opset: of both.
        sizes: where they differ, if not at small sizes.
    """

    original: str
    converted: str
    opset: int = 18
    sizes: tuple[dict[str, int], ...] = ()

    def models(self) -> tuple[onnx.ModelProto, onnx.ModelProto]:
        """Both models."""
        return maps.parse(self.original, self.opset), maps.parse(self.converted, self.opset)


#: A list as it is.
LIST = "f (int64[N] x) => (y) { y = Identity(x) }"
ZEROS = "f (int64[N] x) => (y) { s = Shape(x) y = ConstantOfShape<value=int64[1]{0}>(s) }"


def of_list(stored: str, body: str, original: str = LIST, opset: int = 18, *sizes: int) -> Pair:
    """A chain on a list x of N elements."""
    given = f"<{stored}>" if stored else ""
    text = f"f (int64[N] x) => (y) {given} {{ {body} }}"
    return Pair(original, text, opset, tuple({"N": n} for n in sizes))


#: Blocks of 2 along H with one zero on either side.
BLOCKS = """f (int64[N,H,3] x) => (y) <int32[1] b={2}, int32[1,2] p={1,1}>
    { y = tf.SpaceToBatchND(x, b, p) }"""
MOVED = """f (int64[N,H,3] x) => (y)
    <int64[6] pads={0,1,0,0,1,0}, int64[4] split={0,-1,2,3}, int64[1] zero={0}, int64[1] one={1},
     int64[1] two={2}, int64[1] four={4}, int64[1] minus={-1}, int64[1] three={3}, int64 yes={1},
     int64[1] large={1152921504606846976}, int64[1] thousand={1000}, int64[1] far={9223372036854775807}>
    {
        p = Pad(x, pads)
        r = Reshape(p, split)
        t = Transpose<perm=[2,0,1,3]>(r)
        s = Shape(p)
        h = Gather(s, one)
        cells = Div(h, two)
        target = Concat<axis=0>(minus, cells, three)
        m = Reshape(t, target)
        y = Identity(m)
    }"""


def moved(old: str, new: str, *sizes: dict[str, int]) -> Pair:
    """The chain of the blocks with a change."""
    assert old in MOVED
    return Pair(BLOCKS, MOVED.replace(old, new), sizes=sizes)


def turned(number: str, *sizes: dict[str, int]) -> Pair:
    """The chain of the blocks, whose rows are rotated by a number that is mostly 0."""
    return moved(
        "y = Identity(m)",
        f"{number} k = Cast<to=7>(q) u = Slice(m, k, far, one) v = Slice(m, zero, k, one)"
        " y = Concat<axis=1>(u, v)",
        *sizes,
    )


CONV = """f (float[N,2,H] x) => (y) <float[2,2,2] w={1,2,3,4,5,6,7,8}, float[2] b={1,2}>
    { y = Conv<dilations=[2]>(x, w, b) }"""


def conv(stored: str, body: str, original: str = CONV) -> Pair:
    """A chain in place of a Conv along H."""
    return Pair(original, f"f (float[N,2,H] x) => (y) <{stored}> {{ {body} }}")


_WEIGHTS = "float[2,2,2] w={1,2,3,4,5,6,7,8}, float[2] b={1,2}"
_REVERSE = "int64[1] m={-1}, int64[1] e={-100000}, int64[1] a={2}"
_SWAPPED = "float[2,2,2] w={3,4,1,2,7,8,5,6}, float[2] b={1,2}, int64[2] i={1,0}"
PADDED = CONV.replace("dilations=[2]", "dilations=[2], pads=[2,1]")
NORMAL = "f (float[N,2,H] x) => (y) <float[2] s={1,2}> { y = BatchNormalization(x, s, s, s, s) }"
SOFT = "f (float[N,2,H] x) => (y) { y = Softmax<axis=1>(x) }"
STRINGS = """f (int64[N] x) => (y)
    {
        c = Constant<value_strings=["a","b"]>() s = Shape(x) t = Constant<value_ints=[2]>()
        e = Concat<axis=0>(s, t) y = Expand(c, e)
    }"""
_SLICED = STRINGS.replace(
    'c = Constant<value_strings=["a","b"]>()',
    """all = Constant<value_strings=["a","b","c"]>() first = Constant<value_ints=[0]>()
       end = Constant<value_ints=[2]>() c = Slice(all, first, end)""",
)

EQUAL = {
    "strings": Pair(STRINGS, _SLICED),
    "Conv": Pair(CONV, CONV),
    "Conv of padded data": conv(
        f"{_WEIGHTS}, int64[6] p={{0,0,2,0,0,1}}",
        "q = Pad(x, p) y = Conv<dilations=[2]>(q, w, b)",
        PADDED,
    ),
    "Softmax of transposed data": conv(
        "float[1] b={1}",
        "t = Transpose<perm=[0,2,1]>(x) s = Softmax<axis=2>(t) y = Transpose<perm=[0,2,1]>(s)",
        SOFT,
    ),
    "BatchNormalization, Reshape to its own shape": conv(
        "float[2] s={1,2}",
        "t = BatchNormalization(x, s, s, s, s) h = Shape(x) y = Reshape(t, h)",
        NORMAL,
    ),
    "blocks": Pair(BLOCKS, MOVED),
    "blocks, rotated by 0": turned("q = Less(h, two)"),
    "blocks, by slices": moved(
        "y = Identity(m)",
        "a = Slice(p, zero, far, one, two) b = Slice(p, one, far, one, two) y = Concat<axis=0>(a, b)",
    ),
    "blocks, either way": moved(
        "y = Identity(m)",
        """c = Greater(h, four) d = Squeeze(c) y = If(d)<
            then_branch = g() => (u) { u = Identity(m) },
            else_branch = e() => (v) {
                a = Slice(p, zero, far, one, two) b = Slice(p, one, far, one, two)
                v = Concat<axis=0>(a, b)
            }>""",
    ),
    "a list, read by its places": of_list(
        "int64 zero={0}, int64 one={1}",
        "n = Size(x) r = Range(zero, n, one) y = Gather(x, r)",
    ),
    "a list, read by negative places": of_list(
        "int64 zero={0}, int64 one={1}",
        "n = Size(x) r = Range(zero, n, one) q = Sub(r, n) y = Gather(x, q)",
    ),
    "a list, turned around twice": of_list(
        "int64[1] a={-1}, int64[1] e={-9223372036854775807}, int64[1] z={0}",
        "b = Slice(x, a, e, z, a) y = Slice(b, a, e, z, a)",
    ),
    "a list, cut in two": of_list(
        "int64[1] two={2}",
        "s = Shape(x) a = Div(s, two) b = Sub(s, a) k = Concat<axis=0>(a, b)"
        " u, v = Split<axis=0>(x, k) y = Concat<axis=0>(u, v)",
    ),
    "zeros, padded from nothing": of_list(
        "int64[1] z={0}",
        "s = Shape(x) e = Slice(x, z, z) p = Concat<axis=0>(z, s) y = Pad(e, p)",
        ZEROS,
    ),
}

#: A list of all elements may have more places than a single size.
FLAT = Pair(
    "f (int64[N,M] x) => (y) <int64[1] minus={-1}> { y = Reshape(x, minus) }",
    """f (int64[N,M] x) => (y) <int64[1] minus={-1}, int64 zero={0}, int64 one={1}, int64 five={-5},
        int64 limit={134217729}> {
        f = Reshape(x, minus) n = Size(x) r = Range(zero, n, one) c = Less(r, limit)
        b = Mul(n, five) m = Where(c, r, b) g = Gather(f, m) s = Shape(g) y = Reshape(x, s)
    }""",
)

DIFFERENT = {
    "strings": Pair(STRINGS, _SLICED.replace('"b"', '"x"')),
    # Sums of products
    "Conv of another dilation": Pair(CONV, CONV.replace("[2]>(", "[3]>(")),
    "Conv of another weight": Pair(CONV, CONV.replace("7,8}", "8,7}")),
    "Conv of another bias": Pair(CONV, CONV.replace("b={1,2}", "b={2,1}")),
    "Conv without its bias": Pair(CONV, CONV.replace("w, b)", "w)")),
    "Conv of swapped channels": conv(_SWAPPED, "y = Conv<dilations=[2]>(x, w, b)"),
    "Conv of turned data": conv(
        f"{_WEIGHTS}, {_REVERSE}",
        "q = Slice(x, m, e, a, m) c = Conv<dilations=[2]>(q, w, b) y = Slice(c, m, e, a, m)",
    ),
    "Conv of data padded on the other side": conv(
        f"{_WEIGHTS}, int64[6] p={{0,0,1,0,0,2}}",
        "q = Pad(x, p) y = Conv<dilations=[2]>(q, w, b)",
        PADDED,
    ),
    "Conv of data padded by ones": conv(
        f"{_WEIGHTS}, int64[6] p={{0,0,2,0,0,1}}, float one={{1}}",
        "q = Pad(x, p, one) y = Conv<dilations=[2]>(q, w, b)",
        PADDED,
    ),
    "MaxPool of padded data": conv(
        "int64[6] p={0,0,1,0,0,1}",
        "n = Neg(x) q = Pad(n, p) y = MaxPool<kernel_shape=[3]>(q)",
        "f (float[N,2,H] x) => (y) { n = Neg(x) y = MaxPool<kernel_shape=[3], pads=[1,1]>(n) }",
    ),
    "AveragePool of padded data": conv(
        "int64[6] p={0,0,1,0,0,1}",
        "q = Pad(x, p) y = AveragePool<kernel_shape=[3]>(q)",
        "f (float[N,2,H] x) => (y) { y = AveragePool<kernel_shape=[3], pads=[1,1]>(x) }",
    ),
    "Softmax along another axis": conv("float[1] b={1}", "y = Softmax<axis=2>(x)", SOFT),
    "Sub the other way around": conv(
        "float[1] b={1}",
        "y = Sub(b, x)",
        "f (float[N,2,H] x) => (y) <float[1] b={1}> { y = Sub(x, b) }",
    ),
    "Clip by the other bound": conv(
        "float[1] b={5}",
        "r = Reshape(b, e) y = Min(x, b)".replace("r = Reshape(b, e) ", ""),
        "f (float[N,2,H] x) => (y) <float[1] b={5}> { y = Max(x, b) }",
    ),
    "PRelu of a constant": conv(
        "float[1] five={5}, float[1] zero={0}",
        "s = Shape(x) e = Expand(five, s) y = PRelu(e, zero)",
        "f (float[N,2,H] x) => (y) { s = Shape(x) y = ConstantOfShape(s) }",
    ),
    "BatchNormalization of other channels": conv(
        "float[3] s={1,1,1}",
        "t = BatchNormalization(x, s, s, s, s) h = Shape(t) y = Reshape(x, h)",
        "f (float[N,2,H] x) => (y) { y = Identity(x) }",
    ),
    "Conv with a bias of other channels": conv(
        "float[4,2,1] w={1,1,1,1,1,1,1,1}, float[3] b={1,1,1}",
        "t = Conv(x, w, b) y = Shape(t)",
        "f (float[N,2,H] x) => (y) <float[4,2,1] w={1,1,1,1,1,1,1,1}> { t = Conv(x, w) y = Shape(t) }",
    ),
    # Movement
    "axes in another order": moved("[2,0,1,3]", "[0,2,1,3]"),
    "offsets behind the images": moved(
        "t = Transpose<perm=[2,0,1,3]>(r)", "t = Transpose<perm=[0,2,1,3]>(r)"
    ),
    "pads on the wrong side": moved("{0,1,0,0,1,0}", "{0,2,0,0,0,0}"),
    "cells and offsets exchanged": moved("{0,-1,2,3}", "{0,2,-1,3}"),
    "a Reshape that copies another dim": moved("{0,-1,2,3}", "{-1,0,2,3}"),
    "slices one too far": moved(
        "y = Identity(m)",
        "a = Slice(p, one, far, one, two) b = Slice(p, zero, far, one, two) y = Concat<axis=0>(a, b)",
    ),
    "rotated at one residue": turned("a = Mod(h, four) q = Equal(a, two)"),
    "rotated at one size": turned("q = Equal(h, four)"),
    "rotated beyond a size": turned("q = Greater(h, thousand)", {"N": 1, "H": 1000}),
    "rotated in one batch": turned("i = Gather(s, zero) a = Equal(i, three) q = And(a, a)"),
    "one branch is wrong": moved(
        "y = Identity(m)",
        """c = Greater(h, four) d = Squeeze(c) y = If(d)<
            then_branch = g() => (u) { u = Identity(m) },
            else_branch = e() => (v) { w = Transpose<perm=[0,2,1,3]>(r) v = Reshape(w, target) }>""",
    ),
    # What fails in a run, whether its result is needed or not
    "Gather beyond the end, not chosen": of_list(
        "int64[1] z={0}, int64 zero={0}, int64 one={1}, int64 five={5}",
        "n = Size(x) r = Range(zero, n, one) p = Add(r, five) g = Gather(x, p) t = Less(r, zero)"
        " y = Where(t, g, x)",
    ),
    "Gather beyond the end, for its shape": of_list(
        "int64 zero={0}, int64 one={1}, int64 five={5}",
        "n = Size(x) r = Range(zero, n, one) p = Add(r, five) g = Gather(x, p) t = Shape(g)"
        " y = Reshape(x, t)",
    ),
    "one of many stored indices beyond the end": of_list(
        f"int64[70] i={{{'0,' * 69}5}}",
        "g = Gather(x, i) a = Shape(g) b = Sub(a, a) c = Shape(x) t = Add(b, c) y = Reshape(x, t)",
    ),
    "one of many stored indices below the start": of_list(
        f"int64[70] i={{{'0,' * 69}-5}}",
        "g = Gather(x, i) a = Shape(g) b = Sub(a, a) c = Shape(x) t = Add(b, c) y = Reshape(x, t)",
    ),
    "GatherND beyond the end, for its shape": of_list(
        "int64[2,1] i={0,5}, int64[1] z={0}",
        "g = GatherND(x, i) a = Shape(g) b = Sub(a, a) c = Shape(x) t = Add(b, c) y = Reshape(x, t)",
    ),
    "If on a list": of_list(
        "int64 zero={0}, int64 one={1}",
        "n = Size(x) r = Range(zero, n, one) c = Equal(r, zero) y = If(c)<"
        "then_branch = g() => (u) { u = Identity(x) }, else_branch = h() => (v) { v = Identity(x) }>",
    ),
    "Range from a list": of_list(
        "int64[2] zeros={0,5}, int64 one={1}",
        "n = Size(x) r = Range(zeros, n, one) y = Gather(x, r)",
    ),
    # Sizes that are negative or 0
    "Split into a negative part": of_list(
        "int64[1] three={3}",
        "s = Shape(x) r = Sub(s, three) k = Concat<axis=0>(three, r) a, b = Split<axis=0>(x, k)"
        " y = Concat<axis=0>(a, b)",
    ),
    "Split of an odd size before opset 18": of_list(
        "", "a, b = Split<axis=0>(x) y = Concat<axis=0>(a, b)", LIST, 17
    ),
    "Split into more parts than elements": of_list(
        "", "a, b = Split<axis=0, num_outputs=2>(x) y = Concat<axis=0>(a, b)"
    ),
    "ConstantOfShape of a negative size": of_list(
        "int64[1] two={2}",
        "s = Shape(x) t = Sub(s, two) c = ConstantOfShape<value=int64[1]{0}>(t)"
        " d = ConstantOfShape<value=int64[1]{0}>(two) y = Concat<axis=0>(c, d)",
        ZEROS,
    ),
    "Tile by a negative number": of_list(
        "int64[1] two={2}, int64[1] z={0}",
        "s = Shape(x) t = Sub(s, two) c = Tile(z, t) d = ConstantOfShape<value=int64[1]{0}>(two)"
        " y = Concat<axis=0>(c, d)",
        ZEROS,
    ),
    "Reshape by -1 beside 0": of_list(
        "int64[1] o={1}, int64[2] sh={0,-1}, int64[1] z={0}, int64[1] m={-1}",
        "s = Shape(x) c = Slice(x, o, s) d = Unsqueeze(c, o) e = Reshape(d, sh) g = Reshape(e, m)"
        " h = Slice(x, z, o) y = Concat<axis=0>(h, g)",
    ),
    "Reshape by two -1": Pair(
        "f (int64[N] x) => (y) <int64[1] z={0}> { y = Unsqueeze(x, z) }",
        "f (int64[N] x) => (y) <int64[2] t={-1,-1}> { y = Reshape(x, t) }",
    ),
    "NonZero of a list that may be empty": of_list(
        "int64[1] o={1}",
        "s = Shape(x) t = Sub(s, o) c = ConstantOfShape<value=int64[1]{1}>(t) z = NonZero(c)"
        " q = Shape(z) v = Gather(q, o) w = Max(v, o) m = Add(w, o) y = Reshape(x, m)",
    ),
    "NonZero of two lists": of_list(
        "int64[5] ones={1,1,1,1,1}, int64 zero={0}, int64 one={1}, int64[1] z={0}",
        "a = NonZero(ones) e = Shape(a) five = Gather(e, one) n = Size(x) r = Range(zero, n, one)"
        " l = Less(r, five) b = NonZero(l) q = Squeeze(b, z) y = Gather(x, q)",
    ),
    # Integers are not unbounded
    "int8 wraps": of_list(
        "", "s = Shape(x) t = Cast<to=3>(s) u = Cast<to=7>(t) y = Reshape(x, u)", LIST, 18, 300
    ),
    "uint64 of a negative number": of_list(
        "uint64[1] two={2}, uint64[1] z={0}",
        "t = Sub(z, two) l = Less(z, t) y = Cast<to=7>(l)",
        "f (int64[N] x) => (y) <int64[1] z={0}> { y = Identity(z) }",
    ),
    "int64 overflows": of_list(
        "int64[1] k={4611686018427387904}",
        "s = Shape(x) t = Mul(s, k) u = Div(t, k) y = Reshape(x, u)",
    ),
    "int32 overflows": of_list(
        "int32[1] k={1073741824}",
        "s = Shape(x) c = Cast<to=6>(s) t = Mul(c, k) u = Div(t, k) d = Cast<to=7>(u) y = Reshape(x, d)",
    ),
    "rotated where a product overflows": turned("a = Mul(h, large) q = Less(a, one)"),
    "a square of a size is large": of_list(
        "int64[1] three={3}, int64[1] big={4294967296}, int64[1] o={1}, int64[1] z={0}",
        "s = Shape(x) a = Mul(s, s) u = Div(a, three) l = Less(u, big) w = Where(l, z, o) e = Add(s, w)"
        " y = Reshape(x, e)",
        LIST,
        18,
        120000,
    ),
    "int32 overflows in a sum": of_list(
        "int32[1] k={2147483647}, int32[1] z={0}",
        "s = Shape(x) c = Cast<to=6>(s) t = Add(c, k) l = Less(t, z) e = Cast<to=7>(l)"
        " q = Add(s, e) y = Reshape(x, q)",
    ),
    "int64 overflows in a sum": of_list(
        "int64[1] k={9223372036854775807}, int64[1] z={0}",
        "s = Shape(x) t = Add(s, k) l = Less(t, z) e = Cast<to=7>(l) q = Add(s, e) y = Reshape(x, q)",
    ),
    "int64 overflows in a sum of a choice": of_list(
        "int64[1] k={9223372036854775806}, int64[1] z={0}, int64[1] two={2}",
        "s = Shape(x) c = Greater(s, two) t = Where(c, k, z) u = Add(t, s) l = Less(u, z)"
        " e = Cast<to=7>(l) q = Add(s, e) y = Reshape(x, q)",
    ),
    "int64 overflows in a power": of_list(
        "int64[1] z={0}",
        "s = Shape(x) t = Mul(s, s) u = Mul(t, t) l = Less(u, z) e = Cast<to=7>(l) q = Add(s, e)"
        " y = Reshape(x, q)",
        LIST,
        18,
        60000,
    ),
    "int32 overflows in a square": of_list(
        "int32[1] z={0}",
        "s = Shape(x) c = Cast<to=6>(s) t = Mul(c, c) l = Less(t, z) e = Cast<to=7>(l) q = Add(s, e)"
        " y = Reshape(x, q)",
        LIST,
        18,
        50000,
    ),
    "a square is cast to int32": of_list(
        "int32[1] z={0}",
        "s = Shape(x) c = Mul(s, s) t = Cast<to=6>(c) l = Less(t, z) e = Cast<to=7>(l) q = Add(s, e)"
        " y = Reshape(x, q)",
        LIST,
        18,
        50000,
    ),
    "Range of large numbers": of_list(
        "int64 k={9223372036854775807}, int64 one={1}",
        "n = Size(x) d = Sub(k, n) r = Range(d, k, one) a = Sub(r, d) y = Gather(x, a)",
    ),
    # Attributes
    "Slice to the start by the largest end": of_list(
        "int64[1] a={-1}, int64[1] e={9223372036854775807}, int64[1] z={0}",
        "y = Slice(x, a, e, z, a)",
        "f (int64[N] x) => (y) <int64[1] z={0}> { y = Slice(x, z, z) }",
    ),
    "Split of 4 into 3": Pair(
        "f (int64[4] x) => (y) { y = Identity(x) }",
        """f (int64[4] x) => (y)
            { a, b, c = Split<axis=0, num_outputs=3>(x) y = Concat<axis=0>(a, b, c) }""",
    ),
    "Split into nothing said": Pair(
        "f (int64[4] x) => (y) { y = Identity(x) }",
        "f (int64[4] x) => (y) { a, b = Split<axis=0>(x) y = Concat<axis=0>(a, b) }",
    ),
    "Reshape by a scalar": Pair(
        "f (int64[4] x) => (y) { y = Identity(x) }",
        "f (int64[4] x) => (y) <int64 k={4}> { y = Reshape(x, k) }",
    ),
    "ConstantOfShape of a scalar": Pair(
        "f (int64[4] x) => (y) <int64[1] k={4}> { y = ConstantOfShape(k) }",
        "f (int64[4] x) => (y) <int64 k={4}> { y = ConstantOfShape(k) }",
    ),
    "Max of 17": of_list(
        "int64[1] z={0}, int64[1] o={9}",
        f"s = Shape(x) t = Max(s, {'z, ' * 15} o) y = Reshape(x, t)",
    ),
    "ReduceSum of nothing": of_list(
        "int64[0] e={}",
        "s = Shape(x) p = Concat<axis=0>(s, s) y = ReduceSum<noop_with_empty_axes=1>(p, e)",
        "f (int64[N] x) => (y) { s = Shape(x) p = Concat<axis=0>(s, s) y = ReduceSum(p) }",
    ),
    "ReduceMean of nothing": Pair(
        "f (float[N,M] x) => (y) <int64[2] o={1,1}> { y = ConstantOfShape(o) }",
        """f (float[N,M] x) => (y) <int64[0] e={}> {
            r = ReduceMean<noop_with_empty_axes=1>(x, e) s = Shape(r) y = ConstantOfShape(s) }""",
    ),
    "ReduceMax of no axes": of_list(
        "",
        "s = Shape(x) p = Concat<axis=0>(s, s) y = ReduceMax<noop_with_empty_axes=1>(p)",
        "f (int64[N] x) => (y) { y = Shape(x) }",
    ),
    "Squeeze of no axes": Pair(
        "f (int64[1,N] x) => (y) { y = Identity(x) }",
        "f (int64[1,N] x) => (y) <int64[0] e={}> { y = Squeeze(x, e) }",
    ),
    "Slice of one axis twice": of_list(
        "int64[1] o={1}, int64[2] f={7,1}, int64[2] a={0,0}",
        "s = Shape(x) e = Concat<axis=0>(s, s) y = Slice(x, f, e, a)",
        "f (int64[N] x) => (y) <int64[1] o={1}> { s = Shape(x) y = Slice(x, o, s) }",
    ),
    "Cast without saturation": Pair(
        "f (float[N] x) => (y) <float[1] k={1e9}> { t = Mul(x, k) y = Cast<to=17, saturate=1>(t) }",
        "f (float[N] x) => (y) <float[1] k={1e9}> { t = Mul(x, k) y = Cast<to=17, saturate=0>(t) }",
        19,
    ),
    "GatherND of other batches": Pair(
        "f (int64[N,3] x) => (y) <int64[1] z={0}, int64[1] two={2}> { y = Slice(x, z, two, z) }",
        """f (int64[N,3] x) => (y) <int64[2,3,1] i={0,1,2,0,1,2}>
            { y = GatherND<batch_dims=1>(x, i) }""",
    ),
}
