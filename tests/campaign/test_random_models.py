"""Random operators in random places of random models, against their definition and other runtimes.

    pytest -m slow tests/campaign                 2,000 models for each operator and way to write it
    pytest -m "slow and oracle" tests/campaign    the same against TensorFlow and OpenVINO

A model is one node (`sampling`), in one of `PLACES`: in the main graph, a branch, a loop, a scan, a
function, a function in a function, or beside two others. What is declared behind the node is a guess, as
exporters write it. Every model is made from the name and number of its case alone; a failure names both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import holders
import numpy as np
import onnx
import oracles
import pytest
import running
import sampling
import structure
from adapter import convert, plan
from building import ELEMENT_TYPES, element_type
from onnx import helper
from sampling import Form, Sample

#: Numbers of the cases: a few by default, all in the weekly run.
NUMBERS = pytest.mark.parametrize(
    "numbers", [range(12), pytest.param(range(2000), marks=pytest.mark.slow)], ids=len
)
#: Loop and Scan have no bfloat16; numpy can feed bfloat16 or strings, but not both at once.
TYPES = tuple(t for t in ELEMENT_TYPES if t != "bfloat16")
#: Nodes side by side.
BESIDE = 3


@dataclass
class Case:
    """A model, its inputs, and what it must give."""

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    expected: list[np.ndarray]


Place = Callable[[Random, Sample, Form], Case]


def plain(rng: Random, sample: Sample, form: Form) -> Case:
    """One node from x to y; behind it, an Identity, and maybe the guess that the shape stays."""
    model = form.model(sample)
    graph = model.graph
    graph.node[0].output[0] = "s"
    graph.node.append(helper.make_node("Identity", ["s"], ["y"]))
    data, expected = sample.inputs[0], sample.expected
    if rng.random() < 0.5 and data.ndim == expected.ndim:
        graph.value_info.append(helper.make_tensor_value_info("s", element_type(data), data.shape))
    return Case(model, form.feeds(sample), [expected])


def held(name: str) -> Place:
    """The node in a branch, a body or a function of another model (`holders`)."""

    def place(rng: Random, sample: Sample, form: Form) -> Case:
        data, *rest = sample.inputs
        if form.shape is None:  # the holders declare values by their ranks
            form = replace(form, shape=(None,) * data.ndim)
        made, feeds = holders.HOLDERS[name](form.model(sample)), form.feeds(sample)
        made.graph.output[0].type.tensor_type.ClearField("shape")
        turned = np.roll(data, -1, axis=0)
        results = [sample.expected, replace(sample, inputs=(turned, *rest)).expected]
        if name == "branch":
            feeds["take"] = np.array(rng.random() < 0.5)
            return Case(made, feeds, [results[0] if feeds["take"] else data])
        if name == "scan":
            feeds["x"] = np.stack([data, turned])
        return Case(made, feeds, [np.stack(results) if name in ("scan", "loop") else results[0]])

    place.__name__ = name
    return place


def function_in_a_function(rng: Random, sample: Sample, form: Form) -> Case:
    case = held("function")(rng, sample, form)
    inner = case.model
    inner.functions[0].name = inner.graph.node[0].op_type = "Inner"
    case.model = holders.in_function(inner)
    case.model.functions.extend(inner.functions)
    del case.model.opset_import[-1:]  # that of functions is there already
    return case


def side_by_side(rng: Random, sample: Sample, form: Form) -> Case:
    """Beside nodes of the same kind with other parameters, shapes and types: some share a function."""
    ways = (sample.spelling, f"{sample.spelling}-{'s2b' if sample.op_type[0] == 'S' else 'b2s'}")
    make = next(sampling.SPELLINGS[way] for way in ways if way in sampling.SPELLINGS)
    samples = [sample]
    for _ in range(BESIDE - 1):
        types = TYPES if rng.random() < 0.3 else (_name(sample),)
        samples.append(sampling.retyped(rng, make(rng), types))
    forms = [form, *(sampling.form(rng, each) for each in samples[1:])]
    whole = onnx.ModelProto(ir_version=max(8, *(each.ir_version for each in forms)))
    whole.graph.name = "g"
    imports, feeds = {}, {}
    for number, (each, written) in enumerate(zip(samples, forms, strict=True)):
        one = onnx.compose.add_prefix(written.model(each), f"{number}/")
        imports.update((o.domain, o.version) for o in one.opset_import)
        for field in ("node", "input", "output", "initializer"):
            getattr(whole.graph, field).extend(getattr(one.graph, field))
        feeds |= {f"{number}/{name}": array for name, array in written.feeds(each).items()}
    imports[""] = max(each.opset for each in forms)
    whole.opset_import.extend(helper.make_opsetid(d, v) for d, v in imports.items())
    return Case(whole, feeds, [each.expected for each in samples])


def _name(sample: Sample) -> str:
    data = sample.inputs[0]
    return "string" if data.dtype == object else data.dtype.name


HELD = tuple(held(name) for name in holders.HOLDERS)
PLACES: tuple[Place, ...] = (plain, plain, *HELD, function_in_a_function, side_by_side)


def check(case: Case, mode: str, strategy: str | None) -> None:
    """It is converted, all of it, and gives what it must, optimised or not."""
    if mode == "lower":
        made = convert(case.model, prefer=strategy)
        assert not structure.spatial(made)
    else:
        case.model.ir_version = max(8, case.model.ir_version)  # which functions need
        planned = plan(case.model, mode="function")
        assert not planned.refused, planned.message
        made = planned.model
        assert plan(made).model == plan(case.model).model
        assert plan(made, mode="function").model is None
    for level in running.LEVELS:
        results = running.run(made, case.feeds, level)
        assert all(map(running.same_bits, results, case.expected)), f"differs at {level}"


@NUMBERS
@pytest.mark.parametrize("spelling", sampling.SPELLINGS)
def test_by_definition(spelling, numbers):
    found = []
    for number in numbers:
        rng = Random(f"{spelling} {number}")
        place = rng.choice(PLACES)
        types = ELEMENT_TYPES if place is plain else TYPES
        sample = sampling.retyped(rng, sampling.SPELLINGS[spelling](rng), tuple(types))
        form = sampling.form(rng, sample)
        try:
            check(
                place(rng, sample, form), rng.choice(("lower", "lower", "function")), form.strategy
            )
        except Exception as error:
            found.append(
                f"case {number} of {spelling!r}, {place.__name__}\n  {sample}\n  {form}\n"
                f"  {type(error).__name__}: {error}"
            )
    assert not found, f"{len(found)} failed\n" + "\n".join(found[:5])


def types_of(spelling: str) -> tuple[str, ...]:
    """The element types for which the other runtime has kernels that look at nothing."""
    if "openvino" in spelling:
        return oracles.OPENVINO_TYPES
    return oracles.PATCH_TYPES if spelling in ("image-tf", "volume") else oracles.BLOCK_TYPES


#: `Rearrange` is an operator of this package alone.
ELSEWHERE = [spelling for spelling in sampling.SPELLINGS if spelling != "rearrange"]


@pytest.mark.oracle
@NUMBERS
@pytest.mark.parametrize("spelling", ELSEWHERE)
def test_against_other_runtimes(spelling, numbers):
    """The definition gives what TensorFlow or OpenVINO gives, where these are right."""
    package = "openvino" if "openvino" in spelling else "tensorflow"
    pytest.importorskip(package, reason=f"{package} is not installed")
    types, oracle = types_of(spelling), getattr(oracles, package)
    told = 0
    for number in numbers:
        rng = Random(f"{spelling} {number}")
        sample = sampling.retyped(rng, sampling.SPELLINGS[spelling](rng), types)
        wanted = oracle(sample)
        if wanted is not None:
            told += 1
            assert running.same_bits(sample.expected, wanted), f"case {number}: {sample}"
    assert told >= 0.4 * len(numbers), f"only {told} of {len(numbers)} cases could be told"
