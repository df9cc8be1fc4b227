"""Check what every operator must provide; a test that fails names what a new operator lacks."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import lru_cache
from random import Random

import onnx
import pytest
import sampling
from adapter import plan
from building import ELEMENT_TYPES, one_node
from sampling import Sample
from vocabulary import (
    OPERATORS,
    PYTHON_BLOCKS,
    Call,
    FixedOperator,
    Operator,
)

import onnx_spatial
from onnx_spatial import OperatorError
from onnx_spatial.lowering import STRATEGIES, Emitter
from onnx_spatial.operators.spellings import python_ops

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
    for make in sampling.SPELLINGS.values():
        for number in range(20):
            sample = make(Random(number))
            call = sample.call
            moves = sample.expected.size and not call.bind(sample.inputs).is_identity
            if call.kind is kind and moves:
                found.append((sample, call))
    assert len(found) >= _SAMPLES, f"tests/sampling.py has no spelling of {kind.name}"
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


@everyone
def test_its_parameters_survive_a_prepared_model(kind):
    for _, call in samples(kind):
        if issubclass(kind, FixedOperator):
            assert (
                python_ops.from_json(kind.name, python_ops.as_json(call.operator)) == call.operator
            )
        else:
            assert kind.name in PYTHON_BLOCKS


@everyone
@pytest.mark.parametrize("known", [True, False], ids=["static", "symbolic"])
def test_a_lowering_accepts_every_element_type(kind, known):
    assert [s.name for s in STRATEGIES if kind in s.accepts], "no strategy accepts it"
    sample, _ = samples(kind)[0]
    for dtype in ELEMENT_TYPES:
        retyped = sampling.retyped(Random(0), sample, [dtype])
        (site,) = plan(model_of(retyped, known=known)).operators
        assert site.action == "lower", f"{dtype}: {site.reason}"


def model_of(sample: Sample, *, known: bool) -> onnx.ModelProto:
    shape = "static" if known else tuple(f"d{i}" for i in range(sample.inputs[0].ndim))
    return one_node(
        sample.op_type, sample.inputs, domain=sample.domain, shape=shape, **sample.attributes
    )


@everyone
@pytest.mark.parametrize("mode", ["lower", "function", "custom-op"])
def test_every_mode_is_verified(kind, mode):
    for sample, _ in samples(kind)[:1]:
        given = sampling.retyped(Random(0), sample, ["float32"])
        for known in (True, False):
            done = onnx_spatial.convert(model_of(given, known=known), mode=mode)
            assert done.verification is not None
            assert done.verification.status == "passed", f"{sample}: {done.verification.message}"
            assert done.verification.operators[0].ran
