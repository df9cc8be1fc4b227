"""Turn SpaceToBatch -> Conv -> BatchToSpace back into dilated convolutions.

    x -> SpaceToBatch D, pads P -> Conv dilations d, pads p -> BatchToSpace D, crops Q -> y
    x -> Conv dilations D d, pads P - Q + D p -> y

A *region* is all that lies between SpaceToBatch and BatchToSpace. Every *value in blocks* t in it is
SpaceToBatch of some u, and every node is written on u instead ("unblocking"). Each such step is exact
on its own, so several convolutions, branches, gates and residual sums need no rules of their own; a
node that cannot be written on u ends the region.

    pad_amounts     calculate with pads and crops, known or computed at run time
    amount_vectors  write those that are computed at run time, as vectors
    pad_slice       write the Pads and Slices between what is computed of a value and what is needed
    blocked_shape   write the shape of a value in blocks
    blocked_layout  how the axes of t hold those of u
    rules           rewrite a node on u, by operator type: elementwise, channels, axes
    conv            convolutions, whose dilations and pads grow
    nested          a SpaceToBatch and BatchToSpace inside a region
    region          the operators at the ends with their pads and crops, and the nodes between
    propagate       forward: the layout of each value, and where the region ends
    demand          backward: the nodes that lead to a BatchToSpace, and how much of each value it needs
    write           draft the nodes on u
    fuse            all of this for one graph
"""

from onnx_spatial.fusion.dilated_conv.fuse import fuse
from onnx_spatial.fusion.dilated_conv.graph_view import GraphView
from onnx_spatial.fusion.dilated_conv.region import Regions
from onnx_spatial.fusion.dilated_conv.write import RegionEdit

__all__ = ["GraphView", "RegionEdit", "Regions", "fuse"]
