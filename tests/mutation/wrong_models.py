"""The wrong models that were written by hand, by idea."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from wrong import TF, Base, Edit, Wrong, parsed, spoiled

import onnx_spatial

#: SpaceToBatch with zeros around.
_PADDED = Base(stored={"block": [2, 2], "pads": [[2, 0], [0, 2]]})
_BATCH_TO_SPACE = Base(f"y = {TF}.BatchToSpaceND (x, block, pads)")
_RUN_TIME = Base(stored={"block": [2, 2]}, inputs={"pads": (2, 2)})
#: The rows of the result backwards.
_BACKWARD = "y = Slice (z, #-1, #-9223372036854775807, #1, #-1)"
_NO_PADS = {"pads": [[0, 0], [0, 0]]}


def _named(dims: str) -> Base:
    return Base(dims=dims)


def _fill(value: np.generic | None, mode: str | None = None) -> Edit:
    """Let every Pad fill with another value, or in another way."""

    def edit(model: onnx.ModelProto) -> None:
        pads = [node for node in model.graph.node if node.op_type == "Pad"]
        assert pads
        for node in pads:
            if mode is not None:
                kept = [a for a in node.attribute if a.name != "mode"]
                del node.attribute[:]
                node.attribute.extend([*kept, helper.make_attribute("mode", mode)])
            if value is not None:
                del node.input[2:]
                node.input.append("other_fill")
        if value is not None:
            array = np.asarray(value)
            model.graph.initializer.append(numpy_helper.from_array(array, "other_fill"))

    return edit


def _fill_from(text: str) -> Edit:
    """Let every Pad fill with the element that nodes compute from `x`."""

    def edit(model: onnx.ModelProto) -> None:
        nodes, stored = parsed(text)
        model.graph.initializer.extend(stored.values())
        for node in model.graph.node:
            if node.op_type == "Pad":
                del node.input[2:]
                node.input.append("fill")
        for node in reversed(nodes):
            model.graph.node.insert(0, node)

    return edit


def _store(name: str, array: np.ndarray) -> Edit:
    """Store a constant, in place of one with its name."""

    def edit(model: onnx.ModelProto) -> None:
        kept = [t for t in model.graph.initializer if t.name != name]
        del model.graph.initializer[:]
        model.graph.initializer.extend([*kept, numpy_helper.from_array(array, name)])

    return edit


def _counted(size: int, wrong: int) -> np.ndarray:
    """0, 1, 2, .. with another number at one place."""
    table = np.arange(size)
    table[wrong] -= 1
    return table


def _sparse(model: onnx.ModelProto) -> None:
    """Store [1] as a sparse constant."""
    values = helper.make_tensor("sparse", TensorProto.INT64, [1], [1])
    places = helper.make_tensor("sparse_places", TensorProto.INT64, [1], [0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [1]))


def _patches(kernel: str, strides: str, rates: str) -> Base:
    settings = f'ksizes = {kernel}, strides = {strides}, rates = {rates}, padding = "SAME"'
    return Base(f"y = {TF}.ExtractImagePatches <{settings}> (x)", stored={})


def _function(text: str) -> str:
    return f'<domain: "my", opset_import: ["" : 18, "my" : 1]> {text}\n'


#: The body of a function that takes an element of a list.
_TAKE = (
    "i = Constant <value_int: int = @place> ()\n d = Constant <value_ints = [1]> ()\n"
    " j = Reshape (i, d)\n o = Gather (a, j)"
)

_ARITHMETIC = (
    Wrong(
        "int8 wraps",
        "a = Cast <to = 3> (h)\nq = Cast <to = 7> (a)\nk = Sub (q, h)",
        (1, 200, 4, 1),
    ),
    Wrong(
        "uint8 wraps",
        "a = Cast <to = 2> (h)\nq = Cast <to = 7> (a)\nk = Sub (q, h)",
        (1, 300, 4, 1),
    ),
    Wrong(
        "int16 wraps",
        "a = Cast <to = 5> (h)\nq = Cast <to = 7> (a)\nk = Sub (q, h)",
        (1, 40000, 2, 1),
    ),
    Wrong(
        "uint16 wraps",
        "a = Cast <to = 4> (h)\nq = Cast <to = 7> (a)\nk = Sub (q, h)",
        (1, 70000, 2, 1),
    ),
    Wrong(
        "int8 wraps of a product",
        "hw = Mul (h, w)\na = Cast <to = 3> (hw)\nq = Cast <to = 7> (a)\nk = Sub (q, hw)",
        (1, 16, 16, 1),
    ),
    Wrong(
        "uint8 of a negative number",
        "a = Sub (#0, #1)\nq = Cast <to = 2> (a)\nr = Cast <to = 7> (q)\nk = Add (r, #1)",
    ),
    Wrong(
        "int32 overflows in a product",
        "a = Cast <to = 6> (h)\n"
        "q = Mul (a, #i32:1073741824)\n"
        "r = Cast <to = 7> (q)"
        "f = Mul (h, #1073741824)\n"
        "k = Sub (r, f)",
    ),
    Wrong(
        "int32 overflows in a sum",
        "a = Cast <to = 6> (h)\n"
        "q = Add (a, #i32:2147483647)\n"
        "r = Cast <to = 7> (q)"
        "f = Add (h, #2147483647)\n"
        "k = Sub (r, f)",
    ),
    Wrong(
        "int32 of a number above 2^31",
        "f = Mul (h, #1073741824)\na = Cast <to = 6> (f)\nr = Cast <to = 7> (a)\nk = Sub (r, f)",
    ),
    Wrong(
        "int64 overflows to 0",
        "a = Mul (h, #4611686018427387904)\n"
        "q = Mul (a, #4)\n"
        "e = Equal (q, #0)\n"
        "k = Cast <to = 7> (e)",
    ),
    Wrong(
        "int64 overflows to a negative number",
        "a = Mul (h, #1152921504606846976)\ne = Less (a, #1)\nk = Cast <to = 7> (e)",
    ),
    Wrong(
        "int64 overflows in powers of a size",
        "a = Mul (h, h)\n"
        "b2 = Mul (a, a)\n"
        "b4 = Mul (b2, b2)\n"
        "b8 = Mul (b4, #65536)\n"
        "b9 = Mul (b8, #65536)"
        "e = Less (b9, #1)\n"
        "k = Cast <to = 7> (e)",
        (1, 64, 2, 1),
    ),
    Wrong(
        "uint64 above 2^63",
        "a = Cast <to = 7> (#u64:18446744073709551615)\ne = Less (a, #0)\nk = Cast <to = 7> (e)",
    ),
    Wrong(
        "uint64 of a negative number",
        "a = Sub (#0, h)\nq = Cast <to = 13> (a)\ne = Greater (q, #u64:0)\nk = Cast <to = 7> (e)",
    ),
    Wrong(
        "uint64 wraps in a difference",
        "a = Cast <to = 13> (h)\n"
        "q = Sub (#u64:0, a)\n"
        "e = Greater (q, #u64:0)\n"
        "k = Cast <to = 7> (e)",
    ),
    Wrong(
        "float16 loses integers above 2048",
        "a = Cast <to = 10> (h)\nq = Cast <to = 7> (a)\nk = Sub (q, h)",
        (1, 4098, 2, 1),
    ),
    Wrong(
        "float loses integers above 2^24",
        "f = Mul (h, #16777217)\na = Cast <to = 1> (f)\nq = Cast <to = 7> (a)\nk = Sub (q, f)",
        (1, 10, 2, 1),
    ),
    Wrong(
        "float comparison of unequal integers",
        "f = Mul (h, #100000000)\n"
        "g = Add (f, #1)\n"
        "a = Cast <to = 1> (f)\n"
        "q = Cast <to = 1> (g)"
        "e = Equal (a, q)\n"
        "k = Cast <to = 7> (e)",
    ),
    Wrong(
        "float division rounds",
        "a = Cast <to = 1> (h)\n"
        "r = Reciprocal (a)\n"
        "o = Mul (a, r)\n"
        "q = Cast <to = 7> (o)\n"
        "k = Sub (q, #1)",
        (1, 82, 2, 1),
    ),
    Wrong("division rounds toward zero", "a = Sub (#0, #7)\nq = Div (a, #2)\nk = Add (q, #4)"),
    Wrong(
        "fmod of a negative number",
        "a = Sub (#0, #7)\nq = Mod <fmod = 1> (a, #2)\nk = Sub (q, #1)",
    ),
    Wrong("Mod by a negative number", "q = Mod (#7, #-4)\nk = Sub (q, #3)"),
    Wrong("bool of 2 is 1", "a = Cast <to = 9> (#2)\nq = Cast <to = 7> (a)\nk = Sub (q, #2)"),
    Wrong(
        "Max of 17 numbers",
        "h2 = Mul (h, #2)\n"
        "m = Max (h, h, h, h, h, h, h, h, h, h, "
        " h, h, h, h, h, h, h2)\n"
        "k = Sub (m, h)",
    ),
    Wrong("Sum of 17 numbers", f"k = Sum ({'#0, ' * 16}#1)"),
    Wrong(
        "no axes and noop_with_empty_axes",
        "v = Concat <axis = 0> (#1, #-1)\n"
        "r = ReduceSum <noop_with_empty_axes = 1> (v)\n"
        "k = Slice (r, #0, #1)",
    ),
    Wrong(
        "empty axes and noop_with_empty_axes",
        "v = Concat <axis = 0> (#1, #-1)\n"
        "a = Constant <value_ints = [0]> ()\n"
        "e = Slice (a, #0, #0)"
        "r = ReduceSum <noop_with_empty_axes = 1> (v, e)\n"
        "k = Slice (r, #0, #1)",
    ),
    Wrong(
        "a size that is compared with itself as a string",
        "a = Cast <to = 8> (h)\n"
        "q = Cast <to = 7> (a)\n"
        "r = Sub (q, h)\n"
        "e = Equal (h, #8)"
        "d = Cast <to = 7> (e)\n"
        "k = Add (r, d)",
    ),
    Wrong(
        "overflow of the square of a product of sizes",
        "hw = Mul (h, w)\n"
        "a = Cast <to = 6> (hw)\n"
        "q = Mul (a, a)\n"
        "r = Cast <to = 7> (q)\n"
        "f = Mul (hw, hw)"
        "k = Sub (r, f)",
        (1, 400, 200, 1),
    ),
    Wrong(
        "int32 square of a size",
        "a = Cast <to = 6> (h)\nq = Mul (a, a)\ne = Less (q, #i32:1)\nk = Cast <to = 7> (e)",
        (1, 46342, 2, 1),
    ),
    Wrong(
        "int32 product of sizes of two tensors",
        "a = Cast <to = 6> (h)\nb1 = Cast <to = 6> (zh)\nq = Mul (a, b1)\nc1 = Mul (q, #i32:2)\n"
        "e = Less (c1, #i32:1)\nk = Cast <to = 7> (e)",
        (1, 46342, 2, 1),
    ),
    Wrong(
        "int64 fourth power of a size",
        "a = Mul (h, h)\nq = Mul (a, a)\ne = Less (q, #1)\nk = Cast <to = 7> (e)",
        (1, 65536, 2, 1),
    ),
    Wrong(
        "int64 fifth power of a size, from a list",
        "v = Concat <axis = 0> (h, h, h, h)\nu = Concat <axis = 0> (h, v)\np4 = ReduceProd (v)\n"
        "p5 = ReduceProd (u)\nm = Mul (p4, h)\nk = Sub (p5, m)",
        (1, 65536, 2, 1),
    ),
    Wrong(
        "int32 product in a list",
        "a = Cast <to = 6> (h)\nv = Concat <axis = 0> (a, a)\nq = ReduceProd (v)\nm = Mul (a, a)\n"
        "d = Sub (q, m)\nk = Cast <to = 7> (d)",
        (1, 46342, 2, 1),
    ),
    Wrong(
        "int32 sum of a list",
        "a = Cast <to = 6> (h)\nv = Concat <axis = 0> (a, #i32:2147483647)\nq = ReduceSum (v)\n"
        "m = Sub (q, #i32:2147483647)\nd = Sub (m, a)\nk = Cast <to = 7> (d)",
    ),
    Wrong(
        "int64 sum of a list, rounded as a double",
        "v = Concat <axis = 0> (#9007199254740992, #3)\nq = ReduceSum (v)\n"
        "m = Sub (q, #9007199254740995)\nk = Identity (m)",
    ),
    Wrong(
        "int64 sum of a list with a size, rounded as a double",
        "v = Concat <axis = 0> (#9007199254740993, h)\nq = ReduceSum (v)\n"
        "m = Sub (q, #9007199254740993)\nk = Sub (m, h)",
    ),
    Wrong(
        "int64 product of a list, rounded as a double",
        "v = Concat <axis = 0> (#9007199254740993, #1)\nq = ReduceProd (v)\n"
        "k = Sub (q, #9007199254740993)",
    ),
    Wrong(
        "int32 of a number of elements, times 16",
        "a = Cast <to = 6> (h)\nq = Mul (a, #i32:16)\ne = Less (q, #i32:1)\nk = Cast <to = 7> (e)",
        outside="2^27 rows",
    ),
    Wrong(
        "int32 range",
        "a = Cast <to = 6> (h)\ns0 = Squeeze (a)\nq = Mul (s0, s0)\nl = Add (q, s0)\n"
        "o = Cast <to = 6> (#1)\nst = Squeeze (o)\nr = Range (q, l, st)\nf = Slice (r, #0, #1)\n"
        "e = Less (f, #i32:1)\nk = Cast <to = 7> (e)",
        (1, 46342, 2, 1),
    ),
    Wrong(
        "int32 negation of the smallest number",
        "a = Cast <to = 6> (h)\nm = Sub (#i32:-2147483648, #i32:0)\nq = Abs (m)\n"
        "e = Less (q, #i32:0)\nk = Cast <to = 7> (e)",
    ),
)

_SIZES = (
    Wrong(
        "one residue class",
        "m = Mod (h, #32)\ne = Equal (m, #12)\nk = Cast <to = 7> (e)",
        (1, 44, 2, 1),
    ),
    Wrong("one size", "e = Equal (h, #1234)\nk = Cast <to = 7> (e)", (1, 1234, 2, 1)),
    Wrong("one batch", "e = Equal (n, #3)\nk = Cast <to = 7> (e)", (3, 4, 2, 1)),
    Wrong(
        "one product",
        "a = Mul (h, w)\nq = Mul (a, n)\ne = Equal (q, #72)\nk = Cast <to = 7> (e)",
        (3, 6, 4, 1),
    ),
    Wrong("equal sizes", "e = Equal (h, w)\nk = Cast <to = 7> (e)", (1, 4, 4, 1)),
    Wrong("sizes above a number", "a = Sub (h, #1000)\nk = Max (a, #0)", (1, 1002, 2, 1)),
    Wrong("digits of a size", "a = Div (h, #1000)\nk = Min (a, #1)", (1, 1002, 2, 1)),
    Wrong(
        "one remainder of a product",
        "a = Mul (h, w)\nm = Mod (a, #64)\ne = Equal (m, #20)\nk = Cast <to = 7> (e)",
        (1, 42, 2, 1),
    ),
    Wrong(
        "one value of pads",
        "v = Reshape (pads, #-1)\na = Slice (v, #1, #2)\ne = Equal (a, #6)\nk = Cast <to = 7> (e)",
        (1, 4, 2, 1),
        _RUN_TIME,
        feeds={"pads": [[0, 6], [0, 0]]},
    ),
    Wrong(
        "one sum of pads",
        "k0 = ReduceSum <keepdims = 0> (pads)\n"
        "v = Reshape (k0, #1)\n"
        "e = Equal (v, #20)\n"
        "k = Cast <to = 7> (e)",
        (1, 4, 2, 1),
        _RUN_TIME,
        feeds={"pads": [[4, 6], [10, 0]]},
    ),
    Wrong("a square", "a = Mul (h, h)\ne = Equal (a, #1444)\nk = Cast <to = 7> (e)", (1, 38, 2, 1)),
    Wrong(
        "If on one size",
        "e = Equal (h, #38)\n"
        "y = If (e) <"
        "then_branch = a () => (float[?,?,?,?] r) {r = Neg (z)}, "
        "else_branch = b () => (float[?,?,?,?] o) {o = Identity (z)}>",
        (1, 38, 2, 1),
    ),
    Wrong(
        "If with names of the outer graph",
        "e = Equal (h, #38)\n"
        "k = If (e) <"
        "then_branch = a () => (int64[1] r) {r = Identity (#1)}, "
        "else_branch = b () => (int64[1] o) {o = Identity (#0)}>",
        (1, 38, 2, 1),
    ),
    Wrong(
        "If on data",
        "a = Reshape (x, #-1)\n"
        "q = Slice (a, #0, #1)\n"
        "v = Cast <to = 9> (q)\n"
        "y = If (v) <"
        "then_branch = a () => (float[?,?,?,?] r) {r = Neg (z)}, "
        "else_branch = b () => (float[?,?,?,?] o) {o = Identity (z)}>",
    ),
    Wrong("Where on sizes", "e = Equal (h, #38)\nk = Where (e, #1, #0)", (1, 38, 2, 1)),
    Wrong(
        "an element of a table at a size",
        "a = Constant <value_ints = [0, 0, 0, 0, 0, 1, 0, 0]> ()\n"
        "m = Mod (h, #8)\n"
        "q = Div (h, #2)\n"
        "m1 = Mod (q, #8)\n"
        "k = Gather (a, m1)",
        (1, 10, 2, 1),
    ),
    Wrong(
        "xor of two conditions",
        "e = Equal (h, #38)\n"
        "f = Equal (w, #4)\n"
        "g = Xor (e, f)\n"
        "a = Or (e, f)\n"
        "i = Not (g)\n"
        "j = And (a, i)\n"
        "k = Cast <to = 7> (j)",
        (1, 38, 4, 1),
    ),
    Wrong(
        "a range that is one too long",
        "z0 = Squeeze (#0)\n"
        "s0 = Squeeze (h)\n"
        "d = Constant <value_int = 3> ()\n"
        "r = Range (z0, s0, d)\n"
        "l = Shape (r)\n"
        "q = Div (h, #3)\n"
        "k = Sub (l, q)",
        (1, 4, 2, 1),
    ),
)

_NAMES = (
    Wrong("a dim with the name of an index", _BACKWARD, base=_named("n,h,w,i3.0")),
    Wrong("a dim with the name of a later digit", _BACKWARD, base=_named("n,h,w,i0.2")),
    Wrong("dims with the names of all indices", _BACKWARD, base=_named("i0.0,i1.0,i2.0,i3.0")),
    Wrong("dims with the names of indices in memory", _BACKWARD, base=_named("i0,i1,i2,i3")),
    Wrong(
        "a dim with the name for one without",
        "e = Equal (n, h)\nf = Not (e)\nk = Cast <to = 7> (f)",
        base=_named(",D0,w,c"),
    ),
    Wrong(
        "a dim with another name for one without",
        "e = Equal (n, h)\nf = Not (e)\nk = Cast <to = 7> (f)",
        base=_named(",x[0],w,c"),
    ),
    Wrong(
        "a dim with the name of an element",
        "e = Equal (n, h)\nf = Not (e)\nk = Cast <to = 7> (f)",
        base=_named(",x_0,w,c"),
    ),
    Wrong(
        "a dim with the name of a multiple",
        "a = Mul (w, #2)\ne = Equal (h, a)\nf = Not (e)\nk = Cast <to = 7> (f)",
        (1, 8, 2, 1),
        base=_named("n,h,h',c"),
    ),
    Wrong(
        "a dim with the name of an entry",
        "v = Reshape (pads, #-1)\n"
        "q = Slice (v, #1, #2)\n"
        "e = Equal (h, q)\n"
        "f = Not (e)\n"
        "k = Cast <to = 7> (f)",
        (1, 4, 2, 1),
        Base(dims=("n", "pads[0,1]", "w", "c"), stored={"block": [2, 2]}, inputs={"pads": (2, 2)}),
        feeds=_NO_PADS,
    ),
    Wrong(
        "a dim with the name of another probe",
        "a = ConstantOfShape <value = int64[1] {1}> (w)\n"
        "q = NonZero (a)\n"
        "l = Shape (q)\n"
        "e = Equal (h, #8)\n"
        "d = Cast <to = 7> (e)\n"
        "l1 = Slice (l, #1, #2)\n"
        "l2 = Sub (l1, w)\n"
        "k = Add (l2, d)",
        base=_named("n,h,nonzero0,c"),
    ),
)

_FAILING = (
    Wrong(
        "division by 0 in an element that nothing reads",
        "a = Concat <axis = 0> (h, h)\n"
        "d = Sub (h, #8)\n"
        "q = Concat <axis = 0> (#1, d)\n"
        "v = Div (a, q)\n"
        "f = Slice (v, #0, #1)\n"
        "k = Sub (f, h)",
        outside="the process ends with SIGFPE",
    ),
    Wrong(
        "Mod by 0 in an element that nothing reads",
        "a = Concat <axis = 0> (h, h)\n"
        "d0 = Sub (h, #8)\n"
        "d = Abs (d0)\n"
        "q = Concat <axis = 0> (#1, d)\n"
        "v = Mod (a, q)\n"
        "k = Slice (v, #0, #1)",
        outside="the process ends with SIGFPE",
    ),
    Wrong(
        "Gather behind the end in an element that nothing reads",
        "i = Concat <axis = 0> (#1, h)\na = Gather (s, i)\nf = Slice (a, #0, #1)\nk = Sub (f, h)",
    ),
    Wrong(
        "Gather of rows behind the end that nothing reads",
        "i = Concat <axis = 0> (#0, h)\n"
        "a = Gather <axis = 1> (z, i)\n"
        "f = Slice (a, #0, #1, #1)\n"
        "r = Slice (z, #1, #99999999, #1)\n"
        "y = Concat <axis = 1> (f, r)",
    ),
    Wrong(
        "Gather before the start that nothing reads",
        "m = Sub (#0, h)\n"
        "i = Concat <axis = 0> (#1, m)\n"
        "a = Gather (s, i)\n"
        "f = Slice (a, #0, #1)\n"
        "k = Sub (f, h)",
    ),
    Wrong(
        "GatherND behind the end in an element that nothing reads",
        "i = Concat <axis = 0> (#1, h)\n"
        "j = Unsqueeze (i, #1)\n"
        "a = GatherND (s, j)\n"
        "f = Slice (a, #0, #1)\n"
        "k = Sub (f, h)",
    ),
    Wrong(
        "ConstantOfShape of a negative size",
        "d = Sub (h, #9)\n"
        "m = Min (d, #0)\n"
        "a = ConstantOfShape (m)\n"
        "p1 = Sub (#0, m)\n"
        "q = ConstantOfShape (p1)\n"
        "v = Concat <axis = 0> (a, q)\n"
        "k = Shape (v)",
    ),
    Wrong(
        "ConstantOfShape of a product of negative sizes",
        "c1 = Concat <axis = 0> (#-1, #-1)\n"
        "a = ConstantOfShape (c1)\n"
        "l = Size (a)\n"
        "q = Reshape (l, #1)\n"
        "k = Sub (q, #1)",
    ),
    Wrong(
        "Split into a negative part",
        "a = Add (zh, #1)\n"
        "q = Concat <axis = 0> (a, #-1)\n"
        "u, v = Split <axis = 1> (z, q)\n"
        "y = Concat <axis = 1> (u, v)",
    ),
    Wrong(
        "Split of an odd size into two, before opset 18",
        "u, v = Split <axis = 1> (z)\ny = Concat <axis = 1> (u, v)",
        (1, 6, 4, 1),
        Base(opset=17),
    ),
    Wrong(
        "Tile by -1, twice",
        "e = Concat <axis = 0> (#-1, #-1)\n"
        "v = ConstantOfShape (h)\n"
        "a = Tile (v, #-1)\n"
        "q = Tile (a, #-1)\n"
        "l = Shape (q)\n"
        "k = Sub (l, h)",
    ),
    Wrong(
        "Reshape to a size that is 0 once",
        "e = Equal (h, #8)\n"
        "f = Not (e)\n"
        "g = Cast <to = 7> (f)\n"
        "zc = Slice (t, #3, #4)\n"
        "a = Mul (zc, g)\n"
        "d = Concat <axis = 0> (zn, zh, zw, a)\n"
        "y = Reshape <allowzero = 1> (z, d)",
    ),
    Wrong(
        "Reshape with two unknown sizes",
        "a = ConstantOfShape (#5)\n"
        "m = Concat <axis = 0> (#-1, #-1)\n"
        "q = Reshape (a, m)\n"
        "l = Shape (q)\n"
        "f = Slice (l, #0, #1)\n"
        "k = Sub (f, #1)",
    ),
    Wrong(
        "Reshape with 0 beyond the rank",
        "m = Concat <axis = 0> (#-1, #0)\n"
        "a = ConstantOfShape (#5)\n"
        "q = Reshape (a, m)\n"
        "l = Shape (q)\n"
        "k = Slice (l, #1, #2)",
    ),
    Wrong(
        "Squeeze of an axis beyond the rank",
        "a = Unsqueeze (h, #0)\nq = Squeeze (a, #4)\nk = Sub (q, h)",
    ),
    Wrong(
        "Squeeze of a size that is 1 once",
        "a = ConstantOfShape (zh)\nq = Squeeze (a)\nl = Shape (q)\nf = Size (l)\n"
        "r = Reshape (f, #1)\nm = Sub (#1, r)\nlower = Slice (z, m, #9223372036854775807, #2)\n"
        "upper = Slice (z, #0, m, #2)\ny = Concat <axis = 2> (lower, upper)",
        (1, 2, 4, 1),
    ),
    Wrong(
        "Slice with a step of 0",
        "i = Concat <axis = 0> (h, h)\nv = Slice (i, #0, #1, #0, #0)\nk = Sub (v, h)",
    ),
    Wrong(
        "Slice of one axis twice",
        "m = Concat <axis = 0> (#0, #1)\n"
        "o = Concat <axis = 0> (#2, #2)\n"
        "a = Concat <axis = 0> (#0, #0)\n"
        "v = Concat <axis = 0> (#7, #0)\n"
        "q = Slice (v, m, o, a)\n"
        "k = Identity (q)",
    ),
    Wrong(
        "Slice backwards of an empty list",
        "a = Slice (s, #0, #0)\nq = Slice (a, #-9, #-99, #0, #-1)\nl = Shape (q)\nk = Sub (l, #1)",
    ),
    Wrong(
        "Slice backwards of a list that is empty once",
        "m = Sub (h, #8)\no = Abs (m)\nv = ConstantOfShape (o)\n"
        "q = Slice (v, #-1, #-9223372036854775807, #0, #-1)\nl = Shape (q)\n"
        "u = Slice (v, #-9, #-9223372036854775807, #0, #-1)\nr = Shape (u)\n"
        "i1 = Min (r, #1)\nk = Sub (i1, #1)",
    ),
    Wrong(
        "Slice backwards to the largest number",
        "q = Slice (s, #-1, #9223372036854775807, #0, #-1)\nk = Shape (q)",
    ),
    Wrong(
        "Slice backwards to the largest number of 32 bits",
        "q = Slice (s, #-1, #2147483647, #0, #-1)\nk = Shape (q)",
    ),
    Wrong(
        "sum of a table without rows, along a negative axis",
        "m = Concat <axis = 0> (#0, #3)\nv = ConstantOfShape <value = int64[1] {1}> (m)\n"
        "q = ReduceSum (v, #-1)\nl = Shape (q)\nr = Slice (l, #1, #2)\nk = Sub (r, #1)",
    ),
    Wrong(
        "maximum of a table that has no rows once, along a negative axis",
        "d = Sub (h, #8)\na = Abs (d)\nm = Concat <axis = 0> (a, #3)\n"
        "v = ConstantOfShape <value = int64[1] {1}> (m)\nq = ReduceMax (v, #-1)\nl = Shape (q)\n"
        "r = Slice (l, #1, #2)\nk = Sub (r, #1)",
    ),
    Wrong(
        "Flatten at an axis beyond the rank",
        "a = Flatten <axis = 3> (s)\nl = Shape (a)\nr = Slice (l, #1, #2)\nk = Sub (r, #1)",
    ),
    Wrong("Concat along an axis beyond the rank", "k = Concat <axis = -2> (#0)"),
    Wrong(
        "Gather of an empty list",
        "a = Slice (s, #0, #0)\n"
        "m = Sub (h, #8)\n"
        "o = Min (m, #1)\n"
        "q = Max (o, #0)\n"
        "e = Sub (#1, q)\n"
        "i = ConstantOfShape <value = int64[1] {0}> (e)\n"
        "v = Gather (a, i)\n"
        "l = Shape (v)\n"
        "f = Sub (l, e)\n"
        "k = Identity (f)",
    ),
    Wrong(
        "Range with a step of 0",
        "a = Squeeze (h)\n"
        "o = Constant <value_int = 8> ()\n"
        "st = Sub (a, o)\n"
        "z0 = Constant <value_int = 0> ()\n"
        "r = Range (z0, z0, st)\n"
        "k = Shape (r)",
    ),
)

_NONZERO = (
    Wrong(
        "NonZero of ones, then of ones and zeros",
        "a = ConstantOfShape <value = int64[1] {1}> (h)\n"
        "q = ConstantOfShape <value = int64[1] {0}> (w)\n"
        "v = Concat <axis = 0> (a, q)\n"
        "n1 = NonZero (a)\n"
        "n2 = NonZero (v)\n"
        "l1 = Shape (n1)\n"
        "l2 = Shape (n2)\n"
        "l = Add (l1, l2)\n"
        "f = Slice (l, #1, #2)\n"
        "h2 = Add (h, h)\n"
        "h3 = Add (h2, w)\n"
        "k = Sub (f, h3)",
    ),
    Wrong(
        "NonZero of a list that may be empty",
        "d = Sub (h, #9)\n"
        "m = Max (d, #0)\n"
        "a = ConstantOfShape <value = int64[1] {1}> (m)\n"
        "n1 = NonZero (a)\n"
        "l = Shape (n1)\n"
        "f = Slice (l, #1, #2)\n"
        "e = Equal (f, #0)\n"
        "k = Cast <to = 7> (e)",
    ),
    Wrong(
        "NonZero of a constant with one 0",
        "a = Constant <value_ints = [1, 1, 0, 1]> ()\n"
        "n1 = NonZero (a)\n"
        "l = Shape (n1)\n"
        "f = Slice (l, #1, #2)\n"
        "k = Sub (f, #4)",
    ),
)

_DATA = (
    Wrong("-0.0 around", base=_PADDED, edit=_fill(np.float32(-0.0))),
    Wrong("NaN around", base=_PADDED, edit=_fill(np.float32(np.nan))),
    Wrong("the smallest number around", base=_PADDED, edit=_fill(np.float32(1e-45))),
    Wrong("edges around", base=_PADDED, edit=_fill(None, "edge")),
    Wrong("mirrored around", base=_PADDED, edit=_fill(None, "reflect")),
    Wrong(
        "0 times an element around",
        base=_PADDED,
        edit=_fill_from(
            "flat = Reshape (x, #-1)\n"
            "one = Slice (flat, #0, #1)\n"
            "nothing = Sub (one, one)\n"
            "fill = Squeeze (nothing)"
        ),
    ),
    Wrong(
        "an element around",
        base=_PADDED,
        edit=_fill_from(
            "flat = Reshape (x, #-1)\none = Slice (flat, #0, #1)\nfill = Squeeze (one)"
        ),
    ),
    Wrong("Where on data", "e = Equal (z, z)\nf = Cast <to = 1> (#0)\ny = Where (e, z, f)"),
    Wrong("through float16", "a = Cast <to = 10> (z)\ny = Cast <to = 1> (a)"),
    Wrong("through bfloat16", "a = Cast <to = 16> (z)\ny = Cast <to = 1> (a)"),
    Wrong("through int32", "a = Cast <to = 6> (z)\ny = Cast <to = 1> (a)"),
    Wrong("through bool", "a = Cast <to = 9> (z)\ny = Cast <to = 1> (a)"),
    Wrong("added 0.0", "f = Cast <to = 1> (#0)\ny = Add (z, f)"),
    Wrong(
        "quantised",
        "f = Cast <to = 1> (#1)\n"
        "g = Squeeze (f)\n"
        "a = QuantizeLinear (z, g)\n"
        "y = DequantizeLinear (a, g)",
    ),
    Wrong("absolute values", "y = Abs (z)"),
    Wrong("minimum of a value and its negative", "a = Neg (z)\ny = Min (z, a)"),
    Wrong(
        "dropout in training",
        "a = Constant <value_float = 0.5> ()\n"
        "q = Cast <to = 9> (#1)\n"
        "v = Squeeze (q)\n"
        "y = Dropout <seed = 1> (z, a, v)",
    ),
    Wrong("random numbers", "y = RandomNormalLike (z)"),
    Wrong(
        "ScatterND of one element",
        "i0 = Concat <axis = 0> (#0, #0, #0, #0)\n"
        "i = Unsqueeze (i0, #0)\n"
        "f = Cast <to = 1> (#0)\n"
        "y = ScatterND (z, i, f)",
    ),
    Wrong(
        "a Loop that negates once",
        "m = Constant <value_int = 1> ()\n"
        "c0 = Cast <to = 9> (#1)\n"
        "c1 = Squeeze (c0)\n"
        "y = Loop (m, c1, z) "
        "<body = b (int64 i, bool go, float[?,?,?,?] v) => (bool o, float[?,?,?,?] r) "
        "{o = Identity (go)\n"
        "r = Neg (v)}>",
    ),
    Wrong(
        "a Scan that negates",
        "y = Scan "
        "<num_scan_inputs = 1, body = b (float[?,?,?] v) => (float[?,?,?] r) {r = Neg (v)}> (z)",
    ),
    Wrong(
        "a sequence",
        "a = Neg (z)\n"
        "q = SequenceConstruct (z, a)\n"
        "o = Constant <value_int = 1> ()\n"
        "y = SequenceAt (q, o)",
    ),
    Wrong(
        "rows turned round",
        "l = ConstantOfShape <value = int64[1] {2}> (zn)\n"
        "y = ReverseSequence <batch_axis = 0, time_axis = 1> (z, l)",
    ),
    Wrong("steps of -1", "y = Slice (z, #-1, #-9223372036854775807, #1, #-1)"),
    Wrong("Transpose of equal sizes", "y = Transpose <perm = [0, 2, 1, 3]> (z)", (1, 4, 4, 1)),
    Wrong(
        "SpaceToDepth in another order",
        "a = Transpose <perm = [0, 3, 1, 2]> (z)\n"
        "q = SpaceToDepth <blocksize = 1> (a)\n"
        "y = Transpose <perm = [0, 3, 2, 1]> (q)",
        (1, 4, 8, 1),
    ),
    Wrong(
        "a function named as a standard operator",
        "y = my.Identity (z)",
        functions=_function("Identity (a) => (o) {o = Neg (a)}"),
    ),
    Wrong(
        "a function with a default of an attribute",
        "q = my.Take (s)\nk = Sub (q, h)",
        functions=_function("Take <place: int = 2> (a) => (o) {" + _TAKE + "}"),
    ),
    Wrong(
        "a function with an attribute of its caller",
        "q = my.Outer <place = 2> (s)\nk = Sub (q, h)",
        functions=_function("Outer <place> (a) => (o) {o = my.Take <place: int = @place> (a)}")
        + _function("Take <place: int = 1> (a) => (o) {" + _TAKE + "}"),
    ),
    Wrong(
        "an older opset in a function",
        "q = my.Halves (z)\ny = Identity (q)",
        (1, 6, 4, 1),
        functions='<domain: "my", opset_import: ["" : 13]> '
        "Halves (a) => (o) {u, v = Split <axis = 1> (a)\n o = Concat <axis = 1> (u, v)}",
    ),
)


def _call_overload(model: onnx.ModelProto, number: int = 1) -> None:
    """Give one of two functions with one name an overload, and call that."""
    model.ir_version = 10
    model.functions[number].overload = "other"
    for node in model.graph.node:
        if node.domain == "my":
            node.overload = "other"


def _fill_text(model: onnx.ModelProto) -> None:
    """Write "0" in place of the empty text, as the text of a number."""
    for number, tensor in enumerate(model.graph.initializer):
        if tensor.data_type == TensorProto.STRING:
            name, shape = tensor.name, list(tensor.dims)
            del model.graph.initializer[number]
            zeros = numpy_helper.from_array(np.zeros(shape, np.int64), f"{name}_zeros")
            model.graph.initializer.append(zeros)
            node = helper.make_node("Cast", [zeros.name], [name], to=TensorProto.STRING)
            model.graph.node.insert(0, node)
            return
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "value" and attribute.t.data_type == TensorProto.STRING:
                del attribute.t.string_data[:]
                attribute.t.string_data.append(b"0")
                return
    raise AssertionError("no text to fill with")


_FUNCTIONS_AND_TYPES = (
    Wrong(
        "a function with two overloads",
        "y = my.Same (z)",
        functions=_function("Same (a) => (o) {o = Identity (a)}")
        + _function("Same (a) => (o) {o = Neg (a)}"),
        edit=_call_overload,
    ),
    Wrong(
        "a function with two overloads, the right one last",
        "y = my.Same (z)",
        functions=_function("Same (a) => (o) {o = Neg (a)}")
        + _function("Same (a) => (o) {o = Identity (a)}"),
        edit=lambda model: _call_overload(model, 0),
    ),
    Wrong(
        "integers of the data decide",
        "a = Reshape (x, #-1)\nf = Slice (a, #0, #1)\ne = Equal (f, #5)\nk = Cast <to = 7> (e)",
        base=Base(element_type=TensorProto.INT64),
        outside="5",
    ),
    Wrong(
        "integers of the data through int32",
        "a = Cast <to = 6> (z)\ny = Cast <to = 7> (a)",
        base=Base(element_type=TensorProto.INT64),
        outside="2^31",
    ),
    Wrong(
        "integers of the data through double",
        "a = Cast <to = 11> (z)\ny = Cast <to = 7> (a)",
        base=Base(element_type=TensorProto.INT64),
        outside="2^53 + 1",
    ),
    Wrong(
        "integers of the data, twice negated as uint8",
        "a = Cast <to = 2> (z)\ny = Cast <to = 7> (a)",
        base=Base(element_type=TensorProto.INT64),
        outside="256",
    ),
    Wrong(
        "truth values that decide",
        "a = Reshape (x, #-1)\nf = Slice (a, #0, #1)\nk = Cast <to = 7> (f)",
        base=Base(element_type=TensorProto.BOOL),
        outside="true",
    ),
    Wrong(
        "texts filled with 0",
        base=Base(
            element_type=TensorProto.STRING,
            stored={"block": [2, 2], "pads": [[2, 0], [0, 2]]},
        ),
        edit=_fill_text,
        outside="'0' around",
    ),
)

_STORED = (
    Wrong(
        "a constant that the caller may replace",
        "k = Identity (switch)",
        base=Base(overridable={"switch": [0]}),
        outside="a run with another value of the input",
    ),
    Wrong(
        "a constant with the name of the original's, and other values",
        "a = Reshape (pads, #-1)\nk = Slice (a, #0, #1)",
        edit=_store("pads", np.array([[1, 0], [0, 0]])),
    ),
    Wrong(
        "a table wrong at one entry",
        "i0 = Squeeze (#0)\n"
        "l = Squeeze (zh)\n"
        "d = Constant <value_int = 1> ()\n"
        "r = Range (i0, l, d)\n"
        "i = Gather (table, r)\n"
        "y = Gather <axis = 1> (z, i)",
        (1, 2048, 2, 1),
        edit=_store("table", _counted(1 << 21, 1000)),
    ),
    Wrong(
        "a large table wrong at one entry",
        "a = Reshape (z, #-1)\n"
        "i0 = Squeeze (#0)\n"
        "l = Squeeze (zh)\n"
        "d = Constant <value_int = 1> ()\n"
        "r = Range (i0, l, d)\n"
        "m = Mod (r, #2097152)\n"
        "i = Gather (table, m)\n"
        "y = Gather <axis = 1> (z, i)",
        (1, 2048, 2, 1),
        edit=_store("table", _counted(1 << 21, 1000)),
    ),
    Wrong(
        "a table of a static size wrong at one entry",
        "y = Gather <axis = 1> (z, table)",
        (1, 2400, 2, 1),
        Base(dims="n,2400,w,c"),
        edit=_store("table", _counted(1200, 1199)),
    ),
    Wrong(
        "a table of int8 wrong at one entry",
        "i = Cast <to = 7> (table)\ny = Gather <axis = 1> (z, i)",
        (1, 200, 2, 1),
        Base(dims="n,200,w,c"),
        edit=_store("table", _counted(100, 77).astype(np.int8)),
    ),
    Wrong(
        "a table of uint64 that wraps",
        "i = Cast <to = 7> (table)\nk0 = ReduceMin (i)\ne = Less (k0, #0)\nk = Cast <to = 7> (e)",
        edit=_store("table", np.array([2**64 - 2, 5], np.uint64)),
    ),
    Wrong("a sparse constant", "k = Identity (sparse)", edit=_sparse),
    Wrong(
        "a rank of 9",
        "r = Size (s)\ne = Equal (r, ##9)\nk0 = Cast <to = 7> (e)\nk = Reshape (k0, #1)",
        (1, 8, 4, 1, 1, 1, 1, 1, 1),
        Base(dims=None),
    ),
)


def _twice(nodes: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Two equal operators, and what computes their results `y1` and `y2` of `x1` and `x2`."""
    shape, value = ["n", "h", "w", "c"], helper.make_tensor_value_info
    inputs = [value(n, TensorProto.FLOAT, shape) for n in ("x1", "x2")]
    outputs = [value(n, TensorProto.FLOAT, [None] * 4) for n in ("y1", "y2")]
    switch = value("switch", TensorProto.INT64, [1])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(TF, 1)]
    block = [
        numpy_helper.from_array(np.array([1, 1]), "block"),
        numpy_helper.from_array(np.zeros((2, 2), np.int64), "pads"),
        numpy_helper.from_array(np.array([0]), "switch"),
        numpy_helper.from_array(np.array([0]), "constant"),
    ]
    sites = "".join(f"y{i} = {TF}.SpaceToBatchND (x{i}, block, pads)\n" for i in (1, 2))
    models = []
    for text in (sites, nodes):
        made, stored = parsed(text)
        constants = [*block, *stored.values()]
        graph = helper.make_graph(made, "g", [*inputs, switch], outputs, constants)
        models.append(helper.make_model(graph, opset_imports=imports, ir_version=9))
    return models[0], models[1]


#: Part of the results `z` and `-z`, one behind the other.
_SECOND_OUTPUT = """
    m1 = Neg (x1)
    a1 = Concat <axis = 0> (x1, m1)
    y1, other1 = Split <axis = 0, num_outputs = 2> (a1)
    m2 = Neg (x2)
    a2 = Concat <axis = 0> (x2, m2)
    other2, y2 = Split <axis = 0, num_outputs = 2> (a2)
"""
_OTHER_SWITCH = """
    u1 = Slice (x1, #0, #9223372036854775807, #1)
    v1 = Concat <axis = 0> (constant, #0, #0, #0, #0, #0, #0, #0)
    y1 = Pad (u1, v1)
    u2 = Slice (x2, #0, #9223372036854775807, #1)
    v2 = Concat <axis = 0> (switch, #0, #0, #0, #0, #0, #0, #0)
    y2 = Pad (u2, v2)
"""

_TWO = (
    Wrong(
        "the second output of a node, after a proof of the first",
        pair=lambda: _twice(_SECOND_OUTPUT),
        operator=1,
        outside="-x2",
    ),
    Wrong(
        "a constant that the caller may replace, after a proof of one like it",
        pair=lambda: _twice(_OTHER_SWITCH),
        operator=1,
        outside="a run with another value of the input",
    ),
)


def _merged(
    first: str,
    nodes: str,
    dims: str = "n,h,w,c",
    *,
    element_type: int = TensorProto.FLOAT,
    stored: Mapping[str, object] | None = None,
    overridable: Mapping[str, object] | None = None,
) -> Callable[[], tuple[onnx.ModelProto, onnx.ModelProto]]:
    """An operator behind `t`, a function of `x`; in the conversion of `x` itself, nodes behind `z`."""
    constants = stored or {"block": [2, 2], "pads": [[0, 0], [0, 0]]}
    node = f"y = {TF}.SpaceToBatchND ({{}}, block, pads)"
    settings = {"element_type": element_type, "overridable": overridable or {}}

    def make() -> tuple[onnx.ModelProto, onnx.ModelProto]:
        original, other = (
            Base(text, dims, constants, **settings).model()
            for text in (f"{first}\n{node.format('t')}", node.format("x"))
        )
        right = onnx_spatial.convert(other, verify=False, fuse=False).model
        return original, spoiled(right, nodes)

    return make


_ROWS = {"block": [2], "pads": [[0, 0]]}
_STATIC = Base(dims="1,8,4,1")
_SWITCHED = (
    "size = Abs (switch)\none = Min (size, #1)\n"
    "lower = Slice (r, one, #9223372036854775807, #1)\nupper = Slice (r, #0, one, #1)\n"
    "y = Concat <axis = 1> (lower, upper)"
)


_MERGED = (
    Wrong(
        "merged: a constant that the caller may replace",
        pair=_merged("t = Relu (x)", f"r = Relu (z)\n{_SWITCHED}", overridable={"switch": [0]}),
        outside="a run with another value of the input",
    ),
    Wrong(
        "merged: int32 data overflows",
        pair=_merged(
            "t = Abs (x)",
            "r = Abs (z)\nq = Mul (r, #i32:2)\ny = Div (q, #i32:2)",
            "n,h",
            element_type=TensorProto.INT32,
            stored=_ROWS,
        ),
        outside="2^30",
    ),
    Wrong(
        "merged: int32 data overflows in a difference",
        pair=_merged(
            "t = Abs (x)",
            "r = Abs (z)\nq = Add (r, #i32:5)\ne = Less (q, r)\nm = Cast <to = 6> (e)\n"
            "y = Add (r, m)",
            "n,h",
            element_type=TensorProto.INT32,
            stored=_ROWS,
        ),
        outside="2^31 - 1",
    ),
    Wrong(
        "merged: int64 data through int32",
        pair=_merged(
            "t = Abs (x)",
            "r = Abs (z)\nq = Cast <to = 6> (r)\ny = Cast <to = 7> (q)",
            "n,h",
            element_type=TensorProto.INT64,
            stored=_ROWS,
        ),
        outside="2^31",
    ),
    Wrong(
        "merged: int64 data through bool",
        pair=_merged(
            "t = Sign (x)",
            "r = Sign (z)\nq = Cast <to = 9> (r)\ny = Cast <to = 7> (q)",
            "n,h",
            element_type=TensorProto.INT64,
            stored=_ROWS,
        ),
        outside="-1",
    ),
    Wrong(
        "merged: int64 data is taken for 0 or more",
        pair=_merged(
            "t = Add (x, x)",
            "q = Add (z, z)\ny = Abs (q)",
            "n,h",
            element_type=TensorProto.INT64,
            stored=_ROWS,
        ),
        outside="-1",
    ),
    Wrong(
        "merged: division of negative data rounds",
        pair=_merged(
            "two = Constant <value_int = 2> ()\nt = Div (x, two)",
            "q = Mod (z, #2)\nm = Sub (z, q)\ny = Div (m, #2)",
            "n,h",
            element_type=TensorProto.INT64,
            stored=_ROWS,
        ),
        outside="-1",
    ),
    Wrong(
        "merged: a part wrong for one size",
        pair=_merged(
            "t = Relu (x)",
            "r = Relu (z)\ne = Equal (h, #38)\nswitch = Cast <to = 7> (e)\n" + _SWITCHED,
        ),
        outside="38 rows",
    ),
    Wrong(
        "merged: a size that wraps",
        pair=_merged(
            "t = Relu (x)",
            "r = Relu (z)\na = Cast <to = 6> (h)\nq = Mul (a, a)\ne = Less (q, #i32:1)\n"
            "switch = Cast <to = 7> (e)\n" + _SWITCHED,
        ),
        outside="46342 rows",
    ),
    Wrong(
        "merged: exponentials of zeros around",
        pair=_merged(
            "t = Exp (x)", "y = Exp (z)", stored={"block": [2, 2], "pads": [[2, 0], [0, 2]]}
        ),
        outside="1 around",
    ),
    Wrong(
        "merged: zeros around times infinity",
        pair=_merged(
            "big = Constant <value_float = 3e38> ()\ni = Mul (big, big)\nt = Mul (x, i)",
            "big = Constant <value_float = 3e38> ()\ni = Mul (big, big)\ny = Mul (z, i)",
            stored={"block": [2, 2], "pads": [[2, 0], [0, 2]]},
        ),
        outside="NaN around",
    ),
    Wrong(
        "merged: zeros around times -1",
        pair=_merged(
            "i = Constant <value_float = -1.0> ()\nt = Mul (x, i)",
            "i = Constant <value_float = -1.0> ()\ny = Mul (z, i)",
            stored={"block": [2, 2], "pads": [[2, 0], [0, 2]]},
        ),
        outside="-0.0 around",
    ),
    Wrong(
        "merged: zeros around clipped to -0.0",
        pair=_merged(
            "lo = Constant <value_float = -1.0> ()\nhi = Constant <value_float = -0.0> ()\n"
            "t = Clip (x, lo, hi)",
            "lo = Constant <value_float = -1.0> ()\nhi = Constant <value_float = -0.0> ()\n"
            "y = Clip (z, lo, hi)",
            stored={"block": [2, 2], "pads": [[2, 0], [0, 2]]},
        ),
        outside="-0.0 around",
    ),
    Wrong(
        "merged: zeros around clipped to 1",
        pair=_merged(
            "lo = Constant <value_float = 1.0> ()\nt = Clip (x, lo)",
            "lo = Constant <value_float = 1.0> ()\ny = Clip (z, lo)",
            stored={"block": [2, 2], "pads": [[2, 0], [0, 2]]},
        ),
        outside="1 around",
    ),
    Wrong(
        "merged: a difference with its operands exchanged",
        pair=_merged("t = Sub (x, x)", "q = Neg (z)\ny = Sub (q, z)"),
        outside="-2 x",
    ),
    Wrong(
        "merged: another slope",
        pair=_merged("t = LeakyRelu <alpha = 0.1> (x)", "y = LeakyRelu <alpha = 0.2> (z)"),
        outside="another slope",
    ),
    Wrong(
        "merged: random numbers",
        pair=_merged("t = Bernoulli (x)", "y = Bernoulli (z)"),
        outside="random",
    ),
    Wrong(
        "merged: random numbers added",
        pair=_merged(
            "q = RandomNormalLike (x)\nt = Add (x, q)", "q = RandomNormalLike (z)\ny = Add (z, q)"
        ),
        outside="random",
    ),
)

_STATIC_SIZES = (
    Wrong(
        "static: a constant that the caller may replace",
        "k = Identity (switch)",
        base=Base(dims="1,8,4,1", overridable={"switch": [0]}),
        outside="a run with another value of the input",
    ),
    Wrong(
        "static: a random index",
        "q = RandomUniform <low = 0.0, high = 1.01, shape = [1]> ()\nk = Cast <to = 7> (q)",
        base=_STATIC,
        outside="one in 100 runs",
    ),
    Wrong(
        "static: the larger of two rows",
        "y = MaxPool <kernel_shape = [2, 1], pads = [1, 0, 0, 0]> (z)",
        base=Base(dims="1,2,1,1", stored={"block": [2], "pads": [[0, 0]]}),
        shape=(1, 2, 1, 1),
        outside="a larger first row",
    ),
    Wrong(
        "static: through int32, in place of float",
        "a = Cast <to = 6> (z)\ny = Cast <to = 1> (a)",
        base=_STATIC,
    ),
    Wrong("static: absolute values", "y = Abs (z)", base=_STATIC),
    Wrong(
        "static: Where on data",
        "f = Cast <to = 1> (#0)\ne = GreaterOrEqual (z, f)\ny = Where (e, z, f)",
        base=_STATIC,
    ),
    Wrong(
        "static: a branch on data",
        "a = Reshape (x, #-1)\nf = Slice (a, #0, #1)\no = Cast <to = 1> (#0)\n"
        "e = Less (f, o)\nc1 = Squeeze (e)\n"
        "y = If (c1) <then_branch = yes () => (float[?,?,?,?] r) {r = Slice (z, #-1, "
        "#-9223372036854775807, #1, #-1)}, else_branch = no () => (float[?,?,?,?] o1) "
        "{o1 = Identity (z)}>",
        base=_STATIC,
        outside="a negative first element",
    ),
)


_OTHER_OPERATORS = (
    Wrong(
        "BatchToSpace wrong for one batch",
        "e = Equal (n, #12)\nk = Cast <to = 7> (e)",
        (12, 3, 2, 1),
        _BATCH_TO_SPACE,
    ),
    Wrong(
        "BatchToSpace wrong for one batch as int8",
        "a = Cast <to = 3> (n)\nq = Cast <to = 7> (a)\nk = Sub (q, n)",
        (132, 2, 2, 1),
        _BATCH_TO_SPACE,
    ),
    Wrong(
        "BatchToSpace that fails where all is cropped",
        "q = Mod (h, zh)\nm = Mul (q, #0)\nk = Identity (m)",
        (4, 1, 2, 1),
        Base(
            f"y = {TF}.BatchToSpaceND (x, block, pads)",
            stored={"block": [2, 2], "pads": [[1, 1], [0, 0]]},
        ),
    ),
    Wrong(
        "patches wrong for one width",
        "e = Equal (w, #77)\nk = Cast <to = 7> (e)",
        (1, 6, 77, 1),
        _patches("[1, 3, 3, 1]", "[1, 2, 2, 1]", "[1, 1, 1, 1]"),
    ),
    Wrong(
        "SAME pads wrong for one residue class",
        "m = Mod (h, #32)\ne = Equal (m, #12)\nk = Cast <to = 7> (e)",
        (1, 44, 8, 1),
        _patches("[1, 3, 2, 1]", "[1, 2, 1, 1]", "[1, 2, 3, 1]"),
    ),
)

WRONG: tuple[Wrong, ...] = (
    *_ARITHMETIC,
    *_SIZES,
    *_NAMES,
    *_FAILING,
    *_NONZERO,
    *_DATA,
    *_FUNCTIONS_AND_TYPES,
    *_STORED,
    *_TWO,
    *_MERGED,
    *_STATIC_SIZES,
    *_OTHER_OPERATORS,
)
