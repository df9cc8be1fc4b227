"""Define the operators: a frozen dataclass each, with validation, output shape and a numpy kernel.

This package is the single definition of their semantics: conversion is verified against it, the
reference evaluator and the custom operators run it. It knows numpy and nothing of ONNX files. All
operators move data only: every bit of every element survives, NaN payloads and -0.0 included.
"""

from onnx_spatial.operators.block import BatchToSpace, SpaceToBatch
from onnx_spatial.operators.operator import Arithmetic, Dim, FixedOperator, Operator
from onnx_spatial.operators.patches import AutoPad, ExtractPatches, Layout
from onnx_spatial.operators.rearrange import Rearrange
from onnx_spatial.operators.reorg import ReorgYolo

#: All operators. A new one is a module of its own and a line here.
OPERATORS: tuple[type[Operator], ...] = (
    SpaceToBatch,
    BatchToSpace,
    ExtractPatches,
    ReorgYolo,
    Rearrange,
)

__all__ = [
    "OPERATORS",
    "Arithmetic",
    "AutoPad",
    "BatchToSpace",
    "Dim",
    "ExtractPatches",
    "FixedOperator",
    "Layout",
    "Operator",
    "Rearrange",
    "ReorgYolo",
    "SpaceToBatch",
]
