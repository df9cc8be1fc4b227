"""Run an unconverted model with onnx's reference evaluator and our own definitions of the operators."""

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
from onnx.reference.ops import op_loop

from onnx_spatial.operators.spellings import DOMAINS

#: The evaluator has QuantizeLinear and DequantizeLinear from here on; they were the same before.
_QUANTISED_OPSET = 19


class Loop(op_loop.Loop):
    """The evaluator's concatenates what the turns give, where ONNX stacks it."""

    op_domain = ""

    def __init__(self, onnx_node: onnx.NodeProto, run_params: dict[str, Any]):
        super().__init__(onnx_node, run_params)
        body = self._run_body

        def run_body(*args: Any, **kwargs: Any) -> list[Any]:
            outputs = list(body(*args, **kwargs))
            carried = len(outputs) - self.K
            return [*outputs[:carried], *(np.expand_dims(o, 0) for o in outputs[carried:])]

        self._run_body = run_body


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
    model = _imported(_without_leftovers(model))
    operators = [
        _operator(op_type, domain)
        for op_type in sorted(structure.SPATIAL | {"ExtractPatches"})
        for domain in sorted(DOMAINS)
    ]
    return ReferenceEvaluator(model, new_ops=[*operators, Loop]).run(None, feeds)


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


def _imported(model: onnx.ModelProto) -> onnx.ModelProto:
    """The evaluator wants every domain imported, and newer quantisation than many models have."""
    there = {o.domain: o for o in model.opset_import}
    for domain in DOMAINS - there.keys():
        model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    if "" in there and structure.counts(model).keys() & {"QuantizeLinear", "DequantizeLinear"}:
        there[""].version = max(there[""].version, _QUANTISED_OPSET)
    return model


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
