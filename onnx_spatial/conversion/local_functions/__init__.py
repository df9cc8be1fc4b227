"""The function form of a model: spatial nodes stay, and local functions say what they mean.

    y = SpaceToBatchND(x, block_shape, paddings)        the node, as it was
    SpaceToBatchND (x, block_shape, paddings) => (y)    { Pad, Reshape, Transpose, Reshape }

`add` makes the functions, `unwrap` takes them off again and `inlined` puts their bodies in the
place of their calls. Which functions are ours is told by a metadata key on the FunctionProto; a
function of the user's own is never touched, whatever its name.
"""

from onnx_spatial.conversion.local_functions.add import MIN_IR_VERSION, Attached, add
from onnx_spatial.conversion.local_functions.inline import STRATEGY, inlined
from onnx_spatial.conversion.local_functions.metadata import MARK, Spelled, spelled
from onnx_spatial.conversion.local_functions.remove import Unwrapped, undone, unwrap

__all__ = [
    "MARK",
    "MIN_IR_VERSION",
    "STRATEGY",
    "Attached",
    "Spelled",
    "Unwrapped",
    "add",
    "inlined",
    "spelled",
    "undone",
    "unwrap",
]
