"""Inline the functions of a model, and still tell which node is which site."""

from __future__ import annotations

from collections.abc import Collection

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.model.inference import functions, shape_inference
from onnx_spatial.verification.runtime.same_padding import may_be_refused
from onnx_spatial.verification.runtime.sessions import RunFailure, first_line


class FlatModel:
    """A model without functions (`proto`), as far as they can be inlined; sites are by position.

    Raises:
        RunFailure: the functions cannot be inlined.
    """

    def __init__(self, model: onnx.ModelProto, sites: Collection[int]) -> None:
        # Nodes are recognised by their id, which holds as long as their messages are kept.
        self._nodes = list(traversal.nodes(model))
        self._sites = {id(self._nodes[i][2]): i for i in sites}
        self._convolutions = {
            id(node): i for i, (_, _, node) in enumerate(self._nodes) if may_be_refused(node)
        }
        self.proto = self._inlined(model) if model.functions else model

    def _inlined(self, model: onnx.ModelProto) -> onnx.ModelProto:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        marked = {*self._sites.values(), *self._convolutions.values()}
        for index, (_, _, node) in enumerate(list(traversal.nodes(copy))):
            take_number(node)
            if index in marked:  # every inlined copy of the node has the attribute, too
                node.attribute.append(onnx.helper.make_attribute(shape_inference.NUMBER, index))
        try:
            flat = functions.inline(copy)
        except Exception as error:  # of the C++ side, without a type of its own
            reason = f"its functions cannot be inlined: {first_line(error)}"
            raise RunFailure(reason, "load") from None
        convolutions = set(self._convolutions.values())
        self._flat_nodes = list(traversal.nodes(flat))
        for place, _, node in self._flat_nodes:
            number = take_number(node)
            if number in convolutions:
                self._convolutions[id(node)] = number
            elif number is not None and place.function is not None:
                raise RunFailure(f"{place} has spatial operators and cannot be inlined", "load")
            elif number is not None:
                self._sites[id(node)] = number
        return flat

    def site_of(self, node: onnx.NodeProto) -> int | None:
        """Return the position in the original of a spatial operator; None for other nodes."""
        return self._sites.get(id(node))

    def convolution_of(self, node: onnx.NodeProto) -> int | None:
        """Return the position in the original of a convolution that onnxruntime may refuse."""
        return self._convolutions.get(id(node))

    def positions(self) -> list[int]:
        """Return the positions of the sites in `traversal.nodes` of `proto`."""
        nodes = enumerate(traversal.nodes(self.proto))
        return [index for index, (_, _, node) in nodes if self.site_of(node) is not None]

    def label(self, site: int) -> str:
        """Return the node of a site in messages."""
        place, _, node = self._nodes[site]
        where = f" in {place}" if place.function is not None or place.steps else ""
        return f"{node.op_type} node {traversal.label(node)!r}{where}"


def take_number(node: onnx.NodeProto) -> int | None:
    """Remove the attribute that holds a node's number, and return the number."""
    number = None
    for position in reversed(range(len(node.attribute))):
        if node.attribute[position].name == shape_inference.NUMBER:
            number = node.attribute[position].i
            del node.attribute[position]
    return number
