"""Run spatial operators as Python operators in onnxruntime, through onnxruntime-extensions.

    >>> model = onnx_spatial.custom_ops.prepare("model.onnx")
    >>> options = onnxruntime.SessionOptions()
    >>> onnx_spatial.custom_ops.register(options)
    >>> session = onnxruntime.InferenceSession(model.SerializeToString(), options)

or `onnx_spatial.InferenceSession("model.onnx", mode="custom-op")`, which does this and raises the
errors of operators as Python exceptions.
"""

from onnx_spatial.custom_ops.session import InferenceSession as InferenceSession
from onnx_spatial.custom_ops.session import prepare
from onnx_spatial.python_ops.registration import available, explain, raising, register

__all__ = [
    "available",
    "explain",
    "prepare",
    "raising",
    "register",
]
