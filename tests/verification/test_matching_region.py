"""Sites that became part of a convolution: right conversions pass within tolerance, wrong ones fail."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from adapter import verify
from fused_by_hand import CASES, PLAIN, Case, filled

from onnx_spatial import Verification
from onnx_spatial.model.io import reader
from onnx_spatial.model.symbolic import rank_inference

MUTANTS = [
    pytest.param(case, mutant, id=f"{name}-{number}")
    for name, case in CASES.items()
    for number, mutant in enumerate(case.mutants())
]


def passed_alone(result: Verification) -> bool:
    return all(s.passed and "isolated" in s.how for s in result.operators)


@pytest.mark.usefixtures("nothing_is_proven")
@pytest.mark.parametrize("name", CASES)
def test_right(name: str) -> None:
    case = CASES[name]
    result = verify(filled(case.original), filled(case.converted))
    assert result, result.message
    assert passed_alone(result)
    assert len(result.operators) == case.sites
    assert (
        f"{case.sites} of {case.sites} operators within tolerance as parts of convolutions, "
    ) in result.message
    for site in result.operators:
        assert site.reason is None
        checks = [c for c in site.checks if c.how == "isolated"]
        assert {c.optimised for c in checks} == {False, True}
        assert len({c.shape for c in checks}) >= 2
        assert not any(c.exact for c in checks)
        precise = [c for c in checks if c.max_ulps is not None]  # others have large sizes
        assert len({c.shape for c in precise}) >= 2
        for check in precise:
            assert check.max_ulps is not None and check.allowed_ulps is not None
            assert check.max_ulps <= 4 < check.allowed_ulps  # measured: below 2.5
            assert check.max_relative_error is not None and check.max_relative_error < 1e-5


@pytest.mark.parametrize(("case", "mutant"), MUTANTS)
def test_wrong(case: Case, mutant: str) -> None:
    result = verify(filled(case.original), reader.Source(filled(mutant)))
    assert result.status == "failed", result.message
    assert result.first_difference is not None
    assert result.first_difference.kind == "operator"
    assert any(s.passed is False and not c.passed for s in result.operators for c in s.checks)


@pytest.mark.usefixtures("nothing_is_proven")
def test_figures_in_the_report() -> None:
    result = verify(filled(PLAIN.original), filled(PLAIN.converted))
    sites = result.to_dict()["operators"]
    assert isinstance(sites, list)
    (check, *_) = sites[0]["checks"]
    assert check["exact"] is False
    assert 0 < check["max_ulps"] <= check["allowed_ulps"]
    assert 0 < check["max_relative_error"] < 1e-6


def test_a_weight_of_a_channel_of_small_numbers() -> None:
    """An element is judged by what makes it up, not by the largest of the whole result."""
    gate = CASES["gate"]
    wrong = filled(gate.converted)
    for tensor in wrong.graph.initializer:
        if tensor.name == "filter":
            values = onnx.numpy_helper.to_array(tensor).copy()
            values[4, 1, 1] *= 1.01
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    result = verify(filled(gate.original), wrong)
    # The largest value hides it, double precision does not.
    assert all(o.max_relative_error < o.tolerance for o in result.outputs)
    assert result.status == "failed"
    assert [s.passed for s in result.operators] == [False, False]


def test_a_factor_of_a_channel_of_small_numbers() -> None:
    """The weights are the same here: only the bound of rounding tells."""
    turned = "y = Transpose<perm = [0, 2, 3, 1]>(c1)"
    factors = "factors = Constant<value = float[4] {1, 1, 1, 1.001}>()"
    wrong = PLAIN.converted.replace(turned, f"{turned.replace('y', 'y1')} {factors}")
    wrong = wrong.replace("z = Neg(y)", "y = Mul(y1, factors) z = Neg(y)")
    result = verify(filled(PLAIN.original), filled(wrong))
    assert all(o.max_relative_error < o.tolerance for o in result.outputs)
    assert result.status == "failed"


@pytest.mark.usefixtures("nothing_is_proven")
def test_taps_that_only_meet_padding_at_likely_sizes() -> None:
    """Blocks of 512 and two taps: only sequences of more than 512 steps tell what the first does."""
    original = """
        g (float[N,T,3] x) => (float[A,B,C] y)
          <int32[1] block = {512}, int64[1] blocks = {512}, int64[1] one = {1}, int64[1] two = {2},
           int64[1] axis = {0}, int64[1] none = {0}, int64[1] past = {512}>
        {
            shape = Shape(x)
            steps = Slice(shape, one, two, axis)
            over = Mod(steps, blocks)
            left = Sub(blocks, over)
            fill = Mod(left, blocks)
            row = Concat<axis = 0>(past, fill)
            pads = Unsqueeze(row, none)
            crop = Concat<axis = 0>(none, fill)
            crops = Unsqueeze(crop, none)
            s = tf.SpaceToBatchND(x, block, pads)
            t = Transpose<perm = [0, 2, 1]>(s)
            c = Conv(t, WEIGHTS)
            r = Transpose<perm = [0, 2, 1]>(c)
            y = tf.BatchToSpaceND(r, block, crops)
        }"""
    converted = """
        g (float[N,T,3] x) => (float[A,B,C] y)
        {
            t1 = Transpose<perm = [0, 2, 1]>(x)
            c1 = Conv<pads = [512, 0], dilations = [512]>(t1, filter)
            y = Transpose<perm = [0, 2, 1]>(c1)
        }"""
    before = filled(original.replace("WEIGHTS", "filter"))
    result = verify(before, filled(converted))
    assert result, result.message
    assert passed_alone(result)
    assert max(c.shape[1] for c in result.operators[0].checks) >= 1024
    wrong = filled(converted)
    (tensor,) = wrong.graph.initializer
    values = onnx.numpy_helper.to_array(tensor).copy()
    values[:, :, 0] = values[:, ::-1, 0]
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    assert [s.passed for s in verify(before, wrong).operators] == [False, False]


KEPT = PLAIN.converted.replace(
    "z = Neg(y)",
    """z = Neg(y)
        v = Neg(s)
        p = Constant<value_ints = [0, 2, 1, 0, 0, 3, 2, 0]>()
        k = Constant<value_ints = [0, 0, 0, 0]>()
        padded = Pad(u, p)
        shape = Shape(padded)
        one = Constant<value_ints = [1]>()
        three = Constant<value_ints = [3]>()
        zero = Constant<value_ints = [0]>()
        two = Constant<value_ints = [2]>()
        factors = Constant<value_ints = [2, 3]>()
        n = Slice(shape, zero, one)
        sizes = Slice(shape, one, three)
        cells = Div(sizes, factors)
        rows = Slice(cells, zero, one)
        columns = Slice(cells, one, two)
        split = Concat<axis = 0>(n, rows, two, columns, three, three)
        apart = Reshape(padded, split)
        moved = Transpose<perm = [2, 4, 0, 1, 3, 5]>(apart)
        all = Constant<value_ints = [-1]>()
        whole = Concat<axis = 0>(all, cells, three)
        s = Reshape(moved, whole)""",
)


def test_blocks_that_others_read_too() -> None:
    """They are still there, and the convolution does not begin with them: it is compared from u on."""

    def with_blocks(text: str) -> onnx.ModelProto:
        return filled(text.replace("float[A,B,C,D] z)", "float[A,B,C,D] z, float[E,F,G,I] v)"))

    original = with_blocks(PLAIN.original.replace("z = Neg(y)", "z = Neg(y)\n v = Neg(s)"))
    result = verify(original, reader.Source(with_blocks(KEPT)))
    assert result, result.message
    assert [s.exact for s in result.operators] == [True, False]
    assert (
        "1 of 2 operators bit for bit on their own, 1 within tolerance as parts of convolutions"
    ) in result.message
    blocks = verify(original, reader.Source(with_blocks(KEPT.replace("[2, 4, 0,", "[4, 2, 0,"))))
    assert [s.passed for s in blocks.operators] == [False, True]
    conv = verify(
        original, reader.Source(with_blocks(KEPT.replace("[3, 4, 5, 3]", "[4, 4, 4, 3]")))
    )
    assert [s.passed for s in conv.operators] == [True, False]


def test_weights_that_can_be_overridden() -> None:
    def overridable(text: str) -> onnx.ModelProto:
        return filled(text.replace("3] x)", "3] x, float[4,3,3,3] w)"))

    result = verify(overridable(PLAIN.original), overridable(PLAIN.converted))
    assert result, result.message
    assert passed_alone(result)
    wrong = overridable(PLAIN.converted.replace("(t1, w, b)", "(t1, w)"))
    assert [s.passed for s in verify(overridable(PLAIN.original), wrong).operators] == [
        False,
        False,
    ]


def behind_a_contrib_operator(text: str) -> onnx.ModelProto:
    parsed = filled(text.replace("u = Neg(x)", "u = com.microsoft.Gelu(x)"))
    parsed.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return parsed


def test_data_of_which_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the rank: then what a run of the whole has there is compared."""
    monkeypatch.setattr(rank_inference, "declare", lambda *_: False)
    original = behind_a_contrib_operator(PLAIN.original)
    result = verify(original, behind_a_contrib_operator(PLAIN.converted))
    assert result, result.message
    for site in result.operators:
        assert site.how == ["in place", "end to end"]
        assert str(site.reason).startswith("not compared on its own: ")
        assert site.passed
        assert site.checks[0].max_ulps is not None
    for mutant in PLAIN.mutants():
        wrong = verify(original, behind_a_contrib_operator(mutant))
        assert wrong.status == "failed"
        assert [s.passed for s in wrong.operators] == [False, False]


# In other graphs

BODY_BEFORE = """
    [in] s = tf.SpaceToBatchND(u, block, pads)
    t = Transpose<perm = [0, 3, 1, 2]>(s)
    [conv] c = Conv(t, w)
    r = Transpose<perm = [0, 2, 3, 1]>(c)
    [out] y = tf.BatchToSpaceND(r, block, crops)
"""
BODY_AFTER = """
    t1 = Transpose<perm = [0, 3, 1, 2]>(u)
    [conv] c1 = Conv<pads = [1, 1, 3, 0], dilations = [2, 3]>(t1, w)
    y = Transpose<perm = [0, 2, 3, 1]>(c1)
"""
BODY_WRONG = BODY_AFTER.replace("[1, 1, 3, 0]", "[2, 1, 2, 0]")
BLOCKS = """
    int32[2] block = {2, 3}, int32[2,2] pads = {2, 3, 1, 2}, int32[2,2] crops = {1, 0, 0, 2}
"""


def in_a_branch(body: str) -> onnx.ModelProto:
    return filled(f"""
        g (bool flag, float[N,H,W,3] x) => (float[A,B,C,D] z) <{BLOCKS}>
        {{
            u = Neg(x)
            z = If (flag) <
                then_branch = then () => (float[E,F,G,I] y) {{ {body} }},
                else_branch = els () => (float[J,K,L,M] o) {{ o = Identity(u) }}
            >
        }}""")


def test_in_a_branch() -> None:
    original = in_a_branch(BODY_BEFORE)
    result = verify(original, in_a_branch(BODY_AFTER))
    assert result, result.message
    assert [s.how for s in result.operators] == [["isolated", "end to end"]] * 2
    wrong = verify(original, in_a_branch(BODY_WRONG))
    assert [s.passed for s in wrong.operators] == [False, False]


FUNCTION_BEFORE = """
    block = Constant<value = int32[1] {2}>()
    none = Constant<value = int32[1,2] {0, 0}>()
    weights = Constant<value = float[1,1,3] {0.5, -2, 0.125}>()
    [in] s = tf.SpaceToBatchND(u, block, none)
    t = Transpose<perm = [0, 2, 1]>(s)
    [conv] c = Conv<pads = [2, 0]>(t, weights)
    r = Transpose<perm = [0, 2, 1]>(c)
    [out] y = tf.BatchToSpaceND(r, block, none)
"""
FUNCTION_AFTER = """
    weights = Constant<value = float[1,1,3] {0.5, -2, 0.125}>()
    t1 = Transpose<perm = [0, 2, 1]>(u)
    [conv] c1 = Conv<pads = [4, 0], dilations = [2]>(t1, weights)
    y = Transpose<perm = [0, 2, 1]>(c1)
"""


def in_a_function(body: str, size: str) -> onnx.ModelProto:
    return filled(f"""
        g (float[N,{size},1] x) => (float[A,B,C] z)
        {{
            v = Neg(x)
            z = loc.Causal(v)
        }}
        <domain: "loc", opset_import: ["" : 17]> Causal (u) => (y) {{ {body} }}""")


@pytest.mark.parametrize("size", ["8", "T"])
def test_in_a_function(size: str) -> None:
    original = in_a_function(FUNCTION_BEFORE, size)
    result = verify(original, in_a_function(FUNCTION_AFTER, size))
    assert result, result.message
    assert [s.how for s in result.operators] == [["isolated", "end to end"]] * 2
    for wrong in ("[0, 4]", "[3, 1]"):
        mutant = in_a_function(FUNCTION_AFTER.replace("[4, 0]", wrong), size)
        assert verify(original, mutant).status == "failed"


def test_weights_that_a_function_is_given() -> None:
    """Nothing declares what a function takes; what its calls give is known."""
    text = """
        g (float[N,H,W,3] x) => (float[A,B,C,D] z) <BLOCKS>
        { z = loc.Layer(x, w, block, pads, crops) }
        <domain: "loc", opset_import: ["" : 17]> Layer (u, w, block, pads, crops) => (y) { BODY }
    """.replace("BLOCKS", BLOCKS)
    original = filled(text.replace("BODY", BODY_BEFORE))
    result = verify(original, filled(text.replace("BODY", BODY_AFTER)))
    assert result, result.message
    assert [s.how for s in result.operators] == [["isolated", "end to end"]] * 2
    assert [s.proven for s in result.operators] == ["all sizes"] * 2
    assert verify(original, filled(text.replace("BODY", BODY_WRONG))).status == "failed"


# What the sizes of the whole model are

#: The height is even, so nothing is ever padded; alone, the region may get an odd one.
EVEN = """
    g (float[N,12,H,W] x) => (float[A,B,C,D] z)
      <int64[4] block = {1, 1, 2, 1}, int64[4] none = {0, 0, 0, 0}, int64[2] blocks = {2, 1},
       int64[1] two = {2}, int64[1] four = {4}, int64[1] axis = {0}, int64[2] zeros = {0, 0}>
    {
        u = DepthToSpace<blocksize = 2>(x)
        BODY
        z = Neg(y)
    }
"""
EVEN_BEFORE = """
        shape = Shape(u)
        sizes = Slice(shape, two, four, axis)
        over = Mod(sizes, blocks)
        left = Sub(blocks, over)
        fill = Mod(left, blocks)
        high = Concat<axis = 0>(zeros, fill)
        [in] s = org.openvinotoolkit.SpaceToBatch(u, block, none, high)
        [conv] c = Conv(s, w)
        [out] y = org.openvinotoolkit.BatchToSpace(c, block, none, none)
"""


def test_sizes_that_the_model_never_has_there() -> None:
    original = filled(EVEN.replace("BODY", EVEN_BEFORE))
    right = EVEN.replace("BODY", "[conv] y = Conv<dilations = [2, 1]>(u, w)")
    result = verify(original, filled(right))
    assert result, result.message
    assert passed_alone(result)
    wrong = verify(original, filled(right.replace("[2, 1]", "[1, 2]")))
    assert [s.passed for s in wrong.operators] == [False, False]


# Where the whole cannot be run


def with_foreign(text: str, more: str = "") -> onnx.ModelProto:
    text = text.replace("float[A,B,C,D] z)", "float[A,B,C,D] z, float q)")
    return filled(text.replace("z = Neg(y)", f"z = Neg(y)\n q = loc.Unknown(x)\n {more}"))


def test_the_rest_may_lack_what_was_verified_in_regions() -> None:
    for case in (PLAIN, CASES["dynamic"]):
        result = verify(with_foreign(case.original), with_foreign(case.converted))
        assert result.status == "unverified"
        assert result.operators_only, result.problems
        for mutant in case.mutants():
            result = verify(with_foreign(case.original), with_foreign(mutant))
            assert result.status == "failed"


@pytest.mark.parametrize(
    ("original", "converted"),
    [
        ("o = Identity(c)", "o = Identity(c)"),  # lost, and still read
        ("o = Neg(s)", "o = Neg(u)"),
        ("o = Identity(b)", "o = Identity(b_last)"),
    ],
)
def test_the_rest_must_be_sound(original: str, converted: str) -> None:
    before = with_foreign(PLAIN.original, original)
    after = reader.Source(with_foreign(PLAIN.converted, converted))
    assert not verify(before, after).operators_only


def test_an_initializer_that_nothing_reads_any_more_may_be_gone() -> None:
    after = with_foreign(PLAIN.converted)
    assert "pads" not in {t.name for t in after.graph.initializer}
    assert verify(with_foreign(PLAIN.original), after).operators_only


# Types


def of_type(text: str, name: str, dtype: type) -> onnx.ModelProto:
    return filled(text.replace("float[", f"{name}["), dtype)


@pytest.mark.usefixtures("nothing_is_proven")
def test_half_precision() -> None:
    original = of_type(PLAIN.original, "float16", np.float16)
    result = verify(original, of_type(PLAIN.converted, "float16", np.float16))
    assert result, result.message
    assert passed_alone(result)
    check = result.operators[0].checks[0]
    assert check.dtype == "float16"
    assert check.max_ulps is not None and check.max_ulps < 1.5
    for mutant in PLAIN.mutants():
        wrong = verify(original, of_type(mutant, "float16", np.float16))
        assert wrong.operators[0].passed is False


def test_a_type_that_onnxruntime_has_no_convolution_for() -> None:
    original = of_type(PLAIN.original, "double", np.float64)
    result = verify(original, of_type(PLAIN.converted, "double", np.float64))
    assert result.status == "unverified"
    assert not result.operators_only
    assert "Conv" in str(result.operators[0].reason)


QUANTISED = f"""
    g (float[N,H,W,3] x) => (float[A,B,C,D] z)
      <{BLOCKS}, float scale = {{0.0625}}, uint8 zero = {{3}}>
    {{
        u = Neg(x)
        BODY
        z = Neg(y)
    }}
"""
QUANTISED_BEFORE = """
        [in] s = tf.SpaceToBatchND(u, block, pads)
        q = QuantizeLinear(s, scale, zero)
        d = DequantizeLinear(q, scale, zero)
        t = Transpose<perm = [0, 3, 1, 2]>(d)
        [conv] c = Conv(t, w)
        r = Transpose<perm = [0, 2, 3, 1]>(c)
        [out] y = tf.BatchToSpaceND(r, block, crops)
"""
QUANTISED_AFTER = """
        q1 = QuantizeLinear(u, scale, zero)
        d1 = DequantizeLinear(q1, scale, zero)
        t1 = Transpose<perm = [0, 3, 1, 2]>(d1)
        [conv] c1 = Conv<pads = [1, 1, 3, 0], dilations = [2, 3]>(t1, w)
        y = Transpose<perm = [0, 2, 3, 1]>(c1)
"""


def test_quantised() -> None:
    """Whole numbers made of reals: the reference is the original in its own types."""
    original = filled(QUANTISED.replace("BODY", QUANTISED_BEFORE))
    text = QUANTISED.replace("BODY", QUANTISED_AFTER)
    result = verify(original, filled(text))
    assert result, result.message
    assert passed_alone(result)
    assert {c.max_ulps for s in result.operators for c in s.checks} == {None}
    for right, wrong in (("[1, 1, 3, 0]", "[2, 1, 2, 0]"), ("(u, scale", "(x, scale")):
        mutant = verify(original, filled(text.replace(right, wrong)))
        assert [s.passed for s in mutant.operators] == [False, False]


def test_data_whose_rank_follows_from_what_reads_it() -> None:
    original = behind_a_contrib_operator(PLAIN.original)
    result = verify(original, behind_a_contrib_operator(PLAIN.converted))
    assert result, result.message
    assert passed_alone(result)
    for mutant in PLAIN.mutants():
        wrong = verify(original, behind_a_contrib_operator(mutant))
        assert [s.passed for s in wrong.operators] == [False, False]
