"""Run ONNX models with SpaceToBatch, BatchToSpace or ExtractPatches nodes, which no runtime loads.

    >>> import onnx_spatial
    >>> onnx_spatial.convert("broken.onnx", "fixed.onnx")  # standard operators, verified bit for bit

or in one go, with onnxruntime's own interface:

    >>> session = onnx_spatial.InferenceSession("broken.onnx")

`inspect` says what is in a model, `convert` rewrites it, `optimize` also rewrites chains of standard
nodes that are the same operators, `verify` compares two models. Whatever the
library raises on purpose is a `SpatialError` with one clear line.

The package itself imports neither onnx nor onnxruntime: what needs them is imported on first use.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onnx_spatial.errors import (
    ConversionError,
    ModelFileError,
    OperatorError,
    SpatialError,
    UsageError,
    VerificationError,
)

__version__ = "0.1.0"

__all__ = [
    "Conversion",
    "ConversionError",
    "InferenceSession",
    "Inspection",
    "ModelFileError",
    "OperatorError",
    "SpatialError",
    "UsageError",
    "Verification",
    "VerificationError",
    "VerifyOptions",
    "__version__",
    "convert",
    "custom_ops",
    "inspect",
    "optimize",
    "passes",
    "reference",
    "verify",
]

if TYPE_CHECKING:
    from onnx_spatial import custom_ops, passes, reference
    from onnx_spatial.api import convert, inspect, optimize, verify
    from onnx_spatial.custom_ops import InferenceSession
    from onnx_spatial.report.results import Conversion, Inspection
    from onnx_spatial.verification import Verification, VerifyOptions
else:
    #: Module of each attribute that is imported on first use.
    _MODULES = {
        "Conversion": "onnx_spatial.report.results",
        "InferenceSession": "onnx_spatial.custom_ops",
        "Inspection": "onnx_spatial.report.results",
        "Verification": "onnx_spatial.verification",
        "VerifyOptions": "onnx_spatial.verification",
        "convert": "onnx_spatial.api",
        "inspect": "onnx_spatial.api",
        "optimize": "onnx_spatial.api",
        "verify": "onnx_spatial.api",
    }

    def __getattr__(name: str) -> object:
        """Import an attribute on first use (PEP 562)."""
        from importlib import import_module

        if name in ("custom_ops", "passes", "reference"):
            return import_module(f"onnx_spatial.{name}")
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(import_module(_MODULES[name]), name)
        return value

    def __dir__() -> list[str]:
        """List attributes that are not imported yet as well."""
        return sorted({*globals(), *__all__})


def _is_checkout(folder: Path) -> bool:
    """Tell whether a folder is the top of a checkout of this project."""
    try:
        return 'name = "onnx-spatial"' in (folder / "pyproject.toml").read_text("utf-8")
    except (OSError, ValueError):
        return False


# Installed, `cli` and `custom_ops` lie in this folder; in a checkout they stand beside it.
_TOP = Path(__file__).resolve().parent.parent
if _is_checkout(_TOP):
    __path__.append(str(_TOP))
