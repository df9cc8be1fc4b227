"""Axes are followed through Reshapes as groups, and sizes that a Reshape refuses are noted."""

from __future__ import annotations

import pytest

from onnx_spatial.fusion.strided_conv.axis_groups import AxisGroups
from onnx_spatial.maps.polynomial import Polynomial

N, H, W = (Polynomial.atom(name, nonnegative=True) for name in "NHW")
ONE, C = Polynomial.of(1), Polynomial.of(18)
SIZES = {"N": N, "H": H, "W": W, "C": C, "1": ONE, "NH": N * H, "HW": H * W, "NHW": N * H * W}


def sizes(text: str) -> list[Polynomial]:
    return [SIZES[part] if part in SIZES else Polynomial.of(int(part)) for part in text.split()]


def image(second: Polynomial = H) -> AxisGroups:
    """[N, H, W, C]; the axes are those of [N, C, H, W]."""
    return AxisGroups(((0,), (2,), (3,), (1,)), (N, C, second, W))


@pytest.mark.parametrize(
    ("shapes", "groups"),
    [
        (["-1 C"], ((0, 2, 3), (1,))),
        (["N -1 C"], ((0,), (2, 3), (1,))),
        (["N HW C"], ((0,), (2, 3), (1,))),
        (["0 0 -1"], ((0,), (2,), (3, 1))),
        (["NHW C", "N H W C"], ((0,), (2,), (3,), (1,))),
        (["1 NH 1 W C"], ((), (0, 2), (), (3,), (1,))),
        (["-1", "N H W 18"], ((0,), (2,), (3,), (1,))),
    ],
)
def test_reshapes(shapes, groups):
    axes = image()
    for shape in shapes:
        axes = axes.reshaped(sizes(shape), allow_zero=False)
    assert axes.groups == groups


@pytest.mark.parametrize("shape", ["N W H C", "-1 9", "N H W 9 -1", "-1 -1 C", "N C HW"])
def test_other_shapes_are_refused(shape):
    assert "or may do so" in image().reshaped(sizes(shape), allow_zero=False)


def test_axes_of_size_1():
    axes = image(ONE)
    assert axes.without([1]).groups == ((0,), (2, 3), (1,))
    assert axes.without([2]) is None
    assert axes.with_ones([0, 2]).groups == ((), (0,), (), (2,), (3,), (1,))
    assert axes.reshaped(sizes("N W C"), allow_zero=False).groups == ((0,), (2, 3), (1,))


@pytest.mark.parametrize(
    ("first", "second", "allow_zero", "nonzero"),
    [
        ("-1 C", "N H W C", False, {2, 3}),  # a 0 would copy C, or an axis that is not there
        ("-1 C", "N H W C", True, set()),
        ("N -1 C", "N H W C", False, {0, 3}),  # nothing is inferred beside a 0
        ("N HW C", "N H W C", False, {3}),
        ("0 0 0 -1", "N HW C", False, {0, 2, 3}),
        ("0 0 -1", "N H W C", False, {0, 2}),
    ],
)
def test_sizes_that_are_not_0_in_a_legal_run(first, second, allow_zero, nonzero):
    axes = image().reshaped(sizes(first), allow_zero=False)
    assert axes.reshaped(sizes(second), allow_zero=allow_zero).nonzero == nonzero | axes.nonzero


def test_a_0_may_copy_another_0():
    """Joined, H and W are at the place of H: where only W is 0, H is copied, which may be 0 as well."""
    assert image().reshaped(sizes("N HW C"), allow_zero=False).nonzero == set()
    tall = AxisGroups(image().groups, image().sizes, frozenset({2}))
    assert tall.reshaped(sizes("N HW C"), allow_zero=False).nonzero == {2, 3}


def test_a_0_that_copies_another_size():
    rows = image().reshaped(sizes("-1 C"), allow_zero=False)
    assert isinstance(image().reshaped(sizes("NHW -1"), allow_zero=False), str)
    reason = rows.reshaped(sizes("-1 H W C"), allow_zero=False)
    assert reason == "a 0 in its shape would copy the size of another axis"
    assert rows.reshaped(sizes("-1 H W C"), allow_zero=True).groups == ((0,), (2,), (3,), (1,))
