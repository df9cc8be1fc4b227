"""What lies between SpaceToBatch and BatchToSpace, without the two: dilated convolutions.

    x -> SpaceToBatch D, pads P -> Conv dilations d, pads p -> BatchToSpace D, crops Q -> y
    x -> Conv dilations D d, pads P - Q + D p -> y

Every value t between the two is SpaceToBatch of some u, and every operator is written on u instead
("unblocking"). Each such step is exact on its own, so that several convolutions, branches, gates and
residual sums need no rules of their own; an operator that cannot be had on u ends the region there.

    amounts      pads and crops, known or computed at run time
    ends         what the operators at the ends say of them
    blocked      how t stands for u
    commuting    operators that do the same to t and to u: elementwise, channels, axes
    convolution  convolutions, whose dilations and pads grow
    follow       forward: how each value is blocked, and where that ends
    find         backward: what leads to a BatchToSpace, and what is needed of each value
    write        the nodes on u
"""

from onnx_spatial.fusion.regions.find import find
from onnx_spatial.fusion.regions.region import Regions
from onnx_spatial.fusion.regions.view import View
from onnx_spatial.fusion.regions.write import UnwritableError, Written, write

__all__ = ["Regions", "UnwritableError", "View", "Written", "find", "write"]
