"""Select the models of a run: files, folders, globs."""
