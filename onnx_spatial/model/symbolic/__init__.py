"""Follow sizes that are unknown until run time, as polynomials over symbolic dims.

An atom is an integer of which only its identity is known: a symbolic dim, an element of a tensor, or
the result of an operation that is not a sum or product, such as Div. A polynomial is an integer
combination of products of atoms. A symbolic tensor is a small tensor of polynomials.

    s = Shape(x)                      [n, h, w, c]           a symbolic tensor of four atoms
    a = s[1] / 2 * 2 + 3              2*Div(h, 2) + 3        a polynomial
    a - s[1] / 2 * 2                  3                      a known number, for every h
"""
