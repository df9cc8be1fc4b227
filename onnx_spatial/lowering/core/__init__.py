"""Provide the basis of all strategies: the Emitter, the cost model, padding, run-time checks."""
