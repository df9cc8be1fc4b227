"""Prove that two parts compute the same formula, for all sizes."""
