"""Follow shape arithmetic with sizes that are unknown until run time, as polynomials."""
