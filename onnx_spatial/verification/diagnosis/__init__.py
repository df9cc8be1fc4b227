"""Explain a failed verification: the first value that differs, advice, a reproducer."""
