"""Every model is looked at, counted once, and reported in the order of the list."""

from __future__ import annotations

import math
import sys
from concurrent.futures import Executor, Future
from pathlib import Path

import pytest
from validating import CRASHING, FOREIGN, HANGING, HUNGRY, PLAIN, REFUSED, S2B, save

from onnx_spatial import UsageError
from onnx_spatial.validation import ModelResult, Options, Report
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
        timeout=20,
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
    assert timeout.message.startswith("unverified: the process takes longer than 20 s (--timeout ")
    assert "needs more than 1 GiB of memory (--memory " in memory.message
    assert report.message == "12 models: 9 passed, 3 unverified"
    assert report.exit_code == 0
    report.options = Options(strict=True)
    assert report.exit_code == 1
    assert all(m.seconds > 0 for m in report.models)


class TestFailuresThatAreExpected:
    @pytest.fixture
    def folder(self, tmp_path) -> Path:
        folder = tmp_path / "models"
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


class Immediate(Executor):
    """Does everything at once, as `behave` says."""

    def __init__(self, behave):
        self.behave, self.calls = behave, []

    def submit(self, function, /, work, *others, **named):
        future: Future = Future()
        self.calls.append(work.model)
        try:
            future.set_result(self.behave(work))
        except BaseException as error:
            future.set_exception(error)
        return future


def passing(work: Examination) -> ModelResult:
    return ModelResult(work.model, "passed", "passed: yes")


def test_what_an_executor_loses_failed():
    def behave(work):
        if work.model == "b":
            raise ConnectionError("the worker has gone")
        return passing(work)

    executor = Immediate(behave)
    report = validate(["a", "b", "c"], executor=executor)
    assert [m.kind for m in report.models] == [None, "lost", None]
    assert executor.calls == ["a", "b", "c"]
    assert report.models[1].message == "failed: its worker failed: the worker has gone"


def test_an_interrupt_keeps_what_was_done():
    class Waiting(Immediate):
        def submit(self, function, /, work, *others, **named):
            return Future() if work.model == "c" else super().submit(function, work)

    seen = []

    def watch(number, result):
        seen.append(number)
        if len(seen) == 2:
            raise KeyboardInterrupt

    report = validate(["a", "b", "c"], executor=Waiting(passing), watch=watch)
    assert [m.status for m in report.models] == ["passed", "passed", "skipped"]
    assert report.models[2].kind == "not-run"
    assert (report.passed, report.status, report.exit_code) == (False, "interrupted", 130)


@posix
def test_with_strict_proof_a_model_that_ends_its_process_fails(tmp_path):
    work = Examination("m.onnx", str(tmp_path), Options(strict_proof=True))
    save(tmp_path / "m.onnx", CRASHING)
    result = validate_model(work, 60, None)
    assert (result.status, result.kind) == ("failed", "crash")


def test_a_timeout_out_of_range_is_refused():
    with pytest.raises(UsageError):
        validate([], timeout=math.nan)


@pytest.mark.parametrize(
    "wrong",
    [
        {"modes": ("x",)},
        {"prefer": "x"},
    ],
)
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError):
        Options(**wrong)


def test_options_become_a_command_line():
    options = Options(
        modes=("lower", "function"),
        fuse=False,
        checked=True,
        max_rank=5,
        prefer="slices",
        domains=("a b",),
        static=(("N", 2),),
        shapes=(("x", (1, 2)),),
        seed=3,
        strict=True,
        strict_proof=True,
    )
    assert options.command(["m x.onnx", "-y"]) == (
        "onnx-spatial validate 'm x.onnx' ./-y --seed 3 --mode lower --mode function --no-fuse "
        "--checked --max-rank 5 --prefer slices --domain 'a b' --static N=2 --shape x=1,2 "
        "--strict --strict-proof"
    )


def test_a_worker_of_another_version_is_not_trusted(tmp_path):
    work = Examination("m.onnx", str(tmp_path), Options(), version="0.0.1")
    assert validate_model(work, 60, None).kind == "lost"
