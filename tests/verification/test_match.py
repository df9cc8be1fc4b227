"""Every part of two models that must compute the same is found, and nothing that differs is lost."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hand_lowered import model
from onnx import helper, numpy_helper

from onnx_spatial import convert
from onnx_spatial.model.traversal import Place
from onnx_spatial.verification.match import matches as matching
from onnx_spatial.verification.match.definitions import Definitions
from onnx_spatial.verification.match.graphs import Graphs
from onnx_spatial.verification.match.matches import ChangedPart, Matches
from onnx_spatial.verification.pair import ModelPair


def find(before: onnx.ModelProto, after: onnx.ModelProto) -> Matches:
    return matching.find(ModelPair.read(before, after, ()))


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
    assert wide.may_be_fed(values=True)
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
    assert (upstream.names, set(upstream.inputs)) == ({"pads"}, {"u"})
    assert upstream.nodes[0].op_type == "Shape"


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
    assert upstream.names == {"b"}
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
    assert definitions.defined_alike("y", Place()) is equal


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


def whole(text: str = WHOLE) -> onnx.ModelProto:
    made = model(text, opset=13)
    made.functions[0].opset_import[0].version = 13
    sparse(made, 2.0)
    return made


def sparse(made: onnx.ModelProto, number: float) -> None:
    values = numpy_helper.from_array(np.float32([number]), "sparse")
    place = numpy_helper.from_array(np.int64([4]), "")
    del made.graph.sparse_initializer[:]
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, place, [4, 4]))


#: Changes of the text: what is there, and what takes its place.
WRITTEN: dict[str, tuple[tuple[str, str], ...]] = {
    "attribute is lost": (("Elu<alpha = 0.5>", "Elu"),),
    "attribute is lost in a call": (("pair<by = 3>", "pair"),),
    "inputs are swapped": (("Sub(h, q)", "Sub(q, h)"),),
    "outputs are swapped": (("m, n = Split", "n, m = Split"),),
    "results are swapped": (("y = If", "z = If"), ("z, u = Loop", "y, u = Loop")),
    "branch gives another": (("(float[A,B] p)", "(float[A,B] t)"),),
    "branches are swapped": (
        ("then_branch = then", "else_branch = then"),
        ("else_branch = els", "then_branch = els"),
    ),
    "branch computes another": (("p = Abs(b)", "p = Neg(b)"),),
    "loop takes in another order": (
        ("float[A,B] k, float[A,B] l)", "float[A,B] l, float[A,B] k)"),
    ),
    "loop gives in another order": (
        ("float[A,B] k2, float[A,B] l2)", "float[A,B] l2, float[A,B] k2)"),
    ),
    # The text of k2 stays Add(k, b), but b is the other carried value now.
    "loop input hides an outer value": (
        ("float[A,B] k, float[A,B] l)", "float[A,B] k, float[A,B] b)"),
        ("Sub(k, l)", "Sub(k, b)"),
    ),
    "loop node hides an outer value": (("{ go2 =", "{ b = Neg(k) go2 ="),),
    "loop turns more often": (("three = {3}", "three = {4}"),),
    "function gives another": (("(d, e) => (f)", "(d, e) => (h)"),),
    "function takes in another order": (("(d, e) => (f)", "(e, d) => (f)"),),
    "function computes another": (("s = Sub(d, e)", "s = Add(d, e)"),),
    "unknown operator has an attribute": (("Strange(x)", "Strange<k = 1>(x)"),),
    "weight is another": (("two = {2}", "two = {3}"),),
    "weight is another type": (("float two", "double two"),),
    "default is another": (("{1, 2, 3, 4}", "{4, 3, 2, 1}"),),
    "default is fixed": ((", float[4] w)", ")"),),
    "default is gone": ((", float[4] w = {1, 2, 3, 4}>", ">"),),
    # A value of the same bytes, which a caller may replace.
    "constant may be replaced": ((", float[4] w)", ", float[4] w, float two)"),),
    "output is an input": (("Sub(h, q)", "Identity(q)"),),
    "output is a constant": (
        ("o = Sub(h, q)", ""),
        ("{1, 2, 3, 4}>", "{1, 2, 3, 4}, float[1,4] o = {1, 1, 1, 1}>"),
    ),
    "node reads another": (("Mul(b, two)", "Mul(a, two)"),),
    "node reads an input that it did not": (("Mul(d, w)", "Mul(q, w)"),),
    # h is something else, and what it was has another name: right, but no two parts of h are.
    "name is used again": (
        ("h = MatMul(f, sparse)", "h2 = MatMul(f, sparse) h = Neg(q)"),
        ("Sub(h, q)", "Sub(h2, q)"),
    ),
    "node is added that nothing reads": (("Sub(h, q)", "Sub(h, q) root = Sqrt(x)"),),
    "node is added in a branch": (("t = Exp(b)", "t = Exp(b) root = Sqrt(b)"),),
    "node comes too early": (
        ("a = loc.Strange(x)", ""),
        ("Sub(h, q)", "Sub(h, q) a = loc.Strange(x)"),
    ),
}


def loop_constant_hides_an_outer_value(made: onnx.ModelProto) -> None:
    (loop,) = (n for n in made.graph.node if n.op_type == "Loop")
    tensor = numpy_helper.from_array(np.float32([1, 2, 3, 4]), "b")
    loop.attribute[0].g.initializer.append(tensor)


def function_is_gone(made: onnx.ModelProto) -> None:
    del made.functions[:]


def function_has_a_default_more(made: onnx.ModelProto) -> None:
    made.functions[0].attribute_proto.append(helper.make_attribute("k", 1))


def function_is_of_another_opset(made: onnx.ModelProto) -> None:
    made.functions[0].opset_import[0].version = 6  # Sub without broadcasting


def function_of_that_name_is_called(made: onnx.ModelProto) -> None:
    """Another function with the same name, with an overload."""
    other = made.functions.add()
    other.CopyFrom(made.functions[0])
    other.overload, other.node[2].op_type = "other", "Add"
    (call,) = (n for n in made.graph.node if n.op_type == "pair")
    call.overload = "other"


def define(made: onnx.ModelProto, domain: str, name: str) -> None:
    negated, opset = helper.make_node("Neg", ["k"], ["o"]), helper.make_opsetid("", 13)
    made.functions.append(helper.make_function(domain, name, ["k"], ["o"], [negated], [opset]))


def unknown_operator_is_defined(made: onnx.ModelProto) -> None:
    define(made, "loc", "Strange")


def standard_operator_is_redefined(made: onnx.ModelProto) -> None:
    define(made, "ai.onnx", "Elu")


def sparse_weight_is_another(made: onnx.ModelProto) -> None:
    sparse(made, 3.0)


def model_is_of_another_opset(made: onnx.ModelProto) -> None:
    made.opset_import[0].version = 10  # Loop in another version


EDITED = (
    loop_constant_hides_an_outer_value,
    function_is_gone,
    function_has_a_default_more,
    function_is_of_another_opset,
    function_of_that_name_is_called,
    unknown_operator_is_defined,
    standard_operator_is_redefined,
    sparse_weight_is_another,
    model_is_of_another_opset,
)


def test_the_whole_is_the_same() -> None:
    assert nothing_differs(find(whole(), whole()))


@pytest.mark.parametrize("change", WRITTEN)
def test_a_difference_in_the_text_shows(change: str) -> None:
    text = WHOLE
    for old, new in WRITTEN[change]:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    assert shows(find(whole(), whole(text)))


@pytest.mark.parametrize("change", EDITED)
def test_a_difference_shows(change: Callable[[onnx.ModelProto], None]) -> None:
    after = whole()
    change(after)
    assert shows(find(whole(), after))
