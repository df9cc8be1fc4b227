"""Say what nodes do to elements and sizes: compare chains of them for all sizes, and infer sizes.

An index map gives each element of a tensor as a function of its index: an element of an input, a
number, or an unknown function of such elements. Sizes, parameters and indices are symbols; numbers are
polynomials over them. Two chains are equal if their maps are equal in every case.

    polynomial, division       integer combinations of products of atoms, and their quotients
    values                     which values symbols have: limits, grids, samples
    facts                      inequalities between symbols, and which others follow from them
    cases                      the cases that sizes and indices can be in
    tensor                     the map of a tensor
    node                       what rules see of a node
    elements                   elements of constants, and elements that are computed
    rules_reshape, rules_select, rules_numbers, rules_elements, rules_products
                               the maps of ONNX's operators, and of those that onnxruntime fuses
    operators                  the maps of the spatial operators
    graph                      the maps of all values of a graph
    compare                    the comparison of two maps: a proof
    sizes                      the sizes of a graph, in a case that never splits: inference

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
