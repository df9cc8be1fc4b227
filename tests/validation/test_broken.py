"""Models whose failure is the expected result: each fails as `broken_models` says, and says why."""

from __future__ import annotations

from pathlib import Path

import broken_models
import pytest
from broken_models import CASES

from onnx_spatial.cli.main import run
from onnx_spatial.validation import ModelResult, Options
from onnx_spatial.validation.result import KINDS
from onnx_spatial.validation.run import find, validate

#: Kinds that no model has by itself: no right converter makes a model that differs (tests/mutation
#: breaks conversions on purpose), the others depend on the machines, the order and the expectations.
OF_NO_MODEL = {"difference", "lost", "not-run", "xpassed"}
#: What ends the process of a model is in test_run.py.
OF_PROCESSES = {"crash", "timeout", "memory"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All broken models, each in a folder of its own."""
    folder = tmp_path_factory.mktemp("broken")
    for name in CASES:
        broken_models.write(name, folder)
    return folder


def name_of(result: ModelResult) -> str:
    return Path(result.model).parent.name


def unsaid(result: ModelResult) -> list[str]:
    """What the message should hold and does not."""
    return [words for words in CASES[name_of(result)].says if words not in result.message]


def test_every_broken_model_fails_as_expected(folder):
    report = validate(find([str(folder)]), Options(strict=True), jobs=2)
    found = {name_of(m): (m.status, m.kind, unsaid(m)) for m in report.models}
    expected = {name: (case.status, case.kind, []) for name, case in CASES.items()}
    assert found == expected
    assert not report.passed
    assert len(report.failed()) == len(found)


def test_every_kind_that_a_model_can_have_is_expected_of_one():
    assert {case.kind for case in CASES.values()} == {*KINDS} - OF_NO_MODEL - OF_PROCESSES


@pytest.mark.parametrize("name", CASES)
def test_convert_says_what_is_wrong_in_one_line_and_leaves_no_file(name, tmp_path, capsys):
    case, out = CASES[name], tmp_path / "converted" / "out.onnx"
    out.parent.mkdir()
    model = broken_models.write(name, tmp_path)
    assert run(["convert", str(model), "-o", str(out)]) == case.exit_code
    err = capsys.readouterr().err
    if case.exit_code == 0:
        assert (out.exists(), err) == (True, "")
        return
    assert list(out.parent.iterdir()) == []
    *before, line = err.splitlines()
    assert line.startswith(f"error: {model}: ")
    if case.exit_code == 1:  # the verdict of the verification stands in front
        assert len(before) == 1 and before[0].startswith("UNVERIFIED  ")
    else:
        assert before == []
        assert [words for words in case.says if words not in line] == []


@pytest.mark.parametrize("name", CASES)
def test_inspect_says_what_is_wrong_without_running_anything(name, tmp_path, capsys):
    case, model = CASES[name], broken_models.write(name, tmp_path)
    assert run(["inspect", str(model)]) == case.exit_code
    out, err = capsys.readouterr()
    if case.exit_code == 2:
        (line,) = err.splitlines()
        assert line.startswith(f"error: {model}: ")
        assert [words for words in case.says if words not in line] == []
    else:
        assert err == ""
    if case.exit_code == 3:
        assert sum(" cannot be converted: " in line for line in out.splitlines()) == 1
        assert [words for words in case.says if words.strip("'") not in out] == []
