"""Legal sizes for symbolic dims are found, two of each where the model allows, or asked for."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import batch_to_space, batch_to_space_lowered, model
from onnx import TensorProto, helper, numpy_helper

import onnx_spatial
from onnx_spatial import UsageError, Verification
from onnx_spatial.verification.checks import baseline

pytestmark = pytest.mark.usefixtures("nothing_is_proven")


def dims(result: Verification, name: str = "x") -> list[set[int]]:
    """The sizes that each dim of an input had."""
    return [set(sizes) for sizes in zip(*(r.shapes[name] for r in result.runs), strict=True)]


def test_batch_is_a_multiple_of_the_blocks() -> None:
    result = verify(batch_to_space(), batch_to_space_lowered())
    assert result, result.message
    batch, *rest = dims(result)
    assert len(batch) >= 2
    assert all(n % 6 == 0 for n in batch)
    assert sum(n // 6 >= 2 for n in batch) >= 2
    assert rest == [{4}, {3}, {3}]
    images = [c.shape[0] // 6 for c in result.operators[0].checks]
    assert {0, 1, 2, 3} <= set(images)


BEFORE = """
g (float[N,H,W,2] x) => (float[A,B] y)
  <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}, int64[4] nchw = {0, 0, 0, 0}, CONSTANTS>
{
    [to_batch] a = tf.SpaceToBatchND(x, block, none)
    b = Neg(a)
    [to_space] c = tf.BatchToSpaceND(b, block, none)
    AFTER
}
"""
# A space-to-batch of blocks 2, 2 for any size: offsets by strided slices, one behind the other.
LOWERED = """
g (float[N,H,W,2] x) => (float[A,B] y)
  <int64[2] axes = {1, 2}, int64[2] two = {2, 2}, int64[2] big = {2147483647, 2147483647},
   int64[2] s00 = {0, 0}, int64[2] s01 = {0, 1}, int64[2] s10 = {1, 0}, int64[2] s11 = {1, 1},
   int64[6] split = {2, 2, -1, HALF, WHOLE, 2}, CONSTANTS>
{
    p = Slice(x, s00, big, axes, two)
    q = Slice(x, s01, big, axes, two)
    r = Slice(x, s10, big, axes, two)
    s = Slice(x, s11, big, axes, two)
    a = Concat<axis = 0>(p, q, r, s)
    b = Neg(a)
    e, f, g, h = Split<axis = 0>(b)
    top = Concat<axis = 3>(e, f)
    low = Concat<axis = 3>(g, h)
    shape = Shape(e)
    n = Slice(shape, i0, i1)
    hw = Slice(shape, i1, i3)
    doubled = Mul(hw, hw2)
    rows = Slice(doubled, i0, i1)
    tallwide = Concat<axis = 0>(n, doubled, i2)
    halftall = Concat<axis = 0>(n, hwh, im, i2)
    both = Concat<axis = 3>(top, low)
    six = Concat<axis = 0>(n, hw, i2, i2, i2)
    cells = Reshape(both, six)
    moved = Transpose<perm = [0, 1, 3, 2, 4, 5]>(cells)
    c = Reshape(moved, tallwide)
    AFTER
}
""".replace(
    "int64[6] split = {2, 2, -1, HALF, WHOLE, 2}, ",
    """int64[1] i0 = {0}, int64[1] i1 = {1},
   int64[1] i2 = {2}, int64[1] i3 = {3}, int64[1] im = {-1}, int64[2] hw2 = {2, 2}, """,
).replace("    halftall = Concat<axis = 0>(n, hwh, im, i2)\n", "")


def pair(constants: str, after: str) -> tuple:
    """An original with dims N, H, W and what it becomes."""
    return tuple(
        model(text.replace("CONSTANTS", constants).replace("AFTER", after))
        for text in (BEFORE, LOWERED)
    )


def test_free_sizes() -> None:
    result = verify(*pair("int64[2] flat = {0, -1}", "y = Reshape(c, flat)"))
    assert result, result.message
    batch, height, width, channels = dims(result)
    assert min(len(batch), len(height), len(width)) >= 2
    assert channels == {2}
    assert all(size % 2 == 0 for size in height | width)
    assert result.forced == {}


def test_reshape_forces_the_product_of_height_and_width() -> None:
    result = verify(*pair("int64[2] flat = {-1, 1200}", "t = Reshape(c, flat)\n y = Relu(t)"))
    assert result, result.message
    # [-1, 1200] alone accepts other batches too: it is met exactly with [N, 1200].
    text = """
        t = Transpose<perm = [0, 3, 1, 2]>(c)
        t2 = Reshape(t, flat)
        y = Concat<axis = 0>(t2, row)
    """
    row = ", float[1,1200] row = {" + ", ".join(["1"] * 1200) + "}"
    result = verify(*pair("int64[2] flat = {0, -1}" + row, text))
    assert result, result.message
    assert all(r.shapes["x"][1] * r.shapes["x"][2] == 600 for r in result.runs)
    assert len(dims(result)[0]) >= 2


def test_matmul_forces_the_width() -> None:
    weights = ", ".join(str(i % 7 - 3) for i in range(52 * 3))
    after = "t = Transpose<perm = [0, 3, 1, 2]>(c)\n y = MatMul(t, w)"
    result = verify(*pair(f"float[52,3] w = {{{weights}}}", after))
    assert result, result.message
    batch, height, width, _ = dims(result)
    assert width == {52}
    assert min(len(batch), len(height)) >= 2
    assert result.forced == {"W": 52}
    assert "only one size found for W = 52" in result.message


def test_no_legal_sizes_asks_for_a_shape() -> None:
    weights = ", ".join(["1"] * 4099)
    after = (
        "t = Transpose<perm = [0, 3, 1, 2]>(c)\n t2 = Slice(t, from, to, last)\n y = MatMul(t2, w)"
    )
    constants = (
        f"float[4099,1] w = {{{weights}}}, int64[1] from = {{1}}, int64[1] to = {{-2}}, "
        "int64[1] last = {3}"
    )
    original, converted = pair(constants, after)
    result = verify(original, converted)
    assert result.status == "unverified"
    assert not result.operators_only
    assert "no legal sizes were found for N, H, W" in result.message
    assert "--shape x=" in result.message
    assert all(s.passed for s in result.operators if s.op_type == "SpaceToBatchND")
    given = verify(original, converted, shapes={"x": (2, 2, 4102, 2)})
    assert given, given.message
    assert [r.shapes["x"] for r in given.runs] == [(2, 2, 4102, 2)]


def test_two_inputs_of_one_size() -> None:
    text = """
        g (float[N,H,4,3] x, float[M,K,4,3] z) => (float[A,B,C,D] y)
        <int32[2] block = {1, 2}, int32[2,2] none = {0, 0, 0, 0}>
        { s = Add(x, z)
          [site] y = tf.SpaceToBatchND(s, block, none) }
    """
    lowered = text.replace("int32[2,2] none = {0, 0, 0, 0}", "int64[6] o = {0, 0, 2, 2, 3, 1}")
    lowered = (
        lowered.replace(
            "[site] y = tf.SpaceToBatchND(s, block, none)",
            """i, j = Split<axis = 3>(o)
        p = Slice(s, zero, four, two, two)
        q = Slice(s, one, four, two, two)
        y = Concat<axis = 0>(p, q)""",
        )
        .replace("i, j = Split<axis = 3>(o)", "")
        .replace(
            "<int32[2]",
            "<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, "
            "int64[1] four = {4}, int32[2]",
        )
    )
    result = verify(model(text), model(lowered))
    assert result, result.message
    for run in result.runs:
        assert run.shapes["x"] == run.shapes["z"]
    assert len(dims(result)[1]) >= 2


def test_ids_are_legal_for_a_table() -> None:
    text = """
        g (int64[N,S] ids) => (float[A,B,C,D] y) <float[5,2] table = {1,2,3,4,5,6,7,8,9,10}>
        { y = Gather(table, ids) }
    """
    result = verify(model(text), model(text))
    assert result, result.message
    assert len(dims(result, "ids")[0]) >= 2


def test_overridable_initializer_gets_another_value() -> None:
    text = """
        g (float[N,3] x, float[3] w) => (float[N,3] y) <float[3] w = {1, -2, 3}> { y = Mul(x, w) }
    """
    result = verify(model(text), model(text))
    assert result
    assert {r.overridden for r in result.runs[:-1]} == {()}
    assert result.runs[-1].overridden == ("w",)
    # The default baked in: right in all runs but the last.
    baked = text.replace(
        "y = Mul(x, w)", "v = Constant<value_floats = [1.0, -2.0, 3.0]>()\n y = Mul(x, v)"
    )
    result = verify(model(text), model(baked))
    assert result.status == "failed"
    assert {o.run for o in result.outputs if o.passed is False} == {len(result.runs) - 1}
    gone = text.replace(", float[3] w)", ")")
    assert "can no longer be overridden" in verify(model(text), model(gone)).message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shapes": {"z": (1, 2)}}, "no input 'z'; it has 'x'"),
        ({"shapes": {"x": (1, 2)}}, "input 'x' must have shape [N, 4, 3, 3], not [1, 2]"),
        ({"shapes": {"x": (6, 5, 3, 3)}}, "not [6, 5, 3, 3]"),
        ({"inputs": {}}, "there is no data for input 'x'"),
        ({"inputs": {"z": np.zeros(3)}}, "no input 'z'"),
        ({"inputs": {"x": np.zeros((6, 4, 3, 3))}}, "input 'x' must be float, not float64"),
        ({"inputs": {"x": np.zeros((6, 4, 3), np.float32)}}, "not [6, 4, 3]"),
        ({"inputs": {"x": np.zeros((7, 4, 3, 3), np.float32)}}, "batch 7 is not divisible by 6"),
        ({"inputs": {}, "shapes": {"x": (6, 4, 3, 3)}}, "inputs and shapes cannot be combined"),
        ({"seed": -1}, "seed must be 0 or more"),
    ],
)
def test_usage_errors(arguments: dict, message: str) -> None:
    with pytest.raises(UsageError) as error:
        verify(batch_to_space(), batch_to_space_lowered(), **arguments)
    assert message in str(error.value)


def test_given_inputs_are_the_only_run() -> None:
    data = {"x": np.arange(216, dtype=np.float32).reshape(6, 4, 3, 3)}
    result = verify(batch_to_space(), batch_to_space_lowered(), inputs=data)
    assert result
    assert [r.shapes for r in result.runs] == [{"x": (6, 4, 3, 3)}]


def test_unknown_rank() -> None:
    """The spelling does not fix the rank: M + 2 is taken; elsewhere a shape is asked for."""
    original, converted = batch_to_space(), batch_to_space_lowered()
    original.graph.input[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    result = verify(original, converted, shapes={"x": (12, 4, 3, 3)})
    assert {o.passed for o in result.outputs} == {True}
    text = "g (float[N] x) => (float[N] y) { y = Neg(x) }"
    unknown = model(text)
    unknown.graph.input[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    assert "the rank of input x is unknown" in verify(unknown, model(text)).message
    assert verify(unknown, model(text), shapes={"x": (3,)})


def test_a_small_model_runs_at_odd_and_even_sizes_in_any_combination() -> None:
    """Right where both are odd, or both even: the padding of H is computed from W."""
    text = """
        g (int32[N,H,W] x) => (int32[A,B,C] y) <int64 two = {2}, int64[1] one = {1}, int64 axis = {AXIS},
          int32[1] block = {2}, int64[1] zero = {0}, int64[2] row = {1, 2}>
        {
            s = Shape(x)
            h = Gather(s, axis)
            m = Mod(h, two)
            e = Reshape(m, one)
            flat = Concat<axis = 0>(zero, e)
            pads = Reshape(flat, row)
            y = tf.SpaceToBatchND(x, block, pads)
        }
    """
    original = model(text.replace("AXIS", "1"))
    right, wrong = (onnx_spatial.convert(original, verify=False).model for _ in range(2))
    for tensor in wrong.graph.initializer:
        if tensor.name == "axis":
            tensor.CopyFrom(numpy_helper.from_array(np.array(2), "axis"))
    result = verify(original, right)
    assert result, result.message
    parities = {(r.shapes["x"][1] % 2, r.shapes["x"][2] % 2) for r in result.runs}
    assert len(parities) >= 3
    assert verify(original, wrong).status == "failed"


def test_sizes_at_which_the_original_is_not_steady_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = iter(range(100))
    monkeypatch.setattr(baseline, "_same", lambda a, b: next(asked) != 1)  # the second trial
    result = verify(batch_to_space(), batch_to_space_lowered())
    assert result, result.message
    (line,) = result.unsteady
    assert "'y' of the original differs from run to run with x " in line
    assert result.to_dict()["unsteady"] == [line]


def image(dims: str) -> onnx.ModelProto:
    """A space-to-batch of an image, as what a segmentation net has at its input."""
    return model(f"""
        g (float[{dims}] x) => (float[A,B,C,D] y)
          <int32[2] block = {{2, 2}}, int32[2,2] pads = {{0, 0, 0, 0}}>
        {{ [site] y = tf.SpaceToBatchND(x, block, pads) }}
    """)


def test_a_large_image_with_an_open_batch_runs_as_one_and_as_two() -> None:
    original = image("N,640,640,3")
    result = verify(original, onnx_spatial.convert(original, verify=False).model)
    assert result, result.message
    assert dims(result) == [{1, 2}, {640}, {640}, {3}]
    assert result.forced == {}


def test_an_image_too_large_to_make_up_is_told_with_the_limit_and_what_to_do() -> None:
    original = image("N,40000,40000,3")
    result = verify(original, onnx_spatial.convert(original, verify=False).model)
    assert result.status == "unverified"
    (told,) = (p for p in result.problems if "no legal sizes" in p)
    assert "no legal sizes were found for N (input 'x' has" in told
    assert "too many to generate (at most 3e+08)" in told
    assert told.endswith("--shape x=SIZE,40000,40000,3, or pass data with --inputs")


def test_inputs_are_named_where_dims_have_no_names_of_their_own() -> None:
    text = "g (float[unk__7,unk__8,3] x, float[2,unk__9] z) => (float[A,B] y) { BODY }"
    original = model(text.replace("BODY", "t = Add(x, z)\n y = MatMul(t, z)"))
    (told,) = verify(original, original).problems
    assert "no legal sizes were found for inputs 'x', 'z' (" in told
    assert "unk__" not in told.partition("(")[0]
    assert "--shape x=SIZE,SIZE,3 --shape z=2,SIZE, or pass data with --inputs" in told


@pytest.mark.parametrize("seed", range(4))
def test_parameters_are_drawn_for_the_data_that_comes_to_an_operator(seed: int) -> None:
    # What the last one may be padded with hangs on what the others were fed.
    text = """
        g (float[N,H,W,2] x, int32[2,2] p, int32[2,2] c, int32[2,2] q) => (float[A,B,C,2] y)
        <int32[2] b = {3, 2}, int32[2] d = {4, 3}> {
            u = tf.SpaceToBatchND(x, b, p)
            r = Relu(u)
            v = tf.BatchToSpaceND(r, b, c)
            y = tf.SpaceToBatchND(v, d, q)
        }
    """
    original = model(text)
    result = verify(original, onnx_spatial.convert(original, verify=False).model, seed=seed)
    assert result.status == "passed", result.message


@pytest.mark.parametrize("seed", range(4))
def test_channels_are_not_padded_where_something_counts_on_their_number(seed: int) -> None:
    text = """
        g (float[N,2,H,W] x, int64[4] begins, int64[4] ends) => (float[A,B,C,D] y)
        <int64[4] b = {1, 1, 2, 2}, float[1,2,1,1] w = {1, 2}> {
            u = org.openvinotoolkit.SpaceToBatch(x, b, begins, ends)
            y = Conv(u, w)
        }
    """
    original = model(text)
    original.opset_import.append(helper.make_opsetid("org.openvinotoolkit", 1))
    result = verify(original, onnx_spatial.convert(original, verify=False).model, seed=seed)
    assert result.status == "passed", result.message


def test_the_state_of_a_scan_keeps_its_shape() -> None:
    # onnxruntime gives each iteration the memory of the first state; only a batch of 1 fits into it.
    text = """
        g (float[T,N,4,2] x) => (float[A,B,C] last, float[T,P,2,2] y)
        <int32[1] b = {2}, int32[1,2] p = {0, 0}, float[1,4,2] zero = {0, 0, 0, 0, 0, 0, 0, 0}> {
            last, y = Scan <num_scan_inputs = 1,
                body = f (float[A,B,C] s, float[N,4,2] r) => (float[A,B,C] t, float[P,2,2] o)
                { t = Add(s, r) o = ai.onnx.converters.tensorflow.SpaceToBatchND(t, b, p) }>
                (zero, x)
        }
    """
    original = model(text)
    converted = onnx_spatial.convert(original, verify=False).model
    result = verify(original, converted)
    assert result.status == "passed", result.message
    assert result.forced == {"N": 1}
    with pytest.raises(
        UsageError, match=r"state 's' has the shape \[1, 4, 2\] before an iteration"
    ):
        verify(original, converted, inputs={"x": np.zeros((2, 3, 4, 2), np.float32)})


def test_what_a_scan_reads_is_of_one_length() -> None:
    text = """
        g (float[T,4,2] x, float[S,4,2] z) => (float[U,2,2,2] y)
        <int32[1] b = {2}, int32[1,2] p = {0, 0}> {
            y = Scan <num_scan_inputs = 2, body = f (float[4,2] r, float[4,2] s) => (float[2,2,2] o)
                { t = Add(r, s) i = Unsqueeze(t, a)
                  o = ai.onnx.converters.tensorflow.SpaceToBatchND(i, b, p) }> (x, z)
        }
    """
    original = model(text.replace("int32[1] b", "int64[1] a = {0}, int32[1] b"))
    converted = onnx_spatial.convert(original, verify=False).model
    assert verify(original, converted).status == "passed"
    fed = {"x": np.zeros((3, 4, 2), np.float32), "z": np.zeros((2, 4, 2), np.float32)}
    with pytest.raises(UsageError, match="2 and 3 elements"):
        verify(original, converted, inputs=fed)


@pytest.mark.parametrize("name", ["?", "-1", "None"])
def test_what_exporters_write_for_unknown_is_no_name(name: str) -> None:
    """PaddlePaddle's nets declare x[?, 3, ?, ?], of which height and width are others."""
    original = model("g (float[A,B,C,3] x) => (float[D,E,F,G] y) { y = Relu(x) }")
    for value in (original.graph.input[0], original.graph.output[0]):
        for dim in value.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value"):
                dim.dim_param = name
    x = np.ones((1, 4, 6, 3), np.float32)
    assert verify(original, original, inputs={"x": x})


FUNCTION_CALLS = """
    g (float[N,H,W,2] x, float u) => (float[A,B,C,D] y, float[E,F,G,I] z) {
        y = loc.blocks(x)
        z = loc.blocks(u)
    }
    <domain: "loc", opset_import: ["" : 17]> blocks (a) => (b) {
        sizes = Constant <value_ints = [7, 5]> ()
        pads = Constant <value = int64[2,2] {3, 0, 0, 1}> ()
        NODES
    }
"""


def test_sizes_that_each_call_of_a_function_allows() -> None:
    """The rank of one argument is unknown: the site says which sizes it may have."""
    original = model(FUNCTION_CALLS.replace("NODES", "b = tf.SpaceToBatchND(a, sizes, pads)"))
    original.graph.input[1].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    converted = onnx_spatial.convert(original, verify=False).model
    result = verify(original, converted)
    assert result, result.message
    for _, height, width, *_ in (shape for run in result.runs for shape in run.shapes.values()):
        assert (height + 3) % 7 == (width + 1) % 5 == 0
