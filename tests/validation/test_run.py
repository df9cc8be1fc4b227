"""Every model is looked at, counted once, and reported in order; here and on a Dask cluster."""

import json
import math
import sys
from concurrent.futures import Executor, Future
from pathlib import Path
from unittest.mock import Mock

import distributed
import pytest
from validating import CRASHING, FOREIGN, HANGING, HUNGRY, PLAIN, REFUSED, S2B, save

from onnx_spatial import UsageError
from onnx_spatial.cli.main import run
from onnx_spatial.validation import ModelResult, Options
from onnx_spatial.validation.run import Examination, find, validate, validate_model

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")


@posix
def test_three_that_misbehave_do_not_disturb_the_others(tmp_path):
    bad = {2: (CRASHING, "crash"), 5: (HANGING, "timeout"), 7: (HUNGRY, "memory")}
    for number in range(12):
        text = bad[number][0] if number in bad else (S2B, PLAIN)[number % 2]
        save(tmp_path / f"{number:02}.onnx", text)
    seen: list[int] = []
    report = validate(
        find([str(tmp_path)]),
        jobs=2,
        timeout=10,
        memory=2**30,
        watch=lambda number, result: seen.append(number),
    )
    assert [m.model[-7:] for m in report.models] == [f"{n:02}.onnx" for n in range(12)]
    assert sorted(seen) == list(range(12))
    assert {n: m.kind for n, m in enumerate(report.models) if m.status != "passed"} == {
        number: kind for number, (_, kind) in bad.items()
    }
    crash, timeout, memory = (report.models[number] for number in bad)
    assert {model.status for model in (crash, timeout, memory)} == {"unverified"}
    assert crash.message == (
        "unverified: the process ends with SIGFPE: the original loads with optimisations on "
        "(--shape gives other sizes)"
    )
    assert "Floating point exception" in (crash.log or "")
    assert timeout.message.startswith("unverified: the process takes longer than 10 s (--timeout ")
    assert "needs more than 1 GiB of memory (--memory " in memory.message
    assert report.message == "12 models: 9 passed, 3 unverified"
    assert report.exit_code == 0
    report.options = Options(strict=True)
    assert report.exit_code == 1
    assert all(m.seconds > 0 for m in report.models)


def test_failures_that_are_expected_do_not_fail_a_run_and_models_that_pass_all_the_same_do(
    tmp_path,
):
    texts = {"good": PLAIN, "refused": REFUSED, "broken/refused": REFUSED, "broken/foreign": FOREIGN,
             "broken/good": PLAIN}  # fmt: skip
    for name, text in texts.items():
        save(tmp_path / "models" / f"{name}.onnx", text)
    models = find([str(tmp_path / "models")])
    report = validate(models, jobs=2, expect_failure=[str(tmp_path / "models" / "broken" / "*")])
    found = {Path(m.model).relative_to(tmp_path / "models").as_posix(): m for m in report.models}
    assert {name: (m.status, m.kind) for name, m in found.items()} == {
        "broken/foreign.onnx": ("failed", "xpassed"),
        "broken/good.onnx": ("failed", "xpassed"),
        "broken/refused.onnx": ("xfailed", "conversion"),
        "good.onnx": ("passed", None),
        "refused.onnx": ("failed", "conversion"),
    }
    assert report.exit_code == 1
    assert report.message == "5 models: 1 passed, 3 failed, 1 xfailed"
    assert found["broken/refused.onnx"].message.startswith("failed as expected: SpaceToBatchND")
    assert "does not: unverified" in found["broken/foreign.onnx"].message
    assert "does not: passed" in found["broken/good.onnx"].message


class Immediate(Executor):
    """Passes every model at once; loses "lost", and never ends "slow"."""

    def submit(self, function, /, work, *others, **named):
        future: Future = Future()
        if work.model == "lost":
            future.set_exception(ConnectionError("the worker has gone"))
        elif work.model != "slow":
            future.set_result(ModelResult(work.model, "passed", "passed: yes"))
        return future


def test_what_an_executor_loses_failed_and_an_interrupt_keeps_what_was_done():
    report = validate(["a", "lost", "c"], executor=Immediate())
    assert [m.kind for m in report.models] == [None, "lost", None]
    assert report.models[1].message == "failed: its worker failed: the worker has gone"
    seen = []

    def watch(number, result):
        seen.append(number)
        if len(seen) == 2:
            raise KeyboardInterrupt

    report = validate(["a", "b", "slow"], executor=Immediate(), watch=watch)
    assert [m.status for m in report.models] == ["passed", "passed", "skipped"]
    assert report.models[2].kind == "not-run"
    assert (report.passed, report.status, report.exit_code) == (False, "interrupted", 130)


@posix
def test_a_model_that_ends_its_process_fails_a_strict_proof_and_no_other_version_is_trusted(
    tmp_path,
):
    save(tmp_path / "m.onnx", CRASHING)
    work = Examination("m.onnx", str(tmp_path), Options(strict_proof=True))
    result = validate_model(work, 60, None)
    assert (result.status, result.kind) == ("failed", "crash")
    work = Examination("m.onnx", str(tmp_path), Options(), version="0.0.1")
    assert validate_model(work, 60, None).kind == "lost"


@pytest.mark.parametrize(
    "wrong", [{"timeout": math.nan}, {"modes": ("x",)}, {"prefer": "x"}], ids=str
)
def test_what_is_out_of_range_is_refused(wrong):
    with pytest.raises(UsageError):
        Options(**wrong) if wrong.keys() & {"modes", "prefer"} else validate([], **wrong)


def test_options_become_a_command_line():
    options = Options(
        modes=("lower", "function"), fuse=False, checked=True, max_rank=5, prefer="slices",
        domains=("a b",), static=(("N", 2),), shapes=(("x", (1, 2)),), seed=3, strict=True,
        strict_proof=True,
    )  # fmt: skip
    assert options.command(["m x.onnx", "-y"]) == (
        "onnx-spatial validate 'm x.onnx' ./-y --seed 3 --mode lower --mode function --no-fuse "
        "--checked --max-rank 5 --prefer slices --domain 'a b' --static N=2 --shape x=1,2 "
        "--strict --strict-proof"
    )


@posix
def test_on_a_cluster_each_task_has_a_process_and_a_timeout_of_its_own(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for name, text in (("a", S2B), ("b", CRASHING), ("c", PLAIN)):
        save(tmp_path / f"{name}.onnx", text)
    kinds = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**kinds) as cluster:
        words = [
            "--executor",
            "dask",
            "--scheduler",
            cluster.scheduler_address,
            "--json",
            "--strict",
        ]
        assert run(["validate", ".", *words]) == 1
        found = json.loads(capsys.readouterr().out)["models"]
        kinds = [(m["model"], m["kind"]) for m in found]
        assert kinds == [("a.onnx", None), ("b.onnx", "crash"), ("c.onnx", None)]
        save(tmp_path / "a.onnx", HANGING)
        assert run(["validate", "a.onnx", *words, "--timeout", "5"]) == 1
        (model,) = json.loads(capsys.readouterr().out)["models"]
        assert model["kind"] == "timeout"
    monkeypatch.setattr(distributed, "Client", Mock(side_effect=OSError("timed out")))
    words = ["--executor", "dask", "--scheduler", "tcp://nowhere"]
    assert run(["validate", "c.onnx", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: there is no Dask scheduler at 'tcp://nowhere': timed out")
