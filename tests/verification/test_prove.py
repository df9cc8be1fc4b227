"""What the prover says of two small models: proven, or which formula differs and where to try it."""

from __future__ import annotations

import onnx
import pytest
from hand_lowered import (
    batch_to_space,
    batch_to_space_lowered,
    model,
    patches,
    patches_lowered,
    space_to_batch,
    space_to_batch_lowered,
)

import onnx_spatial
from onnx_spatial import analysis
from onnx_spatial.verification.match import find
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.prove.proof import Proof
from onnx_spatial.verification.prove.prover import STANDING, Prover


def prove(original: onnx.ModelProto, converted: onnx.ModelProto) -> Proof:
    """What the prover says of the only part of two models that differs."""
    pair, infos = ModelPair.read(original, converted, ()), analysis.find(original)
    matches = find(pair, infos)
    (part,) = matches.changed
    assert not matches.unmatched
    return Prover(pair, infos, matches).prove(part)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (space_to_batch(), space_to_batch_lowered()),
        (batch_to_space(), batch_to_space_lowered()),
        (patches(), patches_lowered()),
    ],
)
def test_right_nodes_are_proven_for_all_sizes(before, after) -> None:
    proof = prove(before, after)
    assert proof.scope == "all sizes"
    assert set(STANDING) <= set(proof.assumptions)
    assert (proof.found, proof.reason, proof.trials) == (None, "", ())


def test_static_sizes_are_proven_for_these_sizes() -> None:
    proof = prove(space_to_batch(shape="2,5,6,3"), space_to_batch_lowered(shape="2,5,6,3"))
    assert (proof.scope, proof.assumptions) == ("these sizes", ())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (space_to_batch(), space_to_batch_lowered(perm="4, 2, 0, 1, 3, 5")),
        (batch_to_space(), batch_to_space_lowered(starts="0, 0", ends="-3, -3")),
        (patches(), patches_lowered("0, 1, 3, 5, 2, 4")),
    ],
)
def test_wrong_nodes_compute_another_formula(before, after) -> None:
    proof = prove(before, after)
    assert (proof.scope, proof.found) == (None, "other formula")
    assert proof.reason.startswith("computes x[") and ", the original x[" in proof.reason
    assert 1 <= len(proof.trials) <= 4
    sizes = [sum(map(onnx.numpy_helper.np.prod, t.shapes.values())) for t in proof.trials]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("mode", ["lower", "function", "custom-op"])
def test_every_mode_is_proven_from_its_nodes(mode: str) -> None:
    """Local functions by their bodies, Python operators by their definition."""
    for original in (space_to_batch(), batch_to_space(), patches()):
        converted = onnx_spatial.convert(original, mode=mode, verify=False).model
        assert prove(original, converted).scope == "all sizes"


PARAMETERS = """g (float[N,H,W,C] x, int32[2,2] pads) => (float[P,Q,R,S] y)
    <int32[2] block = {2, 2}> { y = tf.SpaceToBatchND(x, block, pads) }"""


def test_parameters_of_the_run_may_have_all_legal_values() -> None:
    original = model(PARAMETERS)
    converted = onnx_spatial.convert(original, verify=False).model
    assert prove(original, converted).scope == "all sizes"


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


OPENVINO = """g (float[N,H,W,C] x, int32[4] block, int32[4] begin, int32[4] end)
    => (float[P,Q,R,S] y) { y = SpaceToBatch(x, block, begin, end) }"""


def test_parameters_of_the_batch_have_one_legal_value() -> None:
    original = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]>' + OPENVINO)
    converted = onnx_spatial.convert(original, verify=False).model
    assert prove(original, converted).scope == "all sizes"


def test_the_reason_names_the_innermost_functions() -> None:
    text = "g (float[N,3] x) => (float[A,B] y) <float zero = {{0}}, float six = {{6}}> {{ {} }}"
    before, after = (
        model(text.format(f"a = Neg(x) r = {function} y = Exp(r)"))
        for function in ("Relu(a)", "Clip(a, zero, six)")
    )
    proof = prove(before, after)
    assert proof.found == "other formula"
    assert proof.reason == "computes Clip(a, 0, 6), the original Relu(a)"


def test_the_reason_for_giving_up_names_the_node() -> None:
    text = "g (float[N,3] x) => (float[A,B] y) {{ y = {}(x) }}"
    proof = prove(model(text.format("tf.Anything")), model(text.format("Relu")))
    assert (proof.scope, proof.found) == (None, "gave up")
    assert proof.reason.startswith("gave up: operator ai.onnx.converters.tensorflow:Anything")
