"""Explain a failed verification: swapped models, the first value that differs, advice, a reproducer."""
