"""Everything but the replaced nodes, what is declared behind them and dead imports stays as it was."""

from pathlib import Path

import every_field
import onnx
import onnx_ir as ir
import pytest
from every_field import build, untouched

import onnx_spatial


def test_the_fixture_holds_every_field_of_onnx_proto_and_fields_that_nobody_knows():
    missing = every_field.every_field().keys() - every_field.populated(build())
    assert missing == every_field.EXCEPTIONS.keys()
    assert all(every_field.UNKNOWN in m.SerializeToString() for m in every_field.messages(build()))


@pytest.fixture
def saved(tmp_path) -> Path:
    """The model as a file, with its external data."""
    path = tmp_path / "m.onnx"
    path.write_bytes(build().SerializeToString())
    name, data = every_field.WEIGHTS
    path.with_name(name).write_bytes(data)
    return path


def test_nothing_else_is_touched(saved):
    converted = onnx_spatial.convert(saved, saved.with_name("o.onnx"), verify=False)
    written = onnx.ModelProto.FromString(saved.with_name("o.onnx").read_bytes())
    touched = converted.touched
    assert untouched(build(), touched) == untouched(written, touched)
    assert touched["nodes_replaced"] == ["main_site", "then_site", "function_site"]
    assert touched["opset_imports_removed"] == [every_field.TF]
    assert written.SerializeToString() == converted.model.SerializeToString()


def test_touched_names_exactly_what_differs(saved):
    converted = onnx_spatial.convert(saved, verify=False)
    touched = converted.to_dict()["touched"]
    touched["nodes gone"] = touched.pop("nodes_replaced") + touched.pop("nodes_removed")
    found = every_field.differing(build(), converted.model)
    assert {kind: {*names} for kind, names in touched.items() if names} == {
        kind: names for kind, names in found.items() if names
    }


@pytest.mark.parametrize("given", ["bytes", "message", "onnx_ir"])
def test_what_is_given_in_memory_keeps_everything_and_is_not_changed(given):
    model = build(odd=False)
    data = model.SerializeToString()
    source = {"bytes": data, "message": model, "onnx_ir": ir.from_proto(model)}[given]
    converted = onnx_spatial.convert(source, verify=False)
    assert model.SerializeToString() == data
    if given == "onnx_ir":  # what onnx_ir itself does not keep is lost before it comes to us
        model = ir.to_proto(ir.from_proto(model))
    assert untouched(model, converted.touched) == untouched(converted.model, converted.touched)


@pytest.mark.parametrize("ir_version", [3, 4, 8, 10])
def test_what_a_runtime_loads_is_verified_as_well(ir_version):
    model = build(odd=False, ir_version=ir_version)
    converted = onnx_spatial.convert(model)
    assert converted.verification
    touched = converted.touched
    assert untouched(model, touched) == untouched(converted.model, touched)
    sites = ["main_site", "then_site", "function_site"]
    assert touched["nodes_replaced"] == sites[: 3 if ir_version >= 8 else 2]
    assert converted.model.ir_version == ir_version
    # Before IR 4 an initializer that is no input is invalid: constants are nodes there.
    assert bool(touched["initializers_added"]) == (ir_version >= 4)


def test_symbolic_dims_that_are_fixed_are_all_that_changes(saved):
    """--static changes declared dims, and says so in no other place."""
    converted = onnx_spatial.convert(saved, static={"N": 2}, verify=False)
    expected = build()
    graphs = (expected.graph, *expected.functions)
    declared = [m for g in graphs for m in every_field.messages(g)]
    for message in (m for m in declared if isinstance(m, onnx.ValueInfoProto)):
        for dim in every_field.messages(message):
            if isinstance(dim, onnx.TensorShapeProto.Dimension) and dim.dim_param == "N":
                dim.dim_value = 2
    touched = converted.touched
    assert untouched(expected, touched) == untouched(converted.model, touched)
    assert converted.model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2


def test_a_second_conversion_changes_nothing(saved):
    once = onnx_spatial.convert(saved, saved.with_name("o.onnx"), verify=False)
    twice = onnx_spatial.convert(once.output, saved.with_name("p.onnx"))
    assert not twice.changed
    assert saved.with_name("p.onnx").read_bytes() == saved.with_name("o.onnx").read_bytes()


def test_a_model_with_nothing_to_do_keeps_its_bytes(tmp_path):
    """Those of the file, not those that this protobuf would write."""
    data = (
        build(sites=False).SerializeToString() + b"\x08\x8a\x00"
    )  # the IR version again, in two bytes
    assert onnx.ModelProto.FromString(data).SerializeToString() != data
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    name, weights = every_field.WEIGHTS
    path.with_name(name).write_bytes(weights)
    converted = onnx_spatial.convert(path, tmp_path / "o.onnx")
    assert not converted.changed
    assert (tmp_path / "o.onnx").read_bytes() == data
    assert not any(converted.to_dict()["touched"].values())
