"""Export TensorFlow models through tf2onnx, with the spatial operators converted and verified.

    >>> onnx_spatial.tf2onnx.export("saved_model", "model.onnx")

or with tf2onnx's own functions, which then leave the operators in a form that `convert` reads:

    >>> model, _ = tf2onnx.convert.from_keras(net, custom_op_handlers=onnx_spatial.tf2onnx.handlers())
    >>> onnx_spatial.convert(model, "model.onnx")

TensorFlow and tf2onnx are imported by `export` only; the extra `onnx-spatial[tf2onnx]` installs both.
"""

from onnx_spatial.tf2onnx.export import Export, export
from onnx_spatial.tf2onnx.handlers import DOMAIN, OP_TYPES, extra_opset, handlers

__all__ = ["DOMAIN", "OP_TYPES", "Export", "export", "extra_opset", "handlers"]
