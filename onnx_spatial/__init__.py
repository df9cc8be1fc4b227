"""Run ONNX models with SpaceToBatch, BatchToSpace or ExtractPatches nodes, which no runtime loads.

    >>> import onnx_spatial
    >>> onnx_spatial.convert("broken.onnx", "fixed.onnx")  # standard operators, proven bit for bit

or in one go, with onnxruntime's own interface:

    >>> session = onnx_spatial.InferenceSession("broken.onnx")

`inspect` says what is in a model, `convert` rewrites it, `verify` compares two models. Whatever the
library raises on purpose is a `SpatialError` with one clear line.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx_spatial.api import Conversion, Inspection, convert, inspect
from onnx_spatial.conversion.pipeline import WRITERS as _WRITERS
from onnx_spatial.conversion.pipeline import Site
from onnx_spatial.conversion.pipeline import Writer as _Writer
from onnx_spatial.errors import (
    ConversionError,
    ModelFileError,
    OperatorError,
    SpatialError,
    UsageError,
    VerificationError,
)
from onnx_spatial.operators.spellings.python_ops import DOMAIN as _PREPARED
from onnx_spatial.verification import Verification, verify
from onnx_spatial.verification.runtime.sessions import EXTENSIONS as _EXTENSIONS
from onnx_spatial.verification.runtime.sessions import Extension as _Extension

if TYPE_CHECKING:
    from onnx_spatial import custom_ops
    from onnx_spatial.custom_ops import InferenceSession

__version__ = "0.1.0"

__all__ = [
    "Conversion",
    "ConversionError",
    "InferenceSession",
    "Inspection",
    "ModelFileError",
    "OperatorError",
    "Site",
    "SpatialError",
    "UsageError",
    "Verification",
    "VerificationError",
    "__version__",
    "convert",
    "custom_ops",
    "inspect",
    "verify",
]


def _is_ours(folder: Path) -> bool:
    """Whether a folder is the top of a checkout of this project."""
    try:
        return 'name = "onnx-spatial"' in (folder / "pyproject.toml").read_text("utf-8")
    except (OSError, ValueError):
        return False


# Installed, `cli` and `custom_ops` lie in this folder; in a checkout they stand beside it.
_TOP = Path(__file__).resolve().parent.parent
if _is_ours(_TOP):
    __path__.append(str(_TOP))


def __getattr__(name: str) -> Any:
    """Sessions and custom operators are loaded when they are asked for."""
    if name in ("InferenceSession", "custom_ops"):
        import importlib

        module = importlib.import_module("onnx_spatial.custom_ops")
        return module if name == "custom_ops" else module.InferenceSession
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _register(options: Any) -> None:
    from onnx_spatial.custom_ops import registration

    registration.register_fresh(options)


def _raising() -> AbstractContextManager[None]:
    from onnx_spatial.custom_ops.running import raising

    return raising()


def _writer() -> _Writer:
    from onnx_spatial.custom_ops import prepared

    return prepared.write


# Conversion and verification stand below the custom operators, and write and run prepared models.
_WRITERS["custom-op"] = _writer
_EXTENSIONS[_PREPARED] = _Extension(_register, _raising)
