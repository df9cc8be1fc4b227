"""Compare arrays: bit for bit where the original is exact, else within bounds of rounding."""
