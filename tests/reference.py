"""Run an unconverted model with onnx's reference evaluator and our own definitions of the operators."""

from collections.abc import Iterable
from typing import Any

import definitions
import numpy as np
import onnx
import running
import structure
from adapter import convert
from onnx import inliner
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops import op_loop
from vocabulary import DOMAINS

from onnx_spatial.reference import OPS, SpatialOp

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


def _defined(self: SpatialOp, op_type: str, inputs: Any, attributes: dict[str, Any]) -> np.ndarray:
    return definitions.node(_NAMES.get(op_type, op_type), inputs, attributes)


#: What the names of tf2onnx mean that standard operators have too.
_NAMES = {"SpaceToDepth": "SpaceToBatchND", "DepthToSpace": "BatchToSpaceND"}

#: The operators by our own definitions, in the place of the kernels of the package.
_OPERATORS = [type(op.__name__, (op,), {"compute": _defined}) for op in OPS]


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """All outputs of a model that holds spatial operators."""
    return evaluate(model, feeds, _OPERATORS)


def evaluate(
    model: onnx.ModelProto, feeds: dict[str, np.ndarray], operators: Iterable[type[SpatialOp]]
) -> list[np.ndarray]:
    """All outputs of a model in onnx's evaluator, with these classes for the operators."""
    if model.functions:
        model = inliner.inline_local_functions(model)
    evaluator = ReferenceEvaluator(imported(model), new_ops=[*operators, Loop])
    return evaluator.run(None, feeds)


def imported(model: onnx.ModelProto) -> onnx.ModelProto:
    """The evaluator wants every domain imported, and newer quantisation than many models have."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    there = {o.domain: o for o in copy.opset_import}
    for domain in DOMAINS - there.keys():
        copy.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    if "" in there and structure.counts(model).keys() & {"QuantizeLinear", "DequantizeLinear"}:
        there[""].version = max(there[""].version, _QUANTISED_OPSET)
    return copy


def assert_agree(
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
