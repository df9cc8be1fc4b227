"""The same run on a Dask cluster; a worker that is killed loses nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import distributed
import pytest
from validating import CRASHING, HANGING, PLAIN, S2B, save

from onnx_spatial.cli.main import run


@pytest.fixture
def address() -> Iterator[str]:
    """The scheduler of a cluster with one worker, in this process."""
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_each_task_has_a_process_and_a_timeout_of_its_own(address, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, text in (("a", S2B), ("b", CRASHING), ("c", PLAIN)):
        save(tmp_path / f"{name}.onnx", text)
    words = ["--executor", "dask", "--scheduler", address, "--json", "--strict"]
    assert run(["validate", ".", *words]) == 1
    found = json.loads(capsys.readouterr().out)["models"]
    assert [(m["model"], m["kind"]) for m in found] == [
        ("a.onnx", None),
        ("b.onnx", "crash"),
        ("c.onnx", None),
    ]
    save(tmp_path / "a.onnx", HANGING)
    assert run(["validate", "a.onnx", *words, "--timeout", "5"]) == 1
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert model["kind"] == "timeout"


def test_no_scheduler_is_said_in_one_line(tmp_path, monkeypatch, capsys):
    def client(address, timeout):
        raise OSError("timed out")

    monkeypatch.setattr(distributed, "Client", client)
    model = str(save(tmp_path / "m.onnx", PLAIN))
    words = ["--executor", "dask", "--scheduler", "tcp://nowhere"]
    assert run(["validate", model, *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: there is no Dask scheduler at 'tcp://nowhere': timed out")
