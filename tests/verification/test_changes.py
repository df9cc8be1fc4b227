"""Changes of a model: right ones are proven; of wrong ones the prover says where to try them."""

import adapter
import onnx
import patch_models
import pytest
from adapter import verify
from onnx import helper
from parsing import model
from verification.hand_lowered import (
    batch_to_space,
    batch_to_space_lowered,
    dilated,
    space_to_batch,
    space_to_batch_lowered,
)

import onnx_spatial
from onnx_spatial.maps.elements import FINITE_DATA
from onnx_spatial.verification.match.matches import find
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.prove.prover import STANDING, Proof, Prover

MOVED = """
    g (float[N,H,W,3] x) => (float[P,Q,R,S] y)
      <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}>
    { u = Tanh(x) y = tf.SpaceToBatchND(u, block, none) }
"""
MOVED_LOWERED = """
    g (float[N,H,W,3] x) => (float[P,Q,R,S] y)
      <int64[1] axis0 = {0}, int64[1] axis1 = {1}, int64[1] axis2 = {2}, int64[1] axis3 = {3},
       int64[1] two = {2}, int64[1] rest = {-1}, float one = {FACTOR}>
    {
        u = Tanh(x)
        sizes = Shape(WHOSE)
        n = Gather<axis = 0>(sizes, axis0) h = Gather<axis = 0>(sizes, axis1)
        w = Gather<axis = 0>(sizes, axis2) c = Gather<axis = 0>(sizes, axis3)
        rows = Div(h, two) columns = Div(w, two)
        split = Concat<axis = 0>(n, rows, two, columns, two, c)
        cells = Reshape(u, split)
        moved = Transpose<perm = [PERM]>(cells)
        merged = Concat<axis = 0>(rest, rows, columns, c)
        whole = Reshape(moved, merged)
        y = LAST
    }
"""


def lowered(
    whose: str = "x",
    perm: str = "2, 4, 0, 1, 3, 5",
    last: str = "Identity(whole)",
    factor: str = "1",
) -> onnx.ModelProto:
    pieces = {"WHOSE": whose, "PERM": perm, "LAST": last, "FACTOR": factor}
    text = MOVED_LOWERED
    for piece, meaning in pieces.items():
        text = text.replace(piece, meaning)
    return model(text)


@pytest.mark.parametrize(
    ("change", "evidence"),
    [
        ({}, "proven"),
        ({"whose": "u"}, "proven"),  # sizes of another value
        ({"perm": "4, 2, 0, 1, 3, 5"}, None),
        # Within the tolerance of sums, but these are moved.
        ({"whose": "u", "last": "Mul(whole, one)", "factor": "1.0000005"}, None),
        ({"whose": "u", "last": "Add(whole, one)", "factor": "1e-8"}, None),
        ({"whose": "u", "last": "Relu(whole)"}, None),
        ({"whose": "u", "last": "Clip(whole, one)", "factor": "-0.99"}, None),
        # It reads x, too: so the part begins further up, at a sum, and its last bits do not count.
        ({"last": "Add(whole, one)", "factor": "1e-8"}, "sampled"),
    ],
)
def test_moved_data_keeps_its_bits(change: dict[str, str], evidence: str | None) -> None:
    result = verify(model(MOVED), lowered(**change))
    assert (result.status == "passed", result.evidence) == (evidence is not None, evidence)
    if evidence is None:
        assert result.first_difference is not None
        assert result.first_difference.kind == "operator"


def test_a_batch_of_zero_that_a_reshape_cannot_hold() -> None:
    """Beside sizes of which the product is zero, -1 could be any number: onnxruntime refuses."""
    before = model("""
        g (float[N,8,6,3] x) => (float[A,B,C,D] y)
          <int32[2] block = {2, 2}, int32[2,2] pads = {0, 0, 0, 0}>
        { y = tf.SpaceToBatchND(x, block, pads) }
    """)
    text = """
        g (float[N,8,6,3] x) => (float[A,B,C,D] y)
          <int64[6] split = {0, -1, 2, 3, 2, 3}, int64[4] shape = {-1, 4, 3, 3}>
        { a = Reshape(x, split) b = Transpose<perm = [PERM]>(a) y = Reshape(b, shape) }
    """
    result = verify(before, model(text.replace("PERM", "2, 4, 0, 1, 3, 5")))
    assert result.status == "passed", result.message
    assert verify(before, model(text.replace("PERM", "4, 2, 0, 1, 3, 5"))).status == "failed"


# Inputs, outputs and what is beside the nodes


def test_a_declaration_of_the_original_that_is_wrong_may_be_left_or_put_right() -> None:
    before = space_to_batch()
    before.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(1, [7, 7]))
    as_it_was = space_to_batch_lowered()
    as_it_was.graph.output[0].type.CopyFrom(before.graph.output[0].type)
    assert verify(before, as_it_was)
    assert verify(before, space_to_batch_lowered())


def declared(data: str) -> onnx.ModelProto:
    return model(f"g (float[{data}] x) => (float[N,C,H,W] y) {{ y = Tanh(x) }}")


@pytest.mark.parametrize("data", ["N,3,H,W", "B,3,rows,8", "N,C,H,8"])
def test_an_input_that_takes_more_data(data: str) -> None:
    assert verify(declared("N,3,H,8"), declared(data))


def test_lost_metadata_is_mentioned() -> None:
    before = space_to_batch()
    before.metadata_props.add(key="author", value="somebody")
    result = verify(before, space_to_batch_lowered())
    assert result.notes == ["metadata of the model is lost: 'author'"]


RANDOM = "g (float[N,4] x) => (float[N,4] y, float[N,4] z) { [dice] r = RandomUniformLike(x) BODY }"


def test_random_outputs_are_not_compared_and_named() -> None:
    text = RANDOM.replace("BODY", "y = Add(x, r) z = LAST")
    noisy = model(text.replace("LAST", "Neg(x)"))
    result = verify(noisy, noisy)
    assert result.evidence == "proven"
    (note,) = result.notes
    assert "output 'y'" in note and "RandomUniformLike node 'dice'" in note
    assert {o.name: o.passed for o in result.outputs} == {"y": None, "z": True}
    assert verify(noisy, model(text.replace("LAST", "Abs(x)"))).status == "failed"
    # Without anything that could be compared nothing is known of what is not proven.
    every = model(RANDOM.replace("BODY", "y = Add(x, r) z = Mul(x, r)"))
    other = model(RANDOM.replace("BODY", "y = Add(x, r) z = Sub(x, r)"))
    assert verify(every, other).status == "unverified"
    assert verify(every, every).message.endswith("no output was compared")
    head = "g (float[N,4] x) => (int64[2] y)"
    shapes = model(f"{head} {{ r = RandomUniformLike(x) a = Neg(x) y = Shape(a) }}")
    assert verify(shapes, shapes).notes == []


def prove(original: onnx.ModelProto, converted: onnx.ModelProto) -> Proof:
    """What the prover says of the only part of two models that differs."""
    pair = ModelPair.read(original, converted, ())
    matches, (proof,) = Prover(pair, find(pair)).prove_all(lambda _: None)
    assert not matches.unmatched
    return proof


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (space_to_batch(), space_to_batch_lowered(perm="4, 2, 0, 1, 3, 5")),
        (batch_to_space(), batch_to_space_lowered(starts="0, 0", ends="-3, -3")),
    ],
)
def test_wrong_nodes_compute_another_formula(before, after) -> None:
    proof = prove(before, after)
    assert (proof.scope, proof.found) == (None, "other formula")
    assert proof.reason.startswith("computes x[") and ", the original x[" in proof.reason
    assert 1 <= len(proof.trials) <= 4
    sizes = [sum(map(onnx.numpy_helper.np.prod, t.shapes.values())) for t in proof.trials]
    assert sizes == sorted(sizes)


PARAMETERS = """g (float[N,H,W,C] x, int32[2,2] pads) => (float[P,Q,R,S] y)
    <int32[2] block = {2, 2}> { y = tf.SpaceToBatchND(x, block, pads) }"""


def test_a_node_that_may_fail_is_tried_where_it_does() -> None:
    """Blocks of 4 do not fit where blocks of 2 do."""
    other = model(PARAMETERS.replace("2, 2}", "4, 2}"))
    proof = prove(model(PARAMETERS), onnx_spatial.convert(other, verify=False).model)
    assert (proof.scope, proof.found) == (None, "gave up")
    assert proof.reason.startswith("gave up: Reshape: the numbers of elements may differ")
    assert proof.trials
    for trial in proof.trials:
        pads = trial.values["pads"]
        assert pads.shape == (2, 2) and pads.min() >= 0
        size = trial.shapes["x"][1] + pads[0].sum()
        assert size % 2 == 0 and size % 4 != 0


def test_the_reason_for_giving_up_names_the_node() -> None:
    text = "g (float[N,3] x) => (float[A,B] y) {{ y = {}(x) }}"
    proof = prove(model(text.format("tf.Anything")), model(text.format("Relu")))
    assert (proof.scope, proof.found) == (None, "gave up")
    assert proof.reason.startswith("gave up: operator ai.onnx.converters.tensorflow:Anything")


# Rules, each with models that are wrong by one detail.

EVEN = """g (float[H,3] x) => (float[A,3] y) <int64[1] zero = {{0}}, int64[1] one = {{1}},
    int64[1] two = {{2}}, int64[1] three = {{3}}, int64[3] pairs = {{-1, 2, 3}},
    int64[2] rows = {{-1, 3}}>
    {{ {} t = Transpose<perm = [{}]>(r) y = Reshape(t, rows) }}"""
HALVED = """s = Shape(x) h = Slice(s, zero, one) d = Div(h, two) p = Concat<axis = 0>(d, two, three)
    r = Reshape(x, p)"""


def test_a_reshape_of_the_original_only_runs_where_it_divides() -> None:
    """[h] -> [h/2, 2] fails for odd h, so -1 in the place of h/2 may fail there, too."""
    before, after = (model(EVEN.format(n, "1, 0, 2")) for n in (HALVED, "r = Reshape(x, pairs)"))
    proof = prove(before, after)
    assert (proof.scope, proof.assumptions) == ("all sizes", STANDING)
    wrong = model(EVEN.format("r = Reshape(x, pairs)", "0, 1, 2"))
    assert not adapter.prove(before, wrong).is_proven
    assert prove(after, before).scope == "all sizes"


def test_an_original_that_always_fails_is_not_proven() -> None:
    text = "g (float[N,3] x) => (float[A,B] y) <int64[2] s = {{{}}}> {{ y = Reshape(x, s) }}"
    proof = prove(model(text.format("-1, -1")), model(text.format("-1, 3")))
    assert proof.reason == "gave up: the original fails in every run"


def test_a_one_hot_convolution_copies_finite_data() -> None:
    kernel = patch_models.one_hot((3, 3), 2)
    before, double = (
        patch_models.channels_first(weight, ("n", 2, "h", "w"), strides=[3, 3])
        for weight in (kernel, 2 * kernel)
    )
    # Alone, it is faster than what `optimize` would put in its place.
    after = onnx_spatial.optimize(before, mode="custom-op", verify=False).model
    assert all(node.op_type != "Conv" for node in after.graph.node)
    proof = prove(before, after)
    assert proof.scope == "all sizes" and FINITE_DATA in proof.assumptions
    assert prove(double, after).found == "other formula"
    major = patch_models.one_hot((3, 3), 2, major="channel")
    turned = patch_models.channels_first(major, ("n", 2, "h", "w"), strides=[3, 3])
    assert prove(turned, after).found == "other formula"


def test_an_operator_that_is_added_has_to_succeed() -> None:
    """Blocks there and back are nothing, but they fail where 2 does not divide the size."""
    text = """g (float[N,H,3] x) => (float[A,B,C] y)
        <int64[1] block = {{2}}, int64[1,2] none = {{0, 0}}> {{ {} y = Abs(z) }}"""
    before, after = (
        model(text.format(nodes))
        for nodes in (
            "z = Neg(x)",
            "s = tf.SpaceToBatchND(x, block, none) b = tf.BatchToSpaceND(s, block, none) z = Neg(b)",
        )
    )
    proof = prove(before, after)
    assert proof.reason.startswith("gave up: SpaceToBatchND may fail")
    assert all(trial.shapes["x"][1] % 2 for trial in proof.trials) and proof.trials
    assert prove(after, before).scope == "all sizes"


# Regions


@pytest.mark.parametrize(
    ("attribute", "numbers"),
    [
        ("dilations", [3, 2]),
        ("pads", [4, 4, 4, 3]),  # one off, of the right sum
        ("pads", [3, 2, 5, 5]),  # cropped on the wrong side
        ("weight", []),
        ("bias", []),
    ],
)
def test_regions_that_became_convolutions(attribute: str, numbers: list[int]) -> None:
    """What is right is proven and runs once; whatever is wrong fails."""
    original = dilated()
    changed = onnx_spatial.convert(original, verify=False).model
    found = verify(original, changed)
    assert found.evidence == "proven", found.message
    assert len(found.operators) == 2 and len(found.runs) == 1
    assert all(o.proven == "all sizes" and o.ran for o in found.operators)
    (conv,) = (node for node in changed.graph.node if node.op_type == "Conv")
    if numbers:
        (given,) = (a for a in conv.attribute if a.name == attribute)
        assert list(given.ints) != numbers
        given.ints[:] = numbers
    elif attribute == "bias":
        del conv.input[2]
    else:
        (tensor,) = (t for t in changed.graph.initializer if t.name == conv.input[1])
        values = onnx.numpy_helper.to_array(tensor)[::-1].copy()
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    assert verify(original, changed).status == "failed"


# The budget.


CALLED_TWICE = """
    g (float[N,H,W,3] x) => (float[A,B,C,D] y, float[E,F,G,I] z)
    {
        y = loc.blocks <block = [2, 2], other = [4, 1]> (x)
        z = loc.blocks <block = [1, 3], other = [2, 2]> (x)
    }
    <domain: "loc", opset_import: ["" : 17]>
    blocks <block, other> (x) => (y)
    {
        b = Constant <value_ints: ints = @block> ()
        n = Constant <value = int64[2,2] {0, 0, 0, 0}> ()
        y = tf.SpaceToBatchND (x, b, n)
    }
"""


def test_parameters_that_each_call_gives_are_proven_for_all_calls() -> None:
    original = model(CALLED_TWICE)
    converted = onnx_spatial.convert(original, verify=False).model
    assert verify(original, converted).evidence == "proven"
    attributes = (a for n in converted.functions[0].node for a in n.attribute)
    (given,) = (a for a in attributes if a.ref_attr_name)
    given.ref_attr_name = "other"
    result = verify(original, converted)
    assert result.status == "failed"
