"""Operators that move elements or compute with shapes, from their definitions."""

from __future__ import annotations

import math
from typing import Any

import definitions
import numpy as np
from known import Known, given, handler, ints


def _spatial(op_type: str) -> None:
    @handler(op_type)
    def move(inputs: list[Known], attributes: dict[str, Any]) -> Known:
        tables = [k.value for k in inputs[1:]]
        return inputs[0].moved(lambda x: definitions.node(op_type, (x, *tables), attributes))


for _op_type in ("SpaceToBatch", "SpaceToBatchND", "BatchToSpace", "BatchToSpaceND"):
    _spatial(_op_type)


@handler("Identity")
def identity(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    return inputs[0]


@handler("Constant")
def constant(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    return given(attributes["value"])


@handler("Transpose")
def transpose(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    return inputs[0].moved(lambda x: x.transpose(attributes.get("perm")))


@handler("Unsqueeze")
def unsqueeze(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    return inputs[0].moved(lambda x: np.expand_dims(x, tuple(ints(inputs[1]))))


@handler("Squeeze")
def squeeze(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    return inputs[0].moved(lambda x: np.squeeze(x, tuple(ints(inputs[1]))))


@handler("Reshape")
def reshape(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    old, asked = inputs[0].shape, ints(inputs[1])
    copied = [old[i] if size == 0 else size for i, size in enumerate(asked)]
    return inputs[0].moved(lambda x: x.reshape(copied))


@handler("Flatten")
def flatten(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    rows = math.prod(inputs[0].shape[: attributes.get("axis", 1)])
    return inputs[0].moved(lambda x: x.reshape(rows, -1))


@handler("Expand")
def expand(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    shape = np.broadcast_shapes(inputs[0].shape, tuple(ints(inputs[1])))
    return inputs[0].moved(lambda x: np.broadcast_to(x, shape))


@handler("Concat")
def concat(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    axis = attributes["axis"]
    value = np.concatenate([k.value for k in inputs], axis)
    if inputs[0].slack is None:
        return Known(value)
    return Known(value, np.concatenate([k.slack for k in inputs], axis))


@handler("Split")
def split(inputs: list[Known], attributes: dict[str, Any]) -> list[Known]:
    x, axis, parts = inputs[0], attributes.get("axis", 0), attributes["outputs"]
    size = x.shape[axis] // parts
    sizes = ints(inputs[1]) if len(inputs) > 1 else [size] * parts
    at = np.cumsum(sizes)[:-1]
    values, slacks = np.split(x.value, at, axis), np.split(x.slack, at, axis)
    return [Known(v, s) for v, s in zip(values, slacks, strict=True)]


@handler("Slice")
def slice_(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    starts, ends = ints(inputs[1]), ints(inputs[2])
    axes = ints(inputs[3]) if len(inputs) > 3 else range(len(starts))
    steps = ints(inputs[4]) if len(inputs) > 4 else [1] * len(starts)
    where = [slice(None)] * inputs[0].value.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        where[axis] = slice(start, end, step)
    return inputs[0].moved(lambda x: x[tuple(where)])


@handler("Pad")
def pad(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    amounts, rank = ints(inputs[1]), inputs[0].value.ndim
    pairs = list(zip(amounts[:rank], amounts[rank:], strict=True))
    fill = inputs[2].value.item() if len(inputs) > 2 else 0
    slack = None if inputs[0].slack is None else np.pad(inputs[0].slack, pairs)
    return Known(np.pad(inputs[0].value, pairs, constant_values=fill), slack)


@handler("Gather")
def gather(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    axis = attributes.get("axis", 0)
    return inputs[0].moved(lambda x: np.asarray(np.take(x, inputs[1].value, axis)))


@handler("Tile")
def tile(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    return inputs[0].moved(lambda x: np.tile(x, ints(inputs[1])))


@handler("Resize")
def resize(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    """Nearest, asymmetric, floor, by whole factors."""
    assert attributes["coordinate_transformation_mode"] == "asymmetric"
    assert (attributes["mode"], attributes["nearest_mode"]) == ("nearest", "floor")
    factors = [int(f) for f in inputs[2].value]

    def repeat(x: np.ndarray) -> np.ndarray:
        for axis, factor in enumerate(factors):
            x = np.repeat(x, factor, axis)
        return x

    return inputs[0].moved(repeat)


# --- shape arithmetic -----------------------------------------------------------------------------


@handler("Shape")
def shape(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    dims = inputs[0].shape[attributes.get("start", 0) : attributes.get("end")]
    return Known(np.array(dims, np.int64))


@handler("Mod")
def mod(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    return Known(np.mod(inputs[0].value, inputs[1].value))
