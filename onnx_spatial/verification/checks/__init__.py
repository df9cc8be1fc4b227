"""Check a converted model against its original: one kind of evidence in each module with `check`."""
