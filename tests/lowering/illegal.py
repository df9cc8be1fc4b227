"""Random nodes whose rules only a run can break, and what converted models make of them.

The data's sizes, block shapes, pads and crops are drawn so that the operator's own validation
refuses them; the model leaves whatever breaks the rule to the run. Where a lowering lets such a thing
pass, anything may happen: call `outcomes` in a process of its own.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import adapter
import graphs
import ml_dtypes
import onnx
import running
from building import feeds_of
from graphs import OPSETS, Form, Sample
from vocabulary import LOWERINGS

from onnx_spatial import OperatorError


def is_legal(sample: Sample) -> bool:
    """Whether the operator's own validation accepts it."""
    try:
        sample.call.bind(sample.inputs).output_shape(sample.inputs[0].shape)
    except OperatorError:
        return False
    return True


def broken(rng: Random, sample: Sample) -> tuple[Sample, bool, set[int]]:
    """The sample with other sizes and parameters, whether the sizes are others, which parameters."""
    data, *parameters = sample.inputs
    shape, sizes, changed = list(data.shape), not parameters or rng.random() < 0.6, set()
    if sizes:
        for axis in range(len(shape)):
            if rng.random() < 0.5:
                shape[axis] = rng.randint(0 if rng.random() < 0.1 else 1, 9)
    for number, value in enumerate(parameters, start=1):
        if not sizes or rng.random() < 0.5:
            lowest = 0 if value.dtype.kind == "u" else -4
            flat = value.reshape(-1).copy()
            for place in range(flat.size):
                if rng.random() < 0.4:
                    flat[place] = rng.randint(lowest, 12)
            parameters[number - 1] = flat.reshape(value.shape)
            changed.add(number)
    if tuple(shape) != data.shape:
        name = "string" if data.dtype == object else data.dtype.name
        data = graphs.array(rng, name, tuple(shape))
    return replace(sample, inputs=(data, *parameters)), sizes, changed


def case(number: int) -> tuple[onnx.ModelProto, Sample, str | None]:
    """A model that is legal to convert, inputs that break a rule of its node, and a lowering."""
    rng = Random(f"illegal {number}")
    while True:
        legal = graphs.sample(rng)
        sample, sizes, changed = broken(rng, legal)
        if is_legal(sample):
            continue
        data, *parameters = sample.inputs
        run_time = changed | {i for i in range(1, len(parameters) + 1) if rng.random() < 0.3}
        shape: tuple[int | str, ...] | None = data.shape
        if rng.random() < 0.1:
            shape = None
        elif sizes:
            known = zip(data.shape, legal.inputs[0].shape, strict=True)
            shape = tuple(
                d if d == old and rng.random() < 0.4 else f"d{i}"
                for i, (d, old) in enumerate(known)
            )
        lowest = 13 if data.dtype == ml_dtypes.bfloat16 else OPSETS[0]
        opset = rng.choice((rng.randint(lowest, OPSETS[-1]), max(lowest, 13), 17))
        ir_version = max(8, running.ir_version_of(opset))
        made = Form(shape, frozenset(run_time), opset, ir_version).model(sample)
        return made, sample, rng.choice((None, None, *LOWERINGS))


def outcome(number: int, **options: bool) -> str:
    """What becomes of a case: "refused", "error", "empty" or "numbers"."""
    made, sample, lowering = case(number)
    mode = "function" if number % 4 == 0 else "lower"
    plan = adapter.plan(made, mode=mode, prefer=lowering, **options)
    if plan.refused:
        return "refused"
    assert plan.model is not None
    results = set()
    for level in running.LEVELS:
        try:
            (result,) = running.run(plan.model, feeds_of(made, sample.inputs), level)
        except Exception:  # whatever onnxruntime and pybind11 raise
            results.add("error")
        else:
            results.add("numbers" if result.size else "empty")
    return max(results)  # "numbers" is the worst, "error" what is right


def outcomes(numbers: Iterable[int], **options: bool) -> dict[str, list[int]]:
    """The numbers of the cases by what became of them."""
    found: dict[str, list[int]] = {"numbers": [], "empty": [], "error": [], "refused": []}
    for number in numbers:
        found[outcome(number, **options)].append(number)
    return found
