"""Mistakes that only large sizes show, or one remainder of a size."""

from __future__ import annotations

import onnx
import pytest
from adapter import verify
from hand_lowered import model

import onnx_spatial
from onnx_spatial.verification.run.data import graph_inputs
from onnx_spatial.verification.sizes.work import multiply_adds

CONSTANTS = """
    <int32[1] block = {2}, int32[1,2] pads = {0, 0}, int32[1,2] crops = {0, 0},
     int64[1] from = {0}, int64[1] axis_batch = {0}, int64[1] axis_time = {1}, int64[1] sixteen = {16},
     int64[1] thousand = {1000}, int64 of = {32}, int64 which = {22}, int64 seventeen = {17},
     int64 batch = {0}, int64 time = {1}, float[2,2,2] w = {1, -2, 3, 0.5, -1, 2, 0.25, -3}>
"""
ORIGINAL = f"""
    g (float[N,T,2] x) => (float[A,B,C] z) {CONSTANTS}
    {{
        u = Sigmoid(x)
        s = tf.SpaceToBatchND(u, block, pads)
        t = Transpose<perm = [0, 2, 1]>(s)
        c = Conv<pads = [1, 0]>(t, w)
        r = Transpose<perm = [0, 2, 1]>(c)
        y = tf.BatchToSpaceND(r, block, crops)
        z = Neg(y)
    }}
"""
CONVERTED = f"""
    g (float[N,T,2] x) => (float[A,B,C] z) {CONSTANTS}
    {{
        IN_FRONT
        u = Sigmoid(v)
        INSIDE
        t1 = Transpose<perm = [0, 2, 1]>(a)
        c1 = Conv<pads = [2, 0], dilations = [2]>(t1, w)
        y = Transpose<perm = [0, 2, 1]>(c1)
        z = Neg(y)
    }}
"""
SIZE = "h = Shape({i}) k = Gather(h, AXIS) "
OTHERWISE = " n = Neg({i}) {o} = Where(l, n, {i})"


def converted(text: str, place: str) -> onnx.ModelProto:
    """The conversion with nodes inside the fused region, or in front of it."""
    nodes = {"IN_FRONT": "v = Identity(x)", "INSIDE": "a = Identity(u)"}
    source, output = ("x", "v") if place == "IN_FRONT" else ("u", "a")
    nodes[place] = text.format(i=source, o=output)
    return model(
        CONVERTED.replace("IN_FRONT", nodes["IN_FRONT"]).replace("INSIDE", nodes["INSIDE"])
    )


@pytest.mark.parametrize("place", ["IN_FRONT", "INSIDE"])
@pytest.mark.parametrize(
    "text",
    [
        "{o} = Slice({i}, from, thousand, axis_time)",
        "{o} = Slice({i}, from, sixteen, axis_batch)",
        SIZE.replace("AXIS", "batch") + "l = GreaterOrEqual(k, seventeen)" + OTHERWISE,
    ],
)
def test_limits_of_sizes(text: str, place: str) -> None:
    assert verify(model(ORIGINAL), converted(text, place)).status == "failed"


def test_one_remainder() -> None:
    text = SIZE.replace("AXIS", "time") + "m = Mod(k, of) l = Equal(m, which)" + OTHERWISE
    result = verify(model(ORIGINAL), converted(text, "INSIDE"))
    assert result.status == "failed"
    assert result.first_difference is not None
    (data,) = result.first_difference.inputs.values()
    assert data.shape[1] % 32 == 22


PATCHES = """
    g (float[N,H,W,1] x) => (float[A,B,C,D] y)
      <int64 time = {2}, int64 of = {16}, int64 which = {WHICH}>
    {
        z = tf.ExtractImagePatches<ksizes = [1, 8, 8, 1], strides = [1, 8, 8, 1], rates = [1, 1, 1, 1],
            padding = "VALID">(x)
        t = Transpose<perm = [0, 3, 1, 2]>(z)
        y = Sigmoid(t)
    }
"""


@pytest.mark.parametrize(("which", "status"), [(11, "failed"), (16, "passed")])
def test_one_remainder_of_a_size_behind_a_stride(which: int, status: str) -> None:
    """No size has the remainder 16 by 16."""
    text = PATCHES.replace("WHICH", str(which))
    after = onnx_spatial.convert(model(text), verify=False).model
    damage = "k = Shape(v) h = Gather(k, time) m = Mod(h, of) l = Equal(m, which)"
    damage += " n = Neg(v) t = Where(l, n, v)"
    nodes = model(text.split("{\n        z")[0] + f"{{ v = Identity(x) {damage} y = Sigmoid(t) }}")
    at = next(i for i, node in enumerate(after.graph.node) if "t" in node.output)
    after.graph.node[at].output[0] = "v"
    for node in reversed(nodes.graph.node[1:-1]):
        after.graph.node.insert(at + 1, node)
    assert verify(model(text), after).status == status


@pytest.mark.parametrize("place", ["IN_FRONT", "INSIDE"])
def test_the_right_conversion_runs_at_sizes_in_use(place: str, nothing_is_proven: None) -> None:
    result = verify(model(ORIGINAL), converted("{o} = Identity({i})", place))
    assert result.status == "passed", result.message
    shapes = [run.shapes["x"] for run in result.runs]
    assert max(shape[1] for shape in shapes) >= 4096
    assert max(shape[0] for shape in shapes) >= 17
    isolated = [c.shape for c in result.operators[0].checks if c.how == "isolated"]
    assert max(shape[1] for shape in isolated) > 2**16
    assert max(shape[0] for shape in isolated) > 1000
    assert len({shape[1] % 32 for shape in isolated}) >= 16  # all even ones: the block divides them


def test_what_is_proven_runs_at_one_size() -> None:
    result = verify(model(ORIGINAL), converted("{o} = Identity({i})", "INSIDE"))
    assert {site.proven for site in result.operators} == {"all sizes"}
    assert all(len({c.shape for c in site.checks}) == 1 for site in result.operators)


def test_work_of_a_run() -> None:
    """Products of the convolution, and the elements that all nodes write."""
    text = """
        g (float[N,3,H,W] x) => (float[N,A,B,C] y)
          <float[4,3,3,3] w = {WEIGHTS}, int64[1] axis = {1}>
        { c = Conv<pads = [1, 1, 1, 1]>(x, w) r = Relu(c) y = ReduceSum<keepdims = 1>(r, axis) }
    """.replace("WEIGHTS", ", ".join(["1"] * 108))
    net = model(text)
    sizes = {"N": 2, "H": 10, "W": 20}
    pixels = 2 * 10 * 20
    assert multiply_adds(net, graph_inputs(net), [], sizes) == pixels * (4 * 27 + 4 + 1)


@pytest.mark.parametrize(("channels", "least"), [(1, 4096), (2**14, 64)])
def test_sizes_in_use_are_bounded_by_work(channels: int, least: int) -> None:
    text = f"g (float[1,{channels},T] x) => (float[1,{channels},T] y) {{ BODY }}"
    before, after = (
        model(text.replace("BODY", b)) for b in ("y = Neg(x)", "n = Identity(x) y = Neg(n)")
    )
    longest = max(run.shapes["x"][2] for run in verify(before, after).runs)
    assert least <= longest <= 2**22 / channels


FIXED = """
    g (DATA x) => (float[A,B,C,D] s, float[E,F,G,H] y)
      <int32[2] block = {2, 2}, int32[2,2] pads = {0, 0, 0, 0}, int64[1] zero = {0}, float none = {0},
       int64[1] thirty_two = {32}, int64[1] last = {9223372036854775807}, int64 from = {0},
       int64 step = {1}, int64 limit = {32}, int64 rows = {3000}, int64[4] of_batch = {-1, 1, 1, 1},
       int64[4] of_rows = {1, -1, 1, 1}>
    { s = tf.SpaceToBatchND(x, block, pads) BODY }
"""
BATCH, ROWS = "float[N,16,16,3]", "float[1,H,2,64]"
BY_INDEX = """
    h = Shape<start = {axis}, end = {end}>(x) c = Squeeze(h) i = Range(from, c, step)
    l = Less(i, {limit}) r = Relu(x)
"""
IN_BATCH = BY_INDEX.format(axis=0, end=1, limit="limit")
AS_REAL = """
    h = Shape<start = 1, end = 2>(x) c = Squeeze(h) e = Cast<to = 1>(c) k = Cast<to = 7>(e) r = Relu(x)
"""
IN_ROWS = BY_INDEX.format(axis=1, end=2, limit="rows")


@pytest.mark.parametrize(
    ("data", "nodes", "status"),
    [
        (BATCH, "r = Relu(x) y = Slice(r, zero, thirty_two, zero)", "failed"),
        (BATCH, "r = Relu(x) y = Slice(r, zero, last, zero)", "passed"),
        (
            BATCH,
            IN_BATCH + "f = Cast<to = 1>(l) m = Reshape(f, of_batch) y = Mul(r, m)",
            "failed",
        ),
        (BATCH, "y = Max(x, none)", "passed"),
        (ROWS, IN_ROWS + "m = Reshape(l, of_rows) n = Neg(r) y = Where(m, r, n)", "failed"),
        (ROWS, IN_ROWS + "m = Reshape(l, of_rows) y = Where(m, r, r)", "passed"),
        (ROWS, AS_REAL + "l = Less(k, rows) n = Neg(r) y = Where(l, r, n)", "failed"),
        (ROWS, AS_REAL + "l = Less(k, rows) y = Where(l, r, r)", "passed"),
    ],
)
def test_a_limit_beside_fixed_dims_is_run(data: str, nodes: str, status: str) -> None:
    text = FIXED.replace("DATA", data)
    before, after = (model(text.replace("BODY", body)) for body in ("y = Relu(x)", nodes))
    result = verify(before, onnx_spatial.convert(after, verify=False).model)
    assert result.status == status, result.message
    if status == "failed":
        assert "Relu node" in result.message


def test_a_limit_that_is_too_large_to_be_run_leaves_a_node_open() -> None:
    text = """
        g (float[N,16,16,3] x) => (float[A,B,C,D] s, float[E,F,G,H] y)
          <int32[2] block = {2, 2}, int32[2,2] pads = {0, 0, 0, 0}, int64[1] zero = {0},
           int64[1] many = {1000000}>
        { s = tf.SpaceToBatchND(x, block, pads) BODY }
    """
    bodies = ("y = Relu(x)", "r = Relu(x) y = Slice(r, zero, many, zero)")
    before, after = (model(text.replace("BODY", body)) for body in bodies)
    result = verify(before, onnx_spatial.convert(after, verify=False).model)
    assert result.status == "unverified"
    assert "too large to run, dim 0 of the output is 1000000, not N" in result.message


def test_a_limit_in_front_of_an_operator_is_run(nothing_is_proven: None) -> None:
    before = model("""
        g (float[1,H,16,64] x) => (float[A,B,C,D] s)
          <int32[2] block = {2, 2}, int32[2,2] pads = {0, 0, 0, 0}>
        { s = tf.SpaceToBatchND(x, block, pads) }
    """)
    after = model("""
        g (float[1,H,16,64] x) => (float[A,B,C,D] s)
          <int64[1] zero = {0}, int64[1] one = {1}, int64[1] rows = {1600}, int64[1] last = {999999},
           int64[5] cells = {-1, 2, 8, 2, 64}, int64[4] shape = {4, -1, 8, 64}>
        {
            top = Slice(x, zero, rows, one) rest = Slice(x, rows, last, one) n = Neg(rest)
            whole = Concat<axis = 1>(top, n)
            c = Reshape(whole, cells) t = Transpose<perm = [1, 3, 0, 2, 4]>(c) s = Reshape(t, shape)
        }
    """)
    result = verify(before, after)
    assert result.status == "failed"
    assert "on its own" in result.message


@pytest.mark.parametrize(
    ("nodes", "status"),
    [("n = Min(m, rows)", "failed"), ("k = Add(m, none) n = Sub(k, none)", "passed")],
)
def test_a_limit_of_a_size_is_run_in_the_whole_model(nodes: str, status: str) -> None:
    text = """
        g (float[T,2] v, float[N,4,4,3] x) => (float[A,B,C,D] s, float[E] y)
          <int32[2] block = {2, 2}, int32[2,2] pads = {0, 0, 0, 0}, int64 rows = {5000},
           int64 none = {0}, float zero = {0}>
        {
            s = tf.SpaceToBatchND(x, block, pads)
            h = Shape<start = 0, end = 1>(v) m = Squeeze(h) NODES
            a, y = Loop(n, , zero) <body = turn (int64 i, bool c, float p) => (bool d, float q, float b)
                { d = Identity(c) q = Identity(p) b = Cast<to = 1>(i) }>
        }
    """
    before, after = (model(text.replace("NODES", n)) for n in ("n = Identity(m)", nodes))
    result = verify(before, onnx_spatial.convert(after, verify=False).model)
    assert result.status == status, result.message
