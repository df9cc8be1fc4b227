"""Maps of nodes, of random chains and of the spatial operators are what runs and definitions compute."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import definitions
import graphs
import numpy as np
import onnx
import pytest
import running
from graphs import Form, Sample
from maps import maps, snippets

from onnx_spatial.maps import rules_numbers, rules_reshape, rules_select
from onnx_spatial.maps.cases import UndecidedError


def check(model: onnx.ModelProto, rng: Random) -> bool:
    """Whether a model has a map, which is right."""
    sizes = [*snippets.assignments(model, rng, 4)]
    try:
        difference = maps.disagreement(model, sizes)
    except UndecidedError:
        return False
    assert difference is None, f"{difference}\n{onnx.printer.to_text(model.graph)}"
    return True


def test_every_rule_has_a_snippet():
    without_kernels = {"BitCast", "CastLike"}
    rules = {*rules_reshape.RULES, *rules_select.RULES, *rules_numbers.RULES}
    used = {node.op_type for snippet in snippets.SNIPPETS for node in snippet.model.graph.node}
    assert rules <= used | without_kernels


@pytest.mark.parametrize("snippet", snippets.SNIPPETS, ids=str)
def test_the_map_is_what_onnxruntime_computes(snippet):
    assert check(snippet.model, Random(str(snippet)))


@pytest.mark.parametrize("snippet", snippets.FAILING, ids=str)
def test_what_fails_at_some_sizes_has_no_map(snippet):
    assert not check(snippet.model, Random(str(snippet)))


def test_maps_of_random_chains():
    drawn = (Random(f"chain {seed}") for seed in range(60))
    assert sum(check(snippets.chain(rng, 8), rng) for rng in drawn) >= 25


OPERATORS = [spelling for spelling in graphs.SPELLINGS if "leftover" not in spelling]


def drawn(rng: Random, operator: str) -> tuple[Sample, Form]:
    """An operator whose sizes are symbols, with parameters that are known or not."""
    while True:
        sample = graphs.sample(rng, operator)
        data, *parameters = sample.inputs
        if not data.size or not sample.expected.size or data.ndim > 5:
            continue
        parameters = [p.astype(np.int32) for p in parameters]
        sample = replace(sample, inputs=(np.zeros(data.shape, np.int64), *parameters))
        shape = tuple(rng.choice((d, f"d{i}", f"d{i}")) for i, d in enumerate(data.shape))
        run_time = frozenset(i for i in range(1, len(parameters) + 1) if rng.random() < 0.4)
        opset = rng.choice((11, 13, 17, 18))
        return sample, Form(shape, run_time, opset, running.ir_version_of(opset))


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


@pytest.mark.parametrize("operator", OPERATORS)
def test_maps_of_operators(operator):
    for seed in range(4):
        rng = Random(f"{operator} {seed}")
        sample, form = drawn(rng, operator)
        model = form.model(sample)
        found = maps.Explored(lambda case, m=model: maps.operator_map(case, m)[0], steps=150_000)
        for sizes, parameters in sizes_of(rng, sample, form):
            feeds = maps.feeds_of(model, sizes, {f"p{i}": parameters[i - 1] for i in form.run_time})
            wanted = definitions.node(sample.op_type, [feeds["x"], *parameters], sample.attributes)
            at = symbols(sizes, form, parameters)
            about = f"{sample}, {form}, {at}"
            assert found.shape(at) == wanted.shape, about
            assert np.array_equal(found.array(at, feeds), wanted), about
