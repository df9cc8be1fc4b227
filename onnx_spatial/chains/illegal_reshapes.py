"""Read the patches of tf2onnx that no runtime loads.

tf2onnx writes ExtractImagePatches as a one-hot Conv on [N*C, H, W, 1]. It computes these sizes when it
exports, and takes -1 for sizes that it does not know: with an unknown batch and three channels the shape
starts with -1 * 3. "Invalid dimension value: -3" is onnxruntime's answer (tensorflow-onnx#2403); with an
unknown height and width, too, several sizes are -1.

    x [n, h, w, 3] -> Transpose -> Reshape [-3, h, w, 1] -> Conv -> Reshape [-1, 3, ..] -> ...

With SAME it fails in the middle, too: the Conv has TensorFlow's order of axes, and no pads. What is
meant follows from the sizes in front of the Reshape. With legal shapes in their place the nodes are
patches, which is proven as for other chains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnx_spatial.analysis import find as find_operators
from onnx_spatial.maps.elements import Array
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.remove_unused import remove_unused
from onnx_spatial.model.inference import constant_folding
from onnx_spatial.operators.spellings import OP_TYPES
from onnx_spatial.operators.spellings.chain_ops import DOMAIN

if TYPE_CHECKING:
    from onnx_spatial.chains.find_chains import Chain
    from onnx_spatial.chains.one_hot import Weights

#: What is wrong with the operator in the file.
ILLEGAL = (
    "no runtime loads it as it is: tf2onnx wrote it with an illegal Reshape, because the batch or other "
    "sizes are unknown"
)


@dataclass(frozen=True)
class Repaired:
    """A model with operators in the place of patches that do not load.

    Attributes:
        model: the model; the given one if it has no such patches.
        outputs: the graphs and outputs of these operators.
        domains: the domain of the operators, if it is none of a converter.
    """

    model: onnx.ModelProto
    outputs: frozenset[tuple[str, str]] = frozenset()
    domains: frozenset[str] = frozenset()


def with_legal_patches(proto: onnx.ModelProto, folder: Path | None = None) -> Repaired:
    """Put named operators in the place of patches with an illegal Reshape; `proto` stays as it is.

    Args:
        proto: the model.
        folder: where external data lies.
    """
    illegal = _find_illegal(proto)
    if not illegal:
        return Repaired(proto)
    # Imported late: `convert` calls this for every model, and hardly any has an illegal Reshape.
    from onnx_spatial.chains.find_chains import list_chains, with_operators
    from onnx_spatial.chains.one_hot import Weights

    legal = onnx.ModelProto()
    legal.CopyFrom(proto)
    del legal.graph.value_info[:]  # derived from the illegal shapes
    weights = Weights(proto, folder)
    for place, graph in traversal.graphs(legal):
        _make_legal(place, graph, illegal, weights)
    found = [
        replace(chain, patches=chain.patches.channels_last())
        for chain in list_chains(legal, find_operators(legal, (), folder), folder)
        if chain.one_hot and chain.patches is not None and _is_meant(chain, illegal)
    ]
    if not found or len(illegal) > sum(len(_illegal_reshapes(chain, illegal)) for chain in found):
        return Repaired(proto)  # another Reshape would keep the model from loading
    named, outputs = with_operators(legal, found)
    _remove_unread(named, legal)
    computed = {name for node in named.graph.node for name in node.output}
    named.graph.value_info.extend(v for v in proto.graph.value_info if v.name in computed)
    places = [str(chain.place) for chain in found]
    domains = frozenset[str]() if _spell_as_tensorflow(named) else frozenset({DOMAIN})
    return Repaired(named, frozenset(zip(places, outputs, strict=True)), domains)


_Illegal = dict[tuple[traversal.Place, str], tuple[int, ...]]


class _StoredScope(constant_folding.ConstantScope):
    """Values that are stored, none that nodes compute."""

    foldable = frozenset[str]()


def _find_illegal(proto: onnx.ModelProto) -> _Illegal:
    """Return the shapes of Reshapes that no run can have, by graph and output."""
    found: _Illegal = {}
    scopes = constant_folding.scopes(proto, _StoredScope)
    for (place, graph), (scope, _) in zip(traversal.graphs(proto), scopes, strict=True):
        for node in graph.node:
            # Before opset 5 the shape is an attribute.
            if node.op_type != "Reshape" or not op_traits.is_standard(node) or len(node.input) < 2:
                continue
            value = scope.value(node.input[1])
            if value is not None and value.dtype == np.int64 and value.ndim == 1:
                shape = tuple(value.tolist())
                if min(shape, default=0) < -1 or shape.count(-1) > 1:
                    found[place, node.output[0]] = shape
    return found


def _is_meant(chain: Chain, illegal: _Illegal) -> bool:
    """Return whether the illegal sizes of a chain are those of tf2onnx.

    In front of the Conv one may be the channels times -1, for the batch; all others are -1.
    """
    kinds = [node.op_type for node in chain.nodes]
    strange: list[int] = []
    for position, node in enumerate(chain.nodes):
        shape = illegal.get((chain.place, node.output[0]), ())
        sizes = [-size for size in shape if size < -1]
        if sizes and position > kinds.index("Conv"):
            return False
        strange += sizes
    known = chain.patches is not None and strange in ([], [chain.patches.channels])
    return known and bool(_illegal_reshapes(chain, illegal))


def _illegal_reshapes(chain: Chain, illegal: _Illegal) -> set[str]:
    names = {name for node in chain.nodes for name in node.output}
    return {name for place, name in illegal if place == chain.place and name in names}


def _make_legal(
    place: traversal.Place, graph: traversal.GraphLike, illegal: _Illegal, weights: Weights
) -> None:
    """Give Reshapes the shapes that are meant, and Convs behind them the layout and pads."""
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        shape = illegal.get((place, node.output[0])) if node.output else None
        if node.op_type == "Conv" and (place, node.input[0]) in illegal:
            weight = weights.array(place, node.input[1])
            padded = any(a.name in ("auto_pad", "pads") for a in node.attribute)
            if weight is not None and not padded and _is_channels_last(weight):
                nodes += _channels_first(node)
                continue
        if shape is not None:
            name = f"{node.output[0]}/legal"
            nodes += _shape_nodes(node.input[0], shape, name)
            node.input[1] = name
        nodes.append(node)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _is_channels_last(weight: Array) -> bool:
    """Return whether a weight is one-hot in TensorFlow's order, [height, width, 1, height * width]."""
    if weight.ndim != 4 or weight.shape[2] != 1 or max(weight.shape[:2]) < 2:
        return False
    count = weight.shape[0] * weight.shape[1]
    if weight.shape[3] != count:
        return False  # before the identity takes count * count numbers of memory
    return bool((weight.reshape(count, count) == np.eye(count)).all())


def _channels_first(conv: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return the Conv that is meant by one that tf2onnx left in TensorFlow's order.

    Where the rank of its data is unknown, tf2onnx stops between SAME and the change of layout: the pads
    are lost. With VALID it does not stop.
    """
    data, weight, result = (f"{conv.output[0]}/{name}" for name in ("data", "weight", "result"))
    legal = onnx.NodeProto.FromString(conv.SerializeToString())
    legal.input[:] = [data, weight]
    legal.output[:] = [result]
    legal.attribute.append(helper.make_attribute("auto_pad", "SAME_UPPER"))
    return [
        helper.make_node("Transpose", [conv.input[0]], [data], perm=[0, 3, 1, 2]),
        helper.make_node("Transpose", [conv.input[1]], [weight], perm=[3, 2, 0, 1]),
        legal,
        helper.make_node("Transpose", [result], [conv.output[0]], perm=[0, 2, 3, 1]),
    ]


def _shape_nodes(source: str, shape: Sequence[int], name: str) -> list[onnx.NodeProto]:
    """Return nodes that compute a shape: the first unknown size is -1, the others are of the source.

    These are next to each other, as the windows: the last ones of [N, C, H, W] for [-3, -1, -1, 1],
    those behind the first of [N*C, h, w, 9] for [-1, 3, -1, -1, 9].
    """
    first, *others = (i for i, size in enumerate(shape) if size < 0)
    at_end = math.prod(shape[others[-1] + 1 :]) == 1 if others else True
    nodes = [helper.make_node("Shape", [source], [f"{name}/sizes"])] if others else []
    parts: list[str] = []
    for i, size in enumerate(shape):
        parts.append(f"{name}/{i}")
        if i not in others:
            value = np.array([-1 if i == first else size], np.int64)
        else:
            place = others.index(i)
            value = np.array([place - len(others) if at_end else place + 1], np.int64)
        constant = parts[-1] if i not in others else f"{parts[-1]}/axis"
        tensor = numpy_helper.from_array(value)
        nodes.append(helper.make_node("Constant", [], [constant], value=tensor))
        if i in others:
            inputs = [f"{name}/sizes", constant]
            nodes.append(helper.make_node("Gather", inputs, [parts[-1]], axis=0))
    nodes.append(helper.make_node("Concat", parts, [name], axis=0))
    return nodes


def _remove_unread(named: onnx.ModelProto, legal: onnx.ModelProto) -> None:
    """Remove what only nodes of the chains read."""
    read: dict[traversal.Place, set[str]] = {}
    for place, graph in traversal.graphs(legal):
        read[place] = {name for node in graph.node for name in traversal.needs(node)}
    remove_unused(traversal.Index(named), read)


def _spell_as_tensorflow(named: onnx.ModelProto) -> bool:
    """Move the operators to the default domain, where tf2onnx leaves them; return whether all can."""
    nodes = [node for _, _, node in traversal.nodes(named) if node.domain == DOMAIN]
    if any(node.op_type not in OP_TYPES for node in nodes):
        return False
    for node in nodes:
        node.domain = ""
    imports = [entry for entry in named.opset_import if entry.domain != DOMAIN]
    del named.opset_import[:]
    named.opset_import.extend(imports)
    return True
