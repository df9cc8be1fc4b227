"""A grid of tiny models: every operator in every spelling, in every form that a model gives it."""
