"""What is known of sizes before a run: which differ by a constant, and that runs come to the same.

Every value of a random graph is an output. Its elements and dims as expressions, with numbers from
the run for the atoms that only the run knows, have to be the elements and dims of the run.
"""

import sys
from random import Random

import numpy as np
import onnx
import pytest
import running
from maps import maps, snippets
from parsing import model

from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.sizes import DimKey, ElementKey, NamedDimKey, SymbolicValues
from onnx_spatial.model.inference import constant_folding

#: Initializers that the examples use.
HELD = """int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3},
    int64[2] pair = {4, 6}, int32[1] zero32 = {0}, int32[1] four32 = {4}, int64 scalar = {2},
    float[1] half = {0.5}, int64[1] minus = {-1}"""


def sizes(nodes: str, given: str = "float[N,h,w,3] x, int64[2] p, int64[2] q", opset: int = 17):
    text = f"g ({given}) => (out) <{HELD}> {{ {nodes} }}"
    return of_model(text, opset)[0]


def of_model(text: str, opset: int = 17) -> list[SymbolicValues]:
    """What is known in each graph and function of a model."""
    scopes = constant_folding.scopes(model(text, opset))
    return [SymbolicValues(scope) for scope, _ in scopes]


def symbol(known: SymbolicValues, name: str) -> Polynomial:
    return Polynomial.atom(NamedDimKey(known._scope, name), nonnegative=True)


def size(known: SymbolicValues, name: str, axis: int) -> Polynomial:
    return Polynomial.atom(DimKey(known._scope, name, axis), nonnegative=True)


def differences(known: SymbolicValues, a: str, b: str) -> list[int | None]:
    """What the elements of two tensors differ by, None where that is left to the run."""
    ones, others = known.entries(a), known.entries(b)
    assert ones is not None and others is not None
    return [(one - other).constant for one, other in zip(ones, others, strict=True)]


_SIZE = "s = Shape <start = 1, end = 2> (x)"
_DETOUR = """f = Cast <to = 1> (s) d = Div(f, half) c = Ceil(d) a = Cast <to = 7> (c)
    f1 = Cast <to = 1> (s) d1 = Div(f1, half) c1 = Ceil(d1) b = Cast <to = 7> (c1)
    floor = Floor(d) e = Cast <to = 7> (floor) more = Add(a, one)"""
#: Nodes, and pairs of values with what their elements differ by; None where only a run tells.
COMPARED = {
    "remainders of other sizes": (
        f"{_SIZE} t = Add(s, one) a = Mod(s, two) out = Mod(t, two)",
        {("a", "out"): [None], ("t", "s"): [1]},
    ),
    "the pads of a dilated convolution, as tf2onnx computes them": (
        f"{_SIZE} full = Add(s, pair_0) cells = Div(full, two) whole = Mul(cells, two) "
        "over = Sub(full, whole) rest = Sub(two, over) more = Div(rest, two) twice = Mul(more, two) "
        "crop = Sub(rest, twice) out = Add(crop, two) pair_0 = Constant <value_ints = [4]> ()",
        {("out", "crop"): [2], ("rest", "crop"): [None]},
    ),
    "detours through floating point": (
        f"{_SIZE} {_DETOUR}",
        {("a", "b"): [0], ("more", "b"): [1], ("a", "e"): [None]},
    ),
    **{
        f"a size through type {to}": (
            f"{_SIZE} f = Cast <to = {to}> (s) out = Cast <to = 7> (f)",
            {("out", "s"): [difference]},
        )
        for to, difference in ((1, 0), (11, 0), (10, None), (16, None))
    },
    **{
        f"a number of elements through type {to}": (
            f"s = Size(x) f = Cast <to = {to}> (s) out = Cast <to = 7> (f)",
            {("out", "s"): [difference]},
        )
        for to, difference in ((1, None), (11, 0))  # it may be more than a float holds
    },
    "elements of tensors that only a run knows": (
        "d = Sub(p, q) back = Add(d, q) out = Identity(back)",
        {("out", "p"): [0, 0], ("p", "q"): [None, None]},
    ),
    "factors that 32 bits do not hold": (
        f"{_SIZE} k = Constant <value_ints = [4294967296]> () a = Mul(s, k) b = Cast <to = 6> (a) "
        "again = Mul(k, s) c = Cast <to = 6> (again)",
        {("b", "c"): [0], ("a", "b"): [None]},
    ),
}


@pytest.mark.parametrize("name", COMPARED)
def test_values_are_compared(name):
    nodes, expected = COMPARED[name]
    known = sizes(nodes)
    assert {pair: differences(known, *pair) for pair in expected} == expected


def test_dims_are_known_where_elements_have_no_map():
    known = sizes(
        """up = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> (t, k)
        amounts = Constant <value_ints = [0, 0, 1, 1, 0, 0, 2, 2]> ()
        mirrored = Pad <mode = "reflect"> (t, amounts)
        most = MaxPool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (t)
        part = Slice(t, p, q, pair_1)  pair_1 = Constant <value_ints = [2, 3]> ()
        many = ReduceSum <axes = [1]> (i)  other = Add(t, row)""",
        "float[N,3,h,w] t, float[3,2,3,3] k, int64[2] p, int64[2] q, int64[N,h] i, float[m] row",
        opset=12,
    )
    n, h, w = (symbol(known, name) for name in "Nhw")
    assert known.dims("up") == (n, Polynomial.of(2), 2 * h - 1, 2 * w - 1)
    assert known.dims("mirrored") == (n, Polynomial.of(3), h + 3, w + 3)
    for name in ("most", "part"):
        rest = (size(known, name, 2), size(known, name, 3))
        assert known.dims(name) == (n, Polynomial.of(3), *rest)
    assert known.dims("many") == (n, Polynomial.of(1))
    assert known.dims("other") == (n, Polynomial.of(3), h, size(known, "other", 3))


# --- what is atoms ------------------------------------------------------------------------------


def test_random_values_are_equal_to_themselves_only():
    (known,) = of_model("""g (float[N] x) => (int64[M] out) <int64[2] a, int64[2] b> {
        r = RandomUniform <shape = [2]> () t = RandomUniform <shape = [2]> ()
        a = Cast <to = 7> (r) b = Cast <to = 7> (t) out = Sub(a, b) }""")
    assert differences(known, "a", "a") == [0, 0]
    assert differences(known, "a", "b") == [None, None]


def test_equal_names_of_dims_count_on_inputs_of_the_main_graph_only():
    (known,) = of_model("""
        g (float[h,w] x, float[h,2] y) => (float[h,w] out) <float[h,w] a, float[h,w] b> {
            a = NonZero(x) b = NonZero(y) out = NonZero(a) }""")
    assert known.dims("x")[0] == known.dims("y")[0]
    assert known.dims("a")[0] != known.dims("b")[0]
    assert known.dims("a")[0] == size(known, "a", 0)
    assert known.dims("a")[0].nonnegative


def test_what_the_caller_notes_goes_on_behind_it():
    nodes = "y = tf.SpaceToBatchND(x, p, q) z = Relu(y) out = Shape(z)"
    known = sizes(nodes)
    assert known.dims("z") is None
    known = sizes(nodes)
    of_x = known.dims("x")
    known.note("y", (4 * of_x[0], *of_x[1:]))
    assert known.entries("out") == (4 * of_x[0], *of_x[1:])


def test_attributes_that_a_function_takes_from_its_call_are_unknown():
    _, inside = of_model("""
        g (float[h,w] x) => (int64[N] y) { y = f.cut (x) }
        <opset_import: ["" : 17], domain: "f"> cut <at> (x) => (y) { y = Shape <start: int = @at> (x) }
        """)
    assert inside.entries("y") is None


# --- broken and large graphs --------------------------------------------------------------------


def test_cycles_end():
    known = sizes(
        "a = Add(b, p) b = Sub(a, q) c = Relu(d) d = Relu(c) e = Shape(c) out = Identity(out)"
    )
    assert all(known.entries(name) is None for name in ("a", "b", "e"))
    assert known.dims("c") is None


@pytest.mark.parametrize(
    "node",
    [
        "out = Reshape(p, three)",
        "out = Concat(p, q)",
        "out = Sub()",
        "out = Add(p, zero32)",
        "out = Div(p, scalars)",
    ],
)
def test_nodes_that_break_the_rules_tell_nothing(node):
    known = sizes(node).entries("out")
    assert known is None or all(e.lone_atom is not None for e in known)


def test_more_nodes_than_calls_may_nest_are_followed():
    many = sys.getrecursionlimit() + 100
    nodes = [f"a{i} = Add(a{i - 1}, one) b{i} = Div(b{i - 1}, two)" for i in range(1, many)]
    values = [f"y{i} = Relu(y{i - 1})" for i in range(1, many)]
    text = f"y0 = Relu(x) {' '.join(values)} a0 = Shape(y{many - 1}) b0 = Add(a0, pair_4)"
    text = f"pair_4 = Constant <value_ints = [1, 2, 3, 4]> () {text} {' '.join(nodes)}"
    known = sizes(f"{text} last = Identity(a{many - 1}) out = Add(last, b{many - 1})")
    assert known.entries("last")[1] == known.dims("x")[1] + many - 1
    assert len(known.entries("out")) == 4


def test_numbers_that_may_wrap_are_not_known():
    known = sizes("""s = Shape <start = 1, end = 2> (x)
        most = Constant <value_ints = [9223372036854775807]> () a = Concat <axis = 0> (most, s)
        more = Add(a, one) narrow = Cast <to = 6> (a) out = Identity(a)""")
    h = symbol(known, "h")
    for name, expected in (("more", h + 1), ("narrow", h)):
        wrapped, size = known.entries(name)
        assert wrapped.constant is None
        assert size == expected


#: What sizes are below; behind a number that is not, nothing is promised.
LIMIT = 2**31


class Run(dict):
    """All values of a run, and the sizes of its inputs, by the keys of atoms."""

    def __missing__(self, key: object) -> np.ndarray:
        match key:
            case ElementKey(name=name, index=index):
                return self[name].reshape(-1)[index]
            case DimKey(name=name, axis=axis):
                return np.asarray(self[name].shape[axis])
            case NamedDimKey(name=name):
                return np.asarray(self[name])
        raise AssertionError(key)

    def number(self, p: Polynomial) -> int:
        return int(maps.number(p, self, {}))


def check(rng: Random) -> tuple[int, int]:
    """How many values of a random graph were compared, and how many of them were followed."""
    model = snippets.chain(rng, rng.randint(4, 10))
    names = [name for node in model.graph.node for name in node.output if name]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = running.session(model, running.LEVELS[0])
    scope, *_ = (scope for scope, _ in constant_folding.scopes(model))
    known = SymbolicValues(scope)
    compared = followed = 0
    for sizes in snippets.assignments(model, rng, 2):
        feeds = maps.feeds_of(model, sizes, {})
        try:
            values = dict(zip(names, session.run(None, feeds), strict=True))
        except Exception:  # onnxruntime's errors have no common class
            continue
        run = Run(values | feeds | sizes)
        for name in names:
            if not values[name].size:
                break  # nothing is promised of sizes that are computed from empty tensors
            dims = known.dims(name)
            if dims is not None:
                assert tuple(map(run.number, dims)) == values[name].shape, name
                assert all(run.number(d) >= 0 for d in dims if d.nonnegative)
            entries = known.entries(name) if values[name].dtype.kind == "i" else None
            if entries is None:
                continue
            numbers = list(map(run.number, entries))
            if any(abs(int(v)) >= LIMIT for v in (*numbers, *values[name].flat)):
                break  # more than a size can be; what is behind it is wrong in the model itself
            assert numbers == values[name].reshape(-1).tolist(), (name, entries)
            assert known.shape_of_entries(name) == values[name].shape
            assert all(v >= 0 for e, v in zip(entries, numbers, strict=True) if e.nonnegative)
            keys = [atom.key for e in entries for term in e.terms for atom in term]
            compared += 1
            followed += any(not isinstance(key, ElementKey) for key in keys)
    return compared, followed


def test_expressions_are_what_the_run_comes_to():
    totals = [check(Random(seed)) for seed in range(60)]
    assert sum(compared for compared, _ in totals) > 450
    assert sum(followed for _, followed in totals) > 225
