"""Spatial operators that are spelled in standard nodes: find them by what the nodes do.

    paths            the data of a graph: what moves it, and who reads what
    chain_map        the index map of a path; `formulas`, sizes in terms of the dims of values
    access           the form into which a map is read: digits, their axes and factors on both sides
    reading          what a part of a path may be, and its proof; `divided_sizes`, multiples for it
    blocks, patches, rearrangements    the operators: how they are read off a form, and their maps
    find_chains      the chains of a model that are operators; `find_blocks` and `find_patches` search
    movements        the chains that only permute parts of axes, and are better written again
    pricing          what nodes that move data cost
    one_hot          convolutions that only copy; `weights`, which say it
    named            the model with named operators in the place of chains; `named_patches`
    illegal_reshape  patches that tf2onnx wrote and no runtime loads

A chain that is found goes the way of a named operator from there on.

The modules are imported on first use: most models are converted and verified without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx_spatial.chains.find_chains import Chain, list_chains
    from onnx_spatial.chains.illegal_reshape import NOTE as ILLEGAL
    from onnx_spatial.chains.illegal_reshape import with_legal_patches
    from onnx_spatial.chains.movements import Movement, find_movements
    from onnx_spatial.chains.named import DOMAIN, op_type_of, with_operators
    from onnx_spatial.chains.one_hot import (
        ASSUMPTION,
        NOTE,
        NOTE_OF_SUMS,
        find_one_hot,
    )
else:
    #: Module and name there of each attribute.
    _SOURCES = {
        "ASSUMPTION": ("one_hot", "ASSUMPTION"),
        "Chain": ("find_chains", "Chain"),
        "DOMAIN": ("named", "DOMAIN"),
        "ILLEGAL": ("illegal_reshape", "NOTE"),
        "Movement": ("movements", "Movement"),
        "NOTE": ("one_hot", "NOTE"),
        "NOTE_OF_SUMS": ("one_hot", "NOTE_OF_SUMS"),
        "list_chains": ("find_chains", "list_chains"),
        "find_movements": ("movements", "find_movements"),
        "find_one_hot": ("one_hot", "find_one_hot"),
        "op_type_of": ("named", "op_type_of"),
        "with_legal_patches": ("illegal_reshape", "with_legal_patches"),
        "with_operators": ("named", "with_operators"),
    }

    def __getattr__(name: str) -> object:
        """Import an attribute on first use (PEP 562)."""
        from importlib import import_module

        if name not in _SOURCES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, source = _SOURCES[name]
        globals()[name] = value = getattr(import_module(f"{__name__}.{module}"), source)
        return value


__all__ = [
    "ASSUMPTION",
    "DOMAIN",
    "ILLEGAL",
    "NOTE",
    "NOTE_OF_SUMS",
    "Chain",
    "Movement",
    "list_chains",
    "find_movements",
    "find_one_hot",
    "op_type_of",
    "with_legal_patches",
    "with_operators",
]
