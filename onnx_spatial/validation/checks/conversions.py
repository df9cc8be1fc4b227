"""Convert a model in each mode in memory, and prove that it is the same model."""

from __future__ import annotations

import shlex
from pathlib import Path

import onnx

from onnx_spatial.api import Inspection, convert
from onnx_spatial.custom_ops import available
from onnx_spatial.errors import ConversionError, ModelFileError, SpatialError, UsageError
from onnx_spatial.model import op_traits
from onnx_spatial.model.io import reader
from onnx_spatial.validation.checks.subject import ExaminedModel, ModelForm
from onnx_spatial.validation.result import Kind
from onnx_spatial.verification import Verification, verify
from onnx_spatial.verification.runtime.sessions import RunFailure, Session

#: Problems of one verification that get an entry of their own.
_SHOWN = 20


def check(subject: ExaminedModel) -> None:
    """Every form that the options ask for, verified; models that stay as they are must run."""
    for mode in subject.options.modes:
        form = _converted(subject, mode)
        if form is not None and form.changed:
            _verify(subject, form)
            subject.forms.append(form)
        elif form is not None and not any(not f.changed for f in subject.forms):
            form.mode = None
            _check_plain(subject, form)
            subject.forms.append(form)


def _converted(subject: ExaminedModel, mode: str) -> ModelForm | None:
    """The model in one mode; None where it cannot be converted."""
    options, source = subject.options, f"convert:{mode}"
    subject.stage(source, f"converting in mode {mode}")
    try:
        done = convert(
            subject.path,
            mode=mode,
            fuse=options.fuse,
            max_rank=options.max_rank,
            verify=False,
            static=subject.static,
            domains=options.domains,
            strict=options.strict,
            strategy=options.strategy,
        )
    except ConversionError as error:
        _say_refusals(subject, source, error)
        return None
    except SpatialError as error:
        subject.add("error", source, str(error), _kind_of(error))
        return None
    _inspected(subject, done.inspection)
    return ModelForm(mode, done.result if done.changed else subject.source, done.changed)


def _kind_of(error: SpatialError) -> Kind:
    return "unreadable" if isinstance(error, ModelFileError) else "conversion"


def _inspected(subject: ExaminedModel, found: Inspection) -> None:
    """Note what is in the model, once."""
    if subject.inspection is not None:
        return
    subject.inspection = found
    for site in found.sites:
        if site.action == "leave" and site.reason is not None:
            message = f"{site.op_type} node {site.node!r} stays as it is: {site.reason}"
            subject.add("info", "inspect", message, nodes=(site.node,))


def _say_refusals(subject: ExaminedModel, source: str, error: ConversionError) -> None:
    sites = []
    if isinstance(error.inspection, Inspection):
        _inspected(subject, error.inspection)
        sites = error.inspection.sites
    for site in sites:
        if site.action == "refuse":
            message = f"{site.op_type} node {site.node!r} ({site.graph}): {site.reason}"
            subject.add("error", source, message, "conversion", (site.node,))
    if not any(site.action == "refuse" for site in sites):
        subject.add("error", source, str(error), "conversion")


def _verify(subject: ExaminedModel, form: ModelForm) -> None:
    """Compare a form with the original on made-up data."""
    source = f"verify:{form.name}"
    if form.mode == "custom-op" and not available():
        form.message = "Python operators need onnxruntime-extensions, which is not installed"
        subject.add("warning", source, form.message, "unverified")
        return
    try:
        form.verification = verify(
            subject.source,
            form.source,
            seed=subject.options.seed,
            shapes=subject.shapes,
            domains=subject.options.domains,
            oracles=subject.options.oracles,
            save_reproducer=_reproducer_folder(subject, form),
            progress=lambda text: subject.stage(source, text),
        )
    except UsageError as error:  # the shapes asked for do not fit
        form.message = str(error)
        subject.add("warning", source, str(error), "unverified")
    except SpatialError as error:
        form.message = str(error)
        subject.add("error", source, str(error), _kind_of(error))
    if form.verification is not None and form.verification.status == "failed":
        say_differences(subject, source, form.verification)


def _reproducer_folder(subject: ExaminedModel, form: ModelForm) -> Path | None:
    """Each form has its own; the model that stays as it is has one beside itself only."""
    if subject.reproduce_to is None:
        return None
    return subject.reproduce_to / (form.mode or "original")


def say_differences(subject: ExaminedModel, source: str, found: Verification) -> None:
    """What is wrong, one entry for each problem; the first one names its node."""
    first = found.first_difference
    node = (first.name,) if first is not None and first.kind == "site" else ()
    for number, problem in enumerate(found.problems[:_SHOWN]):
        subject.add("error", source, problem, "difference", () if number else node)
    if len(found.problems) > _SHOWN:
        subject.add(
            "error", source, f"and {len(found.problems) - _SHOWN} more problems", "difference"
        )
    if found.reproducer is not None:
        message = f"see it again with: python {shlex.quote(str(found.reproducer))}"
        subject.add("error", source, message, "difference")


def _check_plain(subject: ExaminedModel, form: ModelForm) -> None:
    """A model that no conversion changes has to load, and to give the same optimised or not."""
    subject.stage("run", "loading")
    try:
        Session(serialized(form.source), optimise=True, folder=form.source.folder)
    except RunFailure as failure:
        form.message = f"onnxruntime does not load it: {failure}"
        if failure.lacks_kernel:
            subject.add("warning", "run", form.message, "unverified")
        elif _is_valid(subject):
            form.message = f"onnxruntime does not load it, although it is valid: {failure}"
            subject.add("warning", "run", form.message, "unverified")
        else:
            subject.add("error", "run", form.message, "does-not-run")
        return
    _verify(subject, form)


def _is_valid(subject: ExaminedModel) -> bool:
    """Whether ONNX itself accepts a model: then what it needs is missing here.

    Operators newer than onnxruntime, a kernel that refuses an attribute, a locale of the system.
    """
    opset = op_traits.opset_of(subject.source.proto.opset_import)
    if opset is not None and opset > onnx.defs.onnx_opset_version():
        return False  # the checker would take the operators that it knows
    try:
        onnx.checker.check_model(subject.path, full_check=True)
    except Exception:  # of the C++ side: of the checker, of shape inference, of protobuf
        return False
    return True


def serialized(source: reader.Source) -> bytes:
    """A model for a session, which looks up the weights that are not in it in `source.folder`."""
    return source.data or reader.serialize(source.proto, source.name)
