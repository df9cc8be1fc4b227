"""Random nodes of one spelling side by side in mode "function": shared bodies give the right bits.

Three nodes with parameters, shapes and element types of their own; some share a body that reads what
differs from inputs and attributes, others have their own. Each case is made from its spelling and
number alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import consumers
import numpy as np
import onnx
import pytest
import running
import sampling
from adapter import plan
from building import ELEMENT_TYPES

TOGETHER = 3
#: numpy can feed a session bfloat16 or strings, but not both at once.
TYPES = tuple(t for t in ELEMENT_TYPES if t != "bfloat16")


def side_by_side(rng: Random, spelling: str) -> tuple[onnx.ModelProto, list[sampling.Sample]]:
    """A model of several nodes, the inputs and output of each numbered."""
    samples = []
    for _ in range(TOGETHER):
        sample = sampling.SPELLINGS[spelling](rng)
        # Mostly one type: several, of which one has no Pad kernel, share no body.
        types = TYPES if rng.random() < 0.3 else ("float32",)
        samples.append(sampling.retyped(rng, sample, types))
    forms = [sampling.form(rng, sample) for sample in samples]
    opset = max(form.opset for form in forms)
    ir_version = max(8, *(form.ir_version for form in forms))
    whole = onnx.ModelProto(ir_version=ir_version)
    whole.graph.name = "g"
    imports = {}
    for number, (sample, form) in enumerate(zip(samples, forms, strict=True)):
        one = onnx.compose.add_prefix(form.model(sample), f"{number}/")
        imports.update((o.domain, o.version) for o in one.opset_import)
        for field in ("node", "input", "output", "initializer"):
            getattr(whole.graph, field).extend(getattr(one.graph, field))
    imports[""] = opset
    whole.opset_import.extend(onnx.helper.make_opsetid(d, v) for d, v in imports.items())
    return whole, samples


def feeds_of(model: onnx.ModelProto, samples: Sequence[sampling.Sample]) -> dict[str, np.ndarray]:
    wanted = {v.name for v in model.graph.input} - {t.name for t in model.graph.initializer}
    feeds = {}
    for number, sample in enumerate(samples):
        names = ["x", *(f"p{i}" for i in range(1, len(sample.inputs)))]
        feeds.update((f"{number}/{n}", a) for n, a in zip(names, sample.inputs, strict=True))
    return {name: array for name, array in feeds.items() if name in wanted}


def failures(spelling: str, numbers: Sequence[int]) -> tuple[list[str], int]:
    """What goes wrong, and in how many cases nodes shared a body."""
    found: list[str] = []
    shared = 0
    for number in numbers:
        rng = Random(f"function form {spelling} {number}")
        model, samples = side_by_side(rng, spelling)
        try:
            form = consumers.function_form(model)
            shared += len(form.functions) < TOGETHER
            feeds = feeds_of(model, samples)
            for level in running.LEVELS:
                results = running.run(form, feeds, level)
                right = map(running.same_bits, results, [s.expected for s in samples])
                assert all(right), f"differs at {level}"
            assert plan(form).model == plan(model).model
            assert plan(form, mode="function").model is None
        except Exception as error:
            found.append(f"case {number} of {spelling!r}: {type(error).__name__}: {error}")
    return found, shared


@pytest.mark.parametrize("count", [3, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("spelling", sampling.SPELLINGS)
def test_nodes_side_by_side(spelling, count):
    found, shared = failures(spelling, range(count))
    assert not found, "\n".join(found[:5])
    if (
        count > 3 and spelling.rpartition("-")[0] in sampling.SPELLINGS_OF_BLOCKS
    ):  # random windows never agree
        assert shared > 0
