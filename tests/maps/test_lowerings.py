"""The maps of operators are their definitions; of lowerings they are what onnxruntime computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import definitions
import maps
import numpy as np
import pytest
import running
import sampling
from adapter import convert
from sampling import Form, Sample
from vocabulary import LOWERINGS

from onnx_spatial import ConversionError
from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.tensor import Tensor

NAMES = list(LOWERINGS)
OPERATORS = ["tf4d-s2b", "tf4d-b2s", "tfnd-s2b", "tfnd-b2s", "openvino-s2b", "openvino-b2s"]
OPERATORS += ["image-tf", "image-openvino", "volume", "reorg-openvino", "rearrange"]


def drawn(rng: Random, operator: str) -> tuple[Sample, Form]:
    """An operator whose sizes are symbols, with parameters that are known or not."""
    while True:
        sample = sampling.SPELLINGS[operator](rng)
        data, *parameters = sample.inputs
        if not data.size or not sample.expected.size or data.ndim > 5:
            continue
        parameters = [p.astype(np.int32) for p in parameters]
        sample = replace(sample, inputs=(np.zeros(data.shape, np.int64), *parameters))
        shape = tuple(rng.choice((d, f"d{i}", f"d{i}")) for i, d in enumerate(data.shape))
        run_time = frozenset(i for i in range(1, len(parameters) + 1) if rng.random() < 0.4)
        opset = rng.choice((11, 13, 17, 18))
        return sample, Form(shape, run_time, opset, running.ir_version_of(opset), None)


def sizes_of(rng: Random, sample: Sample, form: Form) -> Iterator[tuple[maps.Sizes, list]]:
    """Legal sizes and values of the parameters that are inputs."""
    data, *parameters = sample.inputs
    yield {f"d{i}": size for i, size in enumerate(data.shape)}, parameters
    found = 0
    for _ in range(300):
        sizes = {f"d{i}": rng.choice((1, 2, 3, 4, 6, 8, 9, 12, 16)) for i in range(data.ndim)}
        shape = [d if isinstance(d, int) else sizes[d] for d in form.shape or ()]
        values = [
            np.array(
                [v if rng.random() < 0.6 else rng.randint(0, 3) for v in p.reshape(-1)], p.dtype
            ).reshape(p.shape)
            if number in form.run_time
            else p
            for number, p in enumerate(parameters, start=1)
        ]
        if np.prod(shape) > 4000:
            continue
        try:
            result = definitions.node(
                sample.op_type, [np.zeros(shape, np.int64), *values], sample.attributes
            )
        except ValueError:
            continue
        if 0 < result.size <= 6000:
            yield sizes, values
            found += 1
            if found == 3:
                return


def symbols(sizes: maps.Sizes, form: Form, parameters: list) -> dict[str, int]:
    """Values of all symbols of a model: sizes and elements of parameters."""
    values = dict(sizes)
    for number in form.run_time:
        array = parameters[number - 1]
        for place in np.ndindex(*array.shape):
            values[f"p{number}[{','.join(map(str, place))}]"] = int(array[place])
    return values


def check(rng: Random, operator: str, strategy: str | None) -> bool:
    """Whether an operator and its lowering have maps; they are right, at several sizes."""
    sample, form = drawn(rng, operator)
    model = form.model(sample)
    wanted = maps.Explored(lambda case: maps.operator_map(case, model)[0], steps=150_000)
    try:
        converted = convert(model, **({"strategy": strategy} if strategy else {}))
    except ConversionError:
        return False

    def lowered(case: Case) -> Tensor:
        _, parameters = maps.operator_map(case, model)  # its rules, too: what is divisible
        return maps.mapped(case, converted, parameters=parameters)

    try:
        found = maps.Explored(lowered, steps=15_000)
    except UndecidedError:
        found = None
    for sizes, parameters in sizes_of(rng, sample, form):
        values = {f"p{i}": parameters[i - 1] for i in form.run_time}
        feeds = maps.feeds_of(model, sizes, values)
        expected = definitions.node(sample.op_type, [feeds["x"], *parameters], sample.attributes)
        result = maps.run(converted, feeds)
        at = symbols(sizes, form, parameters)
        about = f"{sample}, {form}, {at}"
        assert wanted.shape(at) == expected.shape, about
        assert np.array_equal(wanted.array(at, feeds), expected), about
        if found is not None:
            assert found.shape(at) == result.shape, about
            assert np.array_equal(found.array(at, feeds), result), about
    return found is not None


@pytest.mark.parametrize("operator", OPERATORS)
def test_maps_of_operators_and_of_what_they_become(operator):
    assert sum(check(Random(f"{operator} {seed}"), operator, None) for seed in range(4)) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", NAMES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_maps_of_every_strategy(operator, strategy):
    for seed in range(25):
        check(Random(f"{operator} {strategy} {seed}"), operator, strategy)
