"""Models that contradict themselves are refused, in one line that says where."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper, parser

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


def nested(depth: int) -> onnx.ModelProto:
    """A graph with so many graphs inside each other."""
    made = model("g (float[1] x) => (float[1] x) { }")
    graph = made.graph
    for level in range(depth):
        node = graph.node.add(op_type="If", input=["x"], output=[f"y{level}"])
        graph = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
    return made


def test_as_deep_as_a_file_can_be_nested_is_deep_enough():
    made = nested(validate.MAX_DEPTH)
    validate.check(onnx.ModelProto.FromString(made.SerializeToString()), "m.onnx")


def test_deeper_is_refused_and_no_reader_takes_it():
    made = nested(validate.MAX_DEPTH + 1)
    assert refusal(made) == "m.onnx: graphs are nested more than 33 deep, which no file can hold"
    with pytest.raises(Exception, match=r"(?i)pars|depth"):
        onnx.ModelProto.FromString(made.SerializeToString())


def test_nodes_may_stand_in_any_order():
    validate.check(
        model("g (float[1] x) => (float[1] z) { z = Neg(y) y = Neg(w) w = Neg(x) }"), "m"
    )


@pytest.mark.parametrize(
    ("body", "circle"),
    [
        ("z = Neg(z)", "Neg '<z>' in main graph is part of a cycle: <z>"),
        (
            "z = Neg(y) y = Neg(w) w = Add(y, x)",
            "Neg '<y>' in main graph is part of a cycle: <y>, <w>",
        ),
    ],
)
def test_a_circle_is_named(body, circle):
    assert refusal(model(f"g (float[1] x) => (float[1] z) {{ {body} }}")).endswith(circle)


def test_a_graph_inside_waits_for_what_its_node_gives():
    made = model("""g (bool c, float[1] x) => (float[1] z) {
        z = If (c) <then_branch = t () => (float[1] u) { u = Neg(z) },
                    else_branch = e () => (float[1] v) { v = Neg(x) }>
    }""")
    assert refusal(made).endswith("If '<z>' in main graph is part of a cycle: <z>")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("g (float[1] x) => (float[1] z) { [one] z = Neg(x) [two] z = Abs(x) }", "main graph"),
        (
            "g (bool c, float[1] x) => (float[1] y) { y = If (c) <"
            "then_branch = t () => (float[1] z) { [one] z = Neg(x) [two] z = Abs(x) },"
            "else_branch = e () => (float[1] v) { v = Neg(x) }> }",
            "main graph > If y.then_branch",
        ),
        (
            "g (float[1] x) => (float[1] y) { y = loc.f(x) }"
            f"{FUNCTION} f (x) => (z) {{ [one] z = Neg(x) [two] z = Abs(x) }}",
            "function loc:f",
        ),
    ],
)
def test_a_value_that_two_nodes_give_is_named_with_both(text, place):
    assert refusal(model(text)) == (
        f"m.onnx: 'z' in {place} has two producers: Neg 'one' and Abs 'two'"
    )


@pytest.mark.parametrize("name", ["x", "w"])
def test_a_value_that_is_there_before_any_node_is_named_with_the_one_that_gives_it(name):
    body = f"<float[1] w = {{1}}> {{ {name} = Abs(z) z = Neg(x) }}"
    assert refusal(model(f"g (float[1] x) => (float[1] z) {body}")) == (
        f"m.onnx: {name!r} in main graph has two producers: "
        f"an input or initializer and Abs '<{name}>'"
    )


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


def test_a_value_from_nowhere_is_named_with_its_reader():
    made = model("""g (bool c, float[1] x) => (float[1] z) {
        z = If (c) <then_branch = t () => (float[1] u) { [here] u = Neg(absent) },
                    else_branch = e () => (float[1] v) { v = Neg(x) }>
    }""")
    assert refusal(made) == (
        "m.onnx: Neg 'here' in main graph > If z.then_branch reads 'absent', "
        "which no node, input or initializer produces"
    )


def test_what_one_branch_gives_the_other_does_not_see():
    made = model("""g (bool c, float[1] x) => (float[1] z) {
        z = If (c) <then_branch = t () => (float[1] u) { u = Neg(x) },
                    else_branch = e () => (float[1] v) { v = Neg(u) }>
    }""")
    assert "reads 'u', which no node, input or initializer produces" in refusal(made)


def test_overloads_are_functions_of_their_own():
    """One that calls the other is no ring."""
    made = model(f"""g (float[1] x) => (float[1] z) {{ z = loc.f(x) }}
        {FUNCTION} f (a) => (b) {{ b = loc.f(a) }} {FUNCTION} f (a) => (b) {{ b = Neg(a) }}""")
    assert "is defined twice" in refusal(made)
    made.functions[1].overload = "plain"
    made.functions[0].node[0].overload = "plain"
    validate.check(made, "m.onnx")


def test_rings_are_named_once():
    calls = (("f", "h"), ("h", "f"), ("outside", "f"))
    functions = " ".join(f"{FUNCTION} {a} (x) => (y) {{ y = loc.{b}(x) }}" for a, b in calls)
    made = model(f"g (float[1] x) => (float[1] z) {{ z = loc.outside(x) }} {functions}")
    assert "cycle: loc:f, loc:h" in refusal(made)


def doubling(depth: int) -> onnx.ModelProto:
    """Functions of which each calls the next one twice."""
    functions = [
        helper.make_function(
            "loc",
            f"f{i}",
            ["a"],
            ["c"],
            [
                helper.make_node(
                    f"f{i + 1}" if i < depth else "Neg", [x], [y], domain="loc" if i < depth else ""
                )
                for x, y in ("ab", "bc")
            ],
            [helper.make_opsetid("", 17), helper.make_opsetid("loc", 1)],
        )
        for i in range(depth + 1)
    ]
    made = model("g (float[1] x) => (float[1] z) { z = loc.f0(x) }")
    made.functions.extend(functions)
    return made


def test_calls_that_multiply_are_counted_not_made():
    validate.check(doubling(10), "m.onnx")
    total = sum(2 ** (i + 1) for i in range(41))
    assert f"have {total} nodes, more than {validate.MAX_INLINED}" in refusal(doubling(40))
