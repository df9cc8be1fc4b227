"""Every part of two models that must compute the same is found, and nothing that differs is lost."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from parsing import model

from onnx_spatial.verification.match import matches as matching
from onnx_spatial.verification.match.matches import Matches
from onnx_spatial.verification.pair import ModelPair


def find(before: onnx.ModelProto, after: onnx.ModelProto) -> Matches:
    return matching.find(ModelPair.read(before, after, ()))


def nothing_differs(matches: Matches) -> bool:
    return not (matches.changed or matches.unmatched or matches.rest)


def shows(matches: Matches) -> bool:
    """Whether something is found that no proof passes over: of two equal parts it says nothing."""
    parts = ((part.original(), part.converted()) for part in matches.changed)
    return bool(matches.unmatched or matches.rest) or any(a != b for a, b in parts)


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


#: Changes of the text: what is there, and what takes its place. Where a loop input hides b the text of
#: k2 stays; where the name h is used again the whole is right, but no two parts of h are.
WRITTEN = """
attribute is lost | Elu<alpha = 0.5> ~> Elu
attribute is lost in a call | pair<by = 3> ~> pair
inputs are swapped | Sub(h, q) ~> Sub(q, h)
outputs are swapped | m, n = Split ~> n, m = Split
results are swapped | y = If ~> z = If | z, u = Loop ~> y, u = Loop
branch gives another | (float[A,B] p) ~> (float[A,B] t)
branches are swapped | then_branch = then ~> else_branch = then | else_branch = els ~> then_branch = els
branch computes another | p = Abs(b) ~> p = Neg(b)
loop takes in another order | float[A,B] k, float[A,B] l) ~> float[A,B] l, float[A,B] k)
loop gives in another order | float[A,B] k2, float[A,B] l2) ~> float[A,B] l2, float[A,B] k2)
loop input hides an outer value | float[A,B] l) ~> float[A,B] b) | Sub(k, l) ~> Sub(k, b)
loop node hides an outer value | { go2 = ~> { b = Neg(k) go2 =
loop turns more often | three = {3} ~> three = {4}
function gives another | (d, e) => (f) ~> (d, e) => (h)
function takes in another order | (d, e) => (f) ~> (e, d) => (f)
function computes another | s = Sub(d, e) ~> s = Add(d, e)
unknown operator has an attribute | Strange(x) ~> Strange<k = 1>(x)
weight is another | two = {2} ~> two = {3}
weight is another type | float two ~> double two
default is another | {1, 2, 3, 4} ~> {4, 3, 2, 1}
default is fixed | , float[4] w) ~> )
default is gone | , float[4] w = {1, 2, 3, 4}> ~> >
constant may be replaced | , float[4] w) ~> , float[4] w, float two)
output is an input | Sub(h, q) ~> Identity(q)
output is a constant | o = Sub(h, q) ~>  | {1, 2, 3, 4}> ~> {1, 2, 3, 4}, float[1,4] o = {1, 1, 1, 1}>
node reads another | Mul(b, two) ~> Mul(a, two)
node reads an input that it did not | Mul(d, w) ~> Mul(q, w)
name is used again | h = MatMul(f, sparse) ~> h2 = MatMul(f, sparse) h = Neg(q) | Sub(h, q) ~> Sub(h2, q)
node is added that nothing reads | Sub(h, q) ~> Sub(h, q) root = Sqrt(x)
node is added in a branch | t = Exp(b) ~> t = Exp(b) root = Sqrt(b)
node comes too early | a = loc.Strange(x) ~>  | Sub(h, q) ~> Sub(h, q) a = loc.Strange(x)
"""


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


def loop_constant_hides_an_outer_value(made: onnx.ModelProto) -> None:
    (loop,) = (n for n in made.graph.node if n.op_type == "Loop")
    tensor = numpy_helper.from_array(np.float32([1, 2, 3, 4]), "b")
    loop.attribute[0].g.initializer.append(tensor)


EDITED: dict[str, Callable[[onnx.ModelProto], object]] = {
    "loop constant hides an outer value": loop_constant_hides_an_outer_value,
    "function is gone": lambda made: made.ClearField("functions"),
    "function has a default more": lambda made: made.functions[0].attribute_proto.append(
        helper.make_attribute("k", 1)
    ),
    # Sub without broadcasting, and Loop in another version.
    "function is of another opset": lambda made: setattr(
        made.functions[0].opset_import[0], "version", 6
    ),
    "model is of another opset": lambda made: setattr(made.opset_import[0], "version", 10),
    "function of that name is called": function_of_that_name_is_called,
    "unknown operator is defined": lambda made: define(made, "loc", "Strange"),
    "standard operator is redefined": lambda made: define(made, "ai.onnx", "Elu"),
    "sparse weight is another": lambda made: sparse(made, 3.0),
}


def test_the_whole_is_the_same() -> None:
    assert nothing_differs(find(whole(), whole()))


@pytest.mark.parametrize("change", WRITTEN.strip().splitlines())
def test_a_difference_in_the_text_shows(change: str) -> None:
    text = WHOLE
    for old, new in (each.split(" ~> ") for each in change.split(" | ")[1:]):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    assert shows(find(whole(), whole(text)))


@pytest.mark.parametrize("change", EDITED)
def test_a_difference_shows(change: str) -> None:
    after = whole()
    EDITED[change](after)
    assert shows(find(whole(), after))
