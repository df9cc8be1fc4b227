"""Find the spatial operators of a model; infer the types, shapes and parameters of each."""

from onnx_spatial.analysis.find_operators import Analysis, GraphFacts, find
from onnx_spatial.analysis.operator_info import (
    OperatorInfo,
    dtype_name,
    element_type_named,
    input_facts,
    join_facts,
    opset_of,
    read_attributes,
)

__all__ = [
    "Analysis",
    "GraphFacts",
    "OperatorInfo",
    "dtype_name",
    "element_type_named",
    "find",
    "input_facts",
    "join_facts",
    "opset_of",
    "read_attributes",
]
