"""Numbers of channels, inferred from the weights that read them."""

from __future__ import annotations

import pytest
from onnx import parser

from onnx_spatial.model.inference import constant_folding
from onnx_spatial.model.symbolic.channel_inference import declare_channels
from onnx_spatial.model.symbolic.symbolic_values import SymbolicValues

WEIGHTS = "float[8,3,3,3] k, float[5] scale, float[8,C,3,3] unsized"


def channels(nodes: str) -> list[int | None]:
    """What is known of the dims of x."""
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17]>\n'
        f"g (float[n,h,w,c] x, {WEIGHTS}) => (float y) {{{nodes}}}"
    )
    del model.graph.output[:]
    ((scope, graph),) = constant_folding.scopes(model)
    declare_channels(graph, scope)
    found = SymbolicValues(scope).dims("x")
    assert found is not None
    return [size.constant for size in found]


@pytest.mark.parametrize(
    ("nodes", "known"),
    [
        ("t = Transpose <perm = [0, 3, 1, 2]> (x) y = Conv(t, k)", [None, None, None, 3]),
        ("t = Transpose <perm = [0, 3, 1, 2]> (x) y = Conv <group = 2> (t, k)", [None] * 3 + [6]),
        ("y = Conv(x, k)", [None, 3, None, None]),
        ("y = ConvTranspose <group = 2> (x, k)", [None, 8, None, None]),
        ("y = BatchNormalization(x, scale, scale, scale, scale)", [None, 5, None, None]),
        # twice as many, which no single size shows
        (
            "t = Concat <axis = 1> (x, x) y = BatchNormalization(t, scale, scale, scale, scale)",
            [None] * 4,
        ),
        ("y = Conv(x, unsized)", [None] * 4),
        ("y = MatMul(x, k)", [None] * 4),
    ],
)
def test_channels_of_an_input(nodes, known):
    assert channels(nodes) == known


def test_a_branch_that_may_not_run_determines_nothing():
    body = "g2 () => (float z) { z = Conv(x, k) }"
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17]> g (float[n,h,w,c] x, bool b, {WEIGHTS}) => (float y)'
        f"{{ y = If (b) <then_branch = {body}, else_branch = {body}> }}"
    )
    del model.graph.output[:]
    for scope, graph in constant_folding.scopes(model):
        declare_channels(graph, scope)
        found = SymbolicValues(scope).dims("x")
        assert found is not None and found[1].constant is None
