"""Check a converted model against the original, one kind of evidence in each module."""
