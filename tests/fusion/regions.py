"""Random models around SpaceToBatch -> .. -> BatchToSpace, of every class that fusion must get right.

    case = regions.build(seed, number)

A case is made from its numbers alone. The kinds in `FUSIBLE` can be fused, unless the case contains one
of the `making.OBSTACLES`; those of `unfusable` cannot, and must come out right all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from random import Random

import across
import along_channels
import convolutions
import steps
import unfusable
import windows
from making import IMAGES_MAY_DIFFER, MODES, OBSTACLES, OTHER_ORDER, Case, Maker, Value
from scenes import Region, Scene, after, enter, first, kernel_of, layer, leave, other_block, scene

Kind = Callable[[Maker, Scene], None]


def plain(make: Maker, about: Scene) -> None:
    region = enter(make, about, *first(make, about))
    after(make, leave(make, region, layer(make, about, region.entry)))


def pointwise(make: Maker, about: Scene) -> None:
    """Activations, biases and the like on either side of the Conv, or no Conv at all."""
    region = enter(make, about, *first(make, about))
    value = steps.some(make, region.entry, 0, 2, rare=0.25)
    if make.chance(0.85):
        value = layer(make, about, value)
    after(make, leave(make, region, steps.some(make, value, 1, 4, rare=0.25)))


def several(make: Maker, about: Scene) -> None:
    """Convs in a row; padded ones behind biases and what does not keep zero."""
    region = enter(make, about, *first(make, about))
    value = region.entry
    for _ in range(make.rng.randint(2, 3)):
        value = layer(make, about, value, same=make.chance(0.3))
        value = steps.some(make, value, 0, 2)
    after(make, leave(make, region, value))


def gate(make: Maker, about: Scene) -> None:
    """WaveNet: tanh of one branch times sigmoid of the other."""
    region = enter(make, about, *first(make, about))
    value = region.entry
    if make.chance(0.3):
        both = convolutions.conv(make, value, channels=4, plain=True)
        axis = both.axes.index("C")
        inputs: list[Value | str] = [both]
        if make.opset < 18:
            inputs.append(make.constant([2, 2]))
        more = {"num_outputs": 2} if make.opset >= 18 else {}
        a, b = make.split("Split", inputs, [both.axes] * 2, axis=axis, **more)
    else:
        kernel, channels = kernel_of(about, value), make.rng.randint(1, 3)
        a, b = (
            convolutions.conv(make, value, kernel=kernel, channels=channels, plain=True)
            for _ in range(2)
        )
    a = make.node("Tanh", [a], a.axes)
    b = make.node("Sigmoid", [b], b.axes)
    value = steps.combined(make, "Mul", a, b)
    if make.chance(0.5):
        value = convolutions.conv(make, value, kernel=[1] * len(steps.spatial(value)))
    after(make, leave(make, region, value))


def residual(make: Maker, about: Scene) -> None:
    region = enter(make, about, *first(make, about))
    value = region.entry
    for _ in range(make.rng.randint(1, 2)):
        inner = steps.some(make, value, 0, 1)
        channels = value.size("C")
        other = layer(make, about, inner, same=True, channels=channels)
        other = steps.some(make, other, 0, 1, rare=0)
        value = steps.combined(make, make.rng.choice(("Add", "Mul", "Sub")), value, other)
    after(make, leave(make, region, value))


def branches(make: Maker, about: Scene) -> None:
    """One SpaceToBatch, several Conv -> BatchToSpace."""
    region = enter(make, about, *first(make, about))
    for _ in range(make.rng.randint(2, 3)):
        value = layer(make, about, steps.some(make, region.entry, 0, 1))
        after(make, leave(make, region, steps.some(make, value, 0, 1)))


def side_by_side(make: Maker, about: Scene) -> None:
    """DeepLab: one image through regions of several rates, which meet again where they fit."""
    x, source = first(make, about)
    results: list[Value] = []
    for _ in range(make.rng.randint(2, 3)):
        region = enter(make, about, x, source)
        y = leave(make, region, layer(make, about, region.entry, channels=2))
        results.append(steps.some(make, y, 0, 2, rare=0))
        other_blocks(make, about)
    while len(results) > 1 and (other := matching(make, results[1:], results[0])) is not None:
        results.remove(other)
        results[0] = steps.combined(make, "Add", results[0], other)
    for value in results:
        after(make, value)


def other_blocks(make: Maker, about: Scene) -> None:
    """The scene with other blocks."""
    about.block = tuple(1 if a == "C" else make.rng.randint(1, 3) for a in about.letters)
    about.form = "ND" if about.form == "4-D" else about.form


def two_sources(make: Maker, about: Scene) -> None:
    """Two images blocked alike, padded alike or each in its way, added."""
    x, source = first(make, about)
    one = enter(make, about, x, source)
    given = make.values[0]
    declared = make.inputs[0].type.tensor_type.shape.dim
    sizes = all(given.size(a) == x.size(a) for a in x.axes if a != "C")
    sizes &= any(d.dim_param for d in declared)
    like = given if sizes and make.chance(0.8) else None
    y = make.input(make.image(x.shape), x.axes, like=like)
    two = enter(make, about, y, base=one.base if make.chance(0.8) else None)
    known = make.mode == "static" or (like is not None and make.mode != "run-time")
    if not known or not alike(one, two):
        make.obstacles.add(IMAGES_MAY_DIFFER)
    a, b = one.entry, two.entry
    if make.chance(0.6):
        channels = make.rng.randint(1, 3)
        a, b = (convolutions.conv(make, v, channels=channels, same=True) for v in (a, b))
    b = make.turned(b, a.axes) if sorted(a.axes) == sorted(b.axes) else b
    pairs = zip(a.shape, b.shape, strict=False)
    if a.axes == b.axes and all(s == t or 1 in (s, t) for s, t in pairs):
        value = steps.combined(make, "Add", a, b)
        after(make, leave(make, one, value))
    else:
        after(make, leave(make, one, a))
        after(make, leave(make, two, b))


def alike(one: Region, two: Region) -> bool:
    """Whether two regions pad axes of equal sizes by the same amounts."""
    pairs = ((one.pads, two.pads), (one.base, two.base))
    sums = [[list(map(sum, pads)) for pads in both] for both in pairs]
    return all(a == b for a, b in sums) and one.entry.shape == two.entry.shape


def quantized(make: Maker, about: Scene) -> None:
    """QuantizeLinear and DequantizeLinear around a Conv, and quantized data through the operators."""
    x, source = first(make, about)
    stored = make.chance(0.3)
    region = enter(make, about, steps.quantized(make, x) if stored else x, source)
    value = region.entry
    value = steps.dequantized(make, value) if stored else steps.quantize(make, value)
    value = steps.some(make, value, 0, 1)
    value = steps.quantize(make, layer(make, about, value, stored=make.chance(0.5)))
    if make.chance(0.3):
        y = leave(make, region, steps.quantized(make, value))
        after(make, steps.dequantized(make, y))
    else:
        after(make, leave(make, region, value))


def cast(make: Maker, about: Scene) -> None:
    region = enter(make, about, *first(make, about))
    value = steps.there_and_back(make, region.entry) if make.chance(0.5) else region.entry
    value = steps.there_and_back(make, layer(make, about, value))
    after(make, leave(make, region, value))


def read_outside(make: Maker, about: Scene) -> None:
    """Inner values that others want, too."""
    region = enter(make, about, *first(make, about))
    inner = [region.entry]
    inner.append(steps.some(make, inner[-1], 0, 2))
    inner.append(layer(make, about, inner[-1]))
    inner.append(steps.some(make, inner[-1], 0, 2))
    for value in make.rng.sample(inner, make.rng.randint(1, 2)):
        way = make.rng.choice(("output", "shape", "mean", "neg", "other crops", "other block"))
        if way == "output":
            make.output(value)
        elif way == "shape":
            make.node("Shape", [value])
        elif way == "mean":
            across.mean_over(make, value, steps.spatial(value), keep=False)
        elif way == "neg":
            make.node("Neg", [value], value.axes)
        elif way == "other crops":
            after(make, leave(make, region, value))
        else:
            leave(make, region, value, block=other_block(make, region))
    after(make, leave(make, region, inner[-1]))


def consecutive(make: Maker, about: Scene) -> None:
    """Regions one after the other, with the same blocks or others."""
    x, source = first(make, about)
    sources = [x, source]
    for _ in range(make.rng.randint(2, 3)):
        alike = [s for s in sources if all(s.size(a) == x.size(a) for a in about.letters)]
        region = enter(make, about, x, make.rng.choice(alike))
        y = leave(make, region, steps.some(make, layer(make, about, region.entry), 0, 1))
        if 0 in y.shape:
            break
        if make.chance(0.2):
            make.output(y)
        x = make.turned(steps.some(make, y, 0, 2), region.outer)
        sources += [y, x]
        if make.chance(0.4):
            other_blocks(make, about)
    after(make, x)


def nested(make: Maker, about: Scene) -> None:
    """A region within a region; undone in the right order, or in the wrong one."""
    outer = enter(make, about, *first(make, about))
    value = steps.some(make, steps.squeezed(make, outer.entry), 0, 1)
    if make.chance(0.4):
        other_blocks(make, about)
    inner = enter(make, about, make.turned(value, outer.outer))
    order = [inner, outer]
    if make.chance(0.3):
        order.reverse()
        if inner.block != outer.block and min(prod(inner.block), prod(outer.block)) > 1:
            make.obstacles.add(OTHER_ORDER)
    value = layer(make, about, inner.entry)
    for region in order:
        value = leave(make, region, value)
        if 0 in value.shape:
            break
        if make.chance(0.3):
            value = layer(make, about, steps.some(make, value, 0, 1), same=make.chance(0.5))
    after(make, value)


def strided_elsewhere(make: Maker, about: Scene) -> None:
    """Stride 2 only where the block is 1."""
    digits = [a for a in about.letters if a not in "NC"]
    free = make.rng.choice(digits)
    about.block = tuple(
        1 if a == free else b for a, b in zip(about.letters, about.block, strict=True)
    )
    about.form = "ND" if about.form == "4-D" else about.form
    region = enter(make, about, *first(make, about))
    after(make, leave(make, region, layer(make, about, region.entry, stride={free: 2})))


def pooled(make: Maker, about: Scene) -> None:
    """tf.nn.pool with dilations: a pool in blocks, which stays there."""
    region = enter(make, about, *first(make, about))
    value = steps.some(make, region.entry, 0, 1)
    if make.chance(0.3):
        value = layer(make, about, value)
    value = windows.pool(make, value)
    after(make, leave(make, region, steps.some(make, value, 0, 1)))


def before_pool(make: Maker, about: Scene) -> None:
    """A region, or a SpaceToBatch that only pads, in front of a pool; a Pad in front of a region."""
    x, source = first(make, about)
    if make.chance(0.3):
        amounts = [make.rng.randint(0, 2) if a in "012" else 0 for a in x.axes * 2]
        x = source = make.node("Pad", [x, make.constant(amounts)], x.axes)
    if make.chance(0.4):
        about.block = (1,) * len(about.block)
        about.form = "ND" if about.form == "4-D" else about.form
    region = enter(make, about, x, source)
    value = region.entry
    if max(region.block) > 1 or make.chance(0.5):
        value = leave(make, region, steps.some(make, value, 0, 2))
    if 0 not in value.shape:
        obstacles = set(make.obstacles)
        value = windows.pool(make, steps.squeezed(make, value))
        make.obstacles = obstacles  # this pool may be of any kind
    after(make, value)


def transposed(make: Maker, about: Scene) -> None:
    """tf.nn.atrous_conv2d_transpose: a ConvTranspose in blocks."""
    region = enter(make, about, *first(make, about))
    value = steps.some(make, region.entry, 0, 1)
    value = windows.conv_transpose(make, value)
    after(make, leave(make, region, steps.some(make, value, 0, 1)))


def channelwise(make: Maker, about: Scene) -> None:
    """Operators that look along the channels only, with a Conv or without one."""
    region = enter(make, about, *first(make, about))
    value = region.entry
    for _ in range(make.rng.randint(1, 2)):
        value = make.rng.choice(along_channels.STEPS)(make, value)
    if make.chance(0.5):
        value = layer(make, about, value)
    after(make, leave(make, region, steps.some(make, value, 0, 1)))


def anything(make: Maker, about: Scene) -> None:
    """A graph that grows at random within the region."""
    region = enter(make, about, *first(make, about))
    alive = [region.entry]
    for _ in range(make.rng.randint(2, 6)):
        value = make.rng.choice(alive[-2:])
        way = make.rng.random()
        if way < 0.4:
            alive.append(layer(make, about, value, same=make.chance(0.5)))
        elif way < 0.7:
            alive.append(steps.some(make, value, 1, 1, rare=0.3))
        elif way < 0.74:
            alive.append(make.rng.choice(across.ACROSS)(make, value))
        elif (other := matching(make, alive, value)) is not None:
            alive.append(steps.combined(make, "Add", value, other))
    for value in make.rng.sample(alive, min(len(alive), make.rng.choice((1, 1, 2)))):
        after(make, leave(make, region, value))
    if make.chance(0.2):
        make.output(make.rng.choice(alive))


def matching(make: Maker, alive: Sequence[Value], value: Value) -> Value | None:
    """Another value of the same sizes."""
    sizes = sorted(zip(value.axes, value.shape, strict=True))
    found = [v for v in alive if sorted(zip(v.axes, v.shape, strict=True)) == sizes]
    return make.rng.choice(found) if found else None


#: How often each kind comes up.
KINDS: dict[str, tuple[Kind, int]] = {
    "one Conv": (plain, 5),
    "element by element, by channel": (pointwise, 4),
    "several Convs": (several, 3),
    "gate": (gate, 2),
    "residual": (residual, 2),
    "several branches": (branches, 2),
    "several rates side by side": (side_by_side, 2),
    "two images": (two_sources, 1),
    "quantized": (quantized, 2),
    "cast": (cast, 1),
    "regions in a row": (consecutive, 3),
    "nested regions": (nested, 1),
    "stride where the block is 1": (strided_elsewhere, 1),
    "ConvTranspose": (transposed, 1),
    "in front of a pool": (before_pool, 2),
    "along the channels": (channelwise, 3),
    "inner values read outside": (read_outside, 2),
    "pools": (pooled, 2),
    "anything": (anything, 3),
    "stride 2": (unfusable.strided, 1),
    "unequal blocks": (unfusable.unequal, 1),
    "broadcast over space": (unfusable.broadcast_over_space, 1),
    "across space or batch": (unfusable.looking_across, 2),
}


#: The kinds that can be fused.
FUSIBLE = list(KINDS)[: list(KINDS).index("inner values read outside")]


def build(seed: int, number: int, kind: str | None = None) -> Case:
    """The case of a seed and a number; of a given kind, if any.

    Its label is the kind, or the first obstacle in a case of a kind that can be fused.
    """
    rng = Random(f"{seed} {number}")
    drawn = rng.choices(list(KINDS), [weight for _, weight in KINDS.values()])[0]
    kind = kind or drawn
    mode = rng.choices(MODES, (7, 4, 6, 3))[0]
    about, make = scene(rng), Maker(rng, mode)
    layout = f"{about.layout}, {sum(a not in 'NC' for a in about.outer)}-D"
    KINDS[kind][0](make, about)
    obstacles = [o for o in OBSTACLES if o in make.obstacles and kind in FUSIBLE]
    return make.case({"kind": next(iter(obstacles), kind), "layout": layout, "mode": mode})
