"""Every operator in every spelling gives its definition, bit for bit, and provides what it must."""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from random import Random

import graphs
import numpy as np
import onnx
import pytest
import running
from building import one_node
from graphs import Sample
from hypothesis import given, settings
from vocabulary import (
    OPERATORS,
    BatchToSpace,
    Call,
    ExtractPatches,
    Operator,
    Rearrange,
    SpaceToBatch,
)

import onnx_spatial
from onnx_spatial import OperatorError
from onnx_spatial.lowering import Emitter
from onnx_spatial.operators import strided_copies
from onnx_spatial.operators.spellings import python_ops


@pytest.mark.parametrize("spelling", graphs.SPELLINGS)
@settings(max_examples=50)
@given(rng=graphs.randoms)
def test_a_run_is_the_definition_and_its_shape_was_known(spelling, rng):
    sample = graphs.sample(rng, spelling)
    operator, x, expected = sample.call.bind(sample.inputs), sample.inputs[0], sample.expected
    before = x.copy()
    assert running.same_bits(operator(x), expected)
    assert running.same_bits(x, before)
    assert running.same_bits(operator(np.repeat(x, 2, axis=0)[::2]), expected)
    assert operator.output_shape(x.shape) == expected.shape
    hidden = [rng.choice((d, None, f"d{i}")) for i, d in enumerate(x.shape)]
    sizes = {f"d{i}": d for i, d in enumerate(x.shape)}
    for dim, size in zip(operator.output_shape(hidden), expected.shape, strict=True):
        assert dim is None or sizes.get(dim, dim) == size


@pytest.mark.parametrize("spelling", graphs.SPELLINGS)
def test_what_the_memory_held_before_does_not_show(spelling, monkeypatch):
    def used(shape, dtype):
        if dtype.hasobject:
            return np.full(shape, "old", object)
        count = int(np.prod(shape)) * dtype.itemsize
        return np.full(count, 0xA5, np.uint8).view(dtype).reshape(shape)

    for number in range(40):
        sample = graphs.sample(Random(f"{spelling} {number}"), spelling)
        operator = sample.call.bind(sample.inputs)
        with monkeypatch.context() as patched:
            patched.setattr(strided_copies.np, "empty", used)
            result = operator(sample.inputs[0])
        assert running.same_bits(result, sample.expected)


@given(rng=graphs.randoms)
def test_another_pad_value_marks_what_lies_outside(rng):
    axes = rng.choice((1, 2, 2, 3))
    fields = (tuple(rng.randint(1, most) for _ in range(axes)) for most in (3, 4, 2))
    pads = rng.choice(("same_upper", "same_lower", "same_unclamped"))
    operator = ExtractPatches(*fields, pads, rng.choice(("channels_last", "channels_first")))
    x = graphs.array(rng, "int16", tuple(rng.randint(0, 5) for _ in range(axes + 2)))
    outside = operator(np.zeros_like(x), pad_value=1)
    assert np.array_equal(operator(x, pad_value=7), np.where(outside, 7, operator(x)))


JOINED = [
    (SpaceToBatch((2, 2), ((0, 0), (0, 0))), (2, 16, 12, 3)),
    (SpaceToBatch((2, 3), ((1, 0), (2, 2))), (2, 15, 11, 3, 2)),
    (BatchToSpace((2, 2), ((0, 0), (0, 0))), (8, 8, 9, 3)),
    (BatchToSpace((2, 2), ((1, 0), (0, 3))), (8, 8, 9, 5)),
    (ExtractPatches((3, 2), (2, 1), (1, 2), "same_upper"), (1, 15, 14, 4)),
    (Rearrange((-1, 2, -1, 2, 3), (2, 2, 1), (0, 2, 1, 3, 4), (1, 1, 3)), (16, 16, 3)),
]


@pytest.mark.parametrize("dtype", ["u1", "f4", "O"])
@pytest.mark.parametrize(("operator", "shape"), JOINED, ids=lambda v: str(v)[:60])
def test_neighbours_that_are_copied_as_one_end_where_elements_do(operator, shape, dtype):
    # The same elements with the channels apart: none of them has a neighbour.
    x = (np.arange(1, 1 + np.prod(shape)) % 251).reshape(shape)
    apart = operator.plan(shape)
    assert apart.tail and apart.run(x.astype(dtype)).size
    expected = replace(apart, tail=0).run(x, 7)
    for data in (x.astype(dtype), np.asfortranarray(x.astype(dtype))):
        result = operator(data, 7)
        assert result.dtype == data.dtype
        np.testing.assert_array_equal(result.astype(x.dtype), expected)


#: Samples of each operator.
_SAMPLES = 4

everyone = pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.name)


def concrete(kind: type[Operator]) -> Iterator[type[Operator]]:
    for each in kind.__subclasses__():
        own = each.__module__.startswith("onnx_spatial.") and not each.__name__.startswith("_")
        if own and not inspect.isabstract(each):
            yield each
        yield from concrete(each)


@lru_cache
def samples(kind: type[Operator]) -> list[tuple[Sample, Call]]:
    """Return nodes of an operator that move data, the same ones in every run."""
    found = []
    for spelling in graphs.SPELLINGS:
        for number in range(20):
            sample = graphs.sample(Random(number), spelling)
            call = sample.call
            moves = sample.expected.size and not call.bind(sample.inputs).is_identity
            if call.kind is kind and moves:
                found.append((sample, call))
    assert len(found) >= _SAMPLES, f"tests/graphs.py has no spelling of {kind.name}"
    return Random(0).sample(found, _SAMPLES)


def test_all_are_listed():
    assert set(concrete(Operator)) == set(OPERATORS)
    assert len({kind.name for kind in OPERATORS}) == len(OPERATORS)
    assert {kind.name for kind in OPERATORS} == python_ops.OP_TYPES


@everyone
def test_computed_sizes_agree_with_the_known_ones(kind):
    rng = Random(0)
    legal_ones = 0
    for sample, call in samples(kind):
        parameters = [list(parameter.vector.values) for parameter in call.parameters]
        for _ in range(200):
            shape = [
                max(0, d + rng.choice((-3, -2, -1, 0, 0, 0, 1))) for d in sample.inputs[0].shape
            ]
            constraints = call.constraints(Emitter(17), shape, *parameters)
            try:
                expected = call.output_shape(shape)
            except OperatorError:
                assert min(constraints) < 0, f"{call.operator} on {shape}"
                continue
            legal_ones += 1
            assert min(constraints, default=0) >= 0, f"{call.operator} on {shape}"
            assert tuple(call.output_dims(Emitter(17), shape, *parameters)) == expected
    assert legal_ones > 10


def model_of(sample: Sample, *, known: bool) -> onnx.ModelProto:
    shape = "static" if known else tuple(f"d{i}" for i in range(sample.inputs[0].ndim))
    return one_node(
        sample.op_type, sample.inputs, domain=sample.domain, shape=shape, **sample.attributes
    )


@everyone
@pytest.mark.parametrize("mode", ["lower", "function", "custom-op"])
def test_every_mode_is_proven(kind, mode):
    """By the operator's index map, which has to be what the nodes of its lowering compute."""
    for sample, _ in samples(kind)[: 4 if mode == "lower" else 1]:
        given = graphs.retyped(Random(0), sample, ["float32"])
        for known in (True, False):
            done = onnx_spatial.convert(model_of(given, known=known), mode=mode)
            found = done.verification
            assert found is not None and found.operators[0].ran
            assert found.evidence == "proven", f"{sample}: {found.message}"
