"""Run the command line, `onnx-spatial inspect | convert | verify | validate`.

Parsing and rendering only.
"""

from onnx_spatial.cli.main import main

__all__ = ["main"]
