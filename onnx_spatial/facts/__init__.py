"""Find the operators of a model and everything that is known of them before it runs."""

from onnx_spatial.facts.agreement import join
from onnx_spatial.facts.declared import attributes, dtype_name, input_facts
from onnx_spatial.facts.finding import Finding, opset_of
from onnx_spatial.facts.resolve import find, inferred

__all__ = [
    "Finding",
    "attributes",
    "dtype_name",
    "find",
    "inferred",
    "input_facts",
    "join",
    "opset_of",
]
