"""Where the whole cannot run, whatever else is in the converted model has to be the original's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import model

from onnx_spatial import convert

#: `loc.Strange` is an operator that nothing here can run.
NET = """
    g (float[N,4,6,3] x, bool flag) => (float[P,Q,R,S] y, float[P,Q,R,S] z, float[P,Q,R,S] w)
      <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}, bool yes = {1}, int64 three = {3}>
    {
        a = loc.Strange(x)
        b = tf.SpaceToBatchND(a, block, none)
        two = Constant<value = float {2}>()
        c = Mul(b, two)
        y = If (flag) <
            then_branch = then () => (float[A,B,C,D] p) { p = Abs(b) q = Exp(b) },
            else_branch = els () => (float[A,B,C,D] r) { r = Neg(b) }
        >
        z, u = Loop (three, yes, b, c) <
            body = turn (int64 i, bool go, float[A,B,C,D] k, float[A,B,C,D] l)
              => (bool go2, float[A,B,C,D] k2, float[A,B,C,D] l2)
            { go2 = Identity(go) k2 = Abs(k) l2 = Neg(l) }
        >
        v = loc.pair(b, u)
        w = MatMul(v, sparse)
    }
    <domain: "loc", opset_import: ["" : 17]> pair (d, e) => (f) { f = Sub(d, e) h = Neg(e) }
"""


def stored(made: onnx.ModelProto, number: float) -> None:
    """The sparse matrix that the net multiplies with."""
    values = onnx.numpy_helper.from_array(np.float32([number]), "sparse")
    place = onnx.numpy_helper.from_array(np.int64([4]), "")
    del made.graph.sparse_initializer[:]
    made.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, place, [3, 3]))


def net() -> onnx.ModelProto:
    made = model(NET)
    stored(made, 2.0)
    return made


def body(made: onnx.ModelProto, op_type: str) -> onnx.GraphProto:
    (node,) = (n for n in made.graph.node if n.op_type == op_type)
    return next(a.g for a in node.attribute if a.name in ("then_branch", "body"))


def swap(values: object, i: int, j: int) -> None:
    values[i].name, values[j].name = values[j].name, values[i].name


def branch_gives_another(made: onnx.ModelProto) -> None:
    body(made, "If").output[0].name = "q"


def loop_takes_in_another_order(made: onnx.ModelProto) -> None:
    swap(body(made, "Loop").input, 2, 3)


def loop_gives_in_another_order(made: onnx.ModelProto) -> None:
    swap(body(made, "Loop").output, 1, 2)


def function_gives_another(made: onnx.ModelProto) -> None:
    made.functions[0].output[0] = "h"


def function_takes_in_another_order(made: onnx.ModelProto) -> None:
    made.functions[0].input[:] = ["e", "d"]


def function_of_another_opset(made: onnx.ModelProto) -> None:
    made.functions[0].opset_import[0].version = 6  # Sub without broadcasting


def function_has_a_default_more(made: onnx.ModelProto) -> None:
    made.functions[0].attribute_proto.append(onnx.helper.make_attribute("k", 1))


def function_is_gone(made: onnx.ModelProto) -> None:
    del made.functions[:]


def another_constant(made: onnx.ModelProto) -> None:
    (node,) = (n for n in made.graph.node if n.output[0] == "two")
    node.attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(np.float32(3)))


def turns(made: onnx.ModelProto) -> onnx.TensorProto:
    (tensor,) = (t for t in made.graph.initializer if t.name == "three")
    return tensor


def another_number_of_turns(made: onnx.ModelProto) -> None:
    turns(made).CopyFrom(onnx.numpy_helper.from_array(np.int64(4), "three"))


def another_number_of_turns_by_a_node(made: onnx.ModelProto) -> None:
    made.graph.initializer.remove(turns(made))
    four = onnx.numpy_helper.from_array(np.int64(4))
    made.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["three"], value=four))


def model_of_another_opset(made: onnx.ModelProto) -> None:
    (standard,) = (o for o in made.opset_import if o.domain in ("", "ai.onnx"))
    standard.version = 10  # Loop in another version


def another_sparse_weight(made: onnx.ModelProto) -> None:
    stored(made, 3.0)


def the_unknown_operator_is_defined(made: onnx.ModelProto) -> None:
    node, opset = onnx.helper.make_node("Neg", ["k"], ["o"]), onnx.helper.make_opsetid("", 17)
    made.functions.append(
        onnx.helper.make_function("loc", "Strange", ["k"], ["o"], [node], [opset])
    )


def the_unknown_operator_has_an_attribute(made: onnx.ModelProto) -> None:
    (node,) = (n for n in made.graph.node if n.op_type == "Strange")
    node.attribute.append(onnx.helper.make_attribute("k", 1))


def the_unknown_domain_is_not_imported(made: onnx.ModelProto) -> None:
    (imported,) = (o for o in made.opset_import if o.domain == "loc")
    made.opset_import.remove(imported)


def an_input_has_one_size(made: onnx.ModelProto) -> None:
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2


def an_input_has_another_rank(made: onnx.ModelProto) -> None:
    del made.graph.input[0].type.tensor_type.shape.dim[3]


def an_input_has_another_size(made: onnx.ModelProto) -> None:
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 5


def nodes_are_out_of_order(made: onnx.ModelProto) -> None:
    made.graph.node.append(made.graph.node[0])
    del made.graph.node[0]


def values_have_other_names(made: onnx.ModelProto) -> None:
    for node in made.graph.node:
        names = [f"{n}_" if n in ("c", "v") else n for n in node.input]
        node.input[:], node.name = names, ""
        node.output[:] = [f"{n}_" if n in ("c", "v") else n for n in node.output]


def an_initializer_is_a_constant(made: onnx.ModelProto) -> None:
    tensor = turns(made)
    made.graph.initializer.remove(tensor)
    made.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["three"], value=tensor))


def a_function_more_that_nothing_calls(made: onnx.ModelProto) -> None:
    the_unknown_operator_is_defined(made)
    made.functions[-1].name = "unused"


@pytest.mark.parametrize(
    "change",
    [values_have_other_names, an_initializer_is_a_constant, a_function_more_that_nothing_calls],
)
def test_what_is_written_otherwise_is_unchanged(change: Callable[[onnx.ModelProto], None]) -> None:
    before = net()
    after = convert(before, verify=False).model
    change(after)
    result = verify(before, after)
    assert result.operators_only, result.problems


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (nodes_are_out_of_order, "not in topological order: "),
        (an_input_has_another_rank, "input 'x' is declared as [N, 4, 6], not [N, 4, 6, 3]"),
        (an_input_has_another_size, "input 'x' is declared as [N, 5, 6, 3], not [N, 4, 6, 3]"),
    ],
)
def test_what_is_no_model_has_failed(
    change: Callable[[onnx.ModelProto], None], message: str
) -> None:
    before = net()
    after = convert(before, verify=False).model
    change(after)
    result = verify(before, after)
    assert result.status == "failed"
    assert message in result.message


def test_what_is_right_has_its_operators_verified() -> None:
    before = net()
    result = verify(before, convert(before, verify=False).model)
    assert result.status == "unverified"
    assert result.operators_only


@pytest.mark.parametrize(
    "change",
    [
        branch_gives_another,
        loop_takes_in_another_order,
        loop_gives_in_another_order,
        function_gives_another,
        function_takes_in_another_order,
        function_of_another_opset,
        function_has_a_default_more,
        function_is_gone,
        another_constant,
        another_number_of_turns,
        another_number_of_turns_by_a_node,
        model_of_another_opset,
        another_sparse_weight,
        the_unknown_operator_is_defined,
        the_unknown_operator_has_an_attribute,
        the_unknown_domain_is_not_imported,
        an_input_has_one_size,
    ],
)
def test_what_is_wrong_has_not(change: Callable[[onnx.ModelProto], None]) -> None:
    before = net()
    after = convert(before, verify=False).model
    change(after)
    result = verify(before, after)
    assert not result
    assert not result.operators_only
