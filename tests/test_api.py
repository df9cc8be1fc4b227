"""The public calls: what may be given, what comes back, and what is left when something goes wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import running
import structure
from definitions import space_to_batch
from onnx import parser

from onnx_spatial import (
    ConversionError,
    ModelFileError,
    SpatialError,
    UsageError,
    VerificationError,
    convert,
    inspect,
)

TEXT = """<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[N,4,W,1] x) => (float[?,?,?,?] y) <int32[2] block = {2, 2}, int32[2,2] pads = {PADS}> {
        [site] y = com.microsoft.SpaceToBatchND(x, block, pads)
    }"""


def model(pads: str = "1, 1, 0, 0") -> onnx.ModelProto:
    return parser.parse_model(TEXT.replace("PADS", pads))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "in.onnx"
    target.write_bytes(model().SerializeToString())
    return target


def broken(tmp_path: Path) -> Path:
    target = tmp_path / "broken.onnx"
    target.write_bytes(model("-1, 1, 0, 0").SerializeToString())
    return target


@pytest.mark.parametrize("kind", ["path", "string", "bytes", "ModelProto", "onnx_ir.Model"])
def test_a_model_is_given_in_any_form_and_stays_as_it_was(kind, path):
    before = path.read_bytes()
    given = {
        "path": path,
        "string": str(path),
        "bytes": before,
        "ModelProto": onnx.load(path),
        "onnx_ir.Model": ir.load(path),
    }[kind]
    result = convert(given)
    assert isinstance(result.model, onnx.ModelProto)
    assert not structure.spatial(result.model)
    assert result.changed
    assert bool(result.verification)
    assert path.read_bytes() == before
    if kind == "ModelProto":
        assert given == onnx.load(path)
    if kind == "onnx_ir.Model":
        assert [n.op_type for n in given.graph] == ["SpaceToBatchND"]
    x = np.arange(24, dtype=np.float32).reshape(1, 4, 6, 1)
    (y,) = running.run(result.model, {"x": x})
    assert running.same_bits(y, space_to_batch(x, (2, 2), [(1, 1), (0, 0)]))


def test_inspect_says_what_convert_would_do(path):
    found = inspect(path)
    (site,) = found.operators
    assert (site.node, site.action, site.input_shape) == ("site", "lower", ("N", 4, "W", 1))
    assert (found.model, found.ir_version, found.opset) == (str(path), 9, 17)
    described = found.to_dict()
    assert described == json.loads(json.dumps(described))
    assert described["version"] == 2
    assert described["operators"] == convert(path, verify=False).to_dict()["operators"]


def test_a_written_model_is_the_one_that_is_returned(path, tmp_path):
    result = convert(path, tmp_path / "out.onnx")
    assert onnx.load(tmp_path / "out.onnx") == result.model
    assert result.output == tmp_path / "out.onnx"
    described = result.to_dict()
    assert described == json.loads(json.dumps(described))
    assert described["output"] == str(tmp_path / "out.onnx")


def test_a_refused_operator_is_an_error_that_names_it_and_no_file_is_left(tmp_path):
    source = broken(tmp_path)
    with pytest.raises(ConversionError) as caught:
        convert(source, tmp_path / "out.onnx")
    assert str(caught.value) == (
        f"{source}: SpaceToBatchND 'site' in main graph on [N, 4, W, 1]: "
        "SpaceToBatch: paddings[0][0] is -1; it must not be negative"
    )
    assert caught.value.exit_code == 3
    assert caught.value.inspection.operators[0].action == "refuse"
    assert [p.name for p in tmp_path.iterdir()] == ["broken.onnx"]


def test_what_cannot_be_verified_is_not_written(path, tmp_path, monkeypatch):
    """A lowering that is wrong must be found out by the verification."""
    from onnx_spatial.lowering import stages
    from onnx_spatial.lowering.stages import Stage

    def wrong(kind, before, after):
        return Stage(kind, before, (after[1], after[0], *after[2:]))

    monkeypatch.setattr(stages, "Stage", wrong)
    with pytest.raises(VerificationError) as caught:
        convert(path, tmp_path / "out.onnx", prefer="transpose")
    assert caught.value.exit_code == 1
    assert caught.value.verification is not None
    assert "site" in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["in.onnx"]


def test_every_error_is_one_line_and_of_one_family(tmp_path):
    for error in (ConversionError, ModelFileError, UsageError, VerificationError):
        assert issubclass(error, SpatialError)
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    for given in (tmp_path / "none.onnx", tmp_path / "bad.onnx", broken(tmp_path), tmp_path):
        for call in (inspect, convert):
            if call is inspect and given.name == "broken.onnx":
                continue  # to be told what is broken is what inspect is for
            with pytest.raises(SpatialError) as caught:
                call(given)
            assert "\n" not in str(caught.value)
            assert str(given) in str(caught.value)


def test_the_repr_of_a_conversion_holds_no_model():
    made = model()
    made.graph.doc_string = "x" * 9999
    for given in (made, made.SerializeToString(), ir.from_proto(made)):
        shown = repr(convert(given, verify=False))
        assert "1 operator (1 lower)" in shown and "\n" not in shown and len(shown) < 100


def test_progress_says_each_step_with_its_number():
    lines: list[str] = []
    convert(model(), progress=lines.append)
    steps = [line.partition(":")[0] for line in lines if "/" in line.partition(":")[0]]
    assert steps[:3] == ["converting 1/3", "converting 2/3", "lowering 1/1"]
    assert steps[3] == "converting 3/3" and "proof 1/1" in steps[4:]


def test_a_folder_is_said_to_be_one_whatever_the_system_says_of_it(tmp_path, monkeypatch):
    real = Path.open

    def denied(self: Path, *arguments: str, **named: object) -> object:
        if self.is_dir():
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, *arguments, **named)

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(ModelFileError, match="is a folder, not a model file"):
        convert(tmp_path)
