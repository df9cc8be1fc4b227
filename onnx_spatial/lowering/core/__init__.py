"""Share what every strategy needs: the Emitter, the cost model, padding, run-time checks."""
