"""Replace single nodes of a model, in any graph, and note what is gone."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import onnx_ir as ir

from onnx_spatial.conversion.changes import diff_models
from onnx_spatial.conversion.report import EditResult, Site
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import patch_proto, replace_nodes
from onnx_spatial.model.graph.naming import Names
from onnx_spatial.model.graph.remove_unused import remove_unused
from onnx_spatial.model.graph.replace_nodes import Draft, GraphEdit
from onnx_spatial.model.graph.strip_types import strip_types
from onnx_spatial.model.traversal import Place


class NodeEditor:
    """Editor of a model, which stays as it is."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._proto, self._model = proto, ir.from_proto(strip_types(proto))
        self._patch, self._names = patch_proto.Patch(proto, self._model), Names(proto)
        self._nodes = {
            (place, name): (index, node)
            for index, ((place, _, message), node) in enumerate(
                zip(traversal.nodes(proto), traversal.ir_nodes(self._model), strict=True)
            )
            for name in message.output
            if name
        }
        self._unread: dict[Place, set[str]] = {}
        self._result = EditResult()

    def node(self, place: Place, message: onnx.NodeProto) -> ir.Node:
        """Return the node of a message; its attributes are in the message alone."""
        return self._nodes[place, message.output[0]][1]

    def replace(
        self, place: Place, message: onnx.NodeProto, draft: Draft, site: Site, read: Iterable[str]
    ) -> None:
        """Put a draft in the place of a node.

        Args:
            place: the graph.
            message: the node.
            draft: the new nodes; their first result is the first output of the node.
            site: the report.
            read: values that may be unread behind it; what only they are computed from goes as well.
        """
        index, _ = self._nodes[place, message.output[0]]
        # Files older than IR 4 list every initializer as an input too; functions have none at all.
        initializers = self._proto.ir_version >= 4 and place.function is None
        replace_nodes.apply(GraphEdit([draft]), self._names, initializers=initializers)
        self._unread.setdefault(place, set()).update(read)
        self._result.site_at[index] = site
        types = self._result.types.setdefault(place, {})
        types[message.output[0]] = onnx.TypeProto()  # as it was

    def result(self) -> EditResult:
        """Return the edited model, if anything was replaced, and the reports."""
        result = self._result
        if result.site_at:
            result.model = self._patch.apply()
            for place, gone in remove_unused(result.model, self._unread).items():
                result.lost.setdefault(place, set()).update(gone)
            result.touched = diff_models(self._proto, result)
        return result
