"""Build a grid of tiny models: every operator in every spelling and every form of model."""
