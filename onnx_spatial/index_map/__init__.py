"""Say what a chain of data-movement nodes does, for all sizes.

An index map gives for each element of an output the element of the input that it is, or the number that
fills it, as polynomials over the output's index and the symbolic sizes. Two chains are equal if their
maps are equal in every case that the sizes and the index can be in.

    facts      what is known of sizes and indices, and what follows from it (`linear`, `samples`)
    cases      all cases that a chain distinguishes
    tensor     a tensor as a map from indices to elements; `constants`
    elements   elements that are computed: unknown functions of others, sums of products
    node       a node as its rule sees it
    rules_*    the maps of ONNX's operators; `operators`: those of the spatial operators
    graph      from nodes to the maps of their values
    compare    two maps in all cases
"""
