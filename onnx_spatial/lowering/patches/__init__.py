"""Lower overlapping patches: by taps, by planes, or by one Gather for each axis."""
