"""Say what nodes do to elements and sizes: compare chains of them for all sizes, and infer sizes.

An index map gives each element of a tensor as a function of its index: an element of an input, a
number, or an unknown function of such elements. Sizes, parameters and indices are symbols; numbers are
polynomials over them. Two chains are equal if their maps are equal in every case.

    polynomial                 integer combinations of products of atoms
    expressions, division      polynomials over symbols, and their quotients
    facts, linear, samples     inequalities between symbols, and which others follow from them
    limits, integers           limits of sizes, and of the integers of a run
    cases, grids               the cases that sizes and indices can be in
    tensor, constants          the map of a tensor
    elements                   elements that are computed: unknown functions, sums of products
    node, rules_*              the maps of ONNX's operators (`broadcasting`, `regrouping`)
    operators                  the maps of the spatial operators
    graph                      the maps of all values of a graph
    compare                    the comparison of two maps
    open_case, open_dims       a case that never splits, and dims that are known where a map is open
    sizes                      the sizes and small integers of a graph, in such a case

The words:
    index      position of an element in a tensor: one number for each axis
    digit      index of a factor of an axis: h*w elements in a row have the digits h and w
    fact       polynomial that is 0 or more
    case       set of facts about sizes, parameters and indices
    split      division of a case in two, where the result depends on the sign of a polynomial
    whole      of a tensor: holds integers that the maps compute with, such as sizes
    opaque     of an element: only compared with others, not computed with
    legal      of a node: known to succeed at run time
"""
