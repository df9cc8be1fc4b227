"""Nodes outside of a region that read only the shape of a value in blocks get it without blocks."""

from __future__ import annotations

import pytest
import structure
from adapter import plan
from test_dilated_conv import KERNEL, SAME, check, model

REGION = """
    s = SpaceToBatchND(x, block, pads)
    t = Transpose <perm = [0, 3, 1, 2]> (s)
    c = Conv <kernel_shape = [3, 3]> (t, w)
    b = Transpose <perm = [0, 2, 3, 1]> (c)
    y = BatchToSpaceND(b, block, crops)
"""
SHAPES = ((1, 5, 6, 3), (2, 9, 4, 3))


@pytest.mark.parametrize(
    ("node", "count"),
    [
        ("n = Shape(s)", 4),  # Shape, Add, Mul, Div
        ("n = Shape(c)", 4),
        ("n = Shape <start = 1, end = 3> (b)", 3),
        ("n = Shape <start = -1> (b)", 0),  # known
    ],
)
def test_the_shape_of_a_value_in_blocks(node, count):
    made = model(f"{REGION} {node}", gives="float[?,?,?,?] y, int64[?] n", weights=KERNEL, **SAME)
    converted = check(made, *SHAPES)
    found = structure.counts(converted)
    assert found["Conv"] == 1 and "Reshape" not in found
    assert sum(found[op] for op in ("Shape", "Add", "Mul", "Div") if op in found) == count


def test_a_known_shape_is_a_constant():
    made = model(
        f"{REGION} n = Shape(c)",
        given="float[1,5,6,3] x",
        gives="float[?,?,?,?] y, int64[?] n",
        weights=KERNEL,
        **SAME,
    )
    assert "Shape" not in structure.counts(check(made, (1, 5, 6, 3)))


def test_a_value_whose_size_is_read_stays_in_blocks():
    """Size has no attributes that say which axes count."""
    made = model(f"{REGION} n = Size(c)", gives="float[?,?,?,?] y, int64 n", weights=KERNEL, **SAME)
    reasons = [reason for site in plan(made, domains=["tf"]).operators for reason in site.declined]
    assert any("reads 'c' from outside of the region, in blocks" in reason for reason in reasons)
