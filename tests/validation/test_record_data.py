"""Test data that validation records is replayed by onnx's own runner on onnxruntime."""

from __future__ import annotations

import unittest
from pathlib import Path

import numpy as np
import onnx
import onnxruntime.backend
import pytest
from onnx import numpy_helper
from onnx.backend.test import runner
from onnx.backend.test.case.test_case import TestCase
from validating import PLAIN, S2B, ZOO, image, record, save, space_to_batch

from onnx_spatial.validation import ModelResult, Options, validate
from onnx_spatial.validation.checks.examine import examine


@pytest.fixture(autouse=True)
def no_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnx's runner collects two thousand tests of its own first, for 20 seconds."""
    monkeypatch.setattr(runner, "load_model_tests", lambda **kinds: [])


def replay(folder: Path) -> unittest.TestResult:
    """Run the model in a folder on its data sets, by tools that know nothing of this package."""
    case = TestCase(
        "test_recorded", folder.name, None, str(folder), None, None, "real", rtol=1e-4, atol=1e-6
    )
    replayed = runner.Runner(onnxruntime.backend, "recorded")
    replayed._add_model_test(case, "Real")
    outcome = unittest.TestResult()
    tests = replayed.test_cases["OnnxBackendRealModelTest"]
    names = [n for n in dir(tests) if n.startswith("test_recorded") and n.endswith("_cpu")]
    assert len(names) == 1
    tests(names[0]).run(outcome)
    return outcome


def look(path: Path, target: Path, **options: object) -> ModelResult:
    return examine(str(path), Options(**options), record_to=str(target))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["leftover", "openvino_style", "raft"])
def test_a_converted_model_and_its_data_can_be_replayed(name, tmp_path):
    assert look(ZOO / name / "model.onnx", tmp_path / "out").status == "passed"
    outcome = replay(tmp_path / "out")
    assert outcome.testsRun == 1
    assert outcome.wasSuccessful(), outcome.errors + outcome.failures


def test_replaying_notices_what_is_wrong(tmp_path):
    look(save(tmp_path / "m.onnx"), tmp_path / "out")
    path = tmp_path / "out" / "test_data_set_0" / "output_0.pb"
    tensor = onnx.TensorProto.FromString(path.read_bytes())
    wrong = numpy_helper.from_array(numpy_helper.to_array(tensor)[::-1].copy(), tensor.name)
    path.write_bytes(wrong.SerializeToString())
    assert not replay(tmp_path / "out").wasSuccessful()


def test_outputs_are_the_originals(tmp_path):
    record(tmp_path, [image()], [])
    look(save(tmp_path / "m.onnx"), tmp_path / "out")
    folder = tmp_path / "out" / "test_data_set_0"
    x = onnx.TensorProto.FromString((folder / "input_0.pb").read_bytes())
    y = onnx.TensorProto.FromString((folder / "output_0.pb").read_bytes())
    assert (x.name, y.name) == ("x", "y")
    assert (numpy_helper.to_array(x) == image()).all()
    assert (numpy_helper.to_array(y) == space_to_batch(image())).all()


def test_a_set_of_another_model_is_replaced_as_a_whole(tmp_path):
    record(tmp_path / "out", [image(), image()], [image(), image()])
    look(save(tmp_path / "m.onnx"), tmp_path / "out")
    names = sorted(p.name for p in (tmp_path / "out" / "test_data_set_0").iterdir())
    assert names == ["input_0.pb", "output_0.pb"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["model.onnx", "test_data_set_0"]


def test_nothing_is_recorded_of_a_model_that_does_not_pass(tmp_path):
    record(tmp_path, [image()], [image()])
    assert look(save(tmp_path / "m.onnx"), tmp_path / "out").status == "failed"
    assert not (tmp_path / "out").exists()


def test_the_model_itself_is_never_written_over(tmp_path):
    path = save(tmp_path / "model.onnx")
    before = path.read_bytes()
    result = look(path, tmp_path)
    assert (result.status, result.kind) == ("failed", "recorded-data")
    assert "must not be the input" in result.message
    assert path.read_bytes() == before


def test_python_operators_cannot_be_replayed_and_that_is_said(tmp_path):
    pytest.importorskip("onnxruntime_extensions")
    result = look(save(tmp_path / "m.onnx"), tmp_path / "out", modes=("custom-op",))
    assert result.status == "passed"
    assert [e.source for e in result.entries] == ["record"]
    assert not (tmp_path / "out").exists()


def test_each_model_of_a_run_gets_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a/model.onnx", "a/other.onnx", "b/model.onnx", "b.onnx"):
        save(tmp_path / "models" / name, S2B if "a/" in name else PLAIN)
    np.savez(tmp_path / "models" / "b.npz", x=np.ones((1, 4), np.float32))
    paths = ["models/a/model.onnx", "models/a/other.onnx", "models/b/model.onnx", "models/b.onnx"]
    report = validate(paths, record_to="out", jobs=2)
    assert report.passed
    assert sorted(str(p.relative_to("out").parent) for p in Path("out").rglob("model.onnx")) == [
        "a",
        "a/other",
        "b",
        "b.1",
    ]
    for folder in ("a", "a/other", "b", "b.1"):
        assert replay(Path("out") / folder).wasSuccessful()
