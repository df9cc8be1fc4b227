"""Lower overlapping patches: by taps, by planes, by one Gather for each axis."""
