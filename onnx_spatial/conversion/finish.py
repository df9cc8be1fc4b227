"""Finish an edited model: what the edit left behind goes, and what it says of itself is true again."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from onnx_spatial.conversion.pad_barriers import insert_barriers
from onnx_spatial.conversion.report import EditResult
from onnx_spatial.model.graph import patch_proto
from onnx_spatial.model.graph.remove_unused import remove_unused_constants
from onnx_spatial.model.inference import value_info
from onnx_spatial.model.traversal import Place


def finish(
    result: EditResult,
    original: onnx.ModelProto,
    opset: int,
    replaced: Iterable[tuple[Place, str]] = (),
) -> None:
    """Remove unused constants, part Pads from pools, and renew imports and declared types, in place.

    Args:
        result: of an edit that changed the model.
        original: the model before.
        opset: version of the default domain where it is not imported.
        replaced: places and domains of the nodes that were replaced.
    """
    assert result.model is not None
    for place, names in remove_unused_constants(original, result.model).items():
        result.lost.setdefault(place, set()).update(names)
    insert_barriers(result.model, original, opset)
    patch_proto.adjust_imports(result.model, replaced, opset)
    value_info.renew_value_info(result.model, result.types, result.lost, original)
