"""Shape inference with a rule of the caller's for nodes that onnx cannot know."""

from __future__ import annotations

import onnx
import pytest
from onnx import parser

from onnx_spatial.model.inference import shape_inference

HEAD = '<ir_version: 9, opset_import: ["" : 17, "onnx_spatial.probe" : 1]>\n'


def inferred(text: str, rule: shape_inference.TypeRule) -> onnx.ModelProto:
    return shape_inference.infer(
        parser.parse_model(HEAD + text.replace("P", "onnx_spatial.probe.Probe")), rule
    )


@pytest.mark.parametrize(
    "text",
    [
        "g (float[3] x) => (float[?] y) { y = P <onnx_spatial_probe = 0> (x) }",
        """g (bool c, float[3] x) => (float[?] y) {
            y = If (c) <
                then_branch = t () => (float[?] u) { u = P <onnx_spatial_probe = 0> (x) },
                else_branch = e () => (float[3] v) { v = Neg (x) }>
        }""",
    ],
)
def test_an_interrupt_in_a_rule_goes_through(text):
    """Python calls onnx, which calls Python: Ctrl-C must not end as a shape that is not known."""

    def rule(number: int, types: object) -> onnx.TypeProto | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inferred(text, rule)
