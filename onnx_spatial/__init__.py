"""Run ONNX models with SpaceToBatch, BatchToSpace or ExtractPatches nodes, which no runtime loads.

    >>> import onnx_spatial
    >>> onnx_spatial.convert("broken.onnx", "fixed.onnx")  # standard operators, proven bit for bit

`inspect` says what is in a model, `convert` rewrites it, `verify` compares two models. Whatever the
library raises on purpose is a `SpatialError` with one clear line.
"""

from onnx_spatial.conversion import Conversion, Inspection, convert, inspect
from onnx_spatial.errors import (
    ConversionError,
    ModelFileError,
    OperatorError,
    SpatialError,
    UsageError,
    VerificationError,
)
from onnx_spatial.plan import Site
from onnx_spatial.verify import Verification, verify

__version__ = "0.1.0"

__all__ = [
    "Conversion",
    "ConversionError",
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
    "inspect",
    "verify",
]
