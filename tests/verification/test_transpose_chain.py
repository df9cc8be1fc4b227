"""Converted models without a site's own values: right ones pass, wrong ones are found."""

from __future__ import annotations

import onnx
import pytest
from adapter import verify
from hand_lowered import model

from onnx_spatial import ModelFileError, Verification
from onnx_spatial.model.io import reader as files

ORIGINAL = """
    g (float[N,3,5,6] u) => (float[A,B,C,D] z OUTPUTS)
      <int32[2] block = {2, 3}, int32[2,2] pads = {1, 2, 0, 3}>
    {
        [front] x = Transpose<perm = [0, 2, 3, 1]>(u)
        [site] y = tf.SpaceToBatchND(x, block, pads)
        [behind] t = Transpose<perm = [0, 3, 1, 2]>(y)
        z = Relu(t)
        OTHERS
    }
"""
CONVERTED = """
    g (float[N,3,5,6] u) => (float[A,B,C,D] z OUTPUTS)
      <int32[2] block = {2, 3}, int32[2,2] pads = {1, 2, 0, 3},
       int64[8] amounts = {0, 0, 1, 0, 0, 0, 2, 3}, int64[6] split = {-1, 3, 4, 2, 3, 3},
       int64[4] merged = {-1, 3, 4, 3}>
    {
        padded = Pad(u, amounts)
        cells = Reshape(padded, split)
        moved = Transpose<perm = [3, 5, 0, 1, 2, 4]>(cells)
        t = Reshape(moved, merged)
        z = Relu(t)
        OTHERS
    }
"""


def filled(text: str, others: str = "", outputs: str = "") -> onnx.ModelProto:
    return model(text.replace("OTHERS", others).replace("OUTPUTS", outputs))


def failed_at_the_site(result: Verification) -> bool:
    return result.status == "failed" and result.operators[0].passed is False


def test_a_site_is_compared_with_its_transposes() -> None:
    result = verify(filled(ORIGINAL), filled(CONVERTED))
    assert result, result.message
    (site,) = result.operators
    assert site.how == ["isolated", "in place", "end to end"]
    assert {len(c.shape) for c in site.checks} == {4}
    assert "1 of 1 operator bit for bit" in result.message


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("[3, 5, 0, 1, 2, 4]", "[5, 3, 0, 1, 2, 4]"),
        ("[3, 5, 0, 1, 2, 4]", "[0, 3, 5, 1, 2, 4]"),
        ("{0, 0, 1, 0, 0, 0, 2, 3}", "{0, 0, 2, 0, 0, 0, 1, 3}"),
        ("t = Reshape(moved, merged)", "s = Reshape(moved, merged)\n t = Neg(s)"),
    ],
)
def test_what_went_wrong_inside_is_found(right: str, wrong: str) -> None:
    result = verify(filled(ORIGINAL), filled(CONVERTED.replace(right, wrong)))
    assert failed_at_the_site(result), result.message
    assert result.first_difference is not None
    assert (result.first_difference.kind, result.first_difference.name) == ("operator", "site")
    assert "u" in result.first_difference.inputs


SQUARE = """
    g (float[N,4,4,4] u) => (float[A,B,C,D] z)
      <int32[2] block = {2, 2}, int32[2,2] pads = {0, 0, 0, 0}>
    {
        x = Transpose<perm = [0, 2, 3, 1]>(u)
        [site] y = tf.SpaceToBatchND(x, block, pads)
        t = Transpose<perm = [0, 3, 1, 2]>(y)
        z = Relu(t)
    }
"""
SQUARE_CONVERTED = """
    g (float[N,4,4,4] u) => (float[A,B,C,D] z)
      <int64[6] split = {-1, 4, 2, 2, 2, 2}, int64[4] merged = {-1, 4, 2, 2}>
    {
        v = FRONT(u)
        cells = Reshape(v, split)
        moved = Transpose<perm = [3, 5, 0, 1, 2, 4]>(cells)
        s = Reshape(moved, merged)
        t = BEHIND(s)
        z = Relu(t)
    }
"""


@pytest.mark.parametrize(
    ("front", "behind"),
    [
        ("Transpose<perm = [0, 2, 3, 1]>", "Identity"),
        ("Transpose<perm = [0, 1, 3, 2]>", "Identity"),
        ("Identity", "Transpose<perm = [0, 1, 3, 2]>"),
    ],
)
def test_a_permutation_that_only_the_values_show(front: str, behind: str) -> None:
    """All sizes fit: the axes have the same."""
    text = SQUARE_CONVERTED.replace("BEHIND", "Identity").replace("FRONT", "Identity")
    assert verify(model(SQUARE), model(text))
    wrong = SQUARE_CONVERTED.replace("FRONT", front).replace("BEHIND", behind)
    assert failed_at_the_site(verify(model(SQUARE), model(wrong)))


def test_a_transpose_in_front_that_stays_for_others() -> None:
    others = "[front] x = Transpose<perm = [0, 2, 3, 1]>(u)\n w = Neg(x)"
    original = filled(ORIGINAL, "w = Neg(x)", ", float[E,F,G,H] w")
    result = verify(original, filled(CONVERTED, others, ", float[E,F,G,H] w"))
    assert result, result.message
    assert result.operators[0].how == ["isolated", "in place", "end to end"]
    turned = others.replace("0, 2, 3, 1", "0, 3, 2, 1")
    wrong = verify(original, filled(CONVERTED, turned, ", float[E,F,G,H] w"))
    assert wrong.status == "failed"


@pytest.mark.parametrize(
    "reader", ["w = Neg(y)", "w = Neg(x)", "w = Transpose<perm = [3, 2, 1, 0]>(y)"]
)
def test_a_forgotten_reader(reader: str) -> None:
    more = ", float[E,F,G,H] w"
    original, converted = filled(ORIGINAL, reader, more), filled(CONVERTED, reader, more)
    with pytest.raises(ModelFileError, match="which no node, input or initializer produces"):
        verify(original, converted)
    # A conversion in memory is not read again.
    result = verify(original, files.Source(converted))
    assert result.status == "failed"


def test_other_permutations_behind_are_compared_each() -> None:
    more = ", float[E,F,G,H] w"
    original = filled(ORIGINAL, "w = Transpose<perm = [1, 0, 3, 2]>(y)", more)
    right = filled(CONVERTED, "w = Transpose<perm = [2, 0, 1, 3]>(t)", more)
    # t is y by 0 3 1 2, so y by 1 0 3 2 is t by 2 0 1 3
    result = verify(original, right)
    assert result, result.message
    same = filled(CONVERTED, "w = Identity(t)", more)
    assert failed_at_the_site(verify(original, same))


def test_a_value_behind_another_operator() -> None:
    """Nothing between is a value any more, and not all of it is movement: a region is compared."""
    renamed = CONVERTED.replace("t = Reshape", "other = Reshape").replace("(t)", "(other)")
    result = verify(filled(ORIGINAL), filled(renamed))
    assert result, result.message
    (site,) = result.operators
    assert site.how == ["isolated", "end to end"]
    assert not any(c.exact for c in site.checks)
    wrong = verify(filled(ORIGINAL), filled(renamed.replace("[3, 5, 0", "[5, 3, 0")))
    assert failed_at_the_site(wrong)


PAIR = """
    g (float[N,4,6,3] x) => (float[A,B,C,D] z)
      <int32[2] block = {2, 3}, int32[2,2] pads = {1, 1, 0, 3}, int32[2,2] crops = {1, 0, 0, 0}>
    {
        a = Neg(x)
        [one] b = tf.SpaceToBatchND(a, block, pads)
        [two] c = tf.BatchToSpaceND(b, block, crops)
        z = Neg(c)
    }
"""
PAIR_CONVERTED = """
    g (float[N,4,6,3] x) => (float[A,B,C,D] z) <int64[8] amounts = {0, 0, 0, 0, 0, 1, 3, 0}>
    {
        a = Neg(x)
        c = Pad(a, amounts)
        z = Neg(c)
    }
"""


def test_two_operators_that_became_one() -> None:
    result = verify(model(PAIR), model(PAIR_CONVERTED))
    assert result, result.message
    assert [s.how for s in result.operators] == [["isolated", "in place", "end to end"]] * 2
    assert "2 of 2 operators bit for bit" in result.message
    wrong = model(PAIR_CONVERTED.replace("0, 1, 3, 0", "0, 1, 2, 1"))
    result = verify(model(PAIR), wrong)
    assert result.status == "failed"
    assert [s.passed for s in result.operators] == [False, False]


def test_sizes_that_do_for_one_operator_and_not_for_the_other_are_passed_over() -> None:
    """Six rows do for the blocks, and are too few for the crop behind them."""
    original = model("""
        g (float[N,H,6,3] x) => (float[A,B,C,D] z)
          <int32[2] block = {2, 3}, int32[2,2] pads = {0, 0, 0, 0}, int32[2,2] crops = {7, 0, 0, 0}>
        {
            a = Neg(x)
            b = tf.SpaceToBatchND(a, block, pads)
            c = tf.BatchToSpaceND(b, block, crops)
            z = Neg(c)
        }""")
    converted = """
        g (float[N,H,6,3] x) => (float[A,B,C,D] z)
          <int64[1] start = {7}, int64[1] end = {2147483647}, int64[1] axis = {1}>
        {
            a = Neg(x)
            c = Slice(a, start, end, axis)
            z = Neg(c)
        }"""
    result = verify(original, model(converted))
    assert result, result.message
    assert [s.how for s in result.operators] == [["isolated", "in place", "end to end"]] * 2
    wrong = verify(original, model(converted.replace("{7}", "{6}")))
    assert failed_at_the_site(wrong)


def test_constant_data_behind_a_transpose() -> None:
    """What stands for the site does not read x at all; it is compared from u on."""
    constant = "float[1,1,2,4] u = {1, 2, 3, 4, 5, 6, 7, 8}"
    original = model(f"""
        g (float[1,2,4,1] v) => (float[A,B,C,D] z)
          <int32[2] block = {{2, 2}}, int32[2,2] none = {{0, 0, 0, 0}}, {constant}>
        {{
            x = Transpose<perm = [0, 2, 3, 1]>(u)
            [site] y = tf.SpaceToBatchND(x, block, none)
            w = tf.SpaceToBatchND(v, block, none)
            z = Add(y, w)
        }}""")
    text = f"""
        g (float[1,2,4,1] v) => (float[A,B,C,D] z)
          <int64[5] cells = {{1, 1, 2, 2, 2}}, int64[4] merged = {{4, 1, 2, 1}}, {constant}>
        {{
            s = Reshape(u, cells)
            t = Transpose<perm = [2, 4, 0, 1, 3]>(s)
            y = Reshape(t, merged)
            r = Reshape(v, cells)
            q = Transpose<perm = [2, 4, 0, 1, 3]>(r)
            w = Reshape(q, merged)
            z = Add(y, w)
        }}"""
    result = verify(original, model(text))
    assert result, result.message
    assert result.operators[0].how == ["isolated", "in place", "end to end"]
    wrong = verify(original, model(text.replace("[2, 4, 0, 1, 3]>(s)", "[4, 2, 0, 1, 3]>(s)")))
    assert failed_at_the_site(wrong)


def test_a_transpose_between_two_operators() -> None:
    """Neither has both of its own values: they are compared from end to end of the three."""
    original = model("""
        g (float[N,4,4,2] x) => (float[A,B,C,D] z)
          <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}>
        {
            a = Neg(x)
            [one] b = tf.SpaceToBatchND(a, block, none)
            c = Transpose<perm = [0, 2, 1, 3]>(b)
            [two] d = tf.BatchToSpaceND(c, block, none)
            z = Neg(d)
        }""")
    text = """
        g (float[N,4,4,2] x) => (float[A,B,C,D] z)
          <int64[6] split = {-1, 2, 2, 2, 2, 2}, int64[4] merged = {-1, 4, 4, 2}>
        {
            a = Neg(x)
            cells = Reshape(a, split)
            moved = Transpose<perm = [0, 3, 2, 1, 4, 5]>(cells)
            d = Reshape(moved, merged)
            z = Neg(d)
        }"""
    result = verify(original, model(text))
    assert result, result.message
    assert [s.how for s in result.operators] == [["isolated", "in place", "end to end"]] * 2
    wrong = verify(original, model(text.replace("0, 3, 2, 1, 4, 5", "0, 3, 4, 1, 2, 5")))
    assert failed_at_the_site(wrong)


# Where the whole cannot be run

FOREIGN = "w = loc.Unknown(u)"


def foreign(text: str, others: str = FOREIGN) -> onnx.ModelProto:
    return filled(text, others, ", float w")


def test_the_rest_may_lack_what_was_verified_with_the_sites() -> None:
    result = verify(foreign(ORIGINAL), foreign(CONVERTED))
    assert result.status == "unverified"
    assert result.operators_only, result.problems


@pytest.mark.parametrize(
    ("original", "converted"),
    [
        # A value that nothing computes any more is still read.
        ("v = Neg(y)", "v = Neg(y)"),
        ("v = Neg(x)", "v = Neg(x)"),
        # A Transpose that stays says something else.
        ("v = Neg(x)", "x = Transpose<perm = [0, 3, 2, 1]>(u)\n v = Neg(x)"),
        # One that has nothing to do with a site is missing.
        ("v = Transpose(u)\n q = Neg(v)", "q = Neg(u)"),
    ],
)
def test_the_rest_must_be_sound(original: str, converted: str) -> None:
    before = foreign(ORIGINAL, f"{FOREIGN}\n {original}")
    # Not read from a file, or what is read but not computed would be refused there.
    after = files.Source(foreign(CONVERTED, f"{FOREIGN}\n {converted}"))
    result = verify(before, after)
    assert result.status in ("unverified", "failed")  # the latter where the value can be computed
    assert not result.operators_only


# In other graphs

PLACED = """
    g (bool flag, float[N,3,5,6] x) => (float[A,B,C,D] y)
      <int32[2] block = {2, 3}, int32[2,2] pads = {1, 2, 0, 3},
       int64[8] amounts = {0, 0, 1, 0, 0, 0, 2, 3}, int64[6] split = {-1, 3, 4, 2, 3, 3},
       int64[4] merged = {-1, 3, 4, 3}>
    {
        u = Neg(x)
        y = If (flag) <
            then_branch = then () => (float[E,F,G,H] t) { BODY },
            else_branch = els () => (float[I,J,K,L] c) { c = Identity(u) }
        >
    }
"""
SITE = """
    o = Relu(u)
    a = Transpose<perm = [0, 2, 3, 1]>(o)
    [site] b = tf.SpaceToBatchND(a, block, pads)
    t = Transpose<perm = [0, 3, 1, 2]>(b)
"""
LOWERED = """
    o = Relu(u)
    padded = Pad(o, amounts)
    cells = Reshape(padded, split)
    moved = Transpose<perm = [3, 5, 0, 1, 2, 4]>(cells)
    t = Reshape(moved, merged)
"""


def test_in_a_branch() -> None:
    original = model(PLACED.replace("BODY", SITE))
    result = verify(original, model(PLACED.replace("BODY", LOWERED)))
    assert result, result.message
    assert result.operators[0].how == ["isolated", "end to end"]
    wrong = verify(original, model(PLACED.replace("BODY", LOWERED.replace("[3, 5", "[5, 3"))))
    assert failed_at_the_site(wrong)
