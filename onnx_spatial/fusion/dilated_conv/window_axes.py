"""Read the spatial axes of a convolution: strides, dilations, pads, kernel sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from onnx_spatial.errors import OperatorError
from onnx_spatial.fusion.dilated_conv.graph_view import NodeView
from onnx_spatial.fusion.rule import Reason
from onnx_spatial.operators import AutoPad, ExtractPatches

#: Convolutions, with the index of the input that holds the kernel.
KERNELS = {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "QLinearConv": 3}

#: Values of auto_pad that depend on the size of the input, as `ExtractPatches` calls them.
_SAME: dict[object, AutoPad] = {"SAME_UPPER": "same_upper", "SAME_LOWER": "same_lower"}


@dataclass(frozen=True)
class Axis:
    """A spatial axis of the convolution on u.

    Attributes:
        stride, dilation: along it.
        pads: at its two ends.
        reach: (kernel size - 1) * dilation; None if unknown.
        most: the largest pad at one end that runtimes accept; None without a limit.
    """

    stride: int
    dilation: int
    pads: tuple[int, int]
    reach: int | None
    most: int | None = None


def enlarged(axis: Axis, block: int) -> Axis:
    """Return an axis on u for one on t that is split into blocks."""
    pads = (axis.pads[0] * block, axis.pads[1] * block)
    reach = None if axis.reach is None else axis.reach * block
    return replace(axis, dilation=axis.dilation * block, pads=pads, reach=reach)


def spatial_axes(node: NodeView, spatial: int) -> list[Axis] | Reason:
    """Read the spatial axes of a convolution on t and resolve its auto_pad."""
    ones = (1,) * spatial
    strides, dilations = node.integers("strides", ones), node.integers("dilations", ones)
    pads = node.integers("pads", (0,) * 2 * spatial)
    if strides is None or dilations is None or pads is None:
        return f"attributes of {node.op_type} depend on the callers of its function"
    if (len(strides), len(dilations), len(pads)) != (spatial, spatial, 2 * spatial):
        return (
            f"{node.op_type} has strides, dilations or pads that do not fit the rank of its input"
        )
    auto = node.attributes.get("auto_pad", "NOTSET")
    sizes = _kernel_sizes(node, spatial)
    if auto in _SAME:
        if sizes is None:
            return f"the kernel size of {node.op_type} is unknown, and auto_pad needs it"
        same = _same_pads(node, sizes, strides, dilations, _SAME[auto])
        if isinstance(same, str):
            return same
        pads = same
    elif auto == "VALID":
        pads = (0,) * 2 * spatial
    elif auto != "NOTSET":
        return f"auto_pad of {node.op_type} depends on the callers of its function"
    if min(pads, default=0) < 0:
        return f"{node.op_type} has negative pads"
    reaches = [None if sizes is None else (sizes[i] - 1) * dilations[i] for i in range(spatial)]
    return [
        Axis(strides[i], dilations[i], (pads[i], pads[i + spatial]), reaches[i])
        for i in range(spatial)
    ]


def _kernel_sizes(node: NodeView, spatial: int) -> tuple[int, ...] | None:
    declared = node.integers("kernel_shape", ())
    if declared:
        return declared if len(declared) == spatial else None
    if node.op_type not in KERNELS:
        return None
    dims = node.view.dims(node.input(KERNELS[node.op_type]))
    if dims is None or len(dims) != spatial + 2:
        return None
    sizes = [dim.constant for dim in dims[2:]]
    return None if None in sizes else tuple(s for s in sizes if s is not None)


def _same_pads(
    node: NodeView,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    auto_pad: AutoPad,
) -> tuple[int, ...] | str:
    dims = node.view.dims(node.input(0))
    try:
        windows = ExtractPatches(kernel, strides, dilations, auto_pad)
    except OperatorError:
        return f"kernel, strides or dilations of {node.op_type} are not legal"
    pairs = []
    for axis, stride in enumerate(strides):
        # With stride 1 every size is padded alike.
        size = 1 if stride == 1 else dims[axis + 2].constant if dims is not None else None
        if size is None:
            return f"auto_pad of {node.op_type} depends on sizes that are not known"
        pairs.append(windows.padding(axis, size))
    return (*(begin for begin, _ in pairs), *(end for _, end in pairs))
