"""Provide the basis of all strategies: sizes and their writer, the Emitter, the cost model, padding."""
