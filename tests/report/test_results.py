"""What results say of each operator and of themselves, in Python and as JSON."""

from __future__ import annotations

import json

import chain_models
import onnx
import pytest

import onnx_spatial


@pytest.fixture(scope="module")
def conversion() -> onnx_spatial.Conversion:
    return onnx_spatial.optimize(chain_models.six_dims())


def test_chains_that_were_rewritten_are_operators_with_their_proofs(conversion):
    assert [each.op_type for each in conversion.operators] == ["SpaceToBatchND", "BatchToSpaceND"]
    for operator in conversion.operators:
        assert operator.is_chain and operator.dialect == "standard nodes"
        assert (operator.action, operator.lowering) == ("fuse", "dilated convolution")
        assert operator.proven == "these sizes"
    results = conversion.verification.operators
    assert [each.assumptions for each in conversion.operators] == [r.assumptions for r in results]


def test_what_is_not_verified_is_not_proven():
    done = onnx_spatial.optimize(chain_models.six_dims(), verify=False)
    assert [each.proven for each in done.operators] == [None, None]
    assert not any(each.assumptions for each in done.operators)


def test_operators_of_one_name_keep_their_own_proofs():
    twins = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "ai.onnx.converters.tensorflow": 1]>
        g (float[N,4,6,1] x, float[2,4,6,1] y) => (float[?,?,?,?] a, float[?,?,?,?] b)
        <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}> {
            [twin] a = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, none)
            [twin] b = ai.onnx.converters.tensorflow.SpaceToBatchND(y, block, none)
        }"""
    )
    operators = onnx_spatial.convert(twins).operators
    assert [(each.node, each.proven) for each in operators] == [
        ("twin", "all sizes"),
        ("twin", "these sizes"),
    ]


def test_documents_of_all_results_are_version_2(conversion):
    results = (conversion, conversion.inspection, conversion.verification)
    for document in (json.loads(json.dumps(each.to_dict())) for each in results):
        assert document["version"] == 2
        assert [each["node"] for each in document["operators"]]
    document = conversion.to_dict()
    assert document["operators"] == [each.to_dict() for each in conversion.operators]
    assert (document["nodes_before"], document["nodes_after"]) == (
        conversion.nodes_before,
        conversion.nodes_after,
    )


def test_each_result_prints_as_one_line(conversion):
    nodes = f"{conversion.nodes_before} -> {conversion.nodes_after} nodes"
    assert repr(conversion) == f"<Conversion of model: 2 operators (2 fuse), {nodes}, passed>"
    assert repr(conversion.inspection) == "<Inspection of model: 2 operators (2 fuse)>"
    assert repr(conversion.verification) == f"<Verification {conversion.verification.message}>"
    assert repr(conversion.verification).startswith("<Verification passed: ")
