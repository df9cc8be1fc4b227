"""Validate one model in the process made for it, which communicates by files in a folder.

job.json      the job
stage.json    the current step: {"source": ..., "text": ...}
result.json   the result; missing if the process did not finish
log           stdout and stderr
"""

from __future__ import annotations

import faulthandler
import json
import os
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_spatial
from onnx_spatial.model.io.atomic import atomic_write
from onnx_spatial.validation.checks.examine import examine
from onnx_spatial.validation.checks.subject import Stage
from onnx_spatial.validation.options import Options
from onnx_spatial.validation.result import ModelResult
from onnx_spatial.verification.process import limits

JOB, STAGE, RESULT, LOG = "job.json", "stage.json", "result.json", "log"


@dataclass(frozen=True)
class Job:
    """A model to validate; its fields go to other machines as JSON.

    Attributes:
        model: path, as it is reported.
        folder: folder that the path is relative to.
        options: `Options.to_dict`.
        timeout: seconds that validation may take; None: unlimited.
        memory: bytes of private memory that its process may have; None: unlimited.
        reproduce_to: folder to save reproducers in, if any.
        graphs: characters that the description of the graphs may have, for a page; None: it is not made.
        version: version of the package that submits the job.
    """

    model: str
    folder: str
    options: dict[str, Any]
    timeout: float | None = None
    memory: int | None = None
    reproduce_to: str | None = None
    graphs: int | None = None
    version: str = onnx_spatial.__version__


def do(folder: Path) -> None:
    """Read the job in a folder, validate its model, and write the result.

    Limits are set for the whole process, which must do nothing else.
    """
    faulthandler.enable()  # writes the traceback of a crash to the log
    job = Job(**json.loads((folder / JOB).read_text("utf-8")))
    limits.leave_no_core()
    if job.memory is not None:
        limits.limit_memory(job.memory)
    try:
        os.chdir(job.folder)
        result = _validate(job, _stage_writer(folder / STAGE))
    except MemoryError:
        message = "it needs more memory than the limit"
        result = ModelResult.without(job.model, "failed", "memory", message)
    except Exception as error:  # a bug, or a kind of model that was not thought of
        traceback.print_exc()
        detail = str(error).splitlines()[0] if str(error) else ""
        message = f"unexpected {type(error).__name__}: {detail}; please report it"
        result = ModelResult.without(job.model, "failed", "crash", message)
    atomic_write(folder / RESULT, json.dumps(result.to_dict()).encode())


def _stage_writer(path: Path) -> Stage:
    """Return a function that writes the current step to a file, which outlives a crash."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def note(source: str, text: str) -> None:
        data = json.dumps({"source": source, "text": text}).encode()
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, data)
        os.ftruncate(file, len(data))

    return note


def _validate(job: Job, stage: Stage) -> ModelResult:
    options = Options.from_dict(job.options)
    if job.version != onnx_spatial.__version__:
        message = f"the worker has onnx-spatial {onnx_spatial.__version__}, not {job.version}"
        return ModelResult.without(job.model, "failed", "lost", message)
    return examine(job.model, options, stage, job.reproduce_to, graphs=job.graphs)
