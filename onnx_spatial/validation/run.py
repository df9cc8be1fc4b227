"""Find the models of a run, validate each in a child process, and collect the report.

An executor, as `concurrent.futures` has it, calls `validate_model` for each model: processes here, or
the workers of a Dask cluster. Each call starts a child process, keeps its limits, and returns a result
in any case: that a child crashes, hangs or takes too much memory is the result of its model alone.

    validate --jobs 2          worker ---> child: a/model.onnx
                               worker ---> child: b/model.onnx
"""

from __future__ import annotations

import fnmatch
import glob
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

# Imported lazily by their libraries, which would happen in each fork.
import numpy.ma
import numpy.random  # noqa: F401
import onnx.reference.ops  # noqa: F401

import onnx_spatial
from onnx_spatial.custom_ops import available
from onnx_spatial.errors import Code, ModelFileError, UsageError, one_line
from onnx_spatial.model.io import other_formats
from onnx_spatial.report import graphs as page_graphs
from onnx_spatial.report.page import versions
from onnx_spatial.validation.examine import examine
from onnx_spatial.validation.result import ModelResult, Options, Report, Status
from onnx_spatial.verification import process

_SUFFIX = ".onnx"


def find(paths: Sequence[str], exclude: Sequence[str] = ()) -> list[str]:
    """Return the models in paths, each once, in the order of the paths and sorted within each.

    A path of a file is a model, with any suffix. A folder is searched recursively for *.onnx files,
    hidden folders and links to folders excluded. A glob is replaced by the files and folders that it
    matches; `**` matches any number of folders.

    Args:
        paths: files, folders, globs.
        exclude: globs of paths or names to leave out of folders and globs.

    Raises:
        UsageError: a path does not exist or holds no model.
        ModelFileError: a folder holds a model of another framework.
    """
    models: dict[str, str] = {}
    for path in paths:
        expanded = list(_expand_path(path, exclude))
        if not expanded and (advice := other_formats.advise_export(Path(path))) is not None:
            raise ModelFileError(f"{path}: {advice}", code=Code.EXPORT_FIRST)
        if not expanded:
            left = " (after --exclude)" if exclude else ""
            raise UsageError(f"{path}: contains no {_SUFFIX} file{left}", code=Code.NO_MODELS)
        for model in expanded:
            models.setdefault(os.path.abspath(model), model)  # noqa: PTH100  links are models
    return list(models.values())


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Return whether a path or its file name matches one of the globs; `*` also spans folders."""
    names = (Path(path).as_posix(), Path(path).name)
    globs = [Path(pattern).as_posix() for pattern in patterns]  # ./a becomes a, as in the path
    return any(fnmatch.fnmatch(name, pattern) for pattern in globs for name in names)


def _expand_path(path: str, exclude: Sequence[str]) -> Iterator[str]:
    """Yield the models in a file, folder or glob."""
    if os.path.lexists(path):
        yield from _in_folder(path, exclude) if Path(path).is_dir() else [path]
        return
    if not glob.has_magic(path):
        raise UsageError(f"{path}: there is no such file or folder", code=Code.NO_MODELS)
    names = sorted(glob.glob(path, recursive=True))  # noqa: PTH207  the pattern may be absolute
    if not names:
        raise UsageError(f"{path}: matches no file", code=Code.NO_MODELS)
    for name in names:
        if Path(name).is_dir():
            yield from _in_folder(name, exclude)
        elif not matches(name, exclude) and _is_model(name):
            yield name


def _in_folder(folder: str, exclude: Sequence[str]) -> list[str]:
    """Return the models below a folder, sorted so that those of one folder stand together."""
    models = []
    for parent, folders, names in os.walk(folder, onerror=_refuse_folder):
        folders[:] = [f for f in folders if not f.startswith(".")]
        models += [str(Path(parent) / n) for n in names if _is_model(n) and not n.startswith(".")]
    return sorted((m for m in models if not matches(m, exclude)), key=lambda m: Path(m).parts)


def _refuse_folder(error: OSError) -> None:
    """Refuse a folder that cannot be listed, as its models would be missed."""
    raise UsageError(f"{error.filename}: cannot be listed: {error.strerror or error}")


def _is_model(name: str) -> bool:
    return name.lower().endswith(_SUFFIX)


#: Bytes of the output of a crashed process that are kept: a stack of 100 calls, and what is above it.
_LOG_BYTES = 10_000

#: Called with each model's index in the list and its result, as they arrive.
Watch = Callable[[int, ModelResult], None]


@dataclass(frozen=True)
class Examination:
    """The work of a child process.

    Attributes:
        model: path, as it is reported.
        folder: folder that the path is relative to.
        options: options of the run.
        graphs: characters that the description of the graphs may have, for a page; None: it is not made.
        version: version of the package that starts the run.
    """

    model: str
    folder: str
    options: Options
    graphs: int | None = None
    version: str = onnx_spatial.__version__

    def __call__(self, note: process.Progress) -> ModelResult:
        """Examine the model."""
        try:
            os.chdir(self.folder)
            result = examine(self.model, self.options, note, graphs=self.graphs)
        except MemoryError:
            message = f"it {process.lack_of_memory()}"
            return ModelResult.without(
                self.model, _undecided_status(self.options), "memory", message
            )
        except Exception as error:  # a bug, or a kind of model that was not thought of
            traceback.print_exc()
            detail = str(error).splitlines()[0] if str(error) else ""
            message = f"unexpected {type(error).__name__}: {detail}; please report it"
            return ModelResult.without(self.model, "failed", "crash", message)
        result.peak_memory = _peak_memory()
        return result


def validate_model(
    work: Examination,
    timeout: float | None,
    memory: int | None,
) -> ModelResult:
    """Validate one model in a child process.

    Args:
        work: what the child does.
        timeout: seconds that it may take; None: any time.
        memory: bytes of private memory that it may take beside the libraries; None: any amount.
    """
    if work.version != onnx_spatial.__version__:
        message = f"the worker has onnx-spatial {onnx_spatial.__version__}, not {work.version}"
        return ModelResult.without(work.model, "failed", "lost", message)
    started = time.monotonic()
    with tempfile.TemporaryFile() as log:
        try:
            bounds = process.Bounds(memory, seconds=timeout)
            result = process.run(work, lambda text: None, bounds, log=log)
        except process.Died as death:
            status = "failed" if death.status == "failed" else _undecided_status(work.options)
            result = ModelResult.without(work.model, status, death.ending, str(death))
        if result.kind == "crash":
            result.log = _end_of(log)
    result.seconds = round(time.monotonic() - started, 3)
    return result


def _undecided_status(options: Options) -> Status:
    """Return the status of a model of which nothing is known: with strict_proof it must be proven."""
    return "failed" if options.strict_proof else "unverified"


def _peak_memory() -> int | None:
    """Return the bytes of memory that this process had in use at most; None if unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _end_of(log: IO[bytes]) -> str | None:
    """Return the end of a log; None if it is empty."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _LOG_BYTES))
    return log.read().decode("utf-8", "replace").strip() or None


def validate(
    models: Sequence[str],
    options: Options | None = None,
    *,
    jobs: int = 1,
    timeout: float | None = 600.0,
    memory: int | None = None,
    expect_failure: Sequence[str] = (),
    graphs: bool = False,
    executor: Executor | None = None,
    watch: Watch | None = None,
) -> Report:
    """Validate models, each in a process of its own, and report on all of them.

    After a KeyboardInterrupt all local processes have ended, and models without a result are skipped.

    Args:
        models: paths, as `find` returns them.
        options: what is done with each model.
        jobs: number of models at a time, without an executor.
        timeout: seconds that a model may take; None: unlimited.
        memory: bytes of private memory that a model may take beside the libraries; None: unlimited.
        expect_failure: globs (see `matches`) of models that are expected to fail.
        graphs: whether results have the graphs before and after, which the HTML report draws.
        executor: where models are validated (`dask_executor`); None: `jobs` processes here.
        watch: see `Watch`.

    Raises:
        UsageError: the timeout is out of range.
    """
    options = options or Options()
    if timeout is not None and not 0 < timeout <= threading.TIMEOUT_MAX:
        raise UsageError(
            f"timeout must be above 0 and at most {threading.TIMEOUT_MAX:.0f} seconds, not {timeout:g}"
        )
    shown = {"--timeout": f"{timeout or 0:g}"}
    if memory is not None:
        shown["--memory"] = str(memory)
    report = Report([], options, tools=versions(), limits=shown, started=datetime.now(UTC))
    started = time.monotonic()
    room = page_graphs.room_for_graphs(len(models)) if graphs else None
    folder = str(Path.cwd())
    results: dict[int, ModelResult] = {}

    workers: AbstractContextManager[Executor]
    if executor is None:
        call, workers = _validate_in_worker, _local_executor(min(jobs, len(models) or 1))
    else:
        call, workers = validate_model, nullcontext(executor)
    try:
        with workers as pool:
            work = [Examination(model, folder, options, room) for model in models]
            numbers = {pool.submit(call, w, timeout, memory): n for n, w in enumerate(work)}
            for future in as_completed(numbers):
                number = numbers[future]
                try:
                    result = future.result()
                except Exception as error:  # of any class: executors differ in what they raise
                    message = f"its worker failed: {one_line(str(error) or type(error).__name__)}"
                    result = ModelResult.without(models[number], "failed", "lost", message)
                if matches(result.model, expect_failure):
                    result = result.expected_to_fail(options)
                results[number] = result
                if watch is not None:
                    watch(number, result)
    except KeyboardInterrupt:
        report.interrupted = True
    message = "not validated: the run was interrupted"
    report.models = [
        results.get(number) or ModelResult.without(model, "skipped", "not-run", message)
        for number, model in enumerate(models)
    ]
    report.seconds = round(time.monotonic() - started, 3)
    return report


@contextmanager
def _local_executor(jobs: int) -> Iterator[Executor]:
    """Yield an executor of processes. If it is left by an exception, they and their children end.

    A process has one thread, so that its children can be forked (`process.can_fork`).
    """
    available()  # imports onnxruntime-extensions, which would happen in each fork
    start = multiprocessing.get_context("fork" if process.can_fork() else "spawn")
    workers = ProcessPoolExecutor(jobs, start, _start_worker)
    try:
        yield workers
    except BaseException:
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    finally:
        workers.shutdown(cancel_futures=True)


def _validate_in_worker(
    work: Examination, timeout: float | None, memory: int | None
) -> ModelResult:
    try:
        return validate_model(work, timeout, memory)
    except SystemExit:  # the child has ended; the executor would go on with the next model
        os._exit(1)


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, which ends workers by SIGTERM."""
    process.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())


@contextmanager
def dask_executor(scheduler: str) -> Iterator[Executor]:
    """Yield an executor that runs on the workers of a Dask cluster.

    They see the models under the same paths. After an exception the tasks that run are not waited for.

    Args:
        scheduler: address of the cluster's scheduler.

    Raises:
        UsageError: Dask is not installed, or there is no scheduler at that address.
    """
    try:
        from distributed import Client
    except ImportError:
        raise UsageError(
            "--executor dask needs a package: pip install distributed", code=Code.PACKAGE_MISSING
        ) from None
    try:
        client = Client(scheduler, timeout=30)
    except (OSError, ValueError, TimeoutError) as error:
        raise UsageError(f"there is no Dask scheduler at {scheduler!r}: {error}") from None
    # Not pure: the same work runs again when it is submitted again, as its files may have changed.
    executor: Executor = client.get_executor(pure=False)
    try:
        yield executor
    finally:
        executor.shutdown(wait=False)
        client.close()
