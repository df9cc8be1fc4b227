"""Kinds of regions that are no dilated convolution: what peers rewrite all the same, and get wrong."""

from __future__ import annotations

import across
import convolutions
import steps
from making import Maker
from scenes import Scene, after, enter, first, layer, leave, other_block


def strided(make: Maker, about: Scene) -> None:
    """Stride 2, on blocked axes or on others."""
    region = enter(make, about, *first(make, about))
    letters = [a for a in steps.spatial(region.entry) if a != "U"]
    stride = dict.fromkeys(make.rng.sample(letters, make.rng.randint(1, len(letters))), 2)
    value = layer(make, about, region.entry, stride=stride)
    after(make, leave(make, region, value))


def unequal(make: Maker, about: Scene) -> None:
    """Other blocks behind than in front; or the same ones of axes that have changed places."""
    region = enter(make, about, *first(make, about))
    value = layer(make, about, region.entry) if make.chance(0.8) else region.entry
    if len(region.letters) > 1 and make.chance(0.5):
        letters = "".join(make.rng.sample(region.letters, len(region.letters)))
        block = [region.block[region.letters.index(a)] for a in letters]
        after(make, leave(make, region, value, letters=letters, block=tuple(block)))
    else:
        after(make, leave(make, region, value, block=other_block(make, region)))


def broadcast_over_space(make: Maker, about: Scene) -> None:
    """Branches of different sizes, added where one of them is a single cell."""
    region = enter(make, about, *first(make, about))
    channels = make.rng.randint(1, 3)
    value = make.turned(region.entry, steps.channels_first(region.entry))
    whole = list(value.shape[2:])
    small = convolutions.conv(make, value, kernel=whole, channels=channels, plain=True)
    large = convolutions.conv(make, value, channels=channels, same=True)
    after(make, leave(make, region, steps.combined(make, "Add", small, large)))


def looking_across(make: Maker, about: Scene) -> None:
    """An operator that looks across space or batch, before or behind the Conv."""
    region = enter(make, about, *first(make, about))
    step = make.rng.choice(across.ACROSS)
    value, early = region.entry, make.chance(0.4)
    value = step(make, value) if early else value
    value = layer(make, about, steps.some(make, value, 0, 1))
    value = value if early else step(make, value)
    after(make, leave(make, region, steps.some(make, value, 0, 1)))
