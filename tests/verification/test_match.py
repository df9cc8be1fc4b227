"""Every part of two models that must compute the same is found, and nothing that differs is lost."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hand_lowered import model
from onnx import helper, numpy_helper

from onnx_spatial import analysis, convert
from onnx_spatial.model.traversal import Place
from onnx_spatial.verification import match
from onnx_spatial.verification.match import ChangedPart, Matches
from onnx_spatial.verification.match.definitions import Definitions
from onnx_spatial.verification.match.graphs import Graphs
from onnx_spatial.verification.pair import ModelPair


def find(before: onnx.ModelProto, after: onnx.ModelProto) -> Matches:
    pair = ModelPair.read(before, after, ())
    infos = analysis.find(before)
    return match.find(pair, infos, analysis.graph_facts(before, infos))


def nothing_differs(matches: Matches) -> bool:
    return not (matches.changed or matches.unmatched or matches.rest)


def shows(matches: Matches) -> bool:
    """Whether something is found that no proof passes over: of two equal parts it says nothing."""
    parts = ((part.original(), part.converted()) for part in matches.changed)
    return bool(matches.unmatched or matches.rest) or any(a != b for a, b in parts)


def only(matches: Matches) -> ChangedPart:
    assert not matches.unmatched, matches.unmatched
    assert not matches.rest
    (part,) = matches.changed
    return part


def op_types(part: ChangedPart) -> tuple[list[str], list[str]]:
    before, after = ([node.op_type for node in each.nodes] for each in (part.before, part.after))
    return before, after


# What a part is

REGION = "s = tf.SpaceToBatchND(u, block, none) c = Relu(s) v = tf.BatchToSpaceND(c, block, none)"


def net(body: str = REGION, result: str = "y = Mul(v, two)") -> onnx.ModelProto:
    return model(f"""
        g (float[N,H,W,3] x) => (float[A,B,C,D] y)
          <int32[2] block = {{2, 2}}, int32[2,2] none = {{0, 0, 0, 0}}, float two = {{2}}>
        {{ u = Neg(x) {body} {result} }}
    """)


def test_the_same_model() -> None:
    assert nothing_differs(find(net(), net()))


def test_what_is_written_otherwise_is_the_same() -> None:
    after = net("i = Identity(u) " + REGION.replace("(u,", "(i,"))
    (stored,) = (t for t in after.graph.initializer if t.name == "two")
    after.graph.initializer.remove(stored)
    after.graph.node.insert(0, helper.make_node("Constant", [], ["k"], value=stored))
    after.graph.node[-1].input[1] = "k"
    after.doc_string, after.graph.node[1].name = "written anew", "renamed"
    assert nothing_differs(find(net(), after))


def test_an_operator_alone_is_a_part() -> None:
    matches = find(net(), convert(net(), verify=False, fuse=False).model)
    assert not matches.unmatched
    assert not matches.rest
    first, last = matches.changed
    assert op_types(first)[0] == ["SpaceToBatchND"]
    assert op_types(last)[0] == ["BatchToSpaceND"]
    assert (first.output, first.nodes, set(first.inputs)) == ("s", {1}, {"u"})
    assert not first.fed


def test_a_region_ends_at_values_of_both_models() -> None:
    part = only(find(net(), net("v = Relu(u)")))
    assert op_types(part) == (["SpaceToBatchND", "Relu", "BatchToSpaceND"], ["Relu"])
    assert set(part.inputs) == part.before.read == part.after.read == {"u"}
    assert (part.output, part.nodes) == ("v", {1, 2, 3})
    assert [value.name for value in part.original().graph.input] == ["u"]


def test_a_value_that_only_one_part_begins_with_is_inside_of_both() -> None:
    """The converted model keeps s for another reader, and computes v without it."""
    both = "y = Mul(v, s)"
    part = only(find(net(result=both), net(REGION.split("c =")[0] + "v = Relu(u)", both)))
    assert op_types(part) == (["SpaceToBatchND", "Relu", "BatchToSpaceND"], ["Relu"])


def test_a_part_of_the_inputs_of_the_model() -> None:
    before = net()
    part = only(find(before, net("v = Relu(u)")))
    assert part.output == "v"
    wide = find(before, net("v = Relu(u)")).widened(part)
    assert isinstance(wide, ChangedPart)
    assert wide.fed
    assert wide.sizes_occur
    assert not wide.is_static
    assert op_types(wide)[0] == ["Neg", "SpaceToBatchND", "Relu", "BatchToSpaceND"]


def test_parts_come_in_the_order_of_the_original() -> None:
    before = net("b = Exp(u) a = Sin(b) v = Cos(a)")
    after = net("b = Exp(u) v1 = Tan(u) a = Tan(b) v = Tan(a)", "w = Neg(v1) y = Sum(v, w)")
    assert [part.output for part in find(before, after).changed] == ["a", "v", "y"]


def test_a_changed_value_does_not_change_what_reads_it() -> None:
    part = only(find(net("b = Exp(u) v = Sin(b)"), net("b = Exp(u) v = Cos(b)")))
    assert (part.output, set(part.inputs)) == ("v", {"b"})


# Sizes and other integers

SIZED = """
    g (float[N,H,W,3] x, float[M,K] z) => (float[A,B,C,D] y)
      <int32[2] block = {2, 2}, int64[2] blocks = {2, 2}, int64[2] nothing = {0, 0},
       int64[1] one = {1}, int64[1] three = {3}, int64[1] axis = {0}, int64 col = {1}>
    {
        u = Neg(x)
        shape = Shape(u)
        sizes = Slice(shape, one, three, axis)
        over = Mod(sizes, blocks)
        gap = Sub(blocks, over)
        fill = Mod(gap, blocks)
        pairs = Concat<axis = 0>(nothing, fill)
        flat = Reshape(pairs, blocks)
        pads = Transpose(flat)
        v = tf.SpaceToBatchND(u, block, pads)
        y = Exp(v)
    }
"""


def test_integers_are_free_then_followed_back_to_the_data() -> None:
    before = model(SIZED)
    after = model(
        SIZED.replace("v = tf", "w = Identity(u) v = tf").replace("(u, block", "(w, block")
    )
    assert nothing_differs(find(before, after))
    after = model(SIZED.replace("v = tf.", "v = loc."))
    matches = find(before, after)
    part = only(matches)
    assert set(part.inputs) == {"u", "pads"}
    upstream = matches.upstream(part)
    assert (upstream.names, upstream.ties, set(upstream.inputs)) == ({"pads"}, set(), {"u"})
    followed = matches.followed(part)
    assert isinstance(followed, ChangedPart)
    assert set(followed.inputs) == {"u"}
    assert op_types(followed)[0][0] == "Shape"


def test_integers_that_only_one_model_reads_are_followed_at_once() -> None:
    part = only(find(model(SIZED), model(SIZED.replace("(u, block, pads)", "(u, block)"))))
    assert set(part.inputs) == {"u"}


def test_integers_of_constants_are_inside() -> None:
    text = SIZED.replace("over = Mod(sizes", "over = Mod(three")
    part = only(find(model(text), model(text.replace("v = tf.", "v = loc."))))
    assert set(part.inputs) == {"u"}


def test_a_value_that_depends_on_another_one_that_is_read() -> None:
    body = "b = Exp(u) v = Add(u, b)"
    matches = find(net(body), net(body.replace("Add", "Sub")))
    part = only(matches)
    assert set(part.inputs) == {"u", "b"}
    upstream = matches.upstream(part)
    assert (upstream.names, upstream.ties) == ({"b"}, {"b"})
    assert [node.op_type for node in upstream.nodes] == ["Exp"]


PLAIN = "g (float[1,2,N,M] x) => (float[1,2,A,B] y) <float[2,2,3,3] w, float k = {2}> { NODES }"


@pytest.mark.parametrize(
    ("before", "after", "equal"),
    [
        ("y = Conv(x, w)", "y = Conv<group = 1>(x, w)", True),
        ("y = Conv(x, w)", "y = Conv<group = 2>(x, w)", False),
        ("y = Conv(x, w)", "y = Conv<pads = [0, 0, 0, 0]>(x, w)", False),  # no default is declared
        ("y = Mul(x, k)", "[other] y = Mul(x, k)", True),
        ("y = Mul(x, k)", "i = Identity(x) y = Mul(i, k)", True),
        ("t = Neg(x) y = Mul(t, k)", "v = Neg(x) y = Mul(v, k)", True),
        ("t = Neg(x) y = Mul(t, k)", "v = Abs(x) y = Mul(v, k)", False),
        ("t = Neg(x) y = Mul(t, k)", "t = Abs(x) y = Mul(t, k)", True),  # t itself is not
        ("y = Sub(x, k)", "y = Sub(k, x)", False),
        ("a = RandomNormalLike(x) b = RandomNormalLike(x) y = Sub(a, b)",
         "a = RandomNormalLike(x) y = Sub(a, a)", False),
    ],
)  # fmt: skip
def test_definitions(before: str, after: str, equal: bool) -> None:
    """An attribute may be left out, names and Identity do not count; inputs, order and draws do."""
    models = [model(PLAIN.replace("NODES", nodes)) for nodes in (before, after)]
    definitions = Definitions(Graphs(models[0]), Graphs(models[1]), (None, None))
    assert definitions.same("y", Place()) is equal


@pytest.mark.parametrize(("op_type", "equal"), [("Softmax", False), ("Tanh", True)])
def test_a_bumped_opset(op_type: str, equal: bool) -> None:
    """The axis of Softmax has another default since opset 13; Tanh accepts more types."""
    before, after = (
        model(f"g (float[N,3,4] x) => (float[N,3,4] y) {{ y = {op_type}(x) }}", opset=opset)
        for opset in (12, 13)
    )
    assert nothing_differs(find(before, after)) is equal


# What must not be lost

WHOLE = """
    g (float[N,4] x, float[N,4] q, bool flag, float[4] w) => (float[P,Q] y, float[P,Q] z, float[P,Q] o)
      <float two = {2}, bool yes = {1}, int64 three = {3}, float[4] w = {1, 2, 3, 4}>
    {
        a = loc.Strange(x)
        b = Elu<alpha = 0.5>(a)
        c = Mul(b, two)
        y = If (flag) <
            then_branch = then () => (float[A,B] p) { p = Abs(b) t = Exp(b) },
            else_branch = els () => (float[A,B] r) { r = Neg(b) }
        >
        z, u = Loop (three, yes, b, c) <
            body = turn (int64 i, bool go, float[A,B] k, float[A,B] l)
              => (bool go2, float[A,B] k2, float[A,B] l2)
            { go2 = Identity(go) k2 = Add(k, b) l2 = Sub(k, l) }
        >
        d = loc.pair<by = 3>(b, u)
        e = Mul(d, w)
        m, n = Split<axis = 1>(e)
        f = Concat<axis = 1>(n, m)
        h = MatMul(f, sparse)
        o = Sub(h, q)
    }
    <domain: "loc", opset_import: ["" : 17]> pair <by>(d, e) => (f)
    { k = Constant<value_int: int = @by>() g = Cast<to = 1>(k) s = Sub(d, e) f = Mul(s, g) h = Neg(e) }
"""


def whole() -> onnx.ModelProto:
    made = model(WHOLE, opset=13)
    made.functions[0].opset_import[0].version = 13
    sparse(made, 2.0)
    return made


def sparse(made: onnx.ModelProto, number: float) -> None:
    values = numpy_helper.from_array(np.float32([number]), "sparse")
    place = numpy_helper.from_array(np.int64([4]), "")
    del made.graph.sparse_initializer[:]
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, place, [4, 4]))


def node(made: onnx.ModelProto, output: str) -> onnx.NodeProto:
    (only,) = (n for n in made.graph.node if output in n.output)
    return only


def body(made: onnx.ModelProto, output: str) -> onnx.GraphProto:
    return next(a.g for a in node(made, output).attribute if a.HasField("g"))


def stored(made: onnx.ModelProto, name: str) -> onnx.TensorProto:
    (tensor,) = (t for t in made.graph.initializer if t.name == name)
    return tensor


def swap(values: object, i: int, j: int) -> None:
    values[i].name, values[j].name = values[j].name, values[i].name


def inner(made: onnx.ModelProto, output: str, inside: str) -> onnx.NodeProto:
    (only,) = (n for n in body(made, output).node if inside in n.output)
    return only


def attribute_is_lost(made: onnx.ModelProto) -> None:
    del node(made, "b").attribute[:]


def attribute_is_lost_in_a_call(made: onnx.ModelProto) -> None:
    del node(made, "d").attribute[:]


def input_is_swapped(made: onnx.ModelProto) -> None:
    node(made, "o").input[:] = ["q", "h"]


def outputs_are_swapped(made: onnx.ModelProto) -> None:
    node(made, "m").output[:] = ["n", "m"]


def results_are_swapped(made: onnx.ModelProto) -> None:
    branch, loop = node(made, "y"), node(made, "z")
    branch.output[0], loop.output[0] = "z", "y"


def branch_gives_another(made: onnx.ModelProto) -> None:
    body(made, "y").output[0].name = "t"


def branches_are_swapped(made: onnx.ModelProto) -> None:
    first, second = node(made, "y").attribute
    first.name, second.name = second.name, first.name


def branch_computes_another(made: onnx.ModelProto) -> None:
    inner(made, "y", "p").op_type = "Neg"


def loop_takes_in_another_order(made: onnx.ModelProto) -> None:
    swap(body(made, "z").input, 2, 3)


def loop_gives_in_another_order(made: onnx.ModelProto) -> None:
    swap(body(made, "z").output, 1, 2)


def loop_input_hides_an_outer_value(made: onnx.ModelProto) -> None:
    """The text of k2 stays Add(k, b), but b is the other carried value now."""
    body(made, "z").input[3].name = "b"
    inner(made, "z", "l2").input[1] = "b"


def loop_node_hides_an_outer_value(made: onnx.ModelProto) -> None:
    body(made, "z").node.insert(0, helper.make_node("Neg", ["k"], ["b"]))


def loop_constant_hides_an_outer_value(made: onnx.ModelProto) -> None:
    tensor = numpy_helper.from_array(np.float32([1, 2, 3, 4]), "b")
    body(made, "z").initializer.append(tensor)


def loop_turns_more_often(made: onnx.ModelProto) -> None:
    stored(made, "three").CopyFrom(numpy_helper.from_array(np.int64(4), "three"))


def function_gives_another(made: onnx.ModelProto) -> None:
    made.functions[0].output[0] = "h"


def function_takes_in_another_order(made: onnx.ModelProto) -> None:
    made.functions[0].input[:] = ["e", "d"]


def function_computes_another(made: onnx.ModelProto) -> None:
    made.functions[0].node[2].op_type = "Add"


def function_has_a_default_more(made: onnx.ModelProto) -> None:
    made.functions[0].attribute_proto.append(helper.make_attribute("k", 1))


def function_is_gone(made: onnx.ModelProto) -> None:
    del made.functions[:]


def function_is_of_another_opset(made: onnx.ModelProto) -> None:
    made.functions[0].opset_import[0].version = 6  # Sub without broadcasting


def function_of_that_name_is_called(made: onnx.ModelProto) -> None:
    """Another function with the same name, with an overload."""
    other = made.functions.add()
    other.CopyFrom(made.functions[0])
    other.overload, other.node[2].op_type = "other", "Add"
    node(made, "d").overload = "other"


def unknown_operator_is_defined(made: onnx.ModelProto) -> None:
    negated, opset = helper.make_node("Neg", ["k"], ["o"]), helper.make_opsetid("", 13)
    made.functions.append(helper.make_function("loc", "Strange", ["k"], ["o"], [negated], [opset]))


def unknown_operator_has_an_attribute(made: onnx.ModelProto) -> None:
    node(made, "a").attribute.append(helper.make_attribute("k", 1))


def standard_operator_is_redefined(made: onnx.ModelProto) -> None:
    same, opset = helper.make_node("Exp", ["k"], ["o"]), helper.make_opsetid("", 13)
    made.functions.append(helper.make_function("ai.onnx", "Elu", ["k"], ["o"], [same], [opset]))


def weight_is_another(made: onnx.ModelProto) -> None:
    stored(made, "two").CopyFrom(numpy_helper.from_array(np.float32(3), "two"))


def sparse_weight_is_another(made: onnx.ModelProto) -> None:
    sparse(made, 3.0)


def weight_is_another_type(made: onnx.ModelProto) -> None:
    stored(made, "two").CopyFrom(numpy_helper.from_array(np.float16(2), "two"))


def default_is_another(made: onnx.ModelProto) -> None:
    stored(made, "w").CopyFrom(numpy_helper.from_array(np.float32([4, 3, 2, 1]), "w"))


def default_is_fixed(made: onnx.ModelProto) -> None:
    del made.graph.input[3]


def default_is_gone(made: onnx.ModelProto) -> None:
    made.graph.initializer.remove(stored(made, "w"))


def constant_takes_an_overridable_input(made: onnx.ModelProto) -> None:
    """A value of the same bytes, which a caller may replace."""
    made.graph.input.append(helper.make_tensor_value_info("two", 1, []))


def output_is_an_input(made: onnx.ModelProto) -> None:
    made.graph.node.remove(node(made, "o"))
    made.graph.node.append(helper.make_node("Identity", ["q"], ["o"]))


def output_is_a_constant(made: onnx.ModelProto) -> None:
    made.graph.node.remove(node(made, "o"))
    made.graph.initializer.append(numpy_helper.from_array(np.ones((1, 4), np.float32), "o"))


def node_reads_another(made: onnx.ModelProto) -> None:
    node(made, "c").input[0] = "a"


def node_reads_an_input_that_it_did_not(made: onnx.ModelProto) -> None:
    node(made, "e").input[0] = "q"


def name_is_used_again(made: onnx.ModelProto) -> None:
    """h is something else, and what it was has another name: right, but no two parts of h are."""
    node(made, "h").output[0] = "h2"
    made.graph.node.insert(len(made.graph.node) - 1, helper.make_node("Neg", ["q"], ["h"]))
    node(made, "o").input[:] = ["h2", "q"]


def node_is_added_that_nothing_reads(made: onnx.ModelProto) -> None:
    made.graph.node.append(helper.make_node("Sqrt", ["x"], ["root"]))


def node_is_added_in_a_branch(made: onnx.ModelProto) -> None:
    body(made, "y").node.append(helper.make_node("Sqrt", ["b"], ["root"]))


def node_comes_too_early(made: onnx.ModelProto) -> None:
    made.graph.node.append(made.graph.node[0])
    del made.graph.node[0]


def model_is_of_another_opset(made: onnx.ModelProto) -> None:
    made.opset_import[0].version = 10  # Loop in another version


WRONG = (
    attribute_is_lost,
    attribute_is_lost_in_a_call,
    input_is_swapped,
    outputs_are_swapped,
    results_are_swapped,
    branch_gives_another,
    branches_are_swapped,
    branch_computes_another,
    loop_takes_in_another_order,
    loop_gives_in_another_order,
    loop_input_hides_an_outer_value,
    loop_node_hides_an_outer_value,
    loop_constant_hides_an_outer_value,
    loop_turns_more_often,
    function_gives_another,
    function_takes_in_another_order,
    function_computes_another,
    function_has_a_default_more,
    function_is_gone,
    function_is_of_another_opset,
    function_of_that_name_is_called,
    unknown_operator_is_defined,
    unknown_operator_has_an_attribute,
    standard_operator_is_redefined,
    weight_is_another,
    sparse_weight_is_another,
    weight_is_another_type,
    default_is_another,
    default_is_fixed,
    default_is_gone,
    constant_takes_an_overridable_input,
    output_is_an_input,
    output_is_a_constant,
    node_reads_another,
    node_reads_an_input_that_it_did_not,
    name_is_used_again,
    node_is_added_that_nothing_reads,
    node_is_added_in_a_branch,
    node_comes_too_early,
    model_is_of_another_opset,
)


def test_the_whole_is_the_same() -> None:
    assert nothing_differs(find(whole(), whole()))


@pytest.mark.parametrize("change", WRONG)
def test_a_difference_shows(change: Callable[[onnx.ModelProto], None]) -> None:
    after = whole()
    change(after)
    assert shows(find(whole(), after))
