"""Models whose failure is the expected result: each fails as its table says, and says why.

The table is in models/broken/breaking, and for a reader in models/broken/README.md.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest
from breaking import CASES
from breaking.case import MODEL
from validating import ZOO

from onnx_spatial.cli.main import run
from onnx_spatial.validation import ModelResult, Options, validate
from onnx_spatial.validation.result import KINDS
from onnx_spatial.validation.select.discover import find

BROKEN = ZOO / "broken"

#: Whether the processor ends a process that divides the least integer by -1.
TRAPS = platform.machine().lower() in ("x86_64", "amd64", "i686")

#: Kinds that no model has by itself, see models/broken/README.md.
OF_NO_MODEL = {"difference", "lost", "not-run", "xpassed"}


def name_of(result: ModelResult) -> str:
    return Path(result.model).parent.name


def unsaid(result: ModelResult) -> list[str]:
    """What the message should hold and does not."""
    return [words for words in CASES[name_of(result)].says if words not in result.message]


@pytest.mark.skipif(sys.platform == "win32", reason="signals and limits are POSIX's")
def test_every_broken_model_fails_as_the_table_says():
    models = find([str(BROKEN)], exclude=[] if TRAPS else ["*/crash/*"])
    report = validate(models, Options(strict=True), jobs=2, timeout=10, memory=2 * 2**30)
    found = {name_of(m): (m.status, m.kind, unsaid(m)) for m in report.models}
    expected = {name: (case.status, case.kind, []) for name, case in CASES.items()}
    assert found == {n: e for n, e in expected.items() if TRAPS or n != "crash"}
    assert not report.passed
    assert len(report.failed()) == len(found)


def test_every_kind_that_a_model_can_have_is_in_the_table():
    assert {case.kind for case in CASES.values()} == set(KINDS) - OF_NO_MODEL


def test_the_files_are_those_that_the_builder_makes():
    wanted = {f"{n}/{path}": data for n, c in CASES.items() for path, data in c.files.items()}
    folders = [path for path in BROKEN.iterdir() if (path / MODEL).exists()]
    there = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    found = {path.relative_to(BROKEN).as_posix(): path.read_bytes() for path in there}
    assert found.keys() == wanted.keys()
    assert [path for path in found if found[path] != wanted[path]] == []
    assert sum(map(len, found.values())) < 100_000


def test_the_readme_shows_the_table():
    build = {"__name__": "build", "__file__": str(BROKEN / "build.py")}
    exec(compile((BROKEN / "build.py").read_text("utf-8"), "build.py", "exec"), build)
    assert (BROKEN / "README.md").read_text("utf-8") == build["readme"]()


@pytest.mark.parametrize("name", CASES)
def test_convert_says_what_is_wrong_in_one_line_and_leaves_no_file(name, tmp_path, capsys):
    case, out = CASES[name], tmp_path / "out.onnx"
    assert run(["convert", str(BROKEN / name / MODEL), "-o", str(out)]) == case.convert_code
    err = capsys.readouterr().err
    if case.convert_code == 0:
        assert (out.exists(), err) == (True, "")
        return
    assert list(tmp_path.iterdir()) == []
    *before, line = err.splitlines()
    assert line.startswith(f"error: {BROKEN / name / MODEL}: ")
    if case.convert_code == 1:  # the verdict of the verification stands in front
        assert len(before) == 1 and before[0].startswith("UNVERIFIED  ")
    else:
        assert before == []
        assert [words for words in case.says if words not in line] == []


@pytest.mark.parametrize("name", CASES)
def test_inspect_says_what_is_wrong_without_running_anything(name, capsys):
    case = CASES[name]
    assert run(["inspect", str(BROKEN / name / MODEL)]) == case.inspect_code
    out, err = capsys.readouterr()
    if case.inspect_code == 2:
        (line,) = err.splitlines()
        assert line.startswith(f"error: {BROKEN / name / MODEL}: ")
        assert [words for words in case.says if words not in line] == []
    else:
        assert err == ""
    if case.inspect_code == 3:
        assert sum(" cannot be converted: " in line for line in out.splitlines()) == 1
        assert [words for words in case.says if words.strip("'") not in out] == []
