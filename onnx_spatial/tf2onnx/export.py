"""Export a TensorFlow model, convert it, and compare it with TensorFlow."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnx_spatial.api import convert
from onnx_spatial.errors import Code, ConversionError, UsageError, VerificationError
from onnx_spatial.model.io import other_formats, reader, writer
from onnx_spatial.model.io.atomic import atomic_write
from onnx_spatial.report.results import Conversion
from onnx_spatial.tf2onnx import programs
from onnx_spatial.validation import ModelResult, Options
from onnx_spatial.validation.checks.examine import examine
from onnx_spatial.verification.evaluate import ReferenceModel
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes.reference_runs import RunRequest

Array = np.ndarray[Any, Any]


@dataclass
class Export:
    """An exported model.

    Attributes:
        conversion: what `convert` did with the model of tf2onnx; `conversion.output` is the file.
        recorded: the inputs of a run, and TensorFlow's outputs, by name.
        comparison: the converted model compared with these outputs.
        record: the file that holds them, if one was written.
    """

    conversion: Conversion
    recorded: dict[str, Array]
    comparison: ModelResult
    record: Path | None = None

    @property
    def message(self) -> str:
        """The comparison with TensorFlow in one line."""
        compared = {str(line["output"]) for line in self.comparison.recorded}
        if self.comparison.status != "passed" or not compared:
            return self.comparison.message
        errors = [line["max_relative_error"] for line in self.comparison.recorded]
        worst = max((error for error in errors if error is not None), default=0.0)
        outputs = f"{len(compared)} output{'' if len(compared) == 1 else 's'}"
        how = f"at most {worst:.2g} of the largest value apart" if worst else "equal"
        return f"passed: {outputs} compared with TensorFlow, {how}"

    def to_dict(self) -> dict[str, object]:
        """version 1: message, conversion, comparison, record."""
        return {
            "version": 1,
            "message": self.message,
            "conversion": self.conversion.to_dict(),
            "comparison": self.comparison.to_dict(),
            "record": None if self.record is None else str(self.record),
        }


def export(
    source: Any,
    output: str | os.PathLike[str] | None = None,
    *,
    signature: Any = None,
    opset: int | None = None,
    record: bool = False,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Mapping[str, Array] | None = None,
    seed: int = 0,
    fuse: bool = True,
    max_rank: int | None = None,
    strategy: str | None = None,
    strict: bool = False,
    strict_proof: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Export:
    """Export a TensorFlow model with tf2onnx, convert its operators, and compare with TensorFlow.

    The converted model is verified against that of tf2onnx, as in `convert`, and its outputs are
    compared with those that TensorFlow computes from the same inputs.

    Args:
        source: path of a SavedModel, a Keras file (.keras, .h5) or a TFLite file; or a keras.Model, a
            tf.function or a ConcreteFunction.
        output: file for the result, written only if nothing failed; None: no file.
        signature: name of the signature of a SavedModel (default: serving_default), or the list of
            tf.TensorSpec of a tf.function.
        opset: of the ONNX model; None: tf2onnx's default.
        record: write inputs and TensorFlow's outputs to an .npz file beside `output`, where
            `onnx-spatial validate` finds them.
        shapes, inputs, seed, fuse, max_rank, strategy, strict, strict_proof, progress: as in `convert`.

    Raises:
        UsageError: TensorFlow or tf2onnx is not installed, or an argument is invalid.
        ModelFileError: the model cannot be read, or the result cannot be written.
        ConversionError: tf2onnx cannot export the model, or an operator cannot be converted.
        VerificationError: the converted model differs from that of tf2onnx, or from TensorFlow.
    """
    if record and output is None:
        raise UsageError("record requires output")
    target = None if output is None else Path(output)
    if target is not None:
        _check(target, record)
    progress = progress or (lambda _: None)
    progress("loading TensorFlow")
    program = programs.load(source, signature)
    progress("exporting with tf2onnx")
    original = reader.read(program.export(opset))
    conversion = convert(
        original,
        fuse=fuse,
        max_rank=max_rank,
        strategy=strategy,
        seed=seed,
        shapes=shapes,
        inputs=inputs,
        strict=strict,
        strict_proof=strict_proof,
        progress=progress,
    )
    if left := conversion.inspection.remaining:
        raise ConversionError(f"{program.name}: {left[0].message}")
    progress("running TensorFlow")
    feeds = _feeds(program.name, original, RunRequest(inputs, shapes or {}, seed, progress))
    recorded = {**feeds, **program.outputs(feeds)}
    progress("comparing with TensorFlow")
    options = Options(strict=strict, seed=seed)
    comparison = _compared(conversion, recorded, options)
    if comparison.fails(options):
        what = "differs from" if comparison.status == "failed" else "cannot be compared with"
        message = f"{program.name}: {what} TensorFlow: {comparison.message}"
        raise VerificationError(message, conversion.verification)
    done = Export(conversion, recorded, comparison)
    if target is not None:
        writer.write(conversion.result, target)
        conversion.output = target
        if record:
            done.record = target.with_suffix(".npz")
            atomic_write(done.record, _archive(recorded))
    return done


def _check(output: Path, record: bool) -> None:
    """Check that an output can be written, before TensorFlow is imported, which takes seconds.

    Raises:
        UsageError: it is a model of another format, as the one that is exported, or its own record.
        ModelFileError: it cannot be written.
    """
    _, kind = other_formats.recognise(output)
    if kind is not None:
        message = f"{output}: is {kind}, which must stay; write the result to another path"
        raise UsageError(message, code=Code.SAME_FILE)
    if record and output.suffix == ".npz":
        message = f"{output}: would be both the model and its record; call the model .onnx"
        raise UsageError(message, code=Code.SAME_FILE)
    writer.check(output, reader.Source(onnx.ModelProto()))


def _feeds(name: str, original: reader.Source, request: RunRequest) -> Mapping[str, Array]:
    """Return legal inputs of the model.

    Raises:
        ConversionError: the search finds none.
    """
    reference = ReferenceModel.before_conversion(original, ())
    try:
        return reference.first_run(request).feeds
    except RunFailure as error:
        raise ConversionError(
            f"{name}: found no inputs to compare with TensorFlow: {error}"
        ) from None
    finally:
        reference.close()


def _compared(
    conversion: Conversion, recorded: Mapping[str, Array], options: Options
) -> ModelResult:
    """Run the converted model on recorded inputs and compare it with recorded outputs."""
    with tempfile.TemporaryDirectory(prefix="onnx-spatial-") as folder:
        path = Path(folder, "model.onnx")
        writer.write(conversion.result, path)
        path.with_suffix(".npz").write_bytes(_archive(recorded))
        return examine(str(path), options)


def _archive(arrays: Mapping[str, Array]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **dict(arrays))  # type: ignore[arg-type]
    return file.getvalue()
