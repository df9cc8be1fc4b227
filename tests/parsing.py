"""Models written as text, in onnx's own language for them, and data for their images."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import parser

HEAD = '<ir_version: {ir}, opset_import: ["" : {opset}, "com.microsoft" : 1, "local" : 1]>\n'


def model(text: str, ir: int = 9, opset: int = 17) -> onnx.ModelProto:
    """Parse a graph and functions in which M. stands for the domain of the operators."""
    return parser.parse_model(
        HEAD.format(ir=ir, opset=opset) + text.replace("M.", "com.microsoft.")
    )


def image(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """Count from 1."""
    return np.arange(1, np.prod(shape) + 1).astype(dtype).reshape(shape)
