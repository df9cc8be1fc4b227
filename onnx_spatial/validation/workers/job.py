"""What a process that looks at one model is told, and what it leaves behind, as files of a folder.

job.json      what to do
stage.json    what it is doing now: {"source": ..., "text": ...}
result.json   the result; there only if it came to its end
log           what it wrote to stdout and stderr
"""

from __future__ import annotations

import faulthandler
import json
import os
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx_spatial
from onnx_spatial.model.io.atomic import atomic_write
from onnx_spatial.validation import cache
from onnx_spatial.validation.checks.examine import examine
from onnx_spatial.validation.checks.subject import Stage
from onnx_spatial.validation.options import Options
from onnx_spatial.validation.result import ModelResult
from onnx_spatial.validation.workers import limits

JOB, STAGE, RESULT, LOG = "job.json", "stage.json", "result.json", "log"


@dataclass(frozen=True)
class Job:
    """One model to look at; goes to other machines as JSON.

    Attributes:
        model: its path, as it is reported.
        folder: that the path is relative to.
        options: what it goes through, see `Options.to_dict`.
        timeout: seconds that it may take; None for no bound.
        memory: bytes of its own that its process may have; None for no bound of its own.
        cache: folder of earlier results, if any.
        record_to: folder to record test data in, if any.
        reproduce_to: folder to save reproducers in, if any.
        version: of the package that asks.
    """

    model: str
    folder: str
    options: dict[str, Any]
    timeout: float | None = None
    memory: int | None = None
    cache: str | None = None
    record_to: str | None = None
    reproduce_to: str | None = None
    version: str = onnx_spatial.__version__

    def to_dict(self) -> dict[str, Any]:
        """The attributes by name."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Job:
        """The way back."""
        return cls(**values)


def do(folder: Path) -> None:
    """The whole life of the process: read the job, look at the model, leave the result.

    Call it in a process that has nothing else to do: limits are set for all of it.
    """
    faulthandler.enable()  # where a signal came goes to the log
    job = Job.from_dict(json.loads((folder / JOB).read_text("utf-8")))
    limits.leave_no_core()
    if job.memory is not None:
        limits.limit_memory(job.memory)
    try:
        os.chdir(job.folder)
        result = _look(job, _notes(folder / STAGE))
    except MemoryError:
        message = "it takes more memory than it may have"
        result = ModelResult.without(job.model, "failed", "memory", message)
    except Exception as error:  # a bug of ours, or a model that nobody thought of
        traceback.print_exc()
        detail = str(error).splitlines()[0] if str(error) else ""
        message = f"unexpected {type(error).__name__}: {detail}; please report it"
        result = ModelResult.without(job.model, "failed", "crash", message)
    atomic_write(folder / RESULT, json.dumps(result.to_dict()).encode())


def _notes(path: Path) -> Stage:
    """Keeps what is being done now where a crash leaves it."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def note(source: str, text: str) -> None:
        data = json.dumps({"source": source, "text": text}).encode()
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, data)
        os.ftruncate(file, len(data))

    return note


def _look(job: Job, note: Stage) -> ModelResult:
    options = Options.from_dict(job.options)
    if job.version != onnx_spatial.__version__:
        message = f"the worker has onnx-spatial {onnx_spatial.__version__}, not {job.version}"
        return ModelResult.without(job.model, "failed", "lost", message)
    key = None
    if job.cache is not None:
        note("cache", "looking for an earlier result")
        key = cache.key_of(Path(job.model), options)
        found = None if key is None else cache.get(Path(job.cache), key, job.model)
        if found is not None and job.record_to is None:
            return found
    result = examine(job.model, options, note, job.record_to, job.reproduce_to)
    # Files that were replaced in between: it is not known which of them it is the result of.
    if key is not None and job.cache is not None and key == cache.key_of(Path(job.model), options):
        cache.put(Path(job.cache), key, result)
    return result
