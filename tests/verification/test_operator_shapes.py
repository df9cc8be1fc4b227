"""Sizes and run-time parameters drawn for one node are legal, keep what is known, and vary."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from vocabulary import PYTHON_DOMAIN, InputFacts, NodeFacts, read

from onnx_spatial.verification.sizes.operator_shapes import draw_sample

ND = "SpaceToBatchND", "BatchToSpaceND"
INT32 = "int32"


def nd(op_type: str, shape: object, block: object, table: object) -> NodeFacts:
    """Facts of an ND node; a parameter that is no list is unknown but for its shape."""
    known = [
        InputFacts.of(np.array(p, np.int32)) if isinstance(p, list) else InputFacts(INT32, p)
        for p in (block, table)
    ]
    return NodeFacts(op_type, "", (InputFacts("float32", shape), *known))


def openvino(op_type: str, shape: object, rank: int) -> NodeFacts:
    """Facts of an OpenVINO node whose parameters all come at run time."""
    return NodeFacts(
        op_type, "", (InputFacts("float32", shape), *(InputFacts("uint8", (rank,)),) * 3)
    )


def prepared(op_type: str, shape: object, rank: int) -> NodeFacts:
    """Facts of a node of ours whose tables have an entry for the batch and come at run time."""
    tables = (InputFacts("int64", (rank,)), InputFacts("int64", (rank, 2)))
    inputs = (InputFacts("float32", shape), *tables)
    return NodeFacts(op_type, PYTHON_DOMAIN, inputs, {"batch_entry": 1})


def patches(shape: object, kernel: int, stride: int, rate: int, padding: str) -> NodeFacts:
    """Facts of an ExtractImagePatches node."""
    return NodeFacts(
        "ExtractImagePatches",
        "",
        (InputFacts("float32", shape),),
        {
            "ksizes": (1, kernel, kernel, 1),
            "strides": (1, stride, stride, 1),
            "rates": (1, rate, rate, 1),
            "padding": padding,
        },
    )


NODES = {
    "all known": nd("SpaceToBatchND", (2, 5, 3), [2], [[1, 2]]),
    "sizes open": nd("SpaceToBatchND", ("N", "H", "W", 3), [2, 3], [[1, 2], [0, 3]]),
    "sizes open, inverse": nd("BatchToSpaceND", ("N", "H", "W", 3), [2, 3], [[1, 2], [0, 3]]),
    "crops of more than a block": nd("BatchToSpaceND", (None, None, 3), [2], [[5, 4]]),
    "no rank": nd("SpaceToBatchND", None, [4, 2], [[0, 0], [0, 1]]),
    "pads open": nd("SpaceToBatchND", ("N", 7, 9, 3), [4, 5], (2, 2)),
    "crops open": nd("BatchToSpaceND", (8, 7, 9, 3), [2, 4], (2, 2)),
    "block open, batch known": nd("BatchToSpaceND", (12, None, None, 3), (2,), (2, 2)),
    "block open, size known": nd("SpaceToBatchND", (1, 10, 3), (1,), [[1, 1]]),
    "all open": nd("BatchToSpaceND", None, (2,), (2, 2)),
    "no blocked axis": nd("SpaceToBatchND", None, (0,), (0, 2)),
    "one size twice": nd("SpaceToBatchND", ("N", "S", "S"), [2, 3], [[1, 0], [0, 0]]),
    "openvino": openvino("SpaceToBatch", (None,) * 4, 4),
    "openvino, inverse": openvino("BatchToSpace", None, 3),
    "prepared": prepared("SpaceToBatch", (None,) * 4, 4),
    "prepared, inverse": prepared("BatchToSpace", (None,) * 3, 3),
    "windows": patches((None, None, None, None), 3, 2, 2, "VALID"),
    "windows, padded": patches(("N", "H", "W", 5), 3, 4, 1, "SAME"),
    "windows, static": patches((1, 9, 8, 5), 3, 4, 1, "SAME"),
}


@pytest.mark.parametrize("name", NODES)
def test_draws(name: str) -> None:
    facts = NODES[name]
    call = read(facts)
    seen = []
    for number in range(call.number_of_samples):
        found = draw_sample(facts, np.random.default_rng(number), number)
        assert found is not None
        arrays = [f.value if f is not None else None for f in facts.inputs]
        for index, value in found.parameters.items():
            assert arrays[index] is None
            arrays[index] = value
            fact = facts.inputs[index]
            assert fact is not None
            assert value.dtype == fact.dtype
        inputs = tuple(InputFacts.of(a) if a is not None else None for a in arrays[1:])
        data = InputFacts("float32", found.shape)
        operator = read(replace(facts, inputs=(data, *inputs))).bind(arrays)
        assert math.prod(operator.output_shape(found.shape)) > 0
        known = facts.inputs[0].shape
        if known is not None:
            pairs = list(zip(known, found.shape, strict=True))
            assert all(k == size for k, size in pairs if isinstance(k, int))
            assert len(set(pairs)) >= len({k for k in known if isinstance(k, str)})
            by_name = {k: size for k, size in pairs if isinstance(k, str)}
            assert all(by_name[k] == size for k, size in pairs if isinstance(k, str))
        seen.append(found.shape)
    free = facts.inputs[0].shape is None or any(
        not isinstance(d, int) for d in facts.inputs[0].shape
    )
    assert (len(set(seen)) > 1) == free


def test_windows_meet_every_remainder() -> None:
    facts = NODES["windows, padded"]
    draws = [
        draw_sample(facts, np.random.default_rng(0), n)
        for n in range(read(facts).number_of_samples)
    ]
    for axis in (1, 2):
        assert {d.shape[axis] % 4 for d in draws if d is not None} == {0, 1, 2, 3}


def test_nothing_is_legal() -> None:
    assert (
        draw_sample(nd("BatchToSpaceND", (3, 4, 4), [2], [[0, 0]]), np.random.default_rng(0), 0)
        is None
    )
    assert draw_sample(nd("SpaceToBatchND", (1, 4, 4), [3], (1, 2)), np.random.default_rng(0), 0)
