"""Run a verification in a process of its own, with a limit of memory: nothing here knows models."""
