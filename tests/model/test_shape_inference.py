"""Shape inference with a rule of the caller's for nodes that onnx cannot know."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper, parser

from onnx_spatial.model.inference import shape_inference

HEAD = '<ir_version: 9, opset_import: ["" : 17, "onnx_spatial.probe" : 1]>\n'


def inferred(text: str, rule: shape_inference.TypeRule) -> onnx.ModelProto:
    return shape_inference.infer(
        parser.parse_model(HEAD + text.replace("P", "onnx_spatial.probe.Probe")), rule
    )


def doubled(number: int, types: list[onnx.TypeProto | None]) -> onnx.TypeProto | None:
    """The first dim times two."""
    first, *rest = shape_inference.dims(types[0])
    return helper.make_tensor_type_proto(shape_inference.element_type(types[0]), [2 * first, *rest])


def dims_of(model: onnx.ModelProto, name: str) -> object:
    return next(shape_inference.dims(v.type) for v in model.graph.value_info if v.name == name)


def test_shapes_flow_through_standard_nodes_and_probes_in_one_pass():
    result = inferred(
        """g (float[3,N] x) => (float[?,?] y) {
            a = Relu(x)
            b = P <onnx_spatial_probe = 0> (a)
            c = Concat <axis = 0> (b, b)
            d = P <onnx_spatial_probe = 1> (c)
            y = Neg(d)
        }""",
        doubled,
    )
    assert [dims_of(result, name) for name in "bcd"] == [(6, "N"), (12, "N"), (24, "N")]


def test_a_model_that_onnx_gives_up_on_comes_back_as_it_is():
    text = "g (float[3] x) => (float[?] y) { y = P <onnx_spatial_probe = 0> (x) }"

    def rule(number: int, types: object) -> onnx.TypeProto | None:
        raise KeyError("what a rule may stumble over")

    result = inferred(text, rule)
    assert [n.op_type for n in result.graph.node] == ["Probe"]


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


def test_downstream_goes_through_nodes_and_bodies():
    model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (bool c, int64 n, float[2] x, float[2] z) => (float[2] y, float[2] other) {
            a = Relu(x)
            b = Neg(a)
            other = Neg(z)
            d = If (c) <
                then_branch = t () => (float[2] u) { p = Neg(b) u = Abs(p) },
                else_branch = e () => (float[2] v) { v = Neg(z) }>
            y = Loop (n, c, d) <
                body = step (int64 i, bool go, float[2] s) => (bool go1, float[2] s1) {
                    go1 = Identity(go)
                    s1 = Neg(s)
                }>
        }""")
    reached = shape_inference.downstream(model.graph, {"a"})
    assert reached >= {"a", "b", "p", "u", "d", "s", "s1", "y"}
    assert not reached & {"x", "z", "other", "c", "n"}
