"""`optimize` writes chains that only move data as fewer or faster nodes, within a rank limit."""

from __future__ import annotations

import holders
import movement_models as forms
import numpy as np
import onnx
import pytest
import structure
from adapter import plan
from building import ELEMENT_TYPES
from chain_models import Net
from onnx import helper

import onnx_spatial
from onnx_spatial.conversion.report import OperatorReport


def only(model: onnx.ModelProto, **options: int) -> OperatorReport:
    """The report of the only chain."""
    (site,) = plan(model, chains=True, **options).chains
    return site


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


def test_which_pay_without_a_limit():
    paying = {name for name, model in forms.FORMS.items() if plan(model, chains=True).model}
    assert paying >= {"pixel unshuffle", "DepthToSpace", "unpatchify", "there and back"}
    assert paying.isdisjoint({"windows", "channel shuffle", "from windows"})  # fast as they are


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


def test_why_a_chain_exceeds_the_limit():
    site = only(forms.windows(), max_rank=3)
    assert (site.action, site.reason) == ("leave", "its input 'x' has rank 4")
    site = only(forms.unpatchify(), max_rank=3)
    assert site.reason == "its output 'net_2_0' has rank 4"


@pytest.mark.parametrize("holder", holders.HOLDERS)
def test_branches_bodies_and_functions(holder):
    model = holders.HOLDERS[holder](forms.pixel_unshuffle())
    limit = 4 if holder in ("branch", "function") else None
    done = onnx_spatial.optimize(model, max_rank=limit)
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
