"""Where onnxruntime-extensions is not installed: everything but running Python operators works."""

from __future__ import annotations

import alone

BLOCKED = """
import sys
sys.modules["onnxruntime_extensions"] = None  # importing it fails from here on
import onnx_spatial
"""


def test_importing_does_not_load_it():
    alone.python("""
        import sys
        import onnx_spatial
        assert not any(m.startswith("onnx_spatial.custom_ops") for m in sys.modules)
        onnx_spatial.InferenceSession
        assert "onnxruntime_extensions" not in sys.modules
    """)


def test_lowering_and_sessions_go_on_without_it():
    alone.python(
        BLOCKED
        + """
assert onnx_spatial.convert(model).verification
assert onnx_spatial.InferenceSession(model).run(None, feeds)[0].sum() == x.sum()
assert not onnx_spatial.custom_ops.available()
prepared = onnx_spatial.custom_ops.prepare(model)  # it can be written, for another machine
assert onnx_spatial.InferenceSession(prepared).run(None, feeds)[0].sum() == x.sum()
assert onnx_spatial.custom_ops.explain(ValueError()) is None
"""
    )


def test_python_operators_say_what_is_missing():
    alone.python(
        BLOCKED
        + """
import onnxruntime
prepared = onnx_spatial.custom_ops.prepare(model)
for call in (
    lambda: onnx_spatial.InferenceSession(model, mode="custom-op"),
    lambda: onnx_spatial.custom_ops.register(onnxruntime.SessionOptions()),
    lambda: onnx_spatial.convert(model, mode="custom-op"),
    lambda: onnx_spatial.verify(model, prepared),
):
    try:
        call()
    except onnx_spatial.UsageError as error:
        assert "pip install onnxruntime-extensions" in str(error), error
    else:
        raise AssertionError
assert onnx_spatial.convert(model, mode="custom-op", verify=False).changed
"""
    )
