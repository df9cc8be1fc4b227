"""What lies between SpaceToBatch and BatchToSpace, without the two: dilated convolutions.

    x -> SpaceToBatch D, pads P -> Conv dilations d, pads p -> BatchToSpace D, crops Q -> y
    x -> Conv dilations D d, pads P - Q + D p -> y

Every value t between the two is SpaceToBatch of some u, and every operator is written on u instead
("unblocking"). Each such step is exact on its own, so that several convolutions, branches, gates and
residual sums need no rules of their own; an operator that cannot be had on u ends the region there.

    pad_amounts     pads and crops, known or computed at run time
    ends            blocks, pads and crops of the operators at the ends
    blocked_layout  how the axes of t hold those of u
    rules           operators that do the same to t and to u: elementwise, channels, axes
    conv            convolutions, whose dilations and pads grow
    propagate       forward: the layout of each value, and where the region ends
    demand          backward: what leads to a BatchToSpace, and how much of each value it needs
    write           the nodes on u
    cleanup         Transposes that cancel, Add as the bias of a Conv
"""

from onnx_spatial.fusion.dilated_conv.demand import find
from onnx_spatial.fusion.dilated_conv.graph_view import GraphView
from onnx_spatial.fusion.dilated_conv.region import Regions
from onnx_spatial.fusion.dilated_conv.write import UnwritableError, Written, write

__all__ = ["Regions", "UnwritableError", "GraphView", "Written", "find", "write"]
