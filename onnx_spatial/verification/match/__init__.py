"""Find the parts of two models that must compute the same."""
