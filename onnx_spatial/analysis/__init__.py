"""Find the spatial operators of a model; infer the types, shapes and parameters of each."""

from onnx_spatial.analysis.graph_facts import Analysis, GraphFacts, find
from onnx_spatial.analysis.node_facts import (
    attributes,
    dtype_name,
    element_type_named,
    input_facts,
    join,
)
from onnx_spatial.analysis.operator_info import OperatorInfo, opset_of

__all__ = [
    "Analysis",
    "GraphFacts",
    "OperatorInfo",
    "attributes",
    "dtype_name",
    "element_type_named",
    "find",
    "input_facts",
    "join",
    "opset_of",
]
