"""`optimize` makes dilated convolutions of chains of standard nodes, and leaves everything else."""

from __future__ import annotations

from pathlib import Path

import chain_models
import holders
import onnx
import pytest
from chain_models import Net
from onnx import helper

import onnx_spatial

FORMS = {
    "six dims": chain_models.six_dims(),
    "six dims, any size": chain_models.six_dims(("n", "h", "w", 3)),
    "depth": chain_models.depth_to_space(),
    "one axis": chain_models.one_dim(),
    "uneven": chain_models.uneven(),
    "volume": chain_models.volume(),
    "as convert writes it, any size": chain_models.lowered("transpose", ("n", "h", "w", 3)),
}


def dilations(model: onnx.ModelProto) -> list[int]:
    """The largest dilation of each Conv."""
    convs = [n for n in model.graph.node if n.op_type == "Conv"]
    return [
        max((v for a in n.attribute if a.name == "dilations" for v in a.ints), default=1)
        for n in convs
    ]


@pytest.mark.parametrize("model", FORMS.values(), ids=FORMS)
def test_forms(model):
    result = onnx_spatial.optimize(model)
    made = result.model
    onnx.checker.check_model(made, full_check=True)
    assert max(dilations(made)) >= 2
    assert len(made.graph.node) <= 6
    assert result.verification
    assert all(
        site.proven in ("all sizes", "these sizes") for site in result.verification.operators
    )


@pytest.mark.parametrize("rates", [(2, 3), (4, 2)])
def test_chains_that_follow_each_other(rates):
    """One path of data holds the end of one region and the start of the next."""
    model = chain_models.stacked(rates=rates)
    result = onnx_spatial.optimize(model)
    assert result.verification
    assert dilations(result.model) == list(rates)
    assert len(result.model.graph.node) == 4


def test_chains_that_do_not_fuse_stay(tmp_path: Path):
    """There is nothing between a SpaceToBatch and the output that could be fused with it."""
    net = Net()
    x = net("Relu", chain_models.to_batch(net, "x", (2, 8, 12, 3), 0, 2))
    model = net.model((2, 8, 12, 3), x)
    target = tmp_path / "b.onnx"
    result = onnx_spatial.optimize(model.SerializeToString(), target)
    assert target.read_bytes() == model.SerializeToString()
    (chain,) = result.inspection.chains
    assert (chain.action, chain.lowering, chain.dialect) == ("leave", None, "standard nodes")
    assert result.inspection.summary == "1 chain left, with nothing to gain"


def test_inner_values_that_others_read_stay():
    """The Pad of a chain feeds a second branch, too."""
    model = chain_models.six_dims()
    (pad,) = [n for n in model.graph.node if n.op_type == "Pad"]
    model.graph.node.append(helper.make_node("Relu", [pad.output[0]], ["r"]))
    model.graph.output.append(helper.make_tensor_value_info("r", 1, [2, 12, 16, 3]))
    result = onnx_spatial.optimize(model)
    assert result.verification and dilations(result.model) == [2]
    assert [n.op_type for n in result.model.graph.node].count("Pad") == 1


def test_named_operators_and_chains():
    """A chain may end the region of a named operator."""
    domain = "ai.onnx.converters.tensorflow"
    net = Net()
    x = net("SpaceToBatchND", "x", [2, 2], [[2, 2], [2, 2]], domain=domain)
    model = net.model((2, 8, 12, 3), chain_models.to_space(net, chain_models.conv(net, x), 2, None))
    model.opset_import.append(helper.make_opsetid(domain, 1))
    result = onnx_spatial.optimize(model)
    assert dilations(result.model) == [2]
    assert [(s.op_type, s.is_chain) for s in result.operators] == [
        ("SpaceToBatchND", False),
        ("BatchToSpaceND", True),
    ]
    assert [o.domain for o in result.model.opset_import] == [""]


@pytest.mark.parametrize("holder", holders.HOLDERS)
def test_branches_bodies_and_functions(holder):
    inner = chain_models.six_dims(("n", "h", "w", 3))
    result = onnx_spatial.optimize(holders.HOLDERS[holder](inner))
    assert result.verification
    chains, (before, after) = result.inspection.chains, result.inspection.nodes
    assert {(s.lowering, s.graph != "main graph") for s in chains} == {
        ("dilated convolution", True)
    }
    assert after <= before - 5


def test_inspect_lists_chains():
    found = onnx_spatial.inspect(chain_models.six_dims())
    assert found.named == []
    assert [(c.op_type, c.lowering) for c in found.chains] == [
        ("SpaceToBatchND", "dilated convolution"),
        ("BatchToSpaceND", "dilated convolution"),
    ]
    before, after = found.nodes
    assert found.summary == f"2 chains are dilated convolutions: {before} -> {after} nodes"
    document = found.to_dict()
    assert document["summary"] == found.summary
    assert [each["dialect"] for each in document["operators"]] == ["standard nodes"] * 2
