"""Wrong models of one operator, written by hand: a right conversion with nodes behind it.

The nodes read the right result as `z` and give the output `y`. Most compute a number `k`, or a condition
`e`, that is 0 by the rules of mathematics, or at nearly all sizes, and not 0 in a run:

    y  =  z spoiled by k: rows rotated, moved down, one element changed
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from building import TF
from mutation import subjects
from mutation.mutations import copied
from mutation.subjects import Pair
from onnx import TensorProto, helper, numpy_helper
from parsing import nodes as parsed
from parsing import rows

import onnx_spatial

#: Sizes as lists of one number, of the data `x` and of the right result `z`.
_READ_SIZES = """
    s = Shape (x); n = Slice (s, #0, #1); h = Slice (s, #1, #2); w = Slice (s, #2, #3);
    t = Shape (z); zn = Slice (t, #0, #1); zh = Slice (t, #1, #2); zw = Slice (t, #2, #3)
"""
#: Make a number of the condition.
_DECIDED = "k = Cast <to = 7> (e)"
#: Make 0 or 1 of the number.
_ONE = "k_size = Abs (k); k_one = Min (k_size, #1)"
_BACKWARDS = "Slice (z, #-1, #-9223372036854775807, #1, #-1)"
_RANGE = "l0 = Gather (t, ##1); i = Range (##0, l0, ##1); l = Reshape (l0, #-1)"
#: What goes wrong by `k_one`, if it is not 0.
DAMAGES = {
    "rows rotated": "lower = Slice (z, k_one, #9223372036854775807, #1); "
    "upper = Slice (z, #0, k_one, #1); y = Concat <axis = 1> (lower, upper)",
    "moved down": "pads = Concat <axis = 0> (#0, k_one, #0, #0, #0, #0, #0, #0); u = Pad (z, pads); "
    "l = Gather (t, #1); y = Slice (u, #0, l, #1)",
    "indices moved": f"{_RANGE}; j = Add (i, k_one); j1 = Mod (j, l); y = Gather <axis = 1> (z, j1)",
    "one row": f"{_RANGE}; j0 = Sub (l, #1); e0 = Equal (i, j0); j1 = Cast <to = 7> (e0); "
    "j2 = Mul (j1, k_one); j3 = Mul (j2, j0); j = Sub (i, j3); y = Gather <axis = 1> (z, j)",
    "one row is 0": f"{_RANGE}; e0 = Equal (i, #0); e1 = Cast <to = 9> (k_one); e2 = And (e0, e1); "
    "sizes = Concat <axis = 0> (#1, l, #1, #1); e3 = Reshape (e2, sizes); zero = Cast <to = 1> (#0); "
    "y = Where (e3, zero, z)",
    "backwards in a branch": "c0 = Cast <to = 9> (k_one); c = Squeeze (c0); y = If (c) <else_branch = "
    "no () => (float[?,?,?,?] y0) {y0 = Identity (z)}, then_branch = yes () => "
    f"(float[?,?,?,?] y1) {{y1 = {_BACKWARDS}}}>",
    "one row too few": "m = Sub (#0, k_one); l = Gather (t, #1); v = Add (l, m); "
    "y = Slice (z, #0, v, #1)",
}

Edit = Callable[[onnx.ModelProto], None]


@dataclass(frozen=True)
class Base:
    """A model of one operator.

    Attributes:
        node: the operator, from `x` to `y`.
        dims: of `x`; "?" for one without a name, "" for an unknown rank.
        stored: constants.
        inputs: run-time parameters with their shapes, of type int64.
        element_type: of the data.
        opset: of the model.
        overridable: constants that are inputs too, so that a caller can feed other values.
    """

    node: str = f"y = {TF}.SpaceToBatchND (x, block, pads)"
    dims: str = "n h w c"
    stored: Mapping[str, object] = field(
        default_factory=lambda: {"block": [2, 2], "pads": [[0, 0], [0, 0]]}
    )
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    element_type: int = TensorProto.FLOAT
    opset: int = 18
    overridable: Mapping[str, object] = field(default_factory=dict)

    def model(self, first: str = "") -> onnx.ModelProto:
        """Return the original; `first` are nodes in front of the operator, from x to t."""
        value = helper.make_tensor_value_info
        dims = [int(d) if d.isdigit() else None if d == "?" else d for d in self.dims.split()]
        inputs = [value("x", self.element_type, dims or None)]
        inputs += [value(n, TensorProto.INT64, s) for n, s in self.inputs.items()]
        stored = []
        for name, array in (*self.stored.items(), *self.overridable.items()):
            stored.append(numpy_helper.from_array(np.asarray(array, np.int64), name))
        for name, array in self.overridable.items():
            inputs.append(value(name, TensorProto.INT64, np.shape(array)))
        outputs = [value("y", self.element_type, [None] * len(dims) or None)]
        text = f"{first}; {self.node.replace('(x', '(t')}" if first else self.node
        nodes, constants = parsed(text)
        stored += constants.values()
        graph = helper.make_graph(nodes, "g", inputs, outputs, stored)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid(TF, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=9)


@dataclass(frozen=True)
class Wrong:
    """A wrong model.

    Attributes:
        name: the idea.
        nodes: behind the right result.
        shape: of data for which it is wrong.
        base: what is converted.
        first: nodes in front of the operator of the original, which the conversion has behind it.
        functions: local functions, as text.
        edit: a change of the converted model.
        feeds: run-time parameters for which it is wrong.
        outside: why it is wrong, where no run in this process shows it.
    """

    name: str
    nodes: str = "y = Identity (z)"
    shape: tuple[int, ...] = (1, 8, 4, 1)
    base: Base = Base()
    first: str = ""
    functions: str = ""
    edit: Edit | None = None
    feeds: Mapping[str, object] = field(default_factory=dict)
    outside: str = ""

    @property
    def is_conditional(self) -> bool:
        """Whether the nodes compute a number or a condition, by which something goes wrong."""
        plain = not (self.first or self.functions or self.edit or self.base.overridable)
        return plain and not {"y", "--"}.intersection(_made(self.nodes))

    def pair(self, damage: str = "rows rotated", prefer: str | None = None) -> Pair:
        """Return the original and the wrong conversion, with data for which it is wrong.

        Args:
            damage: one of DAMAGES.
            prefer: the lowering.
        """
        base = self.base.model()
        right = onnx_spatial.convert(base, verify=False, fuse=False, prefer=prefer).model
        original = self.base.model(self.first)
        wrong = spoiled(right, self.nodes, self.functions, damage)
        if self.edit is not None:
            self.edit(wrong)
        # -0.0, NaN and infinity are among the data.
        x = np.random.default_rng(0).standard_normal(self.shape).astype(np.float32)
        x.reshape(-1)[[0, 1, -1]] = (np.inf, -0.0, np.nan)
        feeds = {"x": x, **{n: np.asarray(v, np.int64) for n, v in self.feeds.items()}}

        def shown() -> str | None:
            return self.outside or subjects.moved(original, wrong, feeds)

        name = f"by hand: {self.name}: {damage}, {prefer or 'cheapest'}"
        return Pair(name, original, wrong, shown)


def _made(text: str) -> set[str]:
    return {name for node in parsed(text)[0] for name in node.output}


def spoiled(
    right: onnx.ModelProto, text: str, functions: str = "", damage: str = "rows rotated"
) -> onnx.ModelProto:
    """Return a conversion with nodes behind its result `y`, which they read as `z`."""
    model = copied(right)
    graph = model.graph
    del graph.value_info[:]
    for node in graph.node:
        node.input[:] = ["z" if name == "y" else name for name in node.input]
        node.output[:] = ["z" if name == "y" else name for name in node.output]
    given = _made(text)
    if "y" not in given:
        text = f"{text}; {'' if 'k' in given else _DECIDED}; {_ONE}; {DAMAGES[damage]}"
    made, stored = parsed(f"{_READ_SIZES}; {text}")
    graph.node.extend(_needed(made, "y"))
    graph.initializer.extend(stored.values())
    if functions:
        head = '<ir_version: 9, opset_import: ["" : 18, "my" : 1]> g () => () {}'
        model.functions.extend(onnx.parser.parse_model(head + functions).functions)
        if "my" not in {i.domain for i in model.opset_import}:
            model.opset_import.append(helper.make_opsetid("my", 1))
    return model


def _needed(nodes: list[onnx.NodeProto], result: str) -> list[onnx.NodeProto]:
    wanted, kept = {result}, []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted |= {*node.input, *(n for a in node.attribute for b in a.g.node for n in b.input)}
    return kept[::-1]


def read(table: str, words: Mapping[str, Mapping[str, Any]]) -> Iterator[Wrong]:
    """Read models of a table as of `parsing.rows`.

    Options are a shape, dims (of the default base), pads that are fed, why it is wrong where no run
    shows it, or fields that `words` have: "1,200,4,1 | base: static | wrong: at 38 rows".
    """
    for name, options, first, nodes in rows(table):
        known: dict[str, Any] = {}
        for option in options:
            key, _, value = option.partition(": ")
            if key in words:
                known[key] = words[key][value]
            elif key == "dims":
                known["base"] = Base(dims=value)
            elif key == "pads":
                known["feeds"] = {"pads": np.reshape([*map(int, value.split())], (2, 2))}
            elif key == "wrong":
                known["outside"] = value
            else:
                known["shape"] = tuple(map(int, option.split(",")))
        yield Wrong(name, nodes, first=first, **known)


# Integers: widths, overflow, rounding

_ARITHMETIC = """
int8 wraps | 1,200,4,1
    a = Cast <to = 3> (h); q = Cast <to = 7> (a); k = Sub (q, h)
uint8 of a negative number
    a = Sub (#0, #1); q = Cast <to = 2> (a); r = Cast <to = 7> (q); k = Add (r, #1)
int32 overflows in a product
    a = Cast <to = 6> (h); q = Mul (a, #i32:1073741824); r = Cast <to = 7> (q);
    f = Mul (h, #1073741824); k = Sub (r, f)
int32 of a number above 2^31
    f = Mul (h, #1073741824); a = Cast <to = 6> (f); r = Cast <to = 7> (a); k = Sub (r, f)
int64 overflows to a negative number
    a = Mul (h, #1152921504606846976); e = Less (a, #1)
uint64 above 2^63
    a = Cast <to = 7> (#u64:18446744073709551615); e = Less (a, #0)
uint64 wraps in a difference
    a = Cast <to = 13> (h); q = Sub (#u64:0, a); e = Greater (q, #u64:0)
float16 loses integers above 2048 | 1,4098,2,1
    a = Cast <to = 10> (h); q = Cast <to = 7> (a); k = Sub (q, h)
float loses integers above 2^24 | 1,10,2,1
    f = Mul (h, #16777217); a = Cast <to = 1> (f); q = Cast <to = 7> (a); k = Sub (q, f)
float comparison of unequal integers
    f = Mul (h, #100000000); g = Add (f, #1); a = Cast <to = 1> (f); q = Cast <to = 1> (g);
    e = Equal (a, q)
float division rounds | 1,82,2,1
    a = Cast <to = 1> (h); r = Reciprocal (a); o = Mul (a, r); q = Cast <to = 7> (o);
    k = Sub (q, #1)
division rounds toward zero
    a = Sub (#0, #7); q = Div (a, #2); k = Add (q, #4)
fmod of a negative number
    a = Sub (#0, #7); q = Mod <fmod = 1> (a, #2); k = Sub (q, #1)
Mod by a negative number
    q = Mod (#7, #-4); k = Sub (q, #3)
bool of 2 is 1
    a = Cast <to = 9> (#2); q = Cast <to = 7> (a); k = Sub (q, #2)
Max of 17 numbers
    h2 = Mul (h, #2); m = Max (h, h, h, h, h, h, h, h, h, h, h, h, h, h, h, h, h2);
    k = Sub (m, h)
no axes and noop_with_empty_axes
    v = Concat <axis = 0> (#1, #-1); r = ReduceSum <noop_with_empty_axes = 1> (v);
    k = Slice (r, #0, #1)
empty axes and noop_with_empty_axes
    v = Concat <axis = 0> (#1, #-1); a = Constant <value_ints = [0]> (); e = Slice (a, #0, #0);
    r = ReduceSum <noop_with_empty_axes = 1> (v, e); k = Slice (r, #0, #1)
a size that is compared with itself as a string
    a = Cast <to = 8> (h); q = Cast <to = 7> (a); r = Sub (q, h); e = Equal (h, #8);
    d = Cast <to = 7> (e); k = Add (r, d)
int64 fifth power of a size, from a list | 1,65536,2,1
    v = Concat <axis = 0> (h, h, h, h); u = Concat <axis = 0> (h, v); p4 = ReduceProd (v);
    p5 = ReduceProd (u); m = Mul (p4, h); k = Sub (p5, m)
int32 sum of a list
    a = Cast <to = 6> (h); v = Concat <axis = 0> (a, #i32:2147483647); q = ReduceSum (v);
    m = Sub (q, #i32:2147483647); d = Sub (m, a); k = Cast <to = 7> (d)
int64 sum of a list, rounded as a double
    v = Concat <axis = 0> (#9007199254740992, #3); q = ReduceSum (v);
    m = Sub (q, #9007199254740995); k = Identity (m)
int64 product of a list, rounded as a double
    v = Concat <axis = 0> (#9007199254740993, #1); q = ReduceProd (v);
    k = Sub (q, #9007199254740993)
int32 range | 1,46342,2,1
    a = Cast <to = 6> (h); s0 = Squeeze (a); q = Mul (s0, s0); l = Add (q, s0);
    o = Cast <to = 6> (#1); st = Squeeze (o); r = Range (q, l, st); f = Slice (r, #0, #1);
    e = Less (f, #i32:1)
int32 negation of the smallest number
    a = Cast <to = 6> (h); m = Sub (#i32:-2147483648, #i32:0); q = Abs (m); e = Less (q, #i32:0)
"""

# Sizes, and conditions on them

_SIZES = """
one residue class | 1,44,2,1
    m = Mod (h, #32); e = Equal (m, #12)
one residue class, by a quotient | 1,44,2,1
    q = Div (h, #32); m = Mul (q, #32); r = Sub (h, m); a = Sub (r, #12); b1 = Sign (a);
    c1 = Mul (b1, b1); k = Sub (#1, c1)
one product | 3,6,4,1
    a = Mul (h, w); q = Mul (a, n); e = Equal (q, #72)
one sum | 1,6,10,1
    a = Mul (h, #3); q = Add (a, w); m = Mod (q, #100); e = Equal (m, #28)
sizes above a number | 1,1002,2,1
    a = Sub (h, #1000); k = Max (a, #0)
one batch | 7,4,2,1
    e0 = LessOrEqual (n, #7); e1 = GreaterOrEqual (n, #7); e = And (e0, e1)
equal sizes | 1,4,4,1
    e = Equal (h, w)
If on data
    a = Reshape (x, #-1); q = Slice (a, #0, #1); v = Cast <to = 9> (q);
    y = If (v) <then_branch = a () => (float[?,?,?,?] r) {r = Neg (z)},
        else_branch = b () => (float[?,?,?,?] o) {o = Identity (z)}>
an element of a table at a size | 1,10,2,1
    a = Constant <value_ints = [0, 0, 0, 0, 0, 1, 0, 0]> (); m = Mod (h, #8); q = Div (h, #2);
    m1 = Mod (q, #8); k = Gather (a, m1)
a range that is one too long | 1,4,2,1
    z0 = Squeeze (#0); s0 = Squeeze (h); d = Constant <value_int = 3> (); r = Range (z0, s0, d);
    l = Shape (r); q = Div (h, #3); k = Sub (l, q)
"""

# Names of dims that are names of the prover's own

_NAMES = """
a dim with the name of an index | dims: n h w i3.0
    y = Slice (z, #-1, #-9223372036854775807, #1, #-1)
dims with the names of all indices | dims: i0.0 i1.0 i2.0 i3.0
    y = Slice (z, #-1, #-9223372036854775807, #1, #-1)
a dim with the name for one without | dims: ? D0 w c
    e = Equal (n, h); f = Not (e); k = Cast <to = 7> (f)
a dim with the name of an element | dims: ? x_0 w c
    e = Equal (n, h); f = Not (e); k = Cast <to = 7> (f)
"""

# Nodes that fail in a run, and lists whose length only a run tells

_FAILING = """
division by 0 in an element that nothing reads | wrong: the process ends with SIGFPE
    a = Concat <axis = 0> (h, h); d = Sub (h, #8); q = Concat <axis = 0> (#1, d);
    v = Div (a, q); f = Slice (v, #0, #1); k = Sub (f, h)
Gather behind the end in an element that nothing reads
    i = Concat <axis = 0> (#1, h); a = Gather (s, i); f = Slice (a, #0, #1); k = Sub (f, h)
Gather of rows behind the end that nothing reads
    i = Concat <axis = 0> (#0, h); a = Gather <axis = 1> (z, i); f = Slice (a, #0, #1, #1);
    r = Slice (z, #1, #99999999, #1); y = Concat <axis = 1> (f, r)
GatherND behind the end in an element that nothing reads
    i = Concat <axis = 0> (#1, h); j = Unsqueeze (i, #1); a = GatherND (s, j);
    f = Slice (a, #0, #1); k = Sub (f, h)
ConstantOfShape of a negative size
    d = Sub (h, #9); m = Min (d, #0); a = ConstantOfShape (m); p1 = Sub (#0, m);
    q = ConstantOfShape (p1); v = Concat <axis = 0> (a, q); k = Shape (v)
Split into a negative part
    a = Add (zh, #1); q = Concat <axis = 0> (a, #-1); u, v = Split <axis = 1> (z, q);
    y = Concat <axis = 1> (u, v)
Split of an odd size into two, before opset 18 | 1,6,4,1 | base: opset 17
    u, v = Split <axis = 1> (z); y = Concat <axis = 1> (u, v)
Reshape to a size that is 0 once
    e = Equal (h, #8); f = Not (e); g = Cast <to = 7> (f); zc = Slice (t, #3, #4);
    a = Mul (zc, g); d = Concat <axis = 0> (zn, zh, zw, a); y = Reshape <allowzero = 1> (z, d)
Reshape with two unknown sizes
    a = ConstantOfShape (#5); m = Concat <axis = 0> (#-1, #-1); q = Reshape (a, m);
    l = Shape (q); f = Slice (l, #0, #1); k = Sub (f, #1)
Squeeze of a size that is 1 once | 1,2,4,1
    a = ConstantOfShape (zh); q = Squeeze (a); l = Shape (q); f = Size (l); r = Reshape (f, #1);
    m = Sub (#1, r); lower = Slice (z, m, #9223372036854775807, #2);
    upper = Slice (z, #0, m, #2); y = Concat <axis = 2> (lower, upper)
Slice with a step of 0
    i = Concat <axis = 0> (h, h); v = Slice (i, #0, #1, #0, #0); k = Sub (v, h)
Slice of one axis twice
    m = Concat <axis = 0> (#0, #1); o = Concat <axis = 0> (#2, #2);
    a = Concat <axis = 0> (#0, #0); v = Concat <axis = 0> (#7, #0); q = Slice (v, m, o, a);
    k = Identity (q)
Slice backwards of a list that is empty once
    m = Sub (h, #8); o = Abs (m); v = ConstantOfShape (o);
    q = Slice (v, #-1, #-9223372036854775807, #0, #-1); l = Shape (q);
    u = Slice (v, #-9, #-9223372036854775807, #0, #-1); r = Shape (u); i1 = Min (r, #1);
    k = Sub (i1, #1)
Slice backwards to the largest number
    q = Slice (s, #-1, #9223372036854775807, #0, #-1); k = Shape (q)
maximum of a table that has no rows once, along a negative axis
    d = Sub (h, #8); a = Abs (d); m = Concat <axis = 0> (a, #3);
    v = ConstantOfShape <value = int64[1] {1}> (m); q = ReduceMax (v, #-1); l = Shape (q);
    r = Slice (l, #1, #2); k = Sub (r, #1)
Flatten at an axis beyond the rank
    a = Flatten <axis = 3> (s); l = Shape (a); r = Slice (l, #1, #2); k = Sub (r, #1)
Gather of an empty list
    a = Slice (s, #0, #0); m = Sub (h, #8); o = Min (m, #1); q = Max (o, #0); e = Sub (#1, q);
    i = ConstantOfShape <value = int64[1] {0}> (e); v = Gather (a, i); l = Shape (v);
    f = Sub (l, e); k = Identity (f)
Range with a step of 0
    a = Squeeze (h); o = Constant <value_int = 8> (); st = Sub (a, o);
    z0 = Constant <value_int = 0> (); r = Range (z0, z0, st); k = Shape (r)
NonZero of ones, then of ones and zeros
    a = ConstantOfShape <value = int64[1] {1}> (h);
    q = ConstantOfShape <value = int64[1] {0}> (w); v = Concat <axis = 0> (a, q);
    n1 = NonZero (a); n2 = NonZero (v); l1 = Shape (n1); l2 = Shape (n2); l = Add (l1, l2);
    f = Slice (l, #1, #2); h2 = Add (h, h); h3 = Add (h2, w); k = Sub (f, h3)
"""

# The data itself

_DATA = """
Where on data
    e = Equal (z, z); f = Cast <to = 1> (#0); y = Where (e, z, f)
through float16
    a = Cast <to = 10> (z); y = Cast <to = 1> (a)
through int32
    a = Cast <to = 6> (z); y = Cast <to = 1> (a)
added 0.0
    f = Cast <to = 1> (#0); y = Add (z, f)
minimum of a value and its negative
    a = Neg (z); y = Min (z, a)
dropout in training
    a = Constant <value_float = 0.5> (); q = Cast <to = 9> (#1); v = Squeeze (q);
    y = Dropout <seed = 1> (z, a, v)
random numbers
    y = RandomNormalLike (z)
ScatterND of one element
    i0 = Concat <axis = 0> (#0, #0, #0, #0); i = Unsqueeze (i0, #0); f = Cast <to = 1> (#0);
    y = ScatterND (z, i, f)
a Loop that negates once
    m = Constant <value_int = 1> (); c0 = Cast <to = 9> (#1); c1 = Squeeze (c0);
    y = Loop (m, c1, z) <body = b (int64 i, bool go, float[?,?,?,?] v) => (bool o,
        float[?,?,?,?] r) {o = Identity (go) r = Neg (v)}>
a sequence
    a = Neg (z); q = SequenceConstruct (z, a); o = Constant <value_int = 1> ();
    y = SequenceAt (q, o)
Transpose of equal sizes | 1,4,4,1
    y = Transpose <perm = [0, 2, 1, 3]> (z)
SpaceToDepth in another order | 1,4,8,1
    a = Transpose <perm = [0, 3, 1, 2]> (z); q = SpaceToDepth <blocksize = 1> (a);
    y = Transpose <perm = [0, 3, 2, 1]> (q)
integers of the data decide | base: int64 | wrong: 5
    a = Reshape (x, #-1); f = Slice (a, #0, #1); e = Equal (f, #5)
integers of the data through int32 | base: int64 | wrong: 2^31
    a = Cast <to = 6> (z); y = Cast <to = 7> (a)
truth values that decide | base: bool | wrong: true
    a = Reshape (x, #-1); f = Slice (a, #0, #1); k = Cast <to = 7> (f)
a constant that the caller may replace | base: switched | wrong: another value of it
    k = Identity (switch)
a rank of 9 | 1,8,4,1,1,1,1,1,1 | base: no rank
    r = Size (s); e = Equal (r, ##9); k0 = Cast <to = 7> (e); k = Reshape (k0, #1)
"""

# Nodes in front of the operator that the conversion has behind it: "-->" ends those of the original

_MERGED = """
merged: a constant that the caller may replace | base: switched | wrong: another value of it
    t = Relu (x) -->
    r = Relu (z); size = Abs (switch); one = Min (size, #1);
    lower = Slice (r, one, #9223372036854775807, #1); upper = Slice (r, #0, one, #1);
    y = Concat <axis = 1> (lower, upper)
merged: int32 data overflows | base: int32 | wrong: 2^30
    t = Abs (x) -->
    r = Abs (z); q = Mul (r, #i32:2); y = Div (q, #i32:2)
merged: int64 data through int32 | base: int64 | wrong: 2^31
    t = Abs (x) -->
    r = Abs (z); q = Cast <to = 6> (r); y = Cast <to = 7> (q)
merged: int64 data is taken for 0 or more | base: int64 | wrong: -1
    t = Add (x, x) -->
    q = Add (z, z); y = Abs (q)
merged: division of negative data rounds | base: int64 | wrong: -1
    t = Div (x, ##2) -->
    q = Mod (z, #2); m = Sub (z, q); y = Div (m, #2)
merged: a part wrong for one size | wrong: 38 rows
    t = Relu (x) -->
    r = Relu (z); e = Equal (h, #38); one = Cast <to = 7> (e);
    lower = Slice (r, one, #9223372036854775807, #1);
    upper = Slice (r, #0, one, #1); y = Concat <axis = 1> (lower, upper)
merged: a size that wraps | wrong: 46342 rows
    t = Relu (x) -->
    r = Relu (z); a = Cast <to = 6> (h); q = Mul (a, a); e = Less (q, #i32:1);
    one = Cast <to = 7> (e);
    lower = Slice (r, one, #9223372036854775807, #1); upper = Slice (r, #0, one, #1);
    y = Concat <axis = 1> (lower, upper)
merged: exponentials of zeros around | base: padded | wrong: 1 around
    t = Exp (x) -->
    y = Exp (z)
merged: zeros around times infinity | base: padded | wrong: NaN around
    i = Mul ($3e38, $3e38); t = Mul (x, i) -->
    i = Mul ($3e38, $3e38); y = Mul (z, i)
merged: zeros around times -1 | base: padded | wrong: -0.0 around
    t = Mul (x, $-1) -->
    y = Mul (z, $-1)
merged: a difference with its operands exchanged | wrong: -2 x
    t = Sub (x, x) -->
    q = Neg (z); y = Sub (q, z)
merged: random numbers | wrong: random
    t = Bernoulli (x) -->
    y = Bernoulli (z)
"""

# Static sizes, and other operators

_STATIC = """
static: a constant that the caller may replace | base: static, switched | wrong: another value of it
    k = Identity (switch)
static: a random index | dims: 1 8 4 1 | wrong: one in 100 runs
    q = RandomUniform <low = 0.0, high = 1.01, shape = [1]> (); k = Cast <to = 7> (q)
static: the larger of two rows | base: two rows | wrong: a larger first row
    y = MaxPool <kernel_shape = [2, 1], pads = [1, 0, 0, 0]> (z)
static: through int32, in place of float | dims: 1 8 4 1
    a = Cast <to = 6> (z); y = Cast <to = 1> (a)
static: a branch on data | dims: 1 8 4 1 | wrong: a negative first element
    a = Reshape (x, #-1); f = Slice (a, #0, #1); o = Cast <to = 1> (#0); e = Less (f, o);
    c1 = Squeeze (e);
    y = If (c1) <then_branch = yes () => (float[?,?,?,?] r) {r = Slice (z, #-1,
        #-9223372036854775807, #1, #-1)},
        else_branch = no () => (float[?,?,?,?] o1) {o1 = Identity (z)}>
BatchToSpace wrong for one batch | 12,3,2,1 | base: BatchToSpace
    e = Equal (n, #12)
"""

# Run-time parameters

_PADS = """
one sum of pads | 1,4,2,1 | base: fed | pads: 4 6 10 0
    a = ReduceSum <keepdims = 0> (pads); v = Reshape (a, #1); e = Equal (v, #20)
a dim with the name of an entry | 1,4,2,1 | base: named as an entry | pads: 0 0 0 0
    v = Reshape (pads, #-1); q = Slice (v, #1, #2); f = Equal (h, q); e = Not (f)
"""

# Functions, and what is stored

_FUNCTIONS = """
a function named as a standard operator | functions: Identity
    y = my.Identity (z)
a function with a default of an attribute | functions: Take
    q = my.Take (s); k = Sub (q, h)
a function with an attribute of its caller | functions: Outer
    q = my.Outer <place = 2> (s); k = Sub (q, h)
an older opset in a function | 1,6,4,1 | functions: Halves
    q = my.Halves (z); y = Identity (q)
"""
_STORED = """
a constant with the name of the original's, and other values | edit: other pads
    a = Reshape (pads, #-1); k = Slice (a, #0, #1)
a table wrong at one entry, read again and again | 1,2048,2,1 | edit: large table
    i0 = Squeeze (#0); l = Squeeze (zh); r = Range (i0, l, ##1); m = Mod (r, #2097152);
    i = Gather (table, m); y = Gather <axis = 1> (z, i)
a table of int8 wrong at one entry | 1,200,2,1 | dims: n 200 w c | edit: table of int8
    i = Cast <to = 7> (table); y = Gather <axis = 1> (z, i)
a table of uint64 that wraps | edit: table of uint64
    i = Cast <to = 7> (table); a = ReduceMin (i); e = Less (a, #0)
texts filled with 0 | base: padded texts | edit: texts | wrong: '0' around
    y = Identity (z)
"""


_PADDED = Base(stored={"block": [2, 2], "pads": [[2, 0], [0, 2]]})
_FED = Base(stored={"block": [2, 2]}, inputs={"pads": (2, 2)})
_BASES = {
    "opset 17": Base(opset=17),
    "no rank": Base(dims=""),
    "int32": Base(element_type=TensorProto.INT32),
    "int64": Base(element_type=TensorProto.INT64),
    "bool": Base(element_type=TensorProto.BOOL),
    "padded": _PADDED,
    "padded texts": replace(_PADDED, element_type=TensorProto.STRING),
    "fed": _FED,
    "named as an entry": replace(_FED, dims="n pads[0,1] w c"),
    "switched": Base(overridable={"switch": [0]}),
    "static, switched": Base(dims="1 8 4 1", overridable={"switch": [0]}),
    "two rows": Base(dims="1 2 1 1", stored={"block": [2], "pads": [[0, 0]]}),
    "BatchToSpace": Base(f"y = {TF}.BatchToSpaceND (x, block, pads)"),
}


def _functions(*texts: str) -> str:
    return "".join(f'<domain: "my", opset_import: ["" : 18, "my" : 1]> {t}\n' for t in texts)


#: The body of a function that takes an element of a list.
_TAKE = (
    "{i = Constant <value_int: int = @place> ()\n d = Constant <value_ints = [1]> ()\n"
    " j = Reshape (i, d)\n o = Gather (a, j)}"
)
_BODIES = {
    "Identity": _functions("Identity (a) => (o) {o = Neg (a)}"),
    "Take": _functions("Take <place: int = 2> (a) => (o) " + _TAKE),
    "Outer": _functions(
        "Outer <place> (a) => (o) {o = my.Take <place: int = @place> (a)}",
        "Take <place: int = 1> (a) => (o) " + _TAKE,
    ),
    "Halves": '<domain: "my", opset_import: ["" : 13]> '
    "Halves (a) => (o) {u, v = Split <axis = 1> (a)\n o = Concat <axis = 1> (u, v)}",
}


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


def _fill_text(model: onnx.ModelProto) -> None:
    """Write "0" in place of the empty text, as the text of a number."""
    graph = model.graph
    texts = [t for t in graph.initializer if t.data_type == TensorProto.STRING]
    texts += [a.t for n in graph.node for a in n.attribute if a.t.data_type == TensorProto.STRING]
    texts[0].string_data[:] = [b"0"]


_EDITS: dict[str, Edit] = {
    "other pads": _store("pads", np.array([[1, 0], [0, 0]])),
    "large table": _store("table", _counted(1 << 21, 1000)),
    "table of int8": _store("table", _counted(100, 77).astype(np.int8)),
    "table of uint64": _store("table", np.array([2**64 - 2, 5], np.uint64)),
    "texts": _fill_text,
}

# What is around the data


def _filled(what: str, text: str, mode: str = "constant") -> Wrong:
    """Let every Pad fill with what nodes compute as `fill`, or in another way."""

    def edit(model: onnx.ModelProto) -> None:
        nodes, stored = parsed(text)
        pads = [node for node in model.graph.node if node.op_type == "Pad"]
        assert pads
        for node in pads:
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("mode", mode))
            node.input[2:] = ["fill"] if mode == "constant" else []
        for node in reversed(nodes):
            model.graph.node.insert(0, node)
        model.graph.initializer.extend(stored.values())

    return Wrong(f"{what} around", base=_PADDED, edit=edit)


_ELEMENT = "flat = Reshape (x, #-1); one = Slice (flat, #0, #1)"
_AROUND = (
    _filled("-0.0", "fill = Identity ($-0.0)"),
    _filled("NaN", "a = Sub ($0, $0); fill = Div (a, a)"),
    _filled("edges", "", "edge"),
    _filled(
        "0 times an element", f"{_ELEMENT}; nothing = Sub (one, one); fill = Squeeze (nothing)"
    ),
)

_TABLES = (
    *(_ARITHMETIC, _SIZES, _NAMES, _FAILING, _DATA),
    *(_MERGED, _STATIC, _PADS, _FUNCTIONS, _STORED),
)
_WORDS = {"base": _BASES, "functions": _BODIES, "edit": _EDITS}
WRONG = (*(wrong for table in _TABLES for wrong in read(table, _WORDS)), *_AROUND)
