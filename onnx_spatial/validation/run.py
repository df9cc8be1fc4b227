"""Look at all models and put together the report: each counted once, in the order of the list."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onnx_spatial.errors import UsageError, one_line
from onnx_spatial.validation import cache
from onnx_spatial.validation.options import Options
from onnx_spatial.validation.result import ModelResult, Report
from onnx_spatial.validation.select import discover
from onnx_spatial.validation.workers import executors
from onnx_spatial.validation.workers import memory as least_memory
from onnx_spatial.validation.workers.job import Job
from onnx_spatial.verification import oracles

#: How often a model is handed out again that an engine lost.
_ATTEMPTS = 3

#: Is called with each model's place in the list and its result, in the order in which they come.
Watch = Callable[[int, ModelResult], None]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, or what else raises KeyboardInterrupt, ended the run before its time.

    Attributes:
        report: on all models; those that have no result are "skipped".
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
    fail_fast: bool = False,
    cache_folder: str | None = None,
    record_to: str | None = None,
    reproduce_to: str | None = None,
    expect_failure: Sequence[str] = (),
    executor: AbstractContextManager[Executor] | None = None,
    watch: Watch | None = None,
) -> Report:
    """Put models through everything, each in a process of its own, and report on all of them.

    Args:
        models: paths (`discover.find` finds them).
        options: what each goes through.
        jobs: how many at a time, without an executor.
        timeout: seconds that one may take; None for no bound.
        memory: bytes of its own that its process may have; None for what there is.
        fail_fast: start no further model after one failed; those that run are waited for.
        cache_folder: keep results there, and take those that are there.
        record_to: folder to write test data to, see `record`.
        reproduce_to: folder to save a reproducer of each difference in, see `verify`.
        expect_failure: globs (`discover.matches`) of models whose failure is the expected result.
        executor: what to run them in (`executors`); None: `jobs` at a time on this machine.
        watch: see `Watch`.

    Raises:
        UsageError: a number is out of range, `memory` is less than any model takes, or an oracle or
            the executor cannot be had.
        Interrupted: the run was interrupted; whatever ran here has ended.
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
        with executors.LANES.one() as lane:
            least_memory.check(memory, options, lane)
    began, started = datetime.now(UTC), time.monotonic()
    targets = _targets(models) if record_to or reproduce_to else {}
    folder = str(Path.cwd())
    work = [
        Job(
            model,
            folder,
            options.to_dict(),
            timeout,
            memory,
            cache=_folder(cache_folder),
            record_to=_folder(record_to, targets.get(model)),
            reproduce_to=_folder(reproduce_to, targets.get(model)),
        )
        for model in models
    ]
    limits = {"--timeout": f"{timeout or 0:g}"}
    if memory is not None:
        limits["--memory"] = str(memory)
    report = Report([], options, tools=cache.tools(), limits=limits, started=began)
    with executor or executors.local(jobs) as running:
        run = _Run(running, work, options, fail_fast, expect_failure, watch)
        try:
            report.models = run.results()
        except KeyboardInterrupt:
            report.interrupted, report.models = True, run.cut_short()
            report.seconds = round(time.monotonic() - started, 3)
            raise Interrupted(report) from None  # the executor ends what still runs
    report.seconds = round(time.monotonic() - started, 3)
    return report


def _folder(place: str | None, below: str | None = None) -> str | None:
    """A folder wherever the process of a model works; None for none."""
    return str(Path(place, below or "").absolute()) if place else None


def _targets(models: Sequence[str]) -> dict[str, str]:
    """A folder for each model: its path below what all have in common, without a last "model"."""
    found: dict[str, str] = {}
    if not models:
        return found
    resolved = {model: Path(model).absolute().with_suffix("") for model in models}
    common = len(Path(os.path.commonpath([path.parent for path in resolved.values()])).parts)
    for model, path in resolved.items():
        parts = path.parts[common:]
        wanted = "/".join(parts[:-1] if path.name == "model" and parts[:-1] else parts)
        same = (n for n in itertools.count(1) if f"{wanted}.{n}" not in found.values())
        found[model] = wanted if wanted not in found.values() else f"{wanted}.{next(same)}"
    return found


class _Run:
    """One future for each model that is not done yet."""

    def __init__(
        self,
        executor: Executor,
        work: Sequence[Job],
        options: Options,
        fail_fast: bool,
        expect_failure: Sequence[str],
        watch: Watch | None,
    ) -> None:
        self._executor, self._work, self._options = executor, work, options
        self._fail_fast, self._expect_failure, self._watch = fail_fast, expect_failure, watch
        self._stopped = False
        self._done: dict[int, ModelResult] = {}
        self._attempts: dict[int, int] = {}
        self._running: dict[Future[dict[str, Any]], int] = {}

    def results(self) -> list[ModelResult]:
        """One for each model, in the order of the work list."""
        for number in range(len(self._work)):
            self._submit(number)
        while self._running:
            finished, _ = wait(self._running, return_when=FIRST_COMPLETED)
            for future in sorted(finished, key=self._running.__getitem__):
                self._take(self._running.pop(future), future)
        return [self._done[number] for number in range(len(self._work))]

    def cut_short(self) -> list[ModelResult]:
        """One for each model where the run ends now: those that have no result are skipped."""
        found = dict(self._done)
        for future, number in self._running.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                found[number] = self._judged(ModelResult.from_dict(future.result()))
        numbers = range(len(self._work))
        return [found.get(n) or self._skipped(n, "the run was interrupted") for n in numbers]

    def _submit(self, number: int) -> None:
        if self._stopped:
            self._finish(number, self._skipped(number))
            return
        self._attempts[number] = self._attempts.get(number, 0) + 1
        try:
            future = self._executor.submit(executors.run, self._work[number].to_dict())
        except RuntimeError as error:  # the executor has come to its end
            self._finish(number, self._lost(number, error))
            return
        self._running[future] = number
        if self._fail_fast:
            future.add_done_callback(self._stop_behind)
            if self._stopped:  # in another thread, which did not know of this one yet
                future.cancel()

    def _stop_behind(self, future: Future[dict[str, Any]]) -> None:
        """Stop at a failure; called where the model was looked at, before the next one is taken."""
        if future.cancelled() or future.exception() is not None:
            return
        if self._judged(ModelResult.from_dict(future.result())).fails(self._options):
            self._stop()

    def _stop(self) -> None:
        self._stopped = True
        for future in list(self._running):
            future.cancel()

    def _take(self, number: int, future: Future[dict[str, Any]]) -> None:
        try:
            result = ModelResult.from_dict(future.result())
        except CancelledError as error:
            if self._stopped:
                result = self._skipped(number)
            elif self._attempts[number] < _ATTEMPTS:
                return self._submit(number)
            else:
                result = self._lost(number, error)
        except Exception as error:  # whatever an engine says when a worker has gone
            if self._attempts[number] < _ATTEMPTS and not self._stopped:
                return self._submit(number)
            result = self._lost(number, error)
        return self._finish(number, result)

    def _lost(self, number: int, error: BaseException) -> ModelResult:
        detail = one_line(str(error) or type(error).__name__)
        message = f"the engine lost it {self._attempts[number]} times: {detail}"
        return ModelResult.without(self._work[number].model, "failed", "lost", message)

    def _skipped(
        self, number: int, reason: str = "another one failed (--fail-fast)"
    ) -> ModelResult:
        message = f"not looked at: {reason}"
        return ModelResult.without(self._work[number].model, "skipped", "not-run", message)

    def _judged(self, result: ModelResult) -> ModelResult:
        if discover.matches(result.model, self._expect_failure):
            return result.expected_to_fail(self._options)
        return result

    def _finish(self, number: int, result: ModelResult) -> None:
        result = self._judged(result)
        self._done[number] = result
        if self._watch is not None:
            self._watch(number, result)
        if self._fail_fast and result.fails(self._options):
            self._stop()
