"""Measurements of the package; run from the root of the checkout, nothing here is installed."""
