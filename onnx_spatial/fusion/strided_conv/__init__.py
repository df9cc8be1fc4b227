"""Fuse ExtractPatches with the product behind it into one strided Conv.

patch_conv        the rule: what is fused, when it is faster, and the nodes
product           the sum over the channels: Conv 1x1 or MatMul, behind Transposes
window_border     the border of the image, also where sizes are unknown
"""

from onnx_spatial.fusion.strided_conv.patch_conv import RULE

__all__ = ["RULE"]
