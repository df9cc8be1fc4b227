"""Examine one model: read it, convert it in memory in each mode, verify the result against the original,
and run it on recorded data. Each step adds entries to the model.

Recorded outputs are compared with those of every form of the model:

moved data      every bit is the same, but for signs of zeros and kinds of NaN
sums of reals   |a - b| <= rtol * max|recorded| for every element (`RECORDED_RTOL`)
random numbers  are not compared where they differ: they belong to one run, or to one runtime
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from onnx_spatial import analysis
from onnx_spatial.api import edit_model, verify_conversion
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.custom_ops import available
from onnx_spatial.documents import plain
from onnx_spatial.errors import (
    Code,
    ConversionError,
    ModelFileError,
    SpatialError,
    UsageError,
    first_lines,
    one_line,
)
from onnx_spatial.model import op_traits
from onnx_spatial.model.io import reader
from onnx_spatial.report.graphs import SideBySide
from onnx_spatial.report.outcome import Outcome
from onnx_spatial.report.results import Conversion, Inspection
from onnx_spatial.validation import data_sets
from onnx_spatial.validation.data_sets import DataSet
from onnx_spatial.validation.result import Entry, Kind, Level, ModelResult, Options, Status
from onnx_spatial.verification import OutputResult, Verification, VerifyOptions
from onnx_spatial.verification import values as value_kinds
from onnx_spatial.verification.evidence import first_of
from onnx_spatial.verification.process import CONVERTED, ORIGINAL, Progress
from onnx_spatial.verification.run.legal_sizes import GIVE_DATA
from onnx_spatial.verification.run.run_error import RunError
from onnx_spatial.verification.run.sessions import Session
from onnx_spatial.verification.values import RTOL, RTOL_OF_8_BITS, Kinds, compare

#: Number of problems of a verification that get an entry of their own.
_MAX_PROBLEM_ENTRIES = 20

#: Replaces `GIVE_DATA` in messages: `validate` takes data only from files beside the model.
_RECORD_DATA = "record data that it runs on as test_data_set_0/input_0.pb beside the model"


@dataclass
class ModelForm:
    """A form of the model to run: converted in one mode, or unconverted.

    Attributes:
        mode: mode of the conversion; None: unconverted.
        conversion: how it was made.
        verification: comparison with the original on generated data.
        message: result in place of the verification's message.
        matched: whether a recorded output agreed; one that does not is an error.
    """

    mode: str | None
    conversion: Conversion
    verification: Verification | None = None
    message: str | None = None
    matched: bool = False

    @property
    def changed(self) -> bool:
        """Whether it differs from the original."""
        return self.conversion.changed

    def session(self, *, optimise: bool) -> Session:
        """Open a session of the form.

        Raises:
            RunError: it does not load.
        """
        source = self.conversion.result
        data = source.data or reader.serialize(source.proto, source.name)
        of = CONVERTED if self.changed else ORIGINAL
        return Session(data, of=of, optimise=optimise, folder=source.folder)

    @property
    def name(self) -> str:
        """Name of the form in sources of entries."""
        return self.mode or "as it is"


@dataclass
class ExaminedModel:
    """A model that is validated, and the findings of the checks.

    Attributes:
        path: path of its file.
        options: options of the run.
        source: the model, with symbolic dims fixed as the options say.
        shapes: those of the options that apply to this model.
        note: takes the current step, a line of text.
        inspection: its spatial operators; None until it is converted.
        sets: its recorded data.
        forms: its forms.
        entries, recorded: see `ModelResult`.
    """

    path: Path
    options: Options
    source: reader.Source
    shapes: dict[str, tuple[int, ...]]
    note: Progress
    inspection: Inspection | None = None
    sets: list[DataSet] = field(default_factory=list)
    forms: list[ModelForm] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    recorded: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        level: Level,
        source: str,
        message: str,
        kind: Kind | None = None,
        nodes: tuple[str, ...] = (),
        code: Code | None = None,
    ) -> None:
        """Add an entry."""
        message = message.removeprefix(f"{self.path}: ").replace(GIVE_DATA, _RECORD_DATA)
        self.entries.append(Entry(level, source, message, nodes, kind, code))

    def level_of_unverified(self, form: ModelForm) -> Level:
        """Return the level of what could not be shown of a form."""
        return "error" if form.changed and self.options.strict_proof else "warning"

    def has_failed(self) -> bool:
        """Return whether there is an error."""
        return any(entry.level == "error" for entry in self.entries)

    def progress(self, source: str) -> Progress:
        """Return a function that notes the steps of a source of entries."""
        return lambda text: self.note(f"{source}: {text}")

    def add_differences(self, source: str, result: Verification) -> None:
        """Add an error for each problem of a verification; the first one names its node."""
        first = result.first_difference
        node = () if first is None else nodes_by_label(result).get(first.name, ())
        messages = first_lines(result.problems, _MAX_PROBLEM_ENTRIES, "{} more problems")
        for number, message in enumerate(messages):
            self.add("error", source, message, "difference", () if number else node)


def nodes_by_label(result: Verification) -> dict[str, tuple[str, ...]]:
    """Return the node of each operator by its label in messages."""
    return {operator.label: (operator.node,) for operator in result.operators}


#: Kinds of warnings that leave a model unverified.
_UNDECIDED: tuple[Kind, ...] = ("unverified", "memory")


def examine(
    path: str,
    options: Options,
    note: Progress = lambda text: None,
    *,
    graphs: int | None = None,
) -> ModelResult:
    """Read a model, run every check, and return the result.

    Args:
        path: path of the model.
        options: options of the run.
        note: called with the current step, which is reported if the process crashes.
        graphs: characters that the description of the graphs may have, for a page; None: it is not made.

    Raises:
        MemoryError: memory ran out.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries; problems are reported as entries
        try:
            subject = _read_model(path, options, note)
        except SpatialError as error:
            message = str(error).removeprefix(f"{path}: ")
            kind = _kind_of(error)
            return ModelResult.without(path, "failed", kind, message, "load", error.code)
        _convert_and_verify(subject)
        compare_recorded(subject)
        result = _make_result(subject)
        if graphs is not None:
            result.page = _describe_page(subject)
            if result.page.shown is not None:
                result.page.shown.leave_out(graphs)
        return result


def _read_model(path: str, options: Options, note: Progress) -> ExaminedModel:
    note("load: reading the model")
    source = reader.read(path)
    frozen, missing = reader.freeze_dims(source.proto, dict(options.static))
    is_frozen = any(name not in missing for name, _ in options.static)
    source = reader.resolved(source.holding(frozen) if is_frozen else source)
    names = {v.name for v in source.proto.graph.input}
    shapes = {n: s for n, s in options.shapes if n in names}
    subject = ExaminedModel(Path(path), options, source, shapes, note)
    for name in missing:
        subject.add("info", "load", f"--static {name}: no dim has this name")
    for name, _ in options.shapes:
        if name not in names:
            subject.add("info", "load", f"--shape {name}: no input has this name")
    return subject


def _convert_and_verify(subject: ExaminedModel) -> None:
    """Convert in every mode and verify; a model that conversion does not change must run."""
    options = subject.options
    same = "fuse prefer max_rank checked domains"
    named = {name: getattr(options, name) for name in same.split()}
    for mode in options.modes:
        source = f"convert:{mode}"
        subject.progress(source)("optimizing" if options.optimize else "converting")
        asked = ConvertOptions(mode, chains=options.optimize, **named)
        try:
            done = edit_model(subject.source, asked, strict=options.strict)
        except SpatialError as error:
            _add_error(subject, source, error)
            continue
        _set_inspection(subject, done.inspection)
        form = ModelForm(mode, done)
        if form.changed:
            _verify_form(subject, form)
        elif all(f.changed for f in subject.forms):
            form.mode = None
            _check_unchanged(subject, form)
        else:
            continue
        subject.forms.append(form)


def _set_inspection(subject: ExaminedModel, inspection: Inspection) -> None:
    """Keep the inspection of the first mode, and add the operators that are not converted."""
    if subject.inspection is not None:
        return
    subject.inspection = inspection
    for operator in inspection.named:
        if operator.action == "leave" and operator.reason is not None:
            message = f"{operator.op_type} node {operator.node!r} stays as it is: {operator.reason}"
            subject.add("info", "inspect", message, nodes=(operator.node,))


def _add_error(subject: ExaminedModel, source: str, error: SpatialError) -> None:
    """Add an error for each operator that is refused, or the error itself if there is none."""
    refused = []
    if isinstance(error, ConversionError) and isinstance(error.inspection, Inspection):
        _set_inspection(subject, error.inspection)
        refused = [each for each in error.inspection.operators if each.action == "refuse"]
    for operator in refused:
        message = f"{operator.op_type} node {operator.node!r} ({operator.graph}): {operator.reason}"
        subject.add("error", source, message, "conversion", (operator.node,), operator.code)
    if not refused:
        subject.add("error", source, str(error), _kind_of(error), code=error.code)


def _kind_of(error: SpatialError) -> Kind:
    return "unreadable" if isinstance(error, ModelFileError) else "conversion"


def _verify_form(subject: ExaminedModel, form: ModelForm) -> None:
    """Compare a form with the original; with strict_proof each part that differs must be proven."""
    source, unverified = f"verify:{form.name}", subject.level_of_unverified(form)
    if form.mode == "custom-op" and not available():
        form.message = "Python operators need onnxruntime-extensions, which is not installed"
        subject.add(unverified, source, form.message, "unverified")
        return
    options = VerifyOptions(seed=subject.options.seed, shapes=subject.shapes)
    try:
        form.verification = result = verify_conversion(
            form.conversion, options, subject.options.domains, subject.progress(source)
        )
    except SpatialError as error:
        form.message = str(error)
        if isinstance(error, UsageError):  # the shapes of the options do not fit
            subject.add(unverified, source, str(error), "unverified")
        else:
            _add_error(subject, source, error)
        return
    if result.status == "failed":
        subject.add_differences(source, result)
    elif result.status == "passed":
        for part in result.unproven:
            nodes = nodes_by_label(result).get(part.node, ())
            if subject.options.strict_proof:
                subject.add("error", source, str(part), "unverified", nodes)
            else:
                subject.add("info", source, str(part), nodes=nodes)


def _check_unchanged(subject: ExaminedModel, form: ModelForm) -> None:
    """Load a model that conversion does not change, and compare its outputs optimised and not."""
    subject.progress("run")("loading")
    try:
        form.session(optimise=True)
    except RunError as error:
        is_valid = not error.lacks_kernel and _is_valid(subject)
        although = ", although onnx.checker accepts it" if is_valid else ""
        form.message = f"onnxruntime does not load it{although}: {error}"
        _add_run_error(subject, form, "run", form.message, error, "does-not-run", doubted=is_valid)
        return
    _verify_form(subject, form)


def _is_valid(subject: ExaminedModel) -> bool:
    """Return whether ONNX's own checker accepts a model.

    onnxruntime then lacks something: a newer operator, a kernel for an attribute, a locale.
    """
    opset = op_traits.opset_of(subject.source.proto.opset_import)
    if opset is not None and opset > onnx.defs.onnx_opset_version():
        return False  # the checker would judge by the newest versions that it knows
    try:
        onnx.checker.check_model(subject.path, full_check=True)
    except Exception:  # of the checker, of shape inference or of protobuf
        return False
    return True


def _make_result(subject: ExaminedModel) -> ModelResult:
    problems = [e for e in subject.entries if e.level == "error"]
    doubts = [e for e in subject.entries if e.kind in _UNDECIDED]
    status: Status = "failed" if problems else "passed"
    if not problems and any(doubt.level == "warning" for doubt in doubts):
        status, problems = "unverified", doubts
    messages = [problem.message for problem in problems]
    message = f"{status}: {first_of(messages)}" if messages else _describe_pass(subject)
    found = subject.inspection
    return ModelResult(
        str(subject.path),
        status,
        one_line(message),
        problems[0].kind if problems else None,
        subject.entries,
        [] if found is None else [operator.to_dict() for operator in found.operators],
        [_mode_document(form) for form in subject.forms],
        subject.recorded,
    )


def _describe_pass(subject: ExaminedModel) -> str:
    """Say in one line what was compared and proven."""
    parts = []
    for form in subject.forms:
        result = form.verification
        text = form.message or ("" if result is None else result.message.removeprefix("passed: "))
        if form.mode is None:
            operators = subject.inspection is not None and subject.inspection.named
            text = f"{'nothing' if operators else 'no operators'} to convert; it runs, "
            text += "with optimisations off and on"
        parts.append(f"mode {form.mode}: {text}" if len(subject.forms) > 1 else text)
    sets = dict.fromkeys(str(line["set"]) for line in subject.recorded if line["passed"])
    if sets:
        parts.append(f"matches the recorded data in {', '.join(sets)}")
    return f"passed: {'; '.join(parts)}"


def _describe_page(subject: ExaminedModel) -> Outcome:
    """Describe what the first mode changed; of a model that no mode changes, the model alone."""
    for form in subject.forms:
        if form.changed:
            made = replace(form.conversion, verification=form.verification).describe()
            if len(subject.options.modes) > 1 and made.shown is not None:
                made.shown.sides = ("before", f"after, mode {form.mode}")
            return made
    if subject.inspection is not None:
        return subject.inspection.describe()
    return Outcome("", "", "", shown=SideBySide.of(subject.source.proto, None))


def _mode_document(form: ModelForm) -> dict[str, Any]:
    result = form.verification
    return {
        "mode": form.mode,
        "changed": form.changed,
        "status": None if result is None else result.status,
        "message": form.message or (None if result is None else result.message),
        "verification": None if result is None else result.to_dict(),
    }


#: Allowed error, by the one between two forms of a model: other frameworks sum in another order, with
#: other kernels.
RECORDED_RTOL = {
    0.0: 0.0,
    RTOL[TensorProto.DOUBLE]: 1e-7,
    RTOL[TensorProto.FLOAT]: 1e-4,
    RTOL[TensorProto.FLOAT16]: 1e-2,
    RTOL[TensorProto.BFLOAT16]: 5e-2,
    RTOL_OF_8_BITS: RTOL_OF_8_BITS,
}


def compare_recorded(subject: ExaminedModel) -> None:
    """Read the recorded data, run the forms on it, and conclude what is verified."""
    for path in data_sets.find(subject.path):
        source = f"recorded:{path.name}"
        subject.progress(source)("reading recorded data")
        try:
            data = data_sets.read(path, subject.source.proto)
        except SpatialError as error:
            subject.add("error", source, str(error), "recorded-data", code=error.code)
            continue
        for name in data.unknown:
            message = f"{path}: holds {name!r}, which is no input or output of the model"
            subject.add("warning", source, message, "recorded-data")
        subject.sets.append(data)
    for form in subject.forms:
        if subject.sets and (form.message is None or form.verification is not None):
            kinds = _value_kinds(subject)
            for optimised in (False, True):
                _run_recorded(subject, form, kinds, optimised=optimised)
        _conclude_form(subject, form)


def _value_kinds(subject: ExaminedModel) -> Kinds:
    """Return how exactly each value of the original can be expected."""
    proto = subject.source.proto
    known = analysis.find(proto, subject.options.domains, subject.source.folder)
    return Kinds(proto, known, known.facts)


def _run_recorded(
    subject: ExaminedModel, form: ModelForm, kinds: Kinds, *, optimised: bool
) -> None:
    """Run a form on every data set, and add what differs."""
    subject.progress(f"verify:{form.name}")("loading")
    try:
        session = form.session(optimise=optimised)
    except RunError as error:
        if not subject.has_failed():  # else there is an entry already
            _add_run_error(
                subject, form, f"verify:{form.name}", f"it does not load: {error}", error
            )
        return
    for data in subject.sets:
        source = f"recorded:{data.name}"
        subject.progress(source)(f"running mode {form.name} on it")
        try:
            results = _compare_outputs(subject, data, session, kinds, optimised)
        except RunError as error:
            message = f"it does not run on {data.name}: {error}"
            _add_run_error(subject, form, source, message, error)
            continue
        form.matched |= any(result.passed is True for result in results)
        for result in results:
            _add_result(subject, form, data, result)


def _add_run_error(
    subject: ExaminedModel,
    form: ModelForm,
    source: str,
    message: str,
    error: RunError,
    kind: Kind = "recorded-data",
    *,
    doubted: bool = False,
) -> None:
    """Add an error, or a warning if onnxruntime lacks a kernel that the model needs, or is doubted."""
    verified = form.changed and form.verification is not None and bool(form.verification)
    if error.out_of_memory:
        subject.add(subject.level_of_unverified(form), source, message, "memory")
    elif doubted or (error.lacks_kernel and not verified):
        subject.add("warning", source, message, "unverified")
    else:
        subject.add("error", source, message, kind)


def _compare_outputs(
    subject: ExaminedModel, data: DataSet, session: Session, kinds: Kinds, optimised: bool
) -> list[OutputResult]:
    """Run a session on recorded inputs and compare its outputs with the recorded ones.

    Raises:
        RunError: the model does not run on this data.
    """
    outputs, known = session.run(data.inputs), kinds.of_values()
    found: list[OutputResult] = []
    for name, expected in data.outputs.items():
        kind = known.get(name, value_kinds.Kind())
        wide = replace(kind, rtol=RECORDED_RTOL[kind.rtol])
        results = [
            _accept_signs(r) for r in compare(name, 0, optimised, expected, outputs[name], wide)
        ]
        if not all(result.passed for result in results):
            reason = kind.random
            if not reason:
                again = compare(
                    name, 0, optimised, outputs[name], session.run(data.inputs)[name], wide
                )
                reason = "" if all(each.passed for each in again) else "it differs from run to run"
            if reason:
                results = [replace(r, passed=None, reason=f"random: {reason}") for r in results]
                _add_random(subject, f"recorded:{data.name}", name, reason)
        found += results
    return found


def _accept_signs(result: OutputResult) -> OutputResult:
    """Accept signs of zeros and kinds of NaN, which differ between frameworks and releases."""
    if result.passed or result.max_abs_error != 0 or result.max_steps is None:
        return result
    return replace(result, mismatches=0, passed=True, reason=None)


def _add_random(subject: ExaminedModel, source: str, name: str, reason: str) -> None:
    message = f"output {name!r} is random, so it cannot be compared with recorded data: {reason}"
    if not any(entry.message == message for entry in subject.entries):
        subject.add("warning", source, message, "unverified")


def _add_result(
    subject: ExaminedModel, form: ModelForm, data: DataSet, result: OutputResult
) -> None:
    """Add the figures of an output to the report, and an error if it differs."""
    figures = {k: v for k, v in plain(result).items() if k not in ("name", "run")}
    subject.recorded.append({"set": data.name, "mode": form.mode, "output": result.name, **figures})
    if result.passed is not False:
        return
    where = f"mode {form.name}, optimisations {'on' if result.optimised else 'off'}"
    message = f"output {result.name!r} ({where}) differs from the recorded data: {result.reason}"
    if form.changed and form.verification:
        rounding = "the data was recorded with other rounding, or " if result.tolerance else ""
        message += f"; the converted model was verified to equal the original, so {rounding}"
        message += "the recorded data belongs to another model"
    subject.add("error", f"recorded:{data.name}", message, "recorded-data")


def _conclude_form(subject: ExaminedModel, form: ModelForm) -> None:
    """Add what is unverified: the form was compared neither on generated nor on recorded data."""
    result = form.verification
    if result is None or result.status != "unverified":
        return
    source = f"verify:{form.name}"
    if not subject.has_failed() and (_verify_on_recorded(subject, form, source) or form.matched):
        message = f"verified on recorded data only; on generated data: {result.message}"
        subject.add("info", source, message)
        form.message = "verified on recorded data"
        return
    for problem in result.problems:
        level = subject.level_of_unverified(form)
        subject.add(level, source, problem, "memory" if result.out_of_memory else "unverified")


def _verify_on_recorded(subject: ExaminedModel, form: ModelForm, source: str) -> bool:
    """Return whether original and form are equal on recorded inputs; add what differs."""
    equal = False
    for data in subject.sets:
        if not data.dense:
            continue
        options = VerifyOptions(inputs=data.inputs, seed=subject.options.seed)
        note = subject.progress(source)
        try:
            result = verify_conversion(form.conversion, options, subject.options.domains, note)
        except UsageError as error:
            place, message = f"recorded:{data.name}", str(error)
            subject.add("error", place, message, "recorded-data", code=error.code)
            return False
        if result.status == "failed":
            subject.add_differences(source, result)
            return False
        equal |= result.status == "passed"
    return equal
