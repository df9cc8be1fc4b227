"""Spatial operators that are spelled in standard nodes: find them by what the nodes do.

    paths       the data-movement nodes of a graph, as paths of data
    chain_map   the index map of a part of a path
    formulas    sizes in terms of the dims of values
    reading     the operator that an index map is; `probing`, where digits are hidden
    proof       whether a chain is an operator, for all sizes
    find        the chains of a model
    movements   chains that only permute parts of axes, and what they cost: `movement_paths`, `pricing`,
                `rearranging`
    named       the model with named operators in the place of chains

A chain that is found goes the way of a named operator from there on.
"""

from onnx_spatial.chains.find import Chain, find
from onnx_spatial.chains.movements import Movement, find_movements
from onnx_spatial.chains.named import DOMAIN, OP_TYPES, with_operators

__all__ = [
    "DOMAIN",
    "OP_TYPES",
    "Chain",
    "Movement",
    "find",
    "find_movements",
    "with_operators",
]
