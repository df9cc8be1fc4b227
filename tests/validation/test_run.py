"""Every model is looked at, counted once, and reported in the order of the list."""

from __future__ import annotations

import importlib.util
import math
import shutil
import sys
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from pathlib import Path

import pytest
from validating import (
    CRASHING,
    FOREIGN,
    HANGING,
    HUNGRY,
    PLAIN,
    REFUSED,
    S2B,
    ZOO,
    save,
)

from onnx_spatial.errors import UsageError
from onnx_spatial.validation import Interrupted, ModelResult, Options, Report, validate
from onnx_spatial.validation.select.discover import find

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")


@posix
def test_three_that_misbehave_do_not_disturb_the_other_47(tmp_path):
    bad = {7: (CRASHING, "crash"), 23: (HANGING, "timeout"), 41: (HUNGRY, "memory")}
    for number in range(50):
        text = bad[number][0] if number in bad else (S2B, PLAIN)[number % 2]
        save(tmp_path / f"{number:02}.onnx", text)
    seen: list[int] = []
    report = validate(
        find([str(tmp_path)]),
        jobs=2,
        timeout=5,
        memory=2**31,
        watch=lambda number, result: seen.append(number),
    )
    assert [m.model[-7:] for m in report.models] == [f"{n:02}.onnx" for n in range(50)]
    assert sorted(seen) == list(range(50))
    assert {n: m.kind for n, m in enumerate(report.models) if m.status != "passed"} == {
        number: kind for number, (_, kind) in bad.items()
    }
    assert (report.passed, report.exit_code) == (False, 1)
    assert report.message == "50 models: 47 passed, 3 failed"
    assert all(m.seconds > 0 for m in report.models)


@pytest.mark.slow
def test_200_small_models_take_less_than_two_minutes_on_two_cores(tmp_path):
    zoo = sorted(ZOO.glob("*/model.onnx"))
    for number in range(200):
        source = zoo[number % len(zoo)]
        shutil.copytree(source.parent, tmp_path / f"{number:03}")
    report = validate(find([str(tmp_path)]), jobs=2)
    assert report.message == "200 models: 200 passed"
    assert report.seconds < 120


class TestFailuresThatAreExpected:
    @pytest.fixture
    def folder(self, tmp_path) -> Path:
        folder = tmp_path / "models"
        (folder / "broken").mkdir(parents=True)
        for name, text in {
            "good": PLAIN,
            "refused": REFUSED,
            "broken/refused": REFUSED,
            "broken/foreign": FOREIGN,
            "broken/good": PLAIN,
        }.items():
            save(folder / f"{name}.onnx", text)
        return folder

    def run(self, folder: Path, *, strict: bool) -> Report:
        models = find([str(folder)])
        globs = [str(folder / "broken" / "*")]
        return validate(models, Options(strict=strict), jobs=2, expect_failure=globs)

    def test_they_do_not_fail_a_run_and_a_model_that_passes_all_the_same_does(self, folder):
        report = self.run(folder, strict=False)
        found = {Path(m.model).relative_to(folder).as_posix(): m for m in report.models}
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

    def test_with_strict_a_model_that_cannot_be_verified_fails_as_well(self, folder):
        report = self.run(folder, strict=True)
        assert [m.status for m in report.models][:3] == ["xfailed", "failed", "xfailed"]
        (good,) = (m for m in report.models if m.kind == "xpassed")
        assert f"--expect-failure {good.model}" in report.command(good)

    def test_a_run_of_nothing_else_passes(self, folder):
        report = validate([str(folder / "refused.onnx")], expect_failure=["refused.*"])
        assert (report.exit_code, report.message) == (0, "1 model: 1 xfailed")


def test_an_oracle_that_is_not_installed_is_said_before_anything_is_done(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install openvino"):
        validate([str(save(tmp_path / "m.onnx"))], Options(oracles=("openvino",)))


class Immediate(Executor):
    """Does everything at once, as `behave` says."""

    def __init__(self, behave):
        self.behave, self.calls = behave, []

    def submit(self, function, /, job):
        future: Future = Future()
        self.calls.append(job["model"])
        try:
            future.set_result(self.behave(job, self.calls.count(job["model"])))
        except BaseException as error:
            future.set_exception(error)
        return future


def passing(job, attempt) -> dict:
    return ModelResult(job["model"], "passed", "passed: yes").to_dict()


@contextmanager
def given(executor):
    yield executor


def test_what_an_engine_loses_is_handed_out_again_and_counted_once(tmp_path):
    def behave(job, attempt):
        if job["model"] == "b" and attempt < 3:
            raise ConnectionError("the worker has gone")
        return passing(job, attempt)

    executor, seen = Immediate(behave), []
    report = validate(
        ["a", "b", "c"], executor=given(executor), watch=lambda n, result: seen.append(n)
    )
    assert report.message == "3 models: 3 passed"
    assert sorted(seen) == [0, 1, 2]
    assert sorted(executor.calls) == ["a", "b", "b", "b", "c"]


@pytest.mark.parametrize("error", [ConnectionError("the worker has gone"), CancelledError()])
def test_what_an_engine_loses_again_and_again_failed(error):
    def behave(job, attempt):
        if job["model"] == "b":
            raise error
        return passing(job, attempt)

    executor = Immediate(behave)
    report = validate(["a", "b", "c"], executor=given(executor))
    assert [m.kind for m in report.models] == [None, "lost", None]
    assert executor.calls.count("b") == 3
    assert "its worker failed 3 times" in report.models[1].message


def test_an_interrupt_keeps_what_was_done():
    class Waiting(Immediate):
        def submit(self, function, /, job):
            return Future() if job["model"] == "c" else super().submit(function, job)

    def watch(number, result):
        raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        validate(["a", "b", "c"], executor=given(Waiting(passing)), watch=watch)
    report = caught.value.report
    assert [m.status for m in report.models] == ["passed", "passed", "skipped"]
    assert report.models[2].kind == "not-run"
    assert (report.passed, report.status, report.exit_code) == (False, "interrupted", 130)


def test_an_executor_that_has_ended_loses_nothing():
    class Ended(Executor):
        def submit(self, function, /, job):
            raise RuntimeError("cannot schedule new futures after shutdown")

    report = validate(["a", "b"], executor=given(Ended()))
    assert [m.kind for m in report.models] == ["lost", "lost"]


def test_all_are_looked_at_after_one_has_failed(tmp_path):
    for number, text in enumerate([REFUSED, PLAIN, FOREIGN]):
        save(tmp_path / f"{number}.onnx", text)
    models = find([str(tmp_path)])
    report = validate(models, Options(), jobs=2)
    assert [m.status for m in report.models] == ["failed", "passed", "unverified"]
    assert [m.model for m in report.failed()] == models[:1]
    assert [m.model for m in validate(models, Options(strict=True)).failed()] == [
        models[0],
        models[2],
    ]


def test_nothing_to_look_at_is_no_failure():
    report = validate([])
    assert (report.passed, report.message) == (True, "0 models: nothing to do")


@pytest.mark.parametrize(
    "wrong",
    [
        {"jobs": 0},
        {"timeout": 0},
        {"timeout": math.nan},
        {"timeout": math.inf},
        {"memory": -1},
    ],
)
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError):
        validate([], **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"modes": ()},
        {"modes": ("x",)},
        {"strategy": "x"},
        {"seed": -1},
        {"rtol": 1.0},
        {"rtol": math.nan},
    ],
)
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError):
        Options(**wrong)


def test_options_survive_json_and_become_a_command_line():
    import json

    options = Options(
        modes=("lower", "function"),
        fuse=False,
        max_rank=5,
        strategy="slices",
        domains=("a b",),
        static=(("N", 2),),
        shapes=(("x", (1, 2)),),
        inputs="a b.npz",
        seed=3,
        oracles=("openvino",),
        strict=True,
        strict_proof=True,
        rtol=0.5,
    )
    assert Options.from_dict(json.loads(json.dumps(options.to_dict()))) == options
    assert options.command(["m x.onnx", "-y"]) == (
        "onnx-spatial validate 'm x.onnx' ./-y --seed 3 --mode lower --mode function --no-fuse "
        "--max-rank 5 --prefer slices --inputs 'a b.npz' --rtol 0.5 --oracle openvino "
        "--domain 'a b' --static N=2 "
        "--shape x=1,2 --strict --strict-proof"
    )
