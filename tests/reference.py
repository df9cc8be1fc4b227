"""Run an unconverted model with onnx's reference evaluator and our own definitions of the operators.

Not for the scan outputs of Loop, which the evaluator concatenates where ONNX stacks them.
"""

from __future__ import annotations

from typing import Any

import definitions
import numpy as np
import onnx
import running
import structure
from converting import convert
from onnx import inliner
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from onnx_spatial.dialects import DOMAINS


def _operator(op_type: str, domain: str) -> type[OpRun]:
    def _run(self: OpRun, *inputs: np.ndarray, **_: Any) -> tuple[np.ndarray]:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in self.onnx_node.attribute}
        given = {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes.items()}
        return (definitions.node(op_type, inputs, given),)

    return type(op_type, (OpRun,), {"op_domain": domain, "_run": _run})


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """All outputs of a model that holds spatial operators."""
    if model.functions:
        model = inliner.inline_local_functions(model)
    model = _without_leftovers(model)
    operators = [
        _operator(op_type, domain)
        for op_type in sorted(structure.SPATIAL)
        for domain in sorted(DOMAINS)
    ]
    return ReferenceEvaluator(model, new_ops=operators).run(None, feeds)


def _without_leftovers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Leftovers bear the name of standard operators, whose attributes the evaluator would miss."""
    meant = {"SpaceToDepth": "SpaceToBatchND", "DepthToSpace": "BatchToSpaceND"}
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in structure.nodes(copy):
        if node.op_type in meant and len(node.input) == 3:
            node.op_type, node.domain = meant[node.op_type], "com.microsoft"
            if all(o.domain != "com.microsoft" for o in copy.opset_import):
                copy.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return copy


def agree(
    model: onnx.ModelProto, *feeds: dict[str, np.ndarray], full_check: bool = True, **options: Any
) -> onnx.ModelProto:
    """Convert; the result is valid, holds no spatial operator and gives the reference's outputs."""
    converted = convert(model, **options)
    assert not structure.spatial(converted)
    onnx.checker.check_model(converted, full_check=full_check)
    for each in feeds:
        expected = run(model, each)
        for level in running.LEVELS:
            results = running.run(converted, each, level)
            assert len(results) == len(expected)
            for result, wanted in zip(results, expected, strict=True):
                assert running.same_bits(result, np.asarray(wanted))
    return converted
