"""Record test data that onnxruntime's own tools can replay: a model that they load, and a set.

FOLDER/model.onnx                      the converted model
FOLDER/test_data_set_0/input_0.pb ...  what was fed
FOLDER/test_data_set_0/output_0.pb ... what the original gave, spatial operators by numpy
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from onnx_spatial import analysis
from onnx_spatial.conversion.local_functions import without_earlier_form
from onnx_spatial.errors import SpatialError
from onnx_spatial.model.io import writer as writing
from onnx_spatial.validation import data_sets
from onnx_spatial.validation.checks.subject import ExaminedModel, ModelForm
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes import reference_runs
from onnx_spatial.verification.sizes.model_inputs import graph_inputs, named_dims
from onnx_spatial.verification.sizes.trial_runs import Trial

_SOURCE = "record"


def write(subject: ExaminedModel, folder: Path) -> None:
    """Write a model and a set to a folder, whose files of the same names are replaced.

    What keeps it from being recorded is an entry.
    """
    form = _replayable(subject)
    if form is None:
        message = "no test data written: onnxruntime's own tools cannot run its Python operators"
        subject.add("warning", _SOURCE, message)
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
        subject.add("error", _SOURCE, f"no test data written: {error}", "recorded-data")
    except OSError as error:
        reason = error.strerror or error
        message = f"{folder}: cannot be written: {reason}"
        subject.add("error", _SOURCE, message, "recorded-data")


def _replayable(subject: ExaminedModel) -> ModelForm | None:
    """The form that stock onnxruntime loads."""
    return next((form for form in subject.forms if form.mode != "custom-op"), None)


def _trial(subject: ExaminedModel) -> Trial:
    """A run of the original on recorded inputs if there are some, else on made-up data.

    Raises:
        RunFailure: there is none.
    """
    before = without_earlier_form(subject.source.proto)
    source = subject.source
    if before.model is not source.proto:
        source = source.holding(before.model)
    inputs = graph_inputs(source.proto)
    domains = before.domains.union(subject.options.domains)
    found = analysis.find(named_dims(source.proto, inputs), domains, source.folder)
    known = [f for f in found if f.known_domain]
    given = next((s.inputs for s in subject.sets if s.dense), None)
    request = reference_runs.RunRequest(
        given, subject.shapes, subject.options.seed, lambda text: None
    )
    program = reference_runs.program_of(source, known, inputs)
    runs = reference_runs.find(program, source, inputs, known, request, only_first=True)
    program.close()
    if not runs.trials:
        raise RunFailure("; ".join(runs.gaps), "run")
    return runs.trials[0]


def _replace(folder: Path, fed: dict[str, object], given: dict[str, object]) -> None:
    """Write a set in one step: no file of another one stays behind, and no half of this one."""
    beside = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    beside.mkdir()
    try:
        data_sets.write(beside, fed, given)
        if folder.exists():
            shutil.rmtree(folder)
        beside.replace(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
