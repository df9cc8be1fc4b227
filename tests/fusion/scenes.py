"""The two ends of a region: SpaceToBatch with its pads, BatchToSpace with its crops, what is around.

All is legal by construction: every value is known while the model is written, so that sizes, pads and
crops can be chosen to fit. They need not make sense.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from random import Random

import convolutions
import steps
import tables
from making import CHANNELS_IN_BLOCKS, Maker, Value
from tables import Fill, Pairs


@dataclass(frozen=True)
class Region:
    """What lies behind one SpaceToBatch.

    Attributes:
        outer: axes in front of it, and behind BatchToSpace.
        letters: the blocked axes, which follow the batch.
        block, pads: one entry for each of them.
        base: what of the pads is not computed.
        fill: what is; None if all is constant.
        form: "ND", "4-D" or "OpenVINO".
        tables: names of block and pads.
        entry: its output, in the axes in which things go on.
    """

    outer: str
    letters: str
    block: tuple[int, ...]
    pads: Pairs
    base: Pairs
    fill: Fill | None
    form: str
    tables: list[str]
    entry: Value


@dataclass
class Scene:
    """What a model is about: the axes, the blocks, the kernel that the sizes were chosen for."""

    layout: str
    outer: str
    letters: str
    block: tuple[int, ...]
    kernel: tuple[int, ...]
    form: str

    def of(self, letter: str) -> int:
        """The block of an axis."""
        return self.block[self.letters.index(letter)] if letter in self.letters else 1


def scene(rng: Random) -> Scene:
    layout = rng.choice(("channels last",) * 5 + ("channels first",) * 3 + ("unsqueezed",) * 2)
    count = 1 if layout == "unsqueezed" else rng.choice((1, 1, 2, 2, 2, 2, 2, 3))
    digits = "012"[:count]
    if rng.random() < 0.05:
        digits = digits[::-1]
    outer = f"NC{digits}" if layout == "channels first" else f"N{digits}C"
    form = rng.choice(("ND",) * 6 + ("OpenVINO",) * (3 if layout == "channels first" else 1))
    letters = outer[1:] if layout == "channels first" or form == "OpenVINO" else digits
    if form == "ND" and layout == "channels last" and rng.random() < 0.15:
        letters = digits[: rng.randint(1, count)]
    most = 4 if count < 3 else 2
    one = rng.choice((2, 2, 2, 3, 4)) if count < 3 else 2
    equal = rng.random() < 0.6
    block = []
    for letter in letters:
        if letter == "C":
            block.append(2 if rng.random() < 0.02 else 1)
        else:
            block.append(one if equal else rng.randint(1, most))
    kernel = tuple(rng.choice((1, 2, 3, 3, 3)) for _ in digits)
    found = Scene(layout, outer, letters, tuple(block), kernel, form)
    square = len(letters) == 2 and letters == digits and block[0] == block[1] > 1
    if square and form == "ND" and rng.random() < 0.2:
        found.form = "4-D"
    return found


def first(make: Maker, about: Scene) -> tuple[Value, Value]:
    """What goes into SpaceToBatch, and a value of the same sizes that shapes are taken from."""
    rng = make.rng
    digits = [letter for letter in about.outer if letter not in "NC"]
    sizes = {"N": rng.choice((1, 1, 2)), "C": rng.choice((1, 2, 2, 3, 4))}
    if "C" in about.letters and about.of("C") > 1:
        sizes["C"] = 2 * rng.randint(1, 2)
    for digit, kernel in zip(sorted(digits), about.kernel, strict=True):
        cells = kernel + rng.randint(0, 2 if len(digits) < 3 else 1)
        sizes[digit] = max(1, cells * about.of(digit) - rng.randint(0, kernel * about.of(digit)))
    way = rng.choice(("input", "input", "input", "turned", "turned", "active", "padded", "conv"))
    axes = about.outer
    if way == "turned":
        axes = "NC" + "".join(digits) if axes[1] != "C" else "N" + "".join(digits) + "C"
    value = make.input(make.image([sizes[letter] for letter in axes]), axes)
    if way == "padded":
        low = [rng.randint(0, 3) if letter in digits else 0 for letter in axes]
        table = make.constant([*low, *[0] * len(axes)])
        value = make.node("Pad", [value, table], axes, stem="front")
    elif way == "active":
        value = steps.some(make, value, 1, 2)
    elif way == "conv":
        value = convolutions.conv(make, value)
    x = make.turned(value, about.outer)
    return x, rng.choice((x, value))


def enter(
    make: Maker,
    about: Scene,
    x: Value,
    source: Value | None = None,
    base: Pairs | None = None,
) -> Region:
    """A SpaceToBatch on x, with pads that may come from the shape of `source`."""
    base = base or [base_pads(make, about, letter) for letter in about.letters]
    if about.of("C") > 1:
        make.obstacles.add(CHANNELS_IN_BLOCKS)
    missing = [
        -(x.size(letter) + sum(pair)) % b
        for letter, pair, b in zip(about.letters, base, about.block, strict=True)
    ]
    pads = [(low, high + more) for (low, high), more in zip(base, missing, strict=True)]
    fill = None
    if make.mode == "computed":
        fill = tables.fill_of(make, source or x, about.letters, about.block, base)
        assert list(fill.values) == missing
        names = tables.computed(make, about.form, about.block, base, fill)
    else:
        fed = make.mode == "run-time" and make.chance(0.8)
        make.padded_channels |= "C" in about.letters and fed
        names = tables.written(make, about.form, about.block, pads, fed=fed)
    made = make.space_to_batch(x, names, about.form)
    if about.layout == "unsqueezed":
        made = steps.unsqueezed(make, made)
    return Region(
        x.axes, about.letters, about.block, pads, base, fill, about.form, names, entry=made
    )


def base_pads(make: Maker, about: Scene, letter: str) -> tuple[int, int]:
    """What an exporter pads by for reasons of its own, before whole blocks are made."""
    rng, b = make.rng, about.of(letter)
    if letter == "C":
        return (rng.randint(0, 2), 0) if make.chance(0.02) else (0, 0)
    digits = sorted(a for a in about.outer if a not in "NC")
    total = (about.kernel[digits.index(letter)] - 1) * b
    return rng.choice(
        (
            (total // 2, total - total // 2),
            (total // 2, total - total // 2),
            (total, 0),
            (0, 0),
            (0, 0),
            (rng.randint(0, b + 1), rng.randint(0, 2 * b)),
        )
    )


def leave(
    make: Maker,
    region: Region,
    value: Value,
    *,
    block: Sequence[int] | None = None,
    letters: str | None = None,
) -> Value:
    """A BatchToSpace, with crops of any kind that leave something (or, seldom, nothing)."""
    block, letters = block or region.block, letters or region.letters
    rest = "".join(a for a in region.outer[1:] if a not in letters)
    value = make.turned(steps.squeezed(make, value), f"N{letters}{rest}")
    own = block == region.block and letters == region.letters
    room = [value.size(a) * b for a, b in zip(letters, block, strict=True)]
    crops, fill = cropped(make, region, room, letters, own=own)
    form = region.form
    if form == "4-D" and not (own or block[0] == block[1] > 1):
        form = "ND"
    whole = region.base if fill else region.pads
    if own and form == "ND" and crops == whole and fill is region.fill and make.chance(0.7):
        names = region.tables  # as WaveNet: pads and crops are one tensor
    elif fill is not None:
        names = tables.computed(make, form, block, crops, fill)
    else:
        fed = make.mode == "run-time" and make.chance(0.8)
        make.padded_channels |= "C" in letters and fed
        names = tables.written(make, form, block, crops, fed=fed)
    if own and form == "ND" and make.chance(0.5):
        names = [region.tables[0], names[1]]
    return make.batch_to_space(value, names, form)


def cropped(
    make: Maker, region: Region, room: Sequence[int], letters: str, *, own: bool
) -> tuple[Pairs, Fill | None]:
    """Crops that leave something of `room`, and what is added to their ends."""
    rng = make.rng
    none = [(0, 0)] * len(room)
    blocks = region.block if own else (1,) * len(room)
    sizes = zip(letters, room, strict=True)
    free = [-1 if a == "C" and not make.chance(0.02) else r for a, r in sizes]
    random_ = [
        (rng.randint(0, b + 1), rng.randint(0, b + 1)) if r > 0 else (0, 0)
        for b, r in zip(blocks, free, strict=True)
    ]
    strange = []
    for most in free:
        left = most if make.chance(0.02) else most - 1
        low = rng.randint(0, max(left, 0))
        strange.append((low, rng.randint(0, max(left - low, 0))))
    filled = none
    if own:
        sides = zip(region.pads, region.base, strict=True)
        filled = [(0, high - base) for (_, high), (_, base) in sides]
    fill = region.fill if own else None
    ways: list[tuple[Pairs, Fill | None]] = [(none, None), (random_, None), (strange, None)]
    if own and fill is not None:
        ways += [(none, fill)] * 4 + [(region.base, fill)] * 2 + [(random_, fill)]
    elif own:
        ways += [(filled, None)] * 3 + [(region.pads, None)] * 2
    rng.shuffle(ways)
    for pairs, more in ways:
        added = more.values if more else (0,) * len(pairs)
        taken = [sum(pair) + extra for pair, extra in zip(pairs, added, strict=True)]
        left = [r - t for r, t in zip(room, taken, strict=True)]
        if min(left) >= (0 if pairs is strange or 0 in room else 1):
            return pairs, more
    return none, None


def after(make: Maker, value: Value) -> None:
    """What reads a result: nothing, the next layer, or several."""
    for _ in range(make.rng.choice((0, 1, 1, 1, 2, 3))):
        way = make.rng.choice(("steps", "turned", "conv", "shape", "output"))
        if way == "steps":
            steps.some(make, value, 1, 3)
        elif way == "turned":
            steps.turn(make, steps.some(make, value, 0, 2))
        elif way == "conv" and 0 not in value.shape:
            convolutions.conv(make, value)
        elif way == "shape":
            make.node("Shape", [value])
        else:
            make.output(value)


def kernel_of(about: Scene, value: Value) -> list[int]:
    """The planned kernel in the order of the value's axes."""
    digits = sorted(a for a in about.outer if a not in "NC")
    return [1 if a == "U" else about.kernel[digits.index(a)] for a in steps.spatial(value)]


def layer(make: Maker, about: Scene, value: Value, **options: object) -> Value:
    """A Conv, mostly with the kernel that was planned for."""
    if make.chance(0.7):
        options.setdefault("kernel", kernel_of(about, value))
    options.setdefault("plain", make.chance(0.3))
    value = convolutions.conv(make, value, **options)
    return steps.squeezed(make, value) if make.chance(0.25) else value


def other_block(make: Maker, region: Region) -> tuple[int, ...]:
    """A block of other numbers that divides the batch as well."""
    whole = prod(region.block)
    found = [
        make.rng.choice([b for b in range(1, whole + 1) if whole % b == 0]) for _ in region.block
    ]
    while whole % prod(found):
        found[found.index(max(found))] = 1
    return tuple(found)
