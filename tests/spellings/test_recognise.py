"""Which nodes are ours: by operator type and domain, and the domains that are known to hold them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import structure
from adapter import convert, plan
from building import TF, one_node
from onnx import parser
from vocabulary import recognise

OPERATORS = [
    "SpaceToBatch",
    "BatchToSpace",
    "SpaceToBatchND",
    "BatchToSpaceND",
    "ExtractImagePatches",
    "ExtractVolumePatches",
]
PAIR = (np.array([2, 2], np.int32), np.zeros((2, 2), np.int32))


def nd(domain: str) -> onnx.ModelProto:
    return one_node("SpaceToBatchND", (np.zeros((2, 4, 4, 3)), *PAIR), domain=domain)


@pytest.mark.parametrize("op_type", OPERATORS)
@pytest.mark.parametrize("domain", ["", "com.example", TF])
def test_the_operators_are_recognised_in_any_domain(op_type, domain):
    assert recognise(op_type, domain, 1)


@pytest.mark.parametrize("op_type", ["SpaceToDepth", "DepthToSpace"])
def test_renamed_leftovers_have_three_inputs_and_the_default_domain(op_type):
    assert recognise(op_type, "", 3)
    assert not recognise(op_type, "", 1)
    assert not recognise(op_type, "com.example", 3)


@pytest.mark.parametrize("op_type", ["Conv", "SpaceToBatchNd", "ExtractGlimpse", "Im2Col"])
def test_nothing_else_is(op_type):
    assert not recognise(op_type, "", 3)


def test_an_unknown_domain_is_reported_and_left_alone():
    model = nd("com.example")
    made = plan(model)
    (site,) = made.operators
    assert made.model is None
    assert (site.action, site.domain, site.dialect) == ("leave", "com.example", None)
    assert site.reason == (
        "domain 'com.example' is not accepted for this operator; use --domain com.example"
    )


def test_a_domain_of_the_users_own_can_be_named():
    converted = convert(nd("com.example"), domains=["com.example"])
    assert structure.ops(converted) == ["Reshape", "Transpose", "Reshape"]
    assert [o.domain for o in converted.opset_import] == [""]


def test_known_and_unknown_domains_in_one_model():
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "com.example" : 1, "com.microsoft" : 1]>
        g (float[1,4,4,1] x) => (float[?,?,?,?] y, float[?,?,?,?] z)
        <int32[2] block = {2, 2}, int32[2,2] pads = {0, 0, 0, 0}> {
            y = com.example.SpaceToBatchND(x, block, pads)
            z = com.microsoft.SpaceToBatchND(x, block, pads)
        }""")
    made = plan(model, prefer="transpose")
    assert [s.action for s in made.operators] == ["leave", "lower"]
    assert structure.ops(made.model) == ["SpaceToBatchND", "Reshape", "Transpose", "Reshape"]
    assert [o.domain for o in made.model.opset_import] == ["", "com.example"]
    assert made.model.graph.node[0] == model.graph.node[0]


@pytest.mark.parametrize("domain", [TF, "org.openvinotoolkit"])
def test_a_domain_that_the_file_forgot_to_import_is_converted_anyway(domain):
    model = nd(domain)
    del model.opset_import[1:]
    converted = convert(model)
    assert structure.ops(converted) == ["Reshape", "Transpose", "Reshape"]
    assert converted.opset_import == model.opset_import


def test_leftovers_beside_a_real_space_to_depth():
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[1,4,4,4] x, int32[2] block) => (float[1,16,2,2] y, float[?,?,?,?] z)
        <int32[2,2] pads = {0, 0, 0, 0}> {
            y = SpaceToDepth <blocksize = 2> (x)
            z = SpaceToDepth (x, block, pads)
        }""")
    converted = convert(model)
    assert converted.graph.node[0] == model.graph.node[0]
    assert not structure.spatial(converted)
    assert structure.counts(converted)["SpaceToDepth"] == 1
