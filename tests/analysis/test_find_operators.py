"""What is known of an operator before the model runs: where its parameters come from, its shapes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import running
import structure
from adapter import convert
from onnx import TensorProto, parser
from vocabulary import SpaceToBatch

from onnx_spatial import analysis

HEAD = '<ir_version: {ir}, opset_import: ["" : {opset}, "ai.onnx.converters.tensorflow" : 1]>'


def model(text: str, ir: int = 8, opset: int = 17) -> onnx.ModelProto:
    """Text in which T. stands for the domain of tf2onnx."""
    head = HEAD.format(ir=ir, opset=opset)
    return parser.parse_model(head + text.replace("T.", "ai.onnx.converters.tensorflow."))


def found(text: str, **versions: int) -> analysis.OperatorInfo:
    """What is found of the only operator of a model."""
    (info,) = analysis.find(model(text, **versions))
    assert info.error is None
    return info


WANTED = SpaceToBatch((2, 3), ((1, 1), (0, 2)))


def graph(tables: str, nodes: str, inputs: str = "float[2,4,4,1] x") -> str:
    """A graph of one operator, of nodes that give its parameters, and of the tables that these read."""
    return f"""g ({inputs}) => (float[?,?,?,?] y) <{tables}> {{
        {nodes} y = T.SpaceToBatchND(x, block, pads) }}"""


SOURCES = {
    "initializers": graph(
        "int32[2] block = {2, 3}, int64[2,2] pads = {1, 1, 0, 2}",
        "",
    ),
    "Constant value_ints": graph(
        "int64[2] square = {2, 2}",
        """block = Constant <value_ints = [2, 3]> ()
            flat = Constant <value_ints = [1, 1, 0, 2]> ()
            pads = Reshape(flat, square)""",
    ),
    "Identity and Cast": graph(
        "int64[2] given = {2, 3}, float[2,2] amounts = {1, 1, 0, 2}",
        """b = Identity(given) c = Identity(b)
            block = Cast <to = 6> (c) pads = Cast <to = 7> (amounts)""",
    ),
    "Concat": graph(
        "int32[1] two = {2}, int32[1] three = {3}, int32[1,2] low = {1, 1},"
        " int32[1,2] high = {0, 2}",
        """block = Concat <axis = 0> (two, three)
            pads = Concat <axis = 0> (low, high)""",
    ),
    "arithmetic": graph(
        "int64[2,2] columns = {1, 0, 1, 2}, int64[2] odd = {5, 7}, int64[1] two = {2}",
        """block = Div(odd, two)
            rows = Transpose <perm = [1, 0]> (columns)
            more = Add(rows, two)
            pads = Sub(more, two)""",
    ),
    "Shape of a static shape": graph(
        "int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3},"
        " int64[2] square = {2, 2}, int64[1] zero = {0}, int64[2] block = {2, 3}",
        """shape = Shape(x)
            h = Gather <axis = 0> (shape, one)
            spare = Sub(h, three)
            w = Shape <start = 2, end = 3> (x)
            odd = Mod(w, three)
            two_more = Add(odd, one)
            flat = Concat <axis = 0> (spare, one, zero, two_more)
            pads = Reshape(flat, square)""",
    ),
}


@pytest.mark.parametrize("source", SOURCES)
def test_parameters_are_found_through(source):
    assert found(SOURCES[source]).call.operator == WANTED
    converted = convert(model(SOURCES[source]), prefer="transpose")
    assert structure.written(converted) == ["Pad", "Reshape", "Transpose", "Reshape"]


UNKNOWN = {
    "a graph input": graph(
        "int64[2,2] pads = {1, 1, 0, 2}",
        "",
        "float[2,4,4,1] x, int32[2] block",
    ),
    "an initializer that callers may override": graph(
        "int64[2,2] pads = {1, 1, 0, 2}",
        "",
        "float[2,4,4,1] x, int32[2] block = {2, 3}",
    ),
    "the Shape of unknown dims": graph(
        "int64[1] three = {3}, int64[2,2] pads = {1, 1, 0, 2}",
        """half = Shape <start = 1, end = 2> (x)
            two = Div(half, half)
            block = Concat <axis = 0> (two, three)""",
        "float[2,H,4,1] x",
    ),
    "an operator that draws": graph(
        "int64[2,2] pads = {1, 1, 0, 2}",
        """drawn = RandomUniform <shape = [2], low = 2.0, high = 3.0> ()
            block = Cast <to = 7> (drawn)""",
    ),
}


@pytest.mark.parametrize("source", UNKNOWN)
def test_what_a_run_decides_is_left_to_the_run(source):
    call = found(UNKNOWN[source]).call
    assert call.operator is None
    assert call.block.values is None
    assert call.block.length == 2
    assert call.begins.values == (1, 0)


def test_parameters_computed_from_the_shape_behind_another_operator():
    """Each pass of folding and inference gets one operator further."""
    text = """g (float[2,4,8,1] x) => (float[?,?,?,?] y)
        <int64[2] two = {2, 2}, int64[2,2] none = {0, 0, 0, 0}, int64[1] one = {1}> {
            a = T.SpaceToBatchND(x, two, none)
            h = Shape <start = 1, end = 2> (a)
            b1 = Concat <axis = 0> (one, h)
            b = T.SpaceToBatchND(a, b1, none)
            w = Shape <start = 2, end = 3> (b)
            b2 = Concat <axis = 0> (w, one)
            y = T.SpaceToBatchND(b, b2, none)
        }"""
    found = analysis.find(model(text))
    assert [f.call.operator.block_shape for f in found] == [(2, 2), (1, 2), (2, 1)]
    assert [f.output_shape for f in found] == [(8, 2, 4, 1), (16, 2, 2, 1), (32, 1, 2, 1)]


# Shapes


def test_what_a_file_declares_behind_our_operators_is_not_believed():
    """Exporters that do not know the operators guess that the shape stays."""
    made = model("""g (float[2,4,6,1] x) => (float[?,?,?,?] z)
        <int64[2] two = {2, 2}, int64[2,2] none = {0, 0, 0, 0},
         float[2,4,6,1] y, float[2,4,6,1] r> {
            y = T.SpaceToBatchND(x, two, none)
            r = Relu(y)
            z = T.BatchToSpaceND(r, two, none)
        }""")
    assert {v.name for v in made.graph.value_info} == {"y", "r"}
    _, second = analysis.find(made)
    assert second.facts.inputs[0].shape == (8, 2, 3, 1)
    assert second.error is None


def shapes_of(text: str) -> list[tuple[object, object]]:
    return [(f.facts.inputs[0].shape, f.output_shape) for f in analysis.find(model(text))]


def test_guesses_behind_a_branch_that_holds_an_operator_are_not_believed():
    assert shapes_of("""g (bool c, float[2,4,4,3] x) => (float[?,?,?,?] y)
        <int64[2] two = {2, 2}, int64[2,2] none = {0, 0, 0, 0}, float[2,4,4,3] s> {
            s = If (c) <
                then_branch = taken () => (float[?,?,?,?] t) { t = T.SpaceToBatchND(x, two, none) },
                else_branch = other () => (float[?,?,?,?] e) { e = T.SpaceToBatchND(x, two, none) }>
            y = T.BatchToSpaceND(s, two, none)
        }""")[2] == ((8, 2, 2, 3), (2, 4, 4, 3))


# Functions


CALLED_TWICE = """
    <ir_version: 9, opset_import: ["" : 17, "local" : 1]>
    g (float[2,4,4,1] a, {second} b) => (float[?,?,?,?] y, {type}[?,?,?,?] z)
    <int64[2] two = {{2, 2}}, int64[2,2] none = {{0, 0, 0, 0}}, int64[2] one_two = {{1, 2}}> {{
        y = local.F(a, two, none)
        z = local.F(b, {block}, none)
    }}
    <domain: "local", opset_import: ["" : 17, "com.microsoft" : 1]>
    F (x, block, pads) => (y) {{ y = com.microsoft.SpaceToBatchND(x, block, pads) }}
"""


def called_twice(second: str = "float[2,4,4,1]", block: str = "two") -> analysis.OperatorInfo:
    text = CALLED_TWICE.format(second=second, block=block, type=second.split("[")[0])
    (info,) = analysis.find(parser.parse_model(text))
    assert info.error is None
    return info


def test_values_that_differ_between_calls_are_left_to_the_run():
    info = called_twice(block="one_two")
    assert info.call.operator is None
    assert info.call.block.values is None
    assert info.call.begins.values == (0, 0)


def test_a_rule_that_one_call_breaks_is_the_functions():
    text = CALLED_TWICE.format(second="float[2,4,5,1]", block="two", type="float")
    (info,) = analysis.find(parser.parse_model(text))
    assert "axis 2: size 5" in info.error


def test_where_the_inference_gives_up_declared_types_still_count(monkeypatch):
    """Less is known then, but never something wrong."""

    def give_up(*arguments: object, **options: object) -> None:
        raise RuntimeError("an inference error")

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", give_up)
    made = model("""g (int16[2,3,4,1] x) => (int16[?,?,?,?] y)
        <int64[2] two = {2, 2}, int64[2,2] pads = {1, 0, 0, 0}> {
            y = T.SpaceToBatchND(x, two, pads)
        }""")
    (info,) = analysis.find(made)
    assert info.facts.inputs[0].shape == (2, 3, 4, 1)
    assert info.element_types == {TensorProto.INT16}
    x = np.arange(24, dtype=np.int16).reshape(2, 3, 4, 1)
    (y,) = running.run(convert(made), {"x": x})
    assert running.same_bits(y, info.call.operator(x))
