"""A fusion rule has the same parts everywhere: it matches, declines with a reason, or rewrites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from adapter import plan, verify
from onnx import parser

from onnx_spatial.conversion import replace
from onnx_spatial.fusion import RULES

GUIDE = Path(__file__).parents[2] / "docs" / "contributing.md"


def model(behind: str, *outputs: str) -> onnx.ModelProto:
    """A SpaceToBatch without Transposes or opposites, and the nodes behind it."""
    declared = ", ".join(f"float[?,?,?,?] {name}" for name in outputs)
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[1,4,4,1] x) => ({declared}) <int64[2] b = {{2, 2}}, int64[2,2] p = {{0, 0, 0, 0}}> {{
            t = com.microsoft.SpaceToBatchND (x, b, p)
            {behind}
        }}"""
    )


@pytest.fixture
def guided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the rule that the guide shows, behind all others."""
    _, code, *_ = GUIDE.read_text().split("```python\n")
    names: dict[str, Any] = {}
    exec(code.split("```")[0], names)
    monkeypatch.setattr(replace, "RULES", (*RULES, names["RULE"]))


@pytest.mark.usefixtures("guided")
def test_the_rule_of_the_guide_rewrites() -> None:
    original = model("y = Identity (t)", "y")
    result = plan(original)
    (site,) = result.operators
    assert (site.lowering, site.absorbed, site.declined) == ("with Identity", ("<y>",), ())
    assert result.model is not None
    assert "Identity" not in {node.op_type for node in result.model.graph.node}
    assert verify(original, result.model).status == "passed"


@pytest.mark.usefixtures("guided")
def test_the_rule_of_the_guide_declines() -> None:
    (site,) = plan(model("y = Identity (t)  z = Relu (t)", "y", "z")).operators
    assert site.declined == ("the following Identity: other nodes read its input too",)
    assert site.lowering not in (None, "with Identity") and site.absorbed == ()


@pytest.mark.usefixtures("guided")
def test_a_rule_without_its_pattern_is_silent() -> None:
    (site,) = plan(model("y = Relu (t)", "y")).operators
    assert site.declined == () and site.lowering not in (None, "with Identity")
