"""Follow the sizes of patches as polynomials, and write the shapes that a graph reads of them."""

from __future__ import annotations

import onnx_ir as ir

from onnx_spatial.fusion.matcher import MatchedOp, Matcher
from onnx_spatial.fusion.strided_conv.axis_groups import AxisGroups
from onnx_spatial.fusion.strided_conv.axis_path import Order
from onnx_spatial.lowering import Emitter
from onnx_spatial.lowering.core.builder import Size
from onnx_spatial.maps.open_case import OpenArithmetic, OpenCase
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.operators import ExtractPatches


def order_of(patches: ExtractPatches) -> Order:
    """Return the order of the axes of [N, C, spatial..], in the image as in the patches."""
    axes = tuple(range(patches.rank))
    return axes if patches.layout == "channels_first" else (0, *axes[2:], 1)


def axes_of(subject: MatchedOp, patches: ExtractPatches, matcher: Matcher) -> AxisGroups:
    """Return the axes of the patches, and note their sizes for shapes that are computed from them."""
    message, sizes = matcher.message(subject.node), matcher.sizes(subject.node)
    shape = subject.request.shape
    assert message is not None and shape is not None
    known = sizes.dims(message.input[0]) if sizes is not None else None
    if known is None or len(known) != len(shape):
        node = subject.node
        known = tuple(Polynomial.atom((node, a), nonnegative=True) for a in range(len(shape)))
    image = [dim if isinstance(dim, int) else size for dim, size in zip(shape, known, strict=True)]
    case = OpenCase() if sizes is None else sizes.case
    arithmetic = OpenArithmetic(case)
    dims = [Polynomial.of(0) + size for size in patches.output_dims(arithmetic, image)]
    if sizes is not None:
        sizes.note(message.output[0], dims)
    order = order_of(patches)
    in_order = tuple(dims[order.index(axis)] for axis in range(patches.rank))
    nonzero = frozenset(a for a, size in enumerate(in_order) if case.surely(size - 1))
    return AxisGroups(tuple((axis,) for axis in order), in_order, nonzero)


def write_shape(
    subject: MatchedOp,
    patches: ExtractPatches,
    source: tuple[ir.Value, Order],
    axes: AxisGroups,
    emit: Emitter,
) -> list[Size]:
    """Compute the dims of a value with these axes, which need not exist.

    `source` is the image, or the input of a Transpose in front of it, with the order of its axes.
    """
    value, places = source
    shape = subject.request.shape
    assert shape is not None
    order = order_of(patches)
    image: list[Size] = [
        dim if isinstance(dim, int) else emit.length(value, places.index(order[axis]))
        for axis, dim in enumerate(shape)
    ]
    sizes = patches.output_dims(emit, image)
    return [emit.product([sizes[order.index(axis)] for axis in group]) for group in axes.groups]
