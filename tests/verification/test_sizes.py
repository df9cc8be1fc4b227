"""Data and sizes of runs: legal ones are found, two where something is sampled, or asked for."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from adapter import verify
from onnx import TensorProto, helper
from parsing import model
from verification.hand_lowered import batch_to_space, batch_to_space_lowered

import onnx_spatial
from onnx_spatial import UsageError, Verification, VerificationError, VerifyOptions
from onnx_spatial.verification.prove import prover


@pytest.fixture(name="sampled")
def nothing_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is only sampled there are two runs."""
    monkeypatch.setattr(prover, "PART_STEPS", 3)


def converted(original: onnx.ModelProto) -> onnx.ModelProto:
    return onnx_spatial.convert(original, verify=False).model


def dims(result: Verification, name: str = "x") -> list[set[int]]:
    """The sizes that each dim of an input had."""
    return [set(sizes) for sizes in zip(*(r.shapes[name] for r in result.runs), strict=True)]


# Sizes that are found


def test_one_run_where_all_is_proven_and_two_sizes_where_not(monkeypatch) -> None:
    pair = batch_to_space(), batch_to_space_lowered()
    batch, *rest = dims(verify(*pair))
    assert len(batch) == 1 and rest == [{4}, {3}, {3}]
    monkeypatch.setattr(prover, "PART_STEPS", 3)
    batch, *rest = dims(verify(*pair))
    assert len(batch) == 2 and all(n and n % 6 == 0 for n in batch) and rest == [{4}, {3}, {3}]


#: What stands behind a space-to-batch and back of x [N, H, W, 2], by 2 and 2, and what that demands.
BEHIND = """
    g (float[N,H,W,2] x) => (y)
      <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}, CONSTANTS>
    {
        a = tf.SpaceToBatchND(x, block, none) b = Neg(a) c = tf.BatchToSpaceND(b, block, none)
        NODES
    }
"""
ONES = ", ".join(["1"] * 1200)
TURNED = "t = Transpose<perm = [0, 3, 1, 2]>(c)"
#: Halved five times, and doubled again beside what it was: as in a U-Net.
HALVED = " ".join(
    f"h{n + 1} = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(h{n})" for n in range(5)
)
DOUBLED = " ".join(
    f'r{n} = Resize<mode = "nearest">(u{n + 1}, , twice) j{n} = Concat<axis = 1>(r{n}, h{n}) '
    f"u{n} = ReduceMax<axes = [1]>(j{n})"
    for n in reversed(range(5))
)
DEMANDS = {
    "multiple of 32": (
        "float[4] twice = {1, 1, 2, 2}",
        f"h0 = Transpose<perm = [0, 3, 1, 2]>(c) {HALVED} u5 = Relu(h5) {DOUBLED} y = Relu(u0)",
        {},
    ),
    "area": (
        f"int64[2] flat = {{0, -1}}, float[1,1200] row = {{{ONES}}}",
        f"{TURNED} u = Reshape(t, flat) y = Concat<axis = 0>(u, row)",
        {"x": (2, 30, 20, 2)},  # products of two sizes are not looked for
    ),
    "width": (f"float[52,3] w = {{{', '.join(['1'] * 156)}}}", f"{TURNED} y = MatMul(t, w)", {}),
}  # fmt: skip


@pytest.mark.parametrize("demand", DEMANDS)
def test_what_nodes_demand(demand: str, sampled: None) -> None:
    constants, nodes, shapes = DEMANDS[demand]
    original = model(BEHIND.replace("CONSTANTS", constants).replace("NODES", nodes))
    result = verify(original, converted(original), shapes=shapes)
    assert result, result.message
    for run in result.runs:
        _, height, width, _ = run.shapes["x"]
        assert height % 2 == width % 2 == 0
        assert demand != "area" or height * width == 600
        assert demand != "width" or width == 52
        assert demand != "multiple of 32" or height % 32 == width % 32 == 0


#: Operators on dims that all are symbolic.
BLOCKS = {
    "a chain of parameters": """g (float[N,H,W,2] x, int32[2,2] p, int32[2,2] c, int32[2,2] q)
        => (float[A,B,C,2] y) <int32[2] b = {3, 2}, int32[2] d = {4, 3}>
        { u = tf.SpaceToBatchND(x, b, p) r = Relu(u) v = tf.BatchToSpaceND(r, b, c)
          y = tf.SpaceToBatchND(v, d, q) }""",
    "channels that a Conv counts": """g (float[N,2,H,W] x, int64[4] begins, int64[4] ends)
        => (float[A,B,C,D] y) <int64[4] b = {1, 1, 2, 2}, float[1,2,1,1] w = {1, 2}>
        { u = org.openvinotoolkit.SpaceToBatch(x, b, begins, ends) y = Conv(u, w) }""",
    "two inputs of one size": """g (float[N,H,4,3] x, float[M,K,4,3] z) => (float[A,B,C,D] y)
        <int32[2] b = {1, 2}, int32[2,2] none = {0, 0, 0, 0}>
        { s = Add(x, z) y = tf.SpaceToBatchND(s, b, none) }""",
    "a scan over two": """g (float[T,4,2] x, float[S,4,2] z) => (float[U,2,2,2] y)
        <int64[1] a = {0}, int32[1] b = {2}, int32[1,2] p = {0, 0}> {
            y = Scan <num_scan_inputs = 2, body = f (float[4,2] r, float[4,2] s) => (float[2,2,2] o)
                { t = Add(r, s) i = Unsqueeze(t, a) o = tf.SpaceToBatchND(i, b, p) }> (x, z) }""",
}


def blocked(name: str) -> onnx.ModelProto:
    made = model(BLOCKS[name])
    made.opset_import.append(helper.make_opsetid("org.openvinotoolkit", 1))
    return made


@pytest.mark.parametrize("name", BLOCKS)
def test_what_operators_demand(name: str, sampled: None) -> None:
    original = blocked(name)
    result = verify(original, converted(original))
    assert result.status == "passed", result.message
    if name == "two inputs of one size":
        assert all(run.shapes["x"] == run.shapes["z"] for run in result.runs)


def test_data_that_does_not_fit_a_scan_is_refused() -> None:
    original = blocked("a scan over two")
    fed = {"x": np.zeros((3, 4, 2), np.float32), "z": np.zeros((2, 4, 2), np.float32)}
    with pytest.raises(UsageError, match="does not run on the data that was given"):
        verify(original, converted(original), inputs=fed)


def test_sizes_that_each_call_of_a_function_allows() -> None:
    """The rank of one argument is unknown: the operator says which sizes it may have."""
    original = model("""
        g (float[N,H,W,2] x, float u) => (float[A,B,C,D] y, float[E,F,G,I] z)
        { y = loc.blocks(x) z = loc.blocks(u) }
        <domain: "loc", opset_import: ["" : 17]> blocks (a) => (b) {
            sizes = Constant <value_ints = [7, 5]> ()
            pads = Constant <value = int64[2,2] {3, 0, 0, 1}> ()
            b = tf.SpaceToBatchND(a, sizes, pads)
        }
    """)
    original.graph.input[1].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    result = verify(original, converted(original))
    assert result, result.message
    for _, height, width, *_ in (shape for run in result.runs for shape in run.shapes.values()):
        assert (height + 3) % 7 == (width + 1) % 5 == 0


def image(dims: str) -> onnx.ModelProto:
    """A space-to-batch of an image, as what a segmentation net has at its input."""
    return model(f"""
        g (float[{dims}] x) => (float[A,B,C,D] y)
          <int32[2] block = {{2, 2}}, int32[2,2] pads = {{0, 0, 0, 0}}>
        {{ [site] y = tf.SpaceToBatchND(x, block, pads) }}
    """)


def test_a_large_image_with_an_open_batch_runs_as_one_and_as_two(sampled: None) -> None:
    original = image("N,640,640,3")
    result = verify(original, converted(original))
    assert result, result.message
    assert dims(result) == [{1, 2}, {640}, {640}, {3}]


@pytest.mark.parametrize("name", ["?", "-1", "None"])
def test_what_exporters_write_for_unknown_is_no_name(name: str) -> None:
    """PaddlePaddle's nets declare x[?, 3, ?, ?], of which height and width are others."""
    original = model("g (float[A,B,C,3] x) => (float[D,E,F,G] y) { y = Relu(x) }")
    for value in (original.graph.input[0], original.graph.output[0]):
        for dim in value.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value"):
                dim.dim_param = name
    assert verify(original, original, inputs={"x": np.ones((1, 4, 6, 3), np.float32)})


# What the user gives


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shapes": {"z": (1, 2)}}, "no input 'z'; it has 'x'"),
        ({"shapes": {"x": (6, 5, 3, 3)}}, "not [6, 5, 3, 3]"),
        ({"inputs": {}}, "there is no data for input 'x'"),
        ({"inputs": {"x": np.zeros((6, 4, 3, 3))}}, "input 'x' must be float, not float64"),
        ({"inputs": {"x": np.zeros((7, 4, 3, 3), np.float32)}}, "batch 7 is not divisible by 6"),
        ({"inputs": {}, "shapes": {"x": (6, 4, 3, 3)}}, "inputs and shapes cannot be combined"),
        ({"seed": -1}, "seed must be 0 or more"),
    ],
)
def test_usage_errors(arguments: dict, message: str) -> None:
    with pytest.raises(UsageError) as error:
        verify(batch_to_space(), batch_to_space_lowered(), **arguments)
    assert message in str(error.value)


@pytest.mark.parametrize("static", [{"N": 0}, {"H": 0}])
def test_beside_a_dim_of_0_others_stay_small(static: dict[str, int]) -> None:
    """Their product says nothing of what numpy can hold."""
    text = """g (float[N,H,W,C] x) => (float[A,B,D,E] y)
        <int64[2] block = {2, 2}, int64[2,2] pads = {0, 0, 0, 0}>
        { a = Relu(x) s = tf.SpaceToBatchND(a, block, pads) y = Neg(s) }"""
    assert onnx_spatial.convert(model(text), static=static).verification.status == "passed"


def test_one_dim_has_one_size() -> None:
    made = model("g (float[N,M] x, float[N,1] z) => (float[N,M] y) { y = Add(x, z) }")
    with pytest.raises(UsageError, match="dim N is 2 in another place"):
        verify(made, made, shapes={"x": (2, 3), "z": (4, 1)})


def test_types_that_npz_files_lose_are_restored() -> None:
    made = model("g (bfloat16[N] x) => (bfloat16[N] y) { y = Identity(x) }")
    assert verify(made, made, inputs={"x": np.array([1, 2], ml_dtypes.bfloat16).view("V2")})
    for array, name in ((np.zeros(3, "V4"), "void32"), (np.zeros(3, np.float16), "float16")):
        with pytest.raises(UsageError, match=f"input 'x' must be bfloat16, not {name}"):
            verify(made, made, inputs={"x": array})


def test_given_inputs_are_the_only_run() -> None:
    data = {"x": np.arange(216, dtype=np.float32).reshape(6, 4, 3, 3)}
    result = verify(batch_to_space(), batch_to_space_lowered(), inputs=data)
    assert result
    assert [r.shapes for r in result.runs] == [{"x": (6, 4, 3, 3)}]


def test_a_rank_that_is_unknown_is_asked_for() -> None:
    made = model("g (float[N] x) => (float[N] y) { y = Neg(x) }")
    made.graph.input[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    assert "the rank of input x is unknown" in verify(made, made).message
    assert verify(made, made, shapes={"x": (3,)})


# What is asked for


def test_an_image_too_large_to_make_up_is_told_with_the_limit_and_what_to_do() -> None:
    original = image("N,40000,40000,3")
    result = verify(original, converted(original))
    assert result.status == "unverified"
    (told,) = (p for p in result.problems if "no legal sizes" in p)
    assert "no legal sizes were found for N (input 'x' has" in told
    assert "too many to generate (at most 3e+08)" in told
    assert told.endswith("--shape x=SIZE,40000,40000,3, or pass data with --inputs")


def test_inputs_are_named_where_dims_have_no_names_of_their_own() -> None:
    ones = ", ".join(["1"] * 4099)
    made = model(f"""
        g (float[unk__7,unk__8] x, float[2,unk__9] z) => (float[A,B] y, float[C,D] u)
          <float[4099,1] w = {{{ones}}}, int64[1] from = {{1}}, int64[1] to = {{-2}},
           int64[1] last = {{1}}>
        {{ t = Slice(x, from, to, last) y = MatMul(t, w) u = MatMul(z, x) }}
    """)
    (told,) = verify(made, made).problems
    assert "no legal sizes were found for inputs 'x', 'z' (" in told
    assert "unk__" not in told.partition("(")[0]
    assert "--shape x=SIZE,SIZE --shape z=2,SIZE, or pass data with --inputs" in told


RESHAPED = """g (float[1,4,6,3] x, int64[2] front, int64[4] shape)
      => (float[A,B,C,D] y, float[E,F,G,H] z)
    <int64[2] block = {2, 2}, int64[2,2] pads = {0, 0, 0, 0}, int64[2] back = {3, 3}>
    { y = tf.SpaceToBatchND(x, block, pads) BODY }"""


@pytest.mark.parametrize(
    "body", ["z = Reshape(y, shape)", "whole = Concat<axis = 0>(front, back) z = Reshape(y, whole)"]
)
def test_values_that_are_a_shape_are_asked_for_with_inputs(body: str) -> None:
    made = model(RESHAPED.replace("BODY", body))
    with pytest.raises(VerificationError) as refused:
        onnx_spatial.convert(made, verify=VerifyOptions(strict=True))
    told = str(refused.value)
    assert "no legal values were found for 'front', 'shape' (" in told and "Reshape" in told
    assert "; pass data with --inputs" in told and "--shape" not in told
    inputs = {"x": np.zeros((1, 4, 6, 3), np.float32), "front": np.array([2, 4])}
    inputs["shape"] = np.array([4, 2, 3, 3])
    assert onnx_spatial.convert(made, verify=VerifyOptions(inputs=inputs)).verification


def test_two_nodes_of_one_name_are_said_to_be_that() -> None:
    made = model(RESHAPED.replace("BODY", "[same] n = Neg(y) [same] z = Relu(n)"))
    with pytest.raises(VerificationError, match=r"\(same\); rename one of them"):
        onnx_spatial.convert(made, verify=VerifyOptions(strict=True))
