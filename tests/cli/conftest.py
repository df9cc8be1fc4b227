"""The command line in a folder of its own."""

import shlex
from collections.abc import Callable

import pytest
from adapter import run
from commands import Ran


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys) -> Callable[[str], Ran]:
    """Run command lines in an empty folder, away from any CI system."""
    for name in ("GITHUB_ACTIONS", "GITHUB_WORKSPACE", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def ran(words: str) -> Ran:
        capsys.readouterr()
        code = run(shlex.split(words))
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        return Ran(code, shown.out, shown.err)

    return ran
