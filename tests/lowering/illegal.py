"""Random nodes whose rules only a run can break, and what converted models make of them.

The data's sizes, block shapes, pads and crops are drawn so that the operator's own validation
refuses them; the model leaves whatever breaks the rule to the run. Where a lowering lets such a thing
pass, anything may happen: call `outcomes` in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random

import adapter
import ml_dtypes
import onnx
import running
import sampling
from sampling import OPSETS, Form, Sample
from vocabulary import LOWERINGS, InputFacts, NodeFacts, read

from onnx_spatial import OperatorError
from onnx_spatial.python_ops import registration

MODES = ("lower", "lower", "lower", "function", "custom-op")


@dataclass(frozen=True)
class Case:
    """A node with inputs that break a rule, and how a model says what it knows of them."""

    sample: Sample
    form: Form
    undeclared: bool
    mode: str
    why: str

    def model(self) -> onnx.ModelProto:
        """A model of the node, which it is legal to convert."""
        model = self.form.model(self.sample)
        if self.undeclared:
            for value in list(model.graph.input)[1:]:
                value.type.tensor_type.ClearField("shape")
        return model

    def __str__(self) -> str:
        return f"{self.sample}\n{self.form} {self.mode}: {self.why}"


def broken_rule(sample: Sample) -> str | None:
    """What the operator's own validation says; None if nothing is wrong."""
    facts = NodeFacts(
        sample.op_type,
        sample.domain,
        tuple(map(InputFacts.of, sample.inputs)),
        {k: tuple(v) if isinstance(v, list) else v for k, v in sample.attributes.items()},
    )
    try:
        read(facts).bind(sample.inputs).output_shape(sample.inputs[0].shape)
    except OperatorError as error:
        return str(error)
    return None


def broken(rng: Random, sample: Sample, *, ranks: bool) -> tuple[Sample, bool, frozenset[int]]:
    """The sample with other sizes and parameters; (it, whether sizes are others, which parameters)"""
    data, *parameters = sample.inputs
    shape = list(data.shape)
    sizes = not parameters or rng.random() < 0.6
    if sizes:
        for axis in range(len(shape)):
            if rng.random() < 0.5:
                shape[axis] = rng.randint(0 if rng.random() < 0.1 else 1, 9)
        if ranks and rng.random() < 0.2:
            shape = shape[:-1] if rng.random() < 0.5 else [*shape, rng.randint(1, 2)]
    changed = set()
    for number, value in enumerate(parameters, start=1):
        if sizes and rng.random() < 0.5:
            continue
        lowest = 0 if value.dtype.kind == "u" else -4
        flat = value.reshape(-1).copy()
        for place in range(flat.size):
            if rng.random() < 0.4:
                flat[place] = rng.randint(lowest, 12)
        parameters[number - 1] = flat.reshape(value.shape)
        changed.add(number)
    made = data
    if tuple(shape) != data.shape:
        name = "string" if data.dtype == object else data.dtype.name
        made = sampling.array(rng, name, tuple(shape))
    return replace(sample, inputs=(made, *parameters)), sizes, frozenset(changed)


def case(number: int) -> Case:
    """Case of that number."""
    rng = Random(f"illegal {number}")
    while True:
        legal = sampling.SPELLINGS[rng.choice(list(sampling.SPELLINGS))](rng)
        unranked = rng.random() < 0.2
        sample, sizes, changed = broken(rng, legal, ranks=unranked)
        why = broken_rule(sample)
        if why is None:
            continue
        data, *parameters = sample.inputs
        run_time = changed | {i for i in range(1, len(parameters) + 1) if rng.random() < 0.3}
        shape: tuple[int | str | None, ...] | None = data.shape
        if unranked:
            shape = None
        elif sizes:
            known = rng.random() < 0.5
            shape = tuple(
                d if known and d == old and rng.random() < 0.7 else f"d{i}"
                for i, (d, old) in enumerate(zip(data.shape, legal.inputs[0].shape, strict=True))
            )
        lowest = 13 if data.dtype == ml_dtypes.bfloat16 else OPSETS[0]
        opset = rng.choice((rng.randint(lowest, OPSETS[-1]), max(lowest, 13), 17))
        strategy = rng.choice((None, None, *LOWERINGS))
        ir_version = max(8, running.ir_version_of(opset))
        form = Form(shape, frozenset(run_time), opset, ir_version, strategy)
        return Case(sample, form, rng.random() < 0.1, rng.choice(MODES), why)


def outcome(made: Case, **options: bool) -> str:
    """What becomes of it: "refused", "error", "empty" or "numbers"."""
    plan = adapter.plan(made.model(), mode=made.mode, prefer=made.form.strategy, **options)
    if plan.refused:
        return "refused"
    assert plan.model is not None
    feeds = made.form.feeds(made.sample)
    results = set()
    for level in running.LEVELS:
        try:
            if made.mode == "custom-op":
                opened = registration_session(plan.model, level)
            else:
                opened = running.session(plan.model, level)
            (result,) = running.run_session(opened, feeds)
        except Exception:  # whatever onnxruntime and pybind11 raise
            results.add("error")
        else:
            results.add("numbers" if result.size else "empty")
    return max(results)  # "numbers" is the worst, "error" what is right


def registration_session(model: onnx.ModelProto, level: object) -> object:
    """A session that runs Python operators."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    registration.register(options)
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def outcomes(numbers: Iterable[int], **options: bool) -> dict[str, list[int]]:
    """The numbers of the cases by what became of them."""
    found: dict[str, list[int]] = {"numbers": [], "empty": [], "error": [], "refused": []}
    for number in numbers:
        found[outcome(case(number), **options)].append(number)
    return found
