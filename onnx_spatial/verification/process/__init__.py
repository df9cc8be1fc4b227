"""Run a verification, or the validation of a model, in a child process with limits of its own."""
