"""Infer constants, types and shapes of values before a model runs."""
