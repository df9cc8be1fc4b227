"""Record test data that onnxruntime's own tools can replay.

FOLDER/model.onnx                      the converted model
FOLDER/test_data_set_0/input_0.pb ...  the inputs
FOLDER/test_data_set_0/output_0.pb ... outputs of the original, with spatial operators in numpy
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from onnx_spatial.errors import Code, SpatialError
from onnx_spatial.model.io import writer as writing
from onnx_spatial.validation import data_sets
from onnx_spatial.validation.checks.subject import ExaminedModel
from onnx_spatial.verification.evaluate import ReferenceModel
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes.reference_runs import RunRequest
from onnx_spatial.verification.sizes.trial_runs import Trial

_SOURCE = "record"


def write(subject: ExaminedModel, folder: Path) -> None:
    """Write the converted model and a data set to a folder; add an entry if that fails."""
    form = next((form for form in subject.forms if form.mode != "custom-op"), None)
    if form is None:
        message = "no test data written: onnxruntime's own tools cannot run Python operators"
        subject.add("warning", _SOURCE, message, code=Code.NOT_RECORDED)
        return
    subject.stage(_SOURCE, "recording test data")
    try:
        trial = _trial(subject)
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / "model.onnx"
        writing.check(target, form.source)
        writing.write(form.source, target)
        names = [v.name for v in subject.source.proto.graph.input if v.name in trial.feeds]
        outputs = [v.name for v in subject.source.proto.graph.output]
        _replace(
            folder / "test_data_set_0",
            {n: trial.feeds[n] for n in names},
            {n: trial.outputs[n] for n in outputs},
        )
    except (SpatialError, RunFailure) as error:
        message = f"no test data written: {error}"
        subject.add("error", _SOURCE, message, "recorded-data", code=Code.NOT_RECORDED)
    except OSError as error:
        reason = error.strerror or error
        message = f"{folder}: cannot be written: {reason}"
        subject.add("error", _SOURCE, message, "recorded-data", code=Code.UNWRITABLE)


def _trial(subject: ExaminedModel) -> Trial:
    """Run the original on recorded inputs if there are any, or else on generated data.

    Raises:
        RunFailure: no run succeeds.
    """
    reference = ReferenceModel.before_conversion(subject.source, subject.options.domains)
    recorded = next((s.inputs for s in subject.sets if s.dense), subject.inputs)
    request = RunRequest(recorded, subject.shapes, subject.options.seed, lambda text: None)
    try:
        return reference.first_run(request)
    finally:
        reference.close()


def _replace(folder: Path, inputs: dict[str, object], outputs: dict[str, object]) -> None:
    """Write a data set and replace the folder in one step, with all files that it held."""
    beside = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    beside.mkdir()
    try:
        data_sets.write(beside, inputs, outputs)
        if folder.exists():
            shutil.rmtree(folder)
        beside.replace(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
