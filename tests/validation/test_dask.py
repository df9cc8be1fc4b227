"""The same work list on a Dask cluster; a worker that is killed loses nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading

import pytest
from validating import PLAIN, ZOO, save

from onnx_spatial.errors import UsageError
from onnx_spatial.validation import validate
from onnx_spatial.validation.select.discover import find
from onnx_spatial.validation.workers import clusters

distributed = pytest.importorskip("distributed", reason="needs dask (pip install '.[dask]')")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="kills by a signal")
def test_a_worker_killed_mid_run_loses_nothing_and_counts_nothing_twice(tmp_path):
    for number in range(4):
        for model in sorted(ZOO.glob("*/model.onnx")):
            shutil.copy(model, tmp_path / f"{model.parent.name}_{number}.onnx")
    models = find([str(tmp_path)])
    cluster = distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        workers = list(client.run(os.getpid).values())
        seen: list[int] = []

        def kill_one(number: int, result: object) -> None:
            seen.append(number)
            if len(seen) == 6:
                os.kill(workers[0], signal.SIGKILL)

        report = validate(models, executor=clusters.dask(cluster.scheduler_address), watch=kill_one)
        assert workers[0] not in client.run(os.getpid).values()
    assert sorted(seen) == list(range(44))
    assert [m.model for m in report.models] == models
    assert report.message == "44 models: 44 passed"


def test_one_model_on_a_cluster(tmp_path):
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    )
    with cluster:
        place = clusters.dask(cluster.scheduler_address)
        report = validate([str(save(tmp_path / "m.onnx", PLAIN))], executor=place)
    assert report.message == "1 model: 1 passed"


GATE, PASSED = threading.Event(), threading.Event()


def _wait() -> None:
    GATE.wait(30)
    PASSED.set()


def test_an_interrupt_does_not_wait_for_the_cluster():
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    )
    with cluster:
        with (
            contextlib.suppress(KeyboardInterrupt),
            clusters.dask(cluster.scheduler_address) as executor,
        ):
            executor.submit(_wait)
            raise KeyboardInterrupt
        assert not PASSED.is_set()
        GATE.set()


def test_no_scheduler_is_said(monkeypatch):
    def client(address, timeout):
        raise OSError("timed out")

    monkeypatch.setattr(distributed, "Client", client)
    with (
        pytest.raises(UsageError, match="there is no Dask scheduler at 'tcp://nowhere'"),
        clusters.dask("tcp://nowhere"),
    ):
        pass
