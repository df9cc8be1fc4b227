"""Convert a model in memory in each mode, and verify the result against the original."""

from __future__ import annotations

import shlex
from typing import Any

import onnx

from onnx_spatial.api import convert
from onnx_spatial.conversion.options import Mode
from onnx_spatial.custom_ops import available
from onnx_spatial.errors import ConversionError, ModelFileError, SpatialError, UsageError
from onnx_spatial.model import op_traits
from onnx_spatial.model.io import reader
from onnx_spatial.optimization import optimize, verify_with_chains
from onnx_spatial.report.results import Inspection
from onnx_spatial.validation.checks.subject import ExaminedModel, ModelForm
from onnx_spatial.validation.result import Kind, Level
from onnx_spatial.verification import Verification
from onnx_spatial.verification.runtime.sessions import RunFailure, Session

#: Number of problems of a verification that get an entry of their own.
_SHOWN = 20


def check(subject: ExaminedModel) -> None:
    """Convert in every mode and verify; a model that conversion does not change must run."""
    for mode in subject.options.modes:
        form = _convert(subject, mode)
        if form is None:
            continue
        if form.changed:
            _verify(subject, form)
            subject.forms.append(form)
        elif all(f.changed for f in subject.forms):
            form.mode = None
            _check_unchanged(subject, form)
            subject.forms.append(form)


def _convert(subject: ExaminedModel, mode: Mode) -> ModelForm | None:
    """Convert the model in one mode; None if that fails."""
    options, source = subject.options, f"convert:{mode}"
    subject.stage(source, "optimizing" if options.optimize else f"converting in mode {mode}")
    common: dict[str, Any] = {
        "max_rank": options.max_rank,
        "verify": False,
        "static": subject.static,
        "domains": options.domains,
        "strict": options.strict,
        "strategy": options.strategy,
    }
    try:
        if options.optimize:
            done = optimize(subject.path, **common)
        else:
            done = convert(subject.path, mode=mode, fuse=options.fuse, **common)
    except ConversionError as error:
        _add_refusals(subject, source, error)
        return None
    except SpatialError as error:
        subject.add("error", source, str(error), _kind_of(error), code=error.code)
        return None
    _set_inspection(subject, done.inspection)
    return ModelForm(mode, done.result if done.changed else subject.source, done)


def _kind_of(error: SpatialError) -> Kind:
    return "unreadable" if isinstance(error, ModelFileError) else "conversion"


def _set_inspection(subject: ExaminedModel, inspection: Inspection) -> None:
    """Keep the inspection of the first mode, and add the operators that are not converted."""
    if subject.inspection is not None:
        return
    subject.inspection = inspection
    for site in inspection.sites:
        if site.action == "leave" and site.reason is not None:
            message = f"{site.op_type} node {site.node!r} stays as it is: {site.reason}"
            subject.add("info", "inspect", message, nodes=(site.node,))


def _add_refusals(subject: ExaminedModel, source: str, error: ConversionError) -> None:
    """Add an error for each operator that is refused, or the error itself if there is none."""
    refused = []
    if isinstance(error.inspection, Inspection):
        _set_inspection(subject, error.inspection)
        refused = [site for site in error.inspection.sites if site.action == "refuse"]
    for site in refused:
        message = f"{site.op_type} node {site.node!r} ({site.graph}): {site.reason}"
        subject.add("error", source, message, "conversion", (site.node,), site.code)
    if not refused:
        subject.add("error", source, str(error), "conversion", code=error.code)


def _verify(subject: ExaminedModel, form: ModelForm) -> None:
    """Compare a form with the original on generated data; with strict_proof it must be proven."""
    source = f"verify:{form.name}"
    unverified: Level = "error" if subject.options.strict_proof else "warning"
    if form.mode == "custom-op" and not available():
        form.message = "Python operators need onnxruntime-extensions, which is not installed"
        subject.add(unverified, source, form.message, "unverified")
        return
    try:
        form.verification = verify_with_chains(
            subject.source,
            form.conversion.named,
            form.source,
            inputs=subject.inputs,
            seed=subject.options.seed,
            shapes=subject.shapes,
            domains=subject.options.domains,
            oracles=subject.options.oracles,
            rtol=subject.tolerances.rtol,
            atol=subject.tolerances.atol,
            outputs_only=subject.options.outputs_only,
            save_reproducer=subject.reproduce_to
            and subject.reproduce_to / (form.mode or "original"),
            progress=lambda text: subject.stage(source, text),
        )
    except UsageError as error:  # the shapes of the options do not fit
        form.message = str(error)
        subject.add(unverified, source, str(error), "unverified")
    except SpatialError as error:
        form.message = str(error)
        subject.add("error", source, str(error), _kind_of(error), code=error.code)
    if form.verification is not None and form.verification.status == "failed":
        add_differences(subject, source, form.verification)
    elif form.verification is not None and subject.options.strict_proof:
        for site in form.verification.sites:
            if site.unproven is not None:
                subject.add("error", source, site.unproven, "unverified", (site.node,))


def add_differences(subject: ExaminedModel, source: str, result: Verification) -> None:
    """Add an error for each problem of a verification; the first one names its node."""
    first = result.first_difference
    node = (first.name,) if first is not None and first.kind == "site" else ()
    messages = result.problems[:_SHOWN]
    if len(result.problems) > _SHOWN:
        messages.append(f"and {len(result.problems) - _SHOWN} more problems")
    if result.reproducer is not None:
        messages.append(f"reproduce it with: python {shlex.quote(str(result.reproducer))}")
    for number, message in enumerate(messages):
        subject.add("error", source, message, "difference", () if number else node)


def _check_unchanged(subject: ExaminedModel, form: ModelForm) -> None:
    """Load a model that conversion does not change, and compare its outputs optimised and not."""
    subject.stage("run", "loading")
    try:
        Session(serialized(form.source), optimise=True, folder=form.source.folder)
    except RunFailure as failure:
        valid = not failure.lacks_kernel and _is_valid(subject)
        although = ", although onnx.checker accepts it" if valid else ""
        form.message = f"onnxruntime does not load it{although}: {failure}"
        if failure.lacks_kernel or valid:
            subject.add("warning", "run", form.message, "unverified")
        else:
            subject.add("error", "run", form.message, "does-not-run")
        return
    _verify(subject, form)


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


def serialized(source: reader.Source) -> bytes:
    """Serialize a model for a session, which reads external data from `source.folder`."""
    return source.data or reader.serialize(source.proto, source.name)
