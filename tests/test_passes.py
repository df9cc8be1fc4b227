"""Conversions of onnx_ir models: as passes of onnx_ir, and what they keep of the original objects."""

from collections.abc import Iterator
from pathlib import Path

import chain_models
import every_field
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import running
from building import one_node
from definitions import space_to_batch
from onnx import helper, numpy_helper, parser
from onnx_ir.passes import PassError, PassManager, Sequential, common

import onnx_spatial
from onnx_spatial.passes import SpatialPass

X = np.arange(2 * 8 * 8 * 3, dtype=np.float32).reshape(2, 8, 8, 3)
EXPECTED = space_to_batch(X, [2, 2], [(0, 0), (0, 0)])


def spatial() -> onnx.ModelProto:
    return one_node("SpaceToBatchND", (X, np.array([2, 2]), np.zeros((2, 2), int)))


def op_types(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


@pytest.mark.parametrize("host", [Sequential, lambda *passes: PassManager(passes, steps=3)])
def test_a_pass_stands_among_others(host):
    model = ir.from_proto(spatial())
    result = host(common.NameFixPass(), SpatialPass(), common.RemoveUnusedNodesPass())(model)
    assert result.modified
    assert op_types(model) == ["SpaceToBatchND"]
    (y,) = running.run(ir.to_proto(result.model), {"x": X})
    assert running.same_bits(y, EXPECTED)


def test_a_pass_says_what_it_did():
    result = SpatialPass(prefer="slices")(ir.from_proto(spatial()))
    (site,) = result.conversion.operators
    assert (site.action, site.lowering) == ("lower", "slices")
    assert result.conversion.verification is None
    again = SpatialPass()(result)
    assert not again.modified
    assert again.model is not result.model
    assert op_types(again.model) == op_types(result.model)


def test_a_refused_model_is_an_error_of_the_pipeline():
    model = ir.from_proto(one_node("SpaceToBatchND", (X, np.array([2, 3]), np.zeros((2, 2), int))))
    with pytest.raises(PassError) as caught:
        Sequential(SpatialPass())(model)
    assert isinstance(caught.value.__cause__, onnx_spatial.ConversionError)


def test_chains_of_standard_nodes_are_rewritten_if_asked_for():
    model = ir.from_proto(chain_models.six_dims())
    assert not Sequential(SpatialPass())(model).modified
    result = SpatialPass(chains=True)(model)
    assert result.modified and len(result.conversion.inspection.chains) == 2
    assert "Reshape" not in op_types(result.model)


# What the objects hold that a message does not


def every_value(model: ir.Model) -> Iterator[ir.Value]:
    for graph in (model.graph, *model.graph.subgraphs(), *model.functions.values()):
        yield from graph.inputs
        for node in graph:
            yield from node.outputs


@pytest.mark.parametrize("mode", ["lower", "function"])
@pytest.mark.parametrize("ir_version", [8, 10])
def test_all_fields_of_the_message_are_in_the_model(mode, ir_version):
    model = ir.from_proto(every_field.build(odd=False, ir_version=ir_version))
    converted = onnx_spatial.convert(model, mode=mode, verify=False)
    expected = ir.to_proto(ir.from_proto(converted.model))
    assert ir.to_proto(converted.ir_model).SerializeToString() == expected.SerializeToString()


def test_metadata_and_constants_of_the_original_objects_are_kept():
    model = ir.from_proto(every_field.build(odd=False))
    model.meta["at"] = "model"
    for graph in (model.graph, *model.graph.subgraphs(), *model.functions.values()):
        graph.meta["at"] = graph.name
    nodes = [*model.graph.all_nodes()]
    nodes += [node for function in model.functions.values() for node in function.all_nodes()]
    for node in nodes:
        node.meta["at"] = node.name
    for value in every_value(model):
        value.meta["at"] = value.name
    scale = model.graph[0]
    scale.version, scale.outputs[0].const_value = 13, ir.tensor([7.0])
    scale.meta.invalidate("at")
    result = onnx_spatial.convert(model, verify=False).ir_model
    assert result.meta == {"at": "model"}
    for graph in (result.graph, *result.graph.subgraphs(), *result.functions.values()):
        assert graph.meta == {"at": graph.name}
    kept = [n for n in result.graph.all_nodes() if every_field.ORIGIN not in n.metadata_props]
    assert {"scale", "choice", "call", "last"} <= {node.name for node in kept}
    assert [node.name for node in kept if node.meta != {"at": node.name}] == []
    known = {value.name for value in every_value(model)}
    carried = {v.name: v.meta.get("at") for v in every_value(result) if v.name in known}
    assert carried == {name: name for name in carried}
    kept_scale = result.graph[0]
    assert kept_scale.version == 13 and not kept_scale.meta.is_valid("at")
    assert kept_scale.outputs[0].const_value is scale.outputs[0].const_value


def test_shapes_without_a_type_are_kept_and_fixed_sizes_are_not_undone():
    model = ir.from_proto(
        parser.parse_model(
            """<ir_version: 8, opset_import: ["" : 13, "M" : 1]>
            g (float[N, 4, 4, 1] x) => (float[a, b, c, d] z) <int64[2] block = {2, 2},
                int64[2, 2] none = {0, 0, 0, 0}> {
                y = M.SpaceToBatchND(x, block, none)
                q = Neg(x)
                z = Neg(y)
            }"""
        )
    )
    model.graph[1].outputs[0].shape = ir.Shape(["M", 4, 4, 1])
    result = onnx_spatial.convert(model, static={"N": 2}, domains=["M"], verify=False).ir_model
    assert result.graph.inputs[0].shape == [2, 4, 4, 1]
    (q,) = (value for value in every_value(result) if value.name == "q")
    assert q.shape == ["M", 4, 4, 1] and q.type is None
    assert model.graph.inputs[0].shape == ["N", 4, 4, 1]


def with_weight(folder: Path) -> Path:
    """A model that adds a weight, in a file of external data, and a Constant with one."""
    model = spatial()
    model.graph.node[0].output[0] = "moved"
    model.graph.node.append(helper.make_node("Add", ["moved", "weight"], ["sum"]))
    constant = numpy_helper.from_array(np.full((4, 4, 3), 2, np.float32), "tensor")
    model.graph.node.append(helper.make_node("Constant", [], ["two"], value=constant))
    model.graph.node.append(helper.make_node("Add", ["sum", "two"], ["y"]))
    weight = np.ones((4, 4, 3), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "weight"))
    folder.mkdir()
    onnx.save(
        model,
        folder / "model.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=64,
        convert_attribute=True,
    )
    return folder / "model.onnx"


def test_external_tensors_stay_in_their_files(tmp_path):
    path = with_weight(tmp_path / "a")
    model = ir.load(path)
    weight = model.graph.initializers["weight"].const_value
    assert isinstance(weight, ir.ExternalTensor)
    (tmp_path / "a" / "w.bin").rename(tmp_path / "moved.bin")  # nothing can read it
    result = SpatialPass(verify=False)(model).model
    assert result.graph.initializers["weight"].const_value is weight
    (constant,) = (node for node in result.graph if node.op_type == "Constant")
    (before,) = (node for node in model.graph if node.op_type == "Constant")
    assert constant.attributes["value"] is before.attributes["value"]
    (tmp_path / "moved.bin").rename(tmp_path / "a" / "w.bin")
    ir.save(result, tmp_path / "a" / "out.onnx")
    (y,) = onnxruntime.InferenceSession(tmp_path / "a" / "out.onnx").run(None, {"x": X})
    assert running.same_bits(y, EXPECTED + 3)


def test_external_tensors_of_two_folders_are_read_when_the_result_is_verified(tmp_path):
    model, other = (ir.load(with_weight(tmp_path / folder)) for folder in "ab")
    weight = other.graph.initializers["weight"].const_value
    model.graph.initializers["weight"].const_value = weight
    result = onnx_spatial.convert(model)
    assert result.verification.evidence == "proven", result.verification.message
    assert not any("cannot be run" in problem for problem in result.verification.problems)
    assert result.ir_model.graph.initializers["weight"].const_value is weight


def test_a_wrong_option_fails_before_the_passes_in_front_run():
    with pytest.raises(onnx_spatial.UsageError, match="mode must be one of lower"):
        SpatialPass(mode="foo")


def test_what_onnx_ir_cannot_hold_or_serialize_is_one_clear_line():
    proto = spatial()
    value = proto.graph.value_info.add(name="map")
    value.type.map_type.key_type = onnx.TensorProto.INT64
    proto.graph.node.append(helper.make_node("Cast", ["x"], ["map"], to=1))
    converted = onnx_spatial.convert(proto, verify=False)
    with pytest.raises(onnx_spatial.ModelFileError, match="Map types"):
        converted.ir_model  # noqa: B018
    model = ir.from_proto(spatial())
    model.graph.inputs[0].name = None
    with pytest.raises(onnx_spatial.ModelFileError, match="cannot serialize"):
        onnx_spatial.convert(model)
