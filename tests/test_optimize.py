"""`optimize` makes dilated convolutions of chains, and faster nodes of those that only move data."""

from pathlib import Path

import chain_models
import holders
import movement_models as forms
import numpy as np
import onnx
import pytest
import structure
from building import ELEMENT_TYPES
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
    assert found.summary == f"2 chains became 1 dilated convolution: {before} -> {after} nodes"
    document = found.to_dict()
    assert document["summary"] == found.summary
    assert [each["dialect"] for each in document["operators"]] == ["standard nodes"] * 2


@pytest.mark.parametrize("name", forms.FORMS)
def test_within_rank_4(name):
    model = forms.FORMS[name]
    done = onnx_spatial.optimize(
        model, max_rank=4, verify=onnx_spatial.VerifyOptions(strict_proof=True)
    )
    (site,) = done.inspection.chains
    assert (site.op_type, site.converted) == ("Rearrange", True)
    assert done.verification.status == "passed"
    assert forms.largest_rank(done.model) <= 4


@pytest.mark.parametrize("dtype", ["bfloat16", "string", "uint8", "bool"])
def test_every_element_type(dtype):
    model = forms.pixel_unshuffle(type_=ELEMENT_TYPES[dtype])
    done = onnx_spatial.optimize(model, max_rank=4)
    assert done.verification.status == "passed", done.verification.message
    assert forms.largest_rank(done.model) == 4


@pytest.mark.parametrize("limit", [3, 4, 6])
def test_rank_limits(limit):
    """A chain between matrices fits any limit; one between images has at least their rank."""
    net = Net()
    x = net("Reshape", "x", [-1, 4, 6, 2])
    x = net("Transpose", x, perm=[0, 3, 1, 2])
    model = forms.finished(net, ("n", 48), net("Reshape", x, [-1, 48]), 2)
    done = onnx_spatial.optimize(model, max_rank=limit)
    assert done.changed == (limit < 4)
    assert forms.largest_rank(done.model) <= max(2, limit)
    images = onnx_spatial.optimize(forms.windows(), max_rank=limit)
    assert images.changed == (limit in (4, 5))
    assert forms.largest_rank(images.model) == (4 if limit in (4, 5) else 6)


@pytest.mark.parametrize(
    ("kind", "tokens", "batch"), [("Gather", "h", "n"), ("Slice", 16, "n"), ("Split", "h", 1)]
)
def test_parts_of_a_tensor_beyond_the_limit(kind, tokens, batch):
    """Queries, keys and values are taken before the heads are made, not from a tensor of rank 5."""
    model = forms.queries_keys_values(kind, tokens, batch)
    done = onnx_spatial.optimize(
        model, max_rank=4, verify=onnx_spatial.VerifyOptions(strict_proof=True)
    )
    assert [site.action for site in done.inspection.chains] == ["lower"] * 3
    assert forms.largest_rank(done.model) == 4
    assert structure.counts(done.model)["Slice"] == 3
    assert not onnx_spatial.optimize(model).changed  # without a limit


def test_parts_of_a_tensor_that_stays_for_another_reader():
    model = forms.queries_keys_values()
    whole = model.graph.node[2].output[0]
    model.graph.output.append(helper.make_tensor_value_info(whole, 1, [None] * 5))
    done = onnx_spatial.optimize(model, max_rank=4)
    assert not done.changed
    reasons = {site.reason for site in done.inspection.chains}
    assert reasons == {
        f"its output {whole!r} has rank 5",
        f"other nodes read {model.graph.node[1].output[0]!r} too",
    }


@pytest.mark.parametrize("holder", holders.HOLDERS)
def test_movements_in_branches_bodies_and_functions(holder):
    limit = 4 if holder in ("branch", "function") else None
    done = onnx_spatial.optimize(holders.HOLDERS[holder](forms.pixel_unshuffle()), max_rank=limit)
    assert done.changed and done.verification.status == "passed"
    (site,) = done.inspection.chains
    assert site.action == "lower" and site.graph != "main graph"


def attention(layers: int, seq: int | str) -> onnx.ModelProto:
    net = Net()
    x, weight = "x", np.eye(64, dtype=np.float32)
    for _ in range(layers):
        heads = []
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            each = net("Reshape", net("MatMul", x, weight), [0, 0, 4, 16])
            heads.append(net("Transpose", each, perm=perm))
        scores = net("Softmax", net("MatMul", heads[0], heads[1]), axis=-1)
        joined = net("Transpose", net("MatMul", scores, heads[2]), perm=[0, 2, 1, 3])
        x = net("Add", x, net("Reshape", joined, [0, 0, 64]))
    return forms.finished(net, ("n", seq, 64), x, 3)


def test_attention_stays_byte_for_byte():
    """Its Reshapes and Transposes cannot be better."""
    assert not onnx_spatial.optimize(attention(2, "h")).changed


def test_block_operators_that_tf2onnx_gives_names_of_onnx_are_no_movements():
    made = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (float[n,h,w,c] x) => (float[N,H,W,C] y)
        <int64[2] block = {2, 3}, int64[2,2] crops = {1, 2, 0, 1}> {
            y = DepthToSpace(x, block, crops)
        }""")
    assert structure.ops(onnx_spatial.optimize(made).model) == structure.ops(
        onnx_spatial.convert(made).model
    )
