"""Models that contradict themselves are refused, in one line that says where."""

from __future__ import annotations

import onnx
import pytest
from onnx import parser

from onnx_spatial import ModelFileError
from onnx_spatial.model.io import validate

HEAD = '<ir_version: 10, opset_import: ["" : 17, "loc" : 1]>\n'
FUNCTION = '<opset_import: ["" : 17, "loc" : 1], domain: "loc">'


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


def refusal(made: onnx.ModelProto) -> str:
    with pytest.raises(ModelFileError) as caught:
        validate.check(made, "m.onnx")
    return str(caught.value)


#: What no test of hostile files has: cycles, producers and names in inner graphs and in functions.
BRANCHES = """g (bool c, float[1] x) => (float[1] z) { z = If (c) <
    then_branch = t () => (float[1] u) { THEN },
    else_branch = e () => (float[1] v) { [other] v = Neg(OTHER) }> }"""


def branches(then: str, other: str = "x") -> str:
    return BRANCHES.replace("THEN", then).replace("OTHER", other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            branches("[one] u = Neg(x) [two] u = Abs(x)"),
            "'u' in main graph > If z.then_branch has two producers: Neg 'one' and Abs 'two'",
        ),
        (
            f"g (float[1] x) => (float[1] y) {{ y = loc.f(x) }} {FUNCTION} f (x) => (z) "
            "{ [one] z = Neg(x) [two] z = Abs(x) }",
            "'z' in function loc:f has two producers: Neg 'one' and Abs 'two'",
        ),
        (
            "g (float[1] x) => (float[1] z) <float[1] w = {1}> { w = Abs(z) z = Neg(x) }",
            "'w' in main graph has two producers: an input or initializer and Abs '<w>'",
        ),
        (
            branches("[here] u = Neg(absent)"),
            "Neg 'here' in main graph > If z.then_branch reads 'absent', "
            "which no node, input or initializer produces",
        ),
        (
            "g (float[1] x) => (float[1] z) { }",
            "main graph returns 'z', which no node, input or initializer produces",
        ),
        (
            f"g (float[1] x) => (float[1] z) {{ z = loc.outside(x) }}"
            f"{FUNCTION} f (x) => (y) {{ y = loc.h(x) }} {FUNCTION} h (x) => (y) {{ y = loc.f(x) }}"
            f"{FUNCTION} outside (x) => (y) {{ y = loc.f(x) }}",
            "functions call each other in a cycle: loc:f, loc:h",
        ),
    ],
)
def test_a_model_that_contradicts_itself_is_told_where(text, message):
    assert refusal(model(text)) == f"m.onnx: {message}"


def test_outputs_that_are_left_out_are_no_values():
    made = model("g (float[1,1,4] x) => (float[1,1,2] y) { y = MaxPool<kernel_shape = [3]>(x) }")
    made.graph.node.add(op_type="Split", input=["x"], output=["", ""])
    made.graph.node[0].output.append("")
    validate.check(made, "m.onnx")


def test_a_split_into_more_than_it_says_is_refused_before_it_ends_the_process():
    text = "g (float[4] x) => (float[2] y) { y, z = Split<num_outputs = NUMBER>(x) }"
    made = model(text.replace("NUMBER", "2"))
    validate.check(made, "m.onnx")
    made.graph.node[0].output.append("more")
    assert (
        refusal(made) == "m.onnx: Split '<y>' in main graph has 3 outputs, not 2 as it says itself"
    )


def test_overloads_are_functions_of_their_own():
    """One that calls the other is no ring."""
    made = model(f"""g (float[1] x) => (float[1] z) {{ z = loc.f(x) }}
        {FUNCTION} f (a) => (b) {{ b = loc.f(a) }} {FUNCTION} f (a) => (b) {{ b = Neg(a) }}""")
    assert "is defined twice" in refusal(made)
    made.functions[1].overload = "plain"
    made.functions[0].node[0].overload = "plain"
    validate.check(made, "m.onnx")
