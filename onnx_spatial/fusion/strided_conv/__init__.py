"""Fuse ExtractPatches with the sum of products behind it into one strided Conv.

patch_conv        the rule: what is fused, when it is faster, and the nodes
channel_sum       the sum over the channels: Conv 1x1, MatMul, Gemm
axis_path         Reshapes, Transposes and the like in front of it and behind it
axis_groups       axes as the factors of a Reshape
patch_axes        axes of the image, and of the patches
window_border     the border of the image, also where sizes are unknown
regroup           the nodes that bring the result into its shape
"""

from onnx_spatial.fusion.strided_conv.patch_conv import RULE

__all__ = ["RULE"]
