"""What the operators mean, written down a second time: slowly, plainly and apart from the library.

SpaceToBatch and BatchToSpace are the textbook chain of pad, reshape, permute, reshape (and crop);
ExtractPatches looks up every sample of every window by its index, ReorgYolo every element by its
place in memory. `node` reads every spelling that
files use. Whatever breaks a rule is a ValueError.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

Pairs = Sequence[tuple[int, int]]


def empty_value(dtype: np.dtype) -> object:
    """What padding holds: 0, False, or the empty string."""
    return "" if dtype.kind == "O" else np.zeros((), dtype)[()]


def require(condition: bool, rule: str) -> None:
    if not condition:
        raise ValueError(rule)


def space_to_batch(x: np.ndarray, block: Sequence[int], pads: Pairs) -> np.ndarray:
    blocked = len(block)
    require(x.ndim >= blocked + 1, "rank")
    require(all(b >= 1 for b in block), "block >= 1")
    require(all(p >= 0 for pair in pads for p in pair), "pads >= 0")
    batch, spatial, rest = x.shape[0], x.shape[1 : 1 + blocked], x.shape[1 + blocked :]
    grown = [d + begin + end for d, (begin, end) in zip(spatial, pads, strict=True)]
    require(all(d % b == 0 for d, b in zip(grown, block, strict=True)), "block | dim + pads")

    padded = np.full((batch, *grown, *rest), empty_value(x.dtype), x.dtype)
    inside = tuple(slice(begin, begin + d) for d, (begin, _) in zip(spatial, pads, strict=True))
    padded[(slice(None), *inside)] = x
    cells = [d // b for d, b in zip(grown, block, strict=True)]
    split = padded.reshape(
        batch, *(f for pair in zip(cells, block, strict=True) for f in pair), *rest
    )
    offset_axes = [2 + 2 * i for i in range(blocked)]
    cell_axes = [1 + 2 * i for i in range(blocked)]
    rest_axes = range(1 + 2 * blocked, split.ndim)
    moved = split.transpose(*offset_axes, 0, *cell_axes, *rest_axes)
    return moved.reshape(prod(block) * batch, *cells, *rest)


def batch_to_space(x: np.ndarray, block: Sequence[int], crops: Pairs) -> np.ndarray:
    blocked = len(block)
    require(x.ndim >= blocked + 1, "rank")
    require(all(b >= 1 for b in block), "block >= 1")
    require(all(c >= 0 for pair in crops for c in pair), "crops >= 0")
    cells, rest = x.shape[1 : 1 + blocked], x.shape[1 + blocked :]
    require(x.shape[0] % prod(block) == 0, "prod(block) | batch")
    batch = x.shape[0] // prod(block)
    grown = [d * b for d, b in zip(cells, block, strict=True)]
    require(
        all(begin + end <= d for d, (begin, end) in zip(grown, crops, strict=True)),
        "crops <= dim * block",
    )

    split = x.reshape(*block, batch, *cells, *rest)
    interleaved = [axis for i in range(blocked) for axis in (blocked + 1 + i, i)]
    moved = split.transpose(blocked, *interleaved, *range(1 + 2 * blocked, split.ndim))
    whole = moved.reshape(batch, *grown, *rest)
    inside = tuple(slice(begin, d - end) for d, (begin, end) in zip(grown, crops, strict=True))
    return whole[(slice(None), *inside)].copy()


def windows(size: int, kernel: int, stride: int, rate: int, padding: str) -> list[list[int]]:
    """For each window along one axis the positions that it samples; outside 0..size-1 lie zeros.

    padding: VALID (fails below 0 windows), VALID_CLAMPED (no windows there), SAME_UPPER, SAME_LOWER,
    or SAME_VOLUME, whose amount may be negative.
    """
    require(min(kernel, stride, rate) >= 1, "kernel, stride, rate >= 1")
    effective = (kernel - 1) * rate + 1
    if padding.startswith("VALID"):
        count = int((size - effective + stride) / stride)  # int() truncates towards 0, like C
        require(count >= 0 or padding == "VALID_CLAMPED", "output size >= 0")
        count, begin = max(count, 0), 0
    else:
        count = (size + stride - 1) // stride
        total = (count - 1) * stride + effective - size
        if padding == "SAME_VOLUME":
            begin = int(total / 2)
        else:
            total = max(0, total)
            begin = {"SAME_UPPER": total // 2, "SAME_LOWER": (total + 1) // 2}[padding]
    return [[o * stride + k * rate - begin for k in range(kernel)] for o in range(count)]


def extract_patches(
    x: np.ndarray,
    kernel: Sequence[int],
    strides: Sequence[int],
    rates: Sequence[int],
    padding: str,
    *,
    channels_first: bool = False,
) -> np.ndarray:
    require(x.ndim == len(kernel) + 2, "rank")
    image = np.moveaxis(x, 1, -1) if channels_first else x  # [N, spatial.., C]
    batch, *sizes, channels = image.shape
    axes = [
        windows(size, k, s, r, padding)
        for size, k, s, r in zip(sizes, kernel, strides, rates, strict=True)
    ]
    counts = [len(axis) for axis in axes]
    out = np.full((batch, *counts, prod(kernel) * channels), empty_value(x.dtype), x.dtype)
    for window in itertools.product(*map(range, counts)):
        for position, sample in enumerate(itertools.product(*map(range, kernel))):
            source = tuple(axes[i][window[i]][sample[i]] for i in range(len(kernel)))
            if all(0 <= at < size for at, size in zip(source, sizes, strict=True)):
                for c in range(channels):
                    out[(slice(None), *window, position * channels + c)] = image[
                        (slice(None), *source, c)
                    ]
    return np.ascontiguousarray(np.moveaxis(out, -1, 1)) if channels_first else out


def reorg_yolo(x: np.ndarray, stride: int) -> np.ndarray:
    """OpenVINO's loops, which are darknet's: places in memory, whatever axes they fall on."""
    require(x.ndim == 4, "rank")
    require(stride >= 1, "stride >= 1")
    batch, channels, height, width = x.shape
    require(channels >= stride * stride, "stride * stride <= channels")
    require(height % stride == 0 and width % stride == 0, "stride | height, width")
    memory, read = x.ravel(), channels // (stride * stride)
    out = np.full(x.size, empty_value(x.dtype), x.dtype)
    places = itertools.product(range(batch), range(channels), range(height), range(width))
    for target, (b, c, i, j) in enumerate(places):
        offset, channel = c // read, c % read
        row, column = i * stride + offset // stride, j * stride + offset % stride
        lines = (b * read + channel) * height * stride + row
        out[target] = memory[lines * width * stride + column]
    return out.reshape(batch, channels * stride * stride, height // stride, width // stride)


def rearrange(x: np.ndarray, given: Mapping[str, Any]) -> np.ndarray:
    """Every element by its index: the digits of the factors, written in another order."""
    sizes, splits, order, joins = (list(given[n]) for n in ("sizes", "splits", "order", "joins"))
    require(len(splits) == x.ndim, "rank")
    inputs, first = [], 0
    for dim, count in zip(x.shape, splits, strict=True):
        axis = list(range(first, first + count))
        known = prod(sizes[f] for f in axis if sizes[f] != -1)
        for factor in axis:
            if sizes[factor] == -1:
                sizes[factor] = dim // known
        require(prod(sizes[f] for f in axis) == dim, "the factors of an axis")
        inputs.append(axis)
        first += count
    outputs, first = [], 0
    for count in joins:
        outputs.append(order[first : first + count])
        first += count
    out = np.full([prod(sizes[f] for f in axis) for axis in outputs], empty_value(x.dtype), x.dtype)
    for digits in itertools.product(*map(range, sizes)):
        source, target = (
            tuple(_number([digits[f] for f in axis], [sizes[f] for f in axis]) for axis in axes)
            for axes in (inputs, outputs)
        )
        out[target] = x[source]
    return out


def _number(digits: Sequence[int], sizes: Sequence[int]) -> int:
    number = 0
    for digit, size in zip(digits, sizes, strict=True):
        number = number * size + digit
    return number


def node(op_type: str, inputs: Sequence[np.ndarray], attributes: Mapping[str, Any]) -> np.ndarray:
    """The output of a node in any spelling; parameters are inputs or INTS attributes.

    An input that is left out, because an attribute takes its place, is None.
    """
    x, *tensors = (array for array in inputs if array is not None)
    # What this project writes for Python has a JSON object.
    fields = json.loads(attributes["parameters"]) if "parameters" in attributes else attributes
    if op_type == "ReorgYolo":
        stride = fields["stride"]
        return reorg_yolo(x, stride[0] if isinstance(stride, list | tuple) else stride)
    if op_type == "Rearrange":
        return rearrange(x, fields)
    if op_type.endswith("Patches"):
        return _patches(op_type, x, fields)
    if attributes.get("batch_entry"):
        block, table = (tensor[1:] for tensor in tensors)
        run = space_to_batch if op_type == "SpaceToBatch" else batch_to_space
        return run(x, block.tolist(), _pairs(table))

    forward = op_type in ("SpaceToBatch", "SpaceToBatchND", "SpaceToDepth")
    run = space_to_batch if forward else batch_to_space
    begin, end = ("pads_begin", "pads_end") if forward else ("crops_begin", "crops_end")
    table_name = "paddings" if forward else "crops"
    given = {name: np.asarray(value) for name, value in attributes.items()}
    if "block_size" in attributes:
        block = [attributes["block_size"]] * 2
        return run(x, block, _pairs(given[table_name] if table_name in given else tensors[0]))
    if len(inputs) == 4 or begin in given:
        names = [n for n in ("block_shape", begin, end) if n not in given]
        given.update(zip(names, tensors, strict=True))
        block, begins, ends = (given[n].tolist() for n in ("block_shape", begin, end))
        require(len(block) == len(begins) == len(ends) == x.ndim >= 2, "one entry per dim")
        require((block[0], begins[0], ends[0]) == (1, 0, 0), "the batch is not blocked")
        return run(x, block[1:], list(zip(begins[1:], ends[1:], strict=True)))
    names = [n for n in ("block_shape", table_name) if n not in given]
    given.update(zip(names, tensors, strict=True))
    return run(x, given["block_shape"].tolist(), _pairs(given[table_name]))


def _patches(op_type: str, x: np.ndarray, given: Mapping[str, Any]) -> np.ndarray:
    if "ksizes" in given:
        same = "SAME_VOLUME" if op_type == "ExtractVolumePatches" else "SAME_UPPER"
        padding = {"SAME": same, "VALID": "VALID"}[given["padding"]]
        ones = [1] * x.ndim
        sizes = (given.get(n, ones)[1:-1] for n in ("ksizes", "strides", "rates"))
        return extract_patches(x, *sizes, padding)
    valid = "VALID_CLAMPED" if given.get("clamp_negative", True) else "VALID"
    words = {"valid": valid, "same_unclamped": "SAME_VOLUME"}
    padding = words.get(given["auto_pad"], given["auto_pad"].upper())
    sizes = (given[n] for n in ("kernel" if "kernel" in given else "sizes", "strides", "rates"))
    first = given.get("layout", "channels_first") == "channels_first"
    return extract_patches(x, *sizes, padding, channels_first=first)


def _pairs(table: np.ndarray) -> list[tuple[int, int]]:
    require(table.ndim == 1 or table.shape[1] == 2, "a table of pairs")
    flat = [int(v) for v in table.reshape(-1)]
    return list(zip(flat[::2], flat[1::2], strict=True))
