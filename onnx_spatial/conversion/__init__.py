"""Rewrite the operators of a model, in each of the three modes, and report every change."""
