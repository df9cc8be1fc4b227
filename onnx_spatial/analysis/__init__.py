"""Find the operators of a model and everything that is known of them before it runs."""

from onnx_spatial.analysis.find_operators import find, inferred
from onnx_spatial.analysis.merge_call_sites import join
from onnx_spatial.analysis.node_info import attributes, dtype_name, input_facts
from onnx_spatial.analysis.operator_info import OperatorInfo, opset_of

__all__ = [
    "OperatorInfo",
    "attributes",
    "dtype_name",
    "find",
    "inferred",
    "input_facts",
    "join",
    "opset_of",
]
