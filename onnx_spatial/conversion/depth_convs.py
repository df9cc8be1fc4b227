"""Make one strided convolution of a chain that moves blocks to the channels, and the Conv behind it.

    x [N, C, H, W] -> Slices -> Concat [N, 4*C, H/2, W/2] -> Conv k, strides s, pads p
    x              -> Conv 2*k, strides 2*s, pads 2*p

The two sum up the same products. The weight is written anew: that of channel p, which is channel c at
place r of the block, goes to channel c, r behind each 2*k-th place of the kernel.

onnxruntime runs a Conv of few channels as they are, and others in blocks of up to 16 channels, which are
filled up with zeros. So an image of few channels, or of a multiple of 16, costs no more in front of the
Conv than its patches do; any other number does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx import TensorProto, numpy_helper

from onnx_spatial import analysis
from onnx_spatial.analysis import attributes
from onnx_spatial.chains.space_to_depth import Depth, DepthChain, find_depth_chains
from onnx_spatial.conversion import report
from onnx_spatial.conversion.node_editor import NodeEditor
from onnx_spatial.conversion.report import EditResult, Site
from onnx_spatial.fusion.strided_conv import STRIDED
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.replace_nodes import Draft
from onnx_spatial.model.traversal import Place

#: The largest weight that is written anew, in bytes: larger ones may stay on disk.
_MOST_BYTES = 1 << 16

#: What onnxruntime's Conv takes.
_ITEM_BYTES: dict[int, int] = {TensorProto.FLOAT: 4, TensorProto.FLOAT16: 2}

#: What is measured to be no slower: channels of the image, and places in a block and in the kernel.
_FEW_CHANNELS, _BLOCKED_CHANNELS = 7, 16
_MOST_PLACES = 16


@dataclass(frozen=True)
class _Fused:
    """A convolution in the place of a chain and a convolution: its weight and attributes."""

    chain: DepthChain
    weight: npt.NDArray[np.generic]
    attributes: dict[str, tuple[int, ...]]


def fuse_depth_convs(proto: onnx.ModelProto, folder: Path | None = None) -> EditResult:
    """Fuse chains with the convolutions behind them; `proto` stays as it is.

    Args:
        proto: the model.
        folder: where external data lies.
    """
    stored = _stored(proto)
    found = (_fused(chain, stored) for chain in find_depth_chains(proto, (), folder))
    fused = [each for each in found if each is not None]
    if not fused:
        return EditResult()
    editor = NodeEditor(proto)
    for each in fused:
        place, conv = each.chain.place, each.chain.conv
        draft = _draft(each, editor.node(place, conv), _source(each.chain, editor))
        editor.replace(place, conv, draft, _site(each), conv.input[:2])
    return editor.result()


def _stored(proto: onnx.ModelProto) -> dict[tuple[Place, str], onnx.TensorProto]:
    """Return the initializers of each graph that no input overrides."""
    fed = {v.name for v in proto.graph.input} if proto.ir_version >= 4 else set[str]()
    return {
        (place, tensor.name): tensor
        for place, graph in traversal.graphs(proto)
        for tensor in getattr(graph, "initializer", ())
        if tensor.name not in fed
    }


def _source(chain: DepthChain, editor: NodeEditor) -> ir.Value:
    """Return the image that the chain reads."""
    nodes = (editor.node(chain.place, message) for message in chain.nodes)
    values = (value for node in nodes for value in node.inputs if value is not None)
    return next(value for value in values if value.name == chain.source)


def _fused(chain: DepthChain, stored: dict[tuple[Place, str], onnx.TensorProto]) -> _Fused | None:
    """Return the convolution in the place of a chain and its reader; None if it might be slower."""
    depth, block = chain.depth, chain.depth.block
    tensor = stored.get((chain.place, chain.conv.input[1])) if len(chain.conv.input) > 1 else None
    if tensor is None or tensor.data_location != TensorProto.DEFAULT:
        return None
    kernel, known = tuple(tensor.dims[2:]), attributes(chain.conv)
    if tensor.data_type not in _ITEM_BYTES or not _is_no_slower(depth, kernel):
        return None
    if math.prod(tensor.dims) * _ITEM_BYTES[tensor.data_type] > _MOST_BYTES:
        return None
    if tensor.dims[1] != len(depth.channels) or known.get("group", 1) != 1:
        return None
    padding = known.get("auto_pad", "NOTSET")
    strides, dilations = (
        _integers(known, name, 1, len(block)) for name in ("strides", "dilations")
    )
    pads = _integers(known, "pads", 0, 2 * len(block))
    if strides is None or dilations is None or pads is None or padding not in ("NOTSET", "VALID"):
        return None
    if known.get("kernel_shape", kernel) != kernel:
        return None
    if any(d != 1 for d, k in zip(dilations, kernel, strict=True) if k > 1):
        return None
    new = {"kernel_shape": _times(kernel, block), "strides": _times(strides, block)}
    if padding == "NOTSET":  # VALID ignores pads
        new["pads"] = _times(pads, (*block, *block))
    return _Fused(chain, _kernel(numpy_helper.to_array(tensor), depth), new)


def _times(numbers: Sequence[int], factors: Sequence[int]) -> tuple[int, ...]:
    return tuple(n * f for n, f in zip(numbers, factors, strict=True))


def _integers(
    known: Mapping[str, object], name: str, default: int, count: int
) -> tuple[int, ...] | None:
    """Return an attribute of some integers; None if it is no such one or depends on callers."""
    values = known.get(name, (default,) * count)
    return values if isinstance(values, tuple) and len(values) == count else None


def _is_no_slower(depth: Depth, kernel: tuple[int, ...]) -> bool:
    """Return whether the new convolution takes no longer than the old one, as measured."""
    channels, places = max(depth.channels) + 1, math.prod(depth.block)
    if places > _MOST_PLACES or not len(kernel) == len(depth.block) == 2:
        return False
    return channels <= _FEW_CHANNELS or (channels % _BLOCKED_CHANNELS == 0 and max(kernel) <= 3)


def _kernel(weight: npt.NDArray[np.generic], depth: Depth) -> npt.NDArray[np.generic]:
    """Return the weight [output channels, C, block * kernel ..] for that of the chain's channels."""
    sizes = [k * b for k, b in zip(weight.shape[2:], depth.block, strict=True)]
    result = np.zeros((len(weight), max(depth.channels) + 1, *sizes), weight.dtype)
    for number, (channel, place) in enumerate(zip(depth.channels, depth.places, strict=True)):
        spots = [slice(p, None, b) for p, b in zip(place, depth.block, strict=True)]
        result[(slice(None), slice(channel, channel + 1), *spots)] = weight[:, number : number + 1]
    return result


def _draft(fused: _Fused, conv: ir.Node, source: ir.Value) -> Draft:
    draft = Draft(conv)
    weight = draft.constant(np.ascontiguousarray(fused.weight), "weight")
    node = ir.node("Conv", [source, weight, *conv.inputs[2:]], fused.attributes)
    draft.nodes.append(node)
    draft.results[conv.outputs[0]] = node.outputs[0]
    draft.successor = node
    return draft


def _site(fused: _Fused) -> Site:
    """Report a chain that became part of a convolution."""
    chain = fused.chain
    labels = [traversal.label(node) for node in chain.nodes]
    dtype = analysis.dtype_name(numpy_helper.from_array(fused.weight).data_type)
    return Site(
        node=labels[-1],
        graph=str(chain.place),
        op_type=chain.nodes[-1].op_type,
        domain="",
        dialect=report.CHAIN,
        action="lower",
        reason=None,
        strategy=STRIDED,
        element_type=dtype,
        input_shape=chain.input_shape,
        output_shape=chain.output_shape,
        output=chain.nodes[-1].output[0],
        nodes_before=len(labels) + 1,
        nodes_after=1,
        absorbed=(*labels[:-1], traversal.label(chain.conv)),
    )
