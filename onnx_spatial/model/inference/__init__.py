"""Infer constants, types and shapes of values without running the model."""
