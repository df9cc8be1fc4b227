"""Recognize by which lowering a file was converted, to advise another one where it is wrong.

    nodes of the file with origin "SpaceToBatchND s2b"                Reshape, Transpose, Reshape
    nodes that each lowering writes for the operator s2b in turn      the same types: it was this one

Metadata of a converted file name the operator that each node replaces, but not the lowering.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

import onnx

from onnx_spatial.conversion.options import LOWERING_NAMES, ConvertOptions
from onnx_spatial.conversion.pipeline import convert_operators
from onnx_spatial.conversion.report import OperatorReport
from onnx_spatial.errors import SpatialError
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.new_nodes import ORIGIN, origin_of
from onnx_spatial.model.io.reader import Source

#: A graph, and an operator in it.
_Place = tuple[str, str]


def recognize(
    original: Source,
    converted: onnx.ModelProto,
    places: Set[tuple[str, str]],
    options: ConvertOptions,
) -> list[OperatorReport]:
    """Return the report of each operator by the first lowering that writes the nodes of the file.

    The model is converted with one lowering after the other, until all are found. An operator
    for which no lowering writes these nodes has no report.

    Args:
        original: the model with the operators.
        converted: the file.
        places: graph and node of each operator, as in its report.
        options: of the conversions, but for `prefer`.
    """
    written = _nodes_by_origin(converted)
    found = dict[_Place, OperatorReport]()
    unforced = dict[_Place, OperatorReport]()  # these list all candidates
    for prefer in (None, *LOWERING_NAMES):
        if not written or found.keys() == places:
            break
        forced = replace(options, prefer=prefer)
        try:
            result = convert_operators(original.proto, forced, folder=original.folder)
        except SpatialError:  # of this lowering: others may do
            continue
        nodes = {} if result.model is None else _nodes_by_origin(result.model)
        for report in result.operators:
            place = report.graph, report.node
            origin = report.graph, origin_of(report.op_type, report.node)
            candidates = unforced.setdefault(place, report).candidates
            if place in places and origin in nodes and nodes[origin] == written.get(origin):
                found.setdefault(place, replace(report, candidates=candidates))
    return list(found.values())


def _nodes_by_origin(model: onnx.ModelProto) -> dict[_Place, list[str]]:
    """Return the types of the nodes that replace each operator, by its graph, and its type and name."""
    types: dict[_Place, list[str]] = {}
    for place, _, node in traversal.nodes(model):
        for entry in node.metadata_props:
            if entry.key == ORIGIN:
                types.setdefault((str(place), entry.value), []).append(node.op_type)
    return types
