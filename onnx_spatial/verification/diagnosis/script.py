"""Write the script of a reproducer: ten lines that run two models and say whether they differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from onnx_spatial.verification.arrays import Array, dtype_name, is_native

_TEXT = '''"""{message}

Exits with 1 and says how the two models differ, while they do. Run it where onnx-spatial is installed.
"""
import sys
from pathlib import Path

import numpy as np
{imports}

here = Path(__file__).parent
inputs = {{n: a.astype(object) if a.dtype.kind == "U" else a{restore}
          for n, a in np.load(here / "inputs.npz").items()}}
expected = evaluate(here / "original.onnx", inputs{domains})
try:
{session}
except Exception as error:
    sys.exit(f"converted.onnx does not run: {{error}}")
for name, right in expected.items():
    actual = results[name]
    if (actual.dtype, actual.shape) != (right.dtype, right.shape):
        sys.exit(f"{{name}} is {{actual.dtype}} {{actual.shape}}, not {{right.dtype}} {{right.shape}}")
    {wrong}
    if wrong.any():
        sys.exit(f"{{name}}: {{wrong.sum()}} of {{wrong.size}} {what} differ")
print("the same")
'''

_IMPORTS = """\
import onnxruntime

from onnx_spatial.verification import evaluate"""
_SESSION = """\
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_{level}
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(here / "converted.onnx", options, ["CPUExecutionProvider"])
    fed = {{i.name: inputs[i.name] for i in session.get_inputs() if i.name in inputs}}
    results = dict(zip(expected, session.run(list(expected), fed)))"""

#: onnxruntime's own interface takes no arrays of the types of ml_dtypes.
_IMPORTS_SHORT = """\
import ml_dtypes  # noqa: F401

from onnx_spatial.verification import evaluate
from onnx_spatial.verification.runtime.sessions import Session"""
_SESSION_SHORT = """\
    session = Session((here / "converted.onnx").read_bytes(), optimise={optimised})
    fed = {{n: a for n, a in inputs.items() if n in session.inputs}}
    results = session.run(fed, list(expected))"""
_RESTORE = '.view(ml_dtypes.{name}) if a.dtype.kind == "V" else a'

_BITS = (
    "wrong = np.frombuffer(actual.tobytes(), np.uint8) != np.frombuffer(right.tobytes(), np.uint8)"
)
_TEXTS = "wrong = actual != right"
_CLOSE = (
    "wrong = ~(np.abs(actual.astype(float) - right.astype(float)) <= "
    "{tolerance} * np.abs(right.astype(float)).max())"
)


def text(
    message: str,
    domains: Collection[str],
    optimised: bool,
    tolerance: float,
    feeds: Mapping[str, Array],
) -> str:
    """Return the script that shows a difference; a relative tolerance of 0 compares bits."""
    strings = any(dtype_name(a) == "string" for a in feeds.values())
    # Types that numpy has from ml_dtypes only.
    short = next((dtype_name(a) for a in feeds.values() if not is_native(a.dtype)), None)
    wrong = _TEXTS if strings else _BITS
    if tolerance:
        wrong = _CLOSE.format(tolerance=tolerance)
    level = "ENABLE_ALL" if optimised else "DISABLE_ALL"
    session = _SESSION_SHORT if short else _SESSION
    return _TEXT.format(
        message=message.replace("\\", "/").replace('"""', "'''"),
        imports=_IMPORTS_SHORT if short else _IMPORTS,
        restore=_RESTORE.format(name=short) if short else "",
        session=session.format(level=level, optimised=optimised),
        domains=f", domains={sorted(domains)!r}" if domains else "",
        wrong=wrong,
        what="elements" if tolerance or strings else "bytes",
    )
