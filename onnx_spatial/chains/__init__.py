"""Spatial operators that are spelled in standard nodes: find them by what the nodes do.

    paths            the data of a graph: what moves it, and who reads what
    chain_map        the index map of a path, and sizes in terms of the dims of values
    reading          what a part of a path may be, by the form of its map, and the proof
    blocks, patches  the parts that are SpaceToBatch, BatchToSpace, or patches
    movements        the chains that only permute parts of axes, and are better written again
    pricing          what nodes that move data cost
    one_hot          convolutions that only copy
    find_chains      the chains of a model that are operators, and the model with these in their place
    illegal_reshapes the patches of tf2onnx that no runtime loads

A chain that is found goes the way of a named operator from there on. The package imports none of its
modules: most models are converted and verified without them.
"""
