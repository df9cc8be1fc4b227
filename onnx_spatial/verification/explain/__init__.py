"""Explain a difference: where it begins, what causes it, and how to reproduce it."""
