"""Validate the models of a list and collect the report: each model once, in the order of the list."""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import onnx_spatial
from onnx_spatial.errors import UsageError, one_line
from onnx_spatial.report import side_by_side
from onnx_spatial.validation.options import Options
from onnx_spatial.validation.result import ModelResult, Report
from onnx_spatial.validation.select import discover
from onnx_spatial.validation.workers import executors
from onnx_spatial.validation.workers import memory as least_memory
from onnx_spatial.validation.workers.job import Job
from onnx_spatial.verification import oracles

_DEPENDENCIES = ("ml_dtypes", "numpy", "onnx", "onnx-ir", "onnxruntime", "onnxruntime-extensions")
#: How often a model is submitted whose worker an executor lost.
_ATTEMPTS = 3

#: Called with each model's index in the list and its result, as they arrive.
Watch = Callable[[int, ModelResult], None]


class Interrupted(KeyboardInterrupt):
    """The run was interrupted by a KeyboardInterrupt.

    Attributes:
        report: report on all models; those without a result are "skipped".
    """

    def __init__(self, report: Report) -> None:
        super().__init__(report.message)
        self.report = report


def validate(
    models: Sequence[str],
    options: Options | None = None,
    *,
    jobs: int = 1,
    timeout: float | None = 600.0,
    memory: int | None = None,
    reproduce_to: str | None = None,
    expect_failure: Sequence[str] = (),
    graphs: bool = False,
    executor: AbstractContextManager[Executor] | None = None,
    watch: Watch | None = None,
) -> Report:
    """Validate models, each in a process of its own, and report on all of them.

    Args:
        models: paths (`discover.find` finds them).
        options: what is done with each model.
        jobs: number of models at a time, without an executor.
        timeout: seconds that a model may take; None: unlimited.
        memory: bytes of private memory that the process of a model may have; None: unlimited.
        reproduce_to: folder to save a reproducer of each difference in, see `verify`.
        expect_failure: globs (`discover.matches`) of models that are expected to fail.
        graphs: whether results have the graphs before and after, which the HTML report draws.
        executor: executor to run in (`clusters`); None: `jobs` models at a time on this machine.
        watch: see `Watch`.

    Raises:
        UsageError: a number is out of range, `memory` is less than any model takes, or an oracle or
            the executor is not available.
        Interrupted: the run was interrupted; all local processes have ended.
    """
    options = options or Options()
    oracles.check_installed(options.oracles)
    if jobs < 1:
        raise UsageError(f"jobs must be 1 or more, not {jobs}")
    if timeout is not None and not 0 < timeout <= threading.TIMEOUT_MAX:
        raise UsageError(
            f"timeout must be above 0 and at most {threading.TIMEOUT_MAX:.0f} seconds, not {timeout:g}"
        )
    if memory is not None and memory <= 0:
        raise UsageError(f"memory must be above 0, not {memory}")
    if memory is not None and models and executor is None:
        with executors.SLOTS.one() as slot:
            least_memory.check(memory, options, slot)
    began, started = datetime.now(UTC), time.monotonic()
    folders = _folders(models) if reproduce_to else {}
    work = [
        Job(
            model,
            str(Path.cwd()),
            options.to_dict(),
            timeout,
            memory,
            reproduce_to=_absolute(reproduce_to, folders.get(model)),
            graphs=side_by_side.room(len(models)) if graphs else None,
        )
        for model in models
    ]
    limits = {"--timeout": f"{timeout or 0:g}"}
    if memory is not None:
        limits["--memory"] = str(memory)
    report = Report([], options, tools=tools(), limits=limits, started=began)
    with executor or executors.local(jobs) as running:
        run = _Run(running, work, options, expect_failure, watch)
        try:
            report.models = run.results()
        except KeyboardInterrupt:
            report.interrupted, report.models = True, run.partial_results()
            raise Interrupted(report) from None  # the executor ends what still runs
        finally:
            report.seconds = round(time.monotonic() - started, 3)
    return report


def tools() -> dict[str, str]:
    """Return the versions of this package, its dependencies and Python, and the platform."""
    versions = {"version": onnx_spatial.__version__, "python": platform.python_version()}
    versions["platform"] = f"{platform.system()} {platform.machine()}"
    for name in _DEPENDENCIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _absolute(folder: str | None, name: str | None) -> str | None:
    """Return the absolute path of a folder, or of this name in it; None for no folder."""
    return str(Path(folder, name or "").absolute()) if folder else None


def _folders(models: Sequence[str]) -> dict[str, str]:
    """Return a folder for each model: its path below their common folder, without a last "model"."""
    folders: dict[str, str] = {}
    paths = [Path(model).absolute().with_suffix("") for model in models]
    common = len(Path(os.path.commonpath([p.parent for p in paths])).parts) if paths else 0
    for model, path in zip(models, paths, strict=True):
        parts = path.parts[common:]
        base = "/".join(parts[:-1] if path.name == "model" and parts[:-1] else parts)
        names = itertools.chain([base], (f"{base}.{n}" for n in itertools.count(1)))
        folders[model] = next(name for name in names if name not in folders.values())
    return folders


class _Run:
    """A run: one future for each model that is not done yet."""

    def __init__(
        self,
        executor: Executor,
        work: Sequence[Job],
        options: Options,
        expect_failure: Sequence[str],
        watch: Watch | None,
    ) -> None:
        self._executor, self._work, self._options = executor, work, options
        self._expect_failure, self._watch = expect_failure, watch
        self._done: dict[int, ModelResult] = {}
        self._attempts: dict[int, int] = {}
        self._running: dict[Future[dict[str, Any]], int] = {}

    def results(self) -> list[ModelResult]:
        """Submit all models and wait; return their results in the order of the list."""
        for number in range(len(self._work)):
            self._submit(number)
        while self._running:
            finished, _ = wait(self._running, return_when=FIRST_COMPLETED)
            for future in sorted(finished, key=self._running.__getitem__):
                self._take(self._running.pop(future), future)
        return [self._done[number] for number in range(len(self._work))]

    def partial_results(self) -> list[ModelResult]:
        """Return the results of an interrupted run: models without a result are skipped."""
        done = dict(self._done)
        for future, number in self._running.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                done[number] = self._judged(ModelResult.from_dict(future.result()))
        numbers = range(len(self._work))
        return [done.get(n) or self._skipped(n) for n in numbers]

    def _submit(self, number: int) -> None:
        self._attempts[number] = self._attempts.get(number, 0) + 1
        try:
            future = self._executor.submit(executors.run, asdict(self._work[number]))
        except RuntimeError as error:  # the executor was shut down
            self._finish(number, self._lost(number, error))
            return
        self._running[future] = number

    def _take(self, number: int, future: Future[dict[str, Any]]) -> None:
        """Finish a model whose future is done; submit it again if the executor lost it."""
        try:
            result = ModelResult.from_dict(future.result())
        except Exception as error:  # of any class: executors differ in what they raise
            if self._attempts[number] < _ATTEMPTS:
                self._submit(number)
                return
            result = self._lost(number, error)
        self._finish(number, result)

    def _lost(self, number: int, error: BaseException) -> ModelResult:
        detail = one_line(str(error) or type(error).__name__)
        message = f"its worker failed {self._attempts[number]} times: {detail}"
        return ModelResult.without(self._work[number].model, "failed", "lost", message)

    def _skipped(self, number: int) -> ModelResult:
        message = "not validated: the run was interrupted"
        return ModelResult.without(self._work[number].model, "skipped", "not-run", message)

    def _judged(self, result: ModelResult) -> ModelResult:
        """Apply --expect-failure to a result."""
        if discover.matches(result.model, self._expect_failure):
            return result.expected_to_fail(self._options)
        return result

    def _finish(self, number: int, result: ModelResult) -> None:
        result = self._done[number] = self._judged(result)
        if self._watch is not None:
            self._watch(number, result)
