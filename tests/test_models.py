"""Nets and the grid pass `validate`, any form becomes any other, files of others keep their bytes."""

import json
from pathlib import Path

import grid
import onnx
import pytest
import structure
from adapter import run
from validating import ZOO

import onnx_spatial

#: A quarter of the cells, and every net, are validated in one of these ways: all are golden.
WAYS = ("--mode lower", "--mode function", "--mode custom-op", "--optimize")


@pytest.fixture(params=WAYS)
def way(request) -> str:
    if request.param == "--mode custom-op":
        pytest.importorskip("onnxruntime_extensions", reason="needs onnxruntime-extensions")
    return request.param


def assert_passed(paths: list[Path], way: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All of them pass, and are compared with what was recorded."""
    words = ["validate", *map(str, paths), "-j", "2", "--strict", "--json", *way.split()]
    code = run(words)
    models = json.loads(capsys.readouterr().out)["models"]
    assert [(m["model"], m["message"]) for m in models if m["status"] != "passed"] == []
    assert all(m["recorded"] for m in models)
    assert (len(models), code) == (len(paths), 0)


def test_the_grid_passes(way, tmp_path, capsys):
    """Every row and every form meets all ways."""

    def dealt(cell: grid.Cell) -> str:
        row, form = grid.ROWS.index(cell.row), list(grid.FORMS).index(cell.form)
        return WAYS[(row + form) % len(WAYS)]

    cells = [cell for cell in grid.CELLS if dealt(cell) == way][::6]
    assert_passed([grid.write(cell, tmp_path) for cell in cells], way, capsys)


def test_nets_pass(way, capsys):
    paths = sorted([*ZOO.glob("*/model.onnx"), *ZOO.glob("chains/*/model.onnx")])
    assert_passed(paths[WAYS.index(way) :: len(WAYS)], way, capsys)


@pytest.mark.parametrize("net", ["deeplab", "wavenet_noncausal", "chains/conv2d"])
def test_a_conversion_leaves_no_constant_that_nothing_reads(net):
    """onnxruntime would warn of each in every session."""
    model = onnx_spatial.convert(ZOO / net / "model.onnx", chains=True, verify=False).model
    read = {name for node in model.graph.node for name in node.input}
    assert [t.name for t in model.graph.initializer if t.name not in read] == []


def test_a_bias_that_moves_into_a_convolution_stays_the_same_initializer():
    path = ZOO / "wavenet_noncausal" / "model.onnx"
    floats = [t for t in onnx.load(path).graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    biases = {tensor.name for tensor in floats if len(tensor.dims) == 1}
    nodes = onnx_spatial.convert(path, verify=False).model.graph.node
    assert biases and biases <= {node.input[-1] for node in nodes if node.op_type == "Conv"}


def test_two_branches_with_the_same_names_are_proven():
    """Names of one branch say nothing about the other; each is compared in its old layouts."""
    model = onnx.load(ZOO / "wavenet_noncausal" / "model.onnx")
    branch = onnx.GraphProto(name="branch", output=model.graph.output)
    branch.node.extend(model.graph.node)
    choice = onnx.helper.make_node("If", ["take"], ["y"], then_branch=branch, else_branch=branch)
    del model.graph.node[:], model.graph.value_info[:]
    model.graph.node.append(choice)
    model.graph.input.append(onnx.helper.make_tensor_value_info("take", onnx.TensorProto.BOOL, []))
    model.graph.output[0].name = "y"
    result = onnx_spatial.convert(model).verification
    assert result.evidence == "proven", result.message
    assert any(part.op_type == "Add" for part in result.parts)


def test_errors_of_sums_behind_each_other_add_up():
    """One element of a part of this net in half precision is 2.3e-3 off, where 2e-3 is for one sum."""
    half = onnx.load(ZOO / "wavenet_noncausal" / "model.onnx")
    for weight in (t for t in half.graph.initializer if t.data_type == onnx.TensorProto.FLOAT):
        array = onnx.numpy_helper.to_array(weight).astype("float16")
        weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
    for value in (*half.graph.input, *half.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    assert onnx_spatial.convert(half).verification.evidence == "proven"


@pytest.mark.parametrize("net", ["wavenet", "raft"])
@pytest.mark.parametrize(
    ("before", "after"), [("function", "custom-op"), ("custom-op", "function")]
)
def test_a_form_becomes_the_other(net, before, after):
    pytest.importorskip("onnxruntime_extensions", reason="mode custom-op needs it")
    original = ZOO / net / "model.onnx"
    first = onnx_spatial.convert(original, mode=before, verify=False).model
    second = onnx_spatial.convert(first, mode=after)
    assert second.verification
    if after == "function":  # prepared operators go by their own names
        assert all(site.function for site in second.operators)
        return
    direct = onnx_spatial.convert(original, mode=after, verify=False).model
    assert {o.domain for o in second.model.opset_import} == {o.domain for o in direct.opset_import}
    assert sorted(structure.ops(second.model)) == sorted(structure.ops(direct))
    assert not second.model.functions


FILES = sorted((Path(onnx.__file__).parent / "backend" / "test" / "data").rglob("*.onnx"))


def test_files_without_operators_keep_their_bytes(tmp_path):
    files = FILES[:: max(1, len(FILES) // 100)]
    assert len(files) >= 100
    for number, source in enumerate(files):
        output = tmp_path / f"{number}.onnx"
        assert not onnx_spatial.convert(source, output).changed, source
        assert output.read_bytes() == source.read_bytes(), source
