"""Load TensorFlow models of every kind as functions with named inputs and outputs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnx_spatial.errors import Code, ConversionError, ModelFileError, UsageError
from onnx_spatial.model.io import other_formats
from onnx_spatial.model.io.other_formats import Format
from onnx_spatial.tf2onnx.handlers import extra_opset, handlers

Array = np.ndarray[Any, Any]

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@dataclass(frozen=True)
class Program:
    """A TensorFlow model.

    Attributes:
        name: name in messages.
        to_onnx: exports it with tf2onnx, at an opset or at tf2onnx's default.
        run: computes the outputs, by name, from inputs by name.
    """

    name: str
    to_onnx: Callable[[int | None], onnx.ModelProto]
    run: Callable[[Mapping[str, Array]], dict[str, Array]]

    def export(self, opset: int | None) -> onnx.ModelProto:
        """Return the model as tf2onnx writes it, with the spatial operators of TensorFlow.

        Raises:
            ConversionError: tf2onnx cannot export it.
        """
        try:
            return self.to_onnx(opset)
        except Exception as error:  # of many types
            message = f"{self.name}: tf2onnx cannot export it: {_reason(error)}"
            raise ConversionError(message) from error

    def outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs that TensorFlow computes.

        Raises:
            UsageError: it does not run on these inputs.
        """
        try:
            return self.run(feeds)
        except Exception as error:  # of many types
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in feeds.items())
            message = f"{self.name}: TensorFlow cannot run it on {shapes}: {_reason(error)}"
            raise UsageError(f"{message}; other shapes may help") from error


def _reason(error: Exception) -> str:
    """Return the first line of an error of TensorFlow."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def load(source: Any, signature: Any = None) -> Program:
    """Load a model.

    Args:
        source: path of a SavedModel, a Keras file or a TFLite file; a keras.Model; a tf.function with
            `signature`, or a ConcreteFunction.
        signature: name of the SavedModel's signature, or the list of tf.TensorSpec of a tf.function.

    Raises:
        UsageError: TensorFlow or tf2onnx is missing, or the source is of another kind.
        ModelFileError: TensorFlow cannot read the file.
    """
    path, kind = _path(source) if isinstance(source, str | os.PathLike) else (None, None)
    if kind in (Format.KERAS, Format.TFLITE) and signature is not None:
        raise UsageError(f"{path}: is {kind}; only SavedModels have signatures to choose from")
    try:
        import tensorflow as tf
        import tf2onnx  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"exporting needs TensorFlow and tf2onnx ({error}); "
            "install them with: pip install 'onnx-spatial[tf2onnx]'",
            code=Code.PACKAGE_MISSING,
        ) from None
    if path is None:
        return _of_object(tf, source, signature)
    try:
        if kind is Format.SAVED_MODEL:
            return _of_saved_model(tf, path, signature)
        if kind is Format.TFLITE:
            return _of_tflite(tf, path)
        return _of_keras(tf, tf.keras.models.load_model(path, compile=False), str(path))
    except UsageError:
        raise
    except Exception as error:  # of many types
        raise ModelFileError(f"{path}: TensorFlow cannot read it: {_reason(error)}") from error


def _path(source: str | os.PathLike[str]) -> tuple[Path, Format]:
    """Return the path of a model and its format, before TensorFlow is imported, which takes seconds.

    Raises:
        ModelFileError: there is no such file.
        UsageError: it is of a format that is not exported.
    """
    given = Path(source)
    if not given.exists():
        raise ModelFileError(f"{given}: cannot be read: no such file or folder")
    path, kind = other_formats.recognise(given)
    if kind in (Format.SAVED_MODEL, Format.KERAS, Format.TFLITE):
        return path, kind
    what = other_formats.advice(given) or (
        "is no SavedModel folder, Keras file or TFLite file; "
        "ONNX models are for onnx-spatial convert"
    )
    raise UsageError(f"{given}: {what}")


def _of_object(tf: Any, source: Any, signature: Any) -> Program:
    if isinstance(source, tf.keras.Model):
        return _of_keras(tf, source, source.name)
    if hasattr(source, "get_concrete_function"):
        if signature is None:
            raise UsageError("a tf.function requires its signature, a list of tf.TensorSpec")
        source = source.get_concrete_function(*signature)
    if hasattr(source, "structured_input_signature"):
        return _of_concrete(tf, source, "model")
    raise UsageError(
        "a model is the path of a SavedModel, Keras or TFLite file, a keras.Model, a tf.function or a "
        f"ConcreteFunction, not {type(source).__name__}"
    )


def _of_saved_model(tf: Any, path: Path, signature: str | None) -> Program:
    loaded = tf.saved_model.load(str(path))
    name = signature or "serving_default"
    if name not in loaded.signatures:
        names = ", ".join(sorted(loaded.signatures))
        what = f"; choose one of: {names}" if names else ", and no other; save it with signatures"
        raise UsageError(f"{path}: has no signature {name!r}{what}")
    return _of_concrete(tf, loaded.signatures[name], str(path), keep=loaded)


def _of_concrete(tf: Any, function: Any, name: str, keep: Any = None) -> Program:
    """Return a function that was traced; `keep` holds its variables."""
    positional, named = function.structured_input_signature
    if any(not isinstance(spec, tf.TensorSpec) for spec in (*positional, *named.values())):
        raise UsageError(f"{name}: takes inputs that are no tensors")
    order = [*named]

    def call(*tensors: Any) -> Any:
        assert keep is None or keep
        count = len(positional)
        return function(*tensors[:count], **dict(zip(order, tensors[count:], strict=True)))

    specs = [(spec.name or f"x{i}", spec) for i, spec in enumerate(positional)]
    return _of_call(tf, call, [*specs, *named.items()], name)


def _of_keras(tf: Any, model: Any, name: str) -> Program:
    specs = [(tensor.name, tf.TensorSpec(tensor.shape, tensor.dtype)) for tensor in model.inputs]
    outputs = list(getattr(model, "output_names", ()))

    def call(*tensors: Any) -> Any:
        result = model(tensors[0] if len(tensors) == 1 else list(tensors), training=False)
        flat = tf.nest.flatten(result)
        return (
            result
            if isinstance(result, dict) or len(flat) != len(outputs)
            else dict(zip(outputs, flat, strict=True))
        )

    return _of_call(tf, call, specs, name)


def _of_call(
    tf: Any, call: Callable[..., Any], specs: Sequence[tuple[str, Any]], name: str
) -> Program:
    """Return a callable with these inputs."""
    names = [_identifier(each) for each, _ in specs]
    signature = [
        tf.TensorSpec(spec.shape, spec.dtype, name=each)
        for each, (_, spec) in zip(names, specs, strict=True)
    ]

    def named(*tensors: Any) -> dict[str, Any]:
        result = call(*tensors)
        if not isinstance(result, dict):
            flat = tf.nest.flatten(result)
            keys = ["y"] if len(flat) == 1 else [f"y{index}" for index, _ in enumerate(flat)]
            result = dict(zip(keys, flat, strict=True))
        return {_identifier(key): value for key, value in result.items()}

    function = tf.function(named, input_signature=signature)

    def to_onnx(opset: int | None) -> onnx.ModelProto:
        import tf2onnx.convert

        model: onnx.ModelProto
        model, _ = tf2onnx.convert.from_function(
            function,
            signature,
            opset=opset,
            custom_op_handlers=handlers(),
            extra_opset=extra_opset(),
        )
        return model

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        given = [
            tf.constant(feeds[each], spec.dtype)
            for each, spec in zip(names, signature, strict=True)
        ]
        return {key: value.numpy() for key, value in function(*given).items()}

    return Program(name, to_onnx, run)


def _identifier(name: str) -> str:
    """Return a name that TensorFlow, tf2onnx and ONNX leave as it is."""
    return re.sub(r"\W", "_", name.removesuffix(":0"))


def _of_tflite(tf: Any, path: Path) -> Program:
    interpreter = tf.lite.Interpreter(model_path=str(path))

    def to_onnx(opset: int | None) -> onnx.ModelProto:
        import tf2onnx.convert

        model: onnx.ModelProto
        model, _ = tf2onnx.convert.from_tflite(
            str(path), opset=opset, custom_op_handlers=handlers(), extra_opset=extra_opset()
        )
        return model

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        inputs = interpreter.get_input_details()
        for each in inputs:
            interpreter.resize_tensor_input(each["index"], feeds[each["name"]].shape)
        interpreter.allocate_tensors()
        for each in inputs:
            interpreter.set_tensor(each["index"], feeds[each["name"]])
        interpreter.invoke()
        outputs = interpreter.get_output_details()
        return {each["name"]: interpreter.get_tensor(each["index"]) for each in outputs}

    return Program(str(path), to_onnx, run)
