"""The command line: `onnx-spatial inspect | convert | verify`. Parsing and rendering, no logic."""

from onnx_spatial.cli.main import main

__all__ = ["main"]
