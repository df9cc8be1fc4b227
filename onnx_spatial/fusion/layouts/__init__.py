"""Remove changes of layout next to fused nodes: Transpose, Squeeze and Unsqueeze.

    Conv -> Squeeze -> Transpose -> Add -> Transpose -> Unsqueeze -> Conv
    Conv -> Add -> Conv

Converters change the layout around every spatial operator and every convolution of signals. Without the
spatial operators these changes meet, with only operators between them that do the same in any layout.

    layout          change of the order of the axes and of axes of size 1
    layout_graph    a graph as values, and the layouts in which they are read
    commuting       operators that commute with a change of layout
    push            choose the nodes that are written in another layout
    write           draft them
    conv_bias       fold Add into the bias of a Conv
"""

from onnx_spatial.fusion.layouts.conv_bias import with_bias
from onnx_spatial.fusion.layouts.layout_graph import LayoutGraph
from onnx_spatial.fusion.layouts.write import with_fewer_changes

__all__ = ["LayoutGraph", "with_bias", "with_fewer_changes"]
