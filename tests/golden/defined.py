"""Run a model as the definitions say: onnx's evaluator, with `definitions` for the operators.

Nothing of the package is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import definitions
import numpy as np
import onnx
import structure
from onnx import helper, inliner
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_loop

#: The domain of the operators while a model runs here.
DOMAIN = "defined.here"

#: tf2onnx's names, which standard operators have too, and what they mean with three inputs.
RENAMED = {"SpaceToDepth": "SpaceToBatchND", "DepthToSpace": "BatchToSpaceND"}
OP_TYPES = (
    "SpaceToBatch",
    "BatchToSpace",
    "SpaceToBatchND",
    "BatchToSpaceND",
    "ExtractImagePatches",
    "ExtractVolumePatches",
    "ExtractPatches",
    "ReorgYolo",
)

#: The evaluator has QuantizeLinear and DequantizeLinear from here on; they were the same before.
QUANTISED_OPSET = 19


def outputs(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """All outputs of a model that holds spatial operators."""
    if model.functions:  # where the evaluator does not look for more operators
        model = inliner.inline_local_functions(model)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    nodes = list(structure.nodes(copy))
    for node in nodes:
        if node.op_type in OP_TYPES or (node.op_type in RENAMED and len(node.input) == 3):
            node.op_type, node.domain = RENAMED.get(node.op_type, node.op_type), DOMAIN
    copy.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    for opset in copy.opset_import:
        if not opset.domain and any("Quantize" in node.op_type for node in nodes):
            opset.version = max(opset.version, QUANTISED_OPSET)
    evaluator = ReferenceEvaluator(copy, new_ops=[*map(_operator, OP_TYPES), _Loop])
    return [np.asarray(array) for array in evaluator.run(None, dict(feeds))]


def _operator(op_type: str) -> type[OpRun]:
    def run(self: OpRun, *arrays: np.ndarray | None, **_: Any) -> tuple[np.ndarray]:
        # Read off the node: operators that ONNX does not know get no attributes passed.
        values = {a.name: helper.get_attribute_value(a) for a in self.onnx_node.attribute}
        attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()}
        return (definitions.node(op_type, arrays, attributes),)

    return type(op_type, (OpRun,), {"op_domain": DOMAIN, "_run": run})


class _Loop(op_loop.Loop):
    """The evaluator's concatenates what the turns give, where ONNX stacks it."""

    op_domain = ""

    def __init__(self, onnx_node: onnx.NodeProto, run_params: dict[str, Any]):
        super().__init__(onnx_node, run_params)
        body = self._run_body

        def run_body(*args: Any, **kwargs: Any) -> list[Any]:
            found = list(body(*args, **kwargs))
            carried = len(found) - self.K
            return [*found[:carried], *(np.expand_dims(array, 0) for array in found[carried:])]

        self._run_body = run_body


_Loop.__name__ = "Loop"
