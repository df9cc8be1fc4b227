"""Run the original and the converted model on the same data and compare every output."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from onnx_spatial.model.traversal import Place
from onnx_spatial.verification.arrays import dtype_name, dtype_of
from onnx_spatial.verification.checks import baseline, bit_patterns, interface, unchanged
from onnx_spatial.verification.checks.baseline import Baseline
from onnx_spatial.verification.checks.conclude import NOT_LOADED
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.checks.findings import Findings
from onnx_spatial.verification.checks.in_place import InPlace, WatchedSession
from onnx_spatial.verification.report import Difference, OutputResult, Run
from onnx_spatial.verification.run.data import graph_inputs
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.same_padding import REFUSAL
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes import reference_runs
from onnx_spatial.verification.sizes.reference_runs import MANY_SIZES
from onnx_spatial.verification.sizes.trial_runs import Trial, shapes

#: Bytes of values that one run of the converted model keeps to compare operators in place.
MOST_WATCHED = 2**28


def check(context: Context) -> None:
    """Compare the outputs of two models that have the same inputs and outputs.

    Raises:
        UsageError: the data or shapes asked for do not fit the model, or it does not run on them.
    """
    with closing(context.reference):
        _check(context)


def _check(context: Context) -> None:
    findings, request, reference = context.findings, context.request, context.reference
    original, infos = reference.source, reference.known_infos
    if findings.computes_sizes_otherwise:  # two sizes mixed up may be equal because of a stride
        shapes = findings.differing_shapes
        request = replace(request, more_sizes=MANY_SIZES, shapes_too=shapes)
    if context.findings.differs:  # sizes in use would only show that once more
        request = replace(request, large_sizes=False)
    try:
        program = reference.program
        proven = _is_proven(context)
        runs = reference_runs.find(
            program, original, reference.inputs, infos, request, only_first=proven
        )
        findings.gaps += runs.gaps
        findings.forced = runs.forced
        if not runs.trials:
            return
        marks, trials = baseline.repeated(program, runs.trials, findings, proven=proven)
        if request.inputs is None:
            trials += _any_bits(program, trials, request.seed)
    except RunFailure as failure:
        findings.obstacles.append(str(failure))
        return
    program.close()  # every session maps the weights or holds copies: one at a time
    findings.runs, findings.feeds = _runs(trials, context), trials[0].feeds
    loads = not infos and not program.pads and not program.substitutes
    # What computes reals in another order was compared by itself, without steps behind it.
    otherwise = any(o.merged and o.result.checks for o in findings.operators) or findings.changed
    expected = Baseline(
        program,
        marks,
        original if loads else None,
        proven=proven,
        same_order=not otherwise,
        tolerances=context.tolerances,
    )
    operators = [] if findings.outputs_only else findings.operators
    in_place = InPlace(operators, context.chains, context.converted, context.watched)
    first, *others = in_place.parts(lambda index: _size(program, index), MOST_WATCHED)
    for optimised in (False, True):
        session = WatchedSession(context.models.converted, first, optimised=optimised)
        if not _compare(expected, session, trials, context):
            break
    else:
        for part in others:
            _watch(WatchedSession(context.models.converted, part, optimised=False), trials, context)
    expected.close()
    findings.executed = {index for trial in trials for index in trial.executed}


def _is_proven(context: Context) -> bool:
    """Tell whether all nodes that the conversion replaces or changes are proven.

    Then runs only test onnxruntime: no further sizes are looked for.
    """
    findings = context.findings
    replaced = (*findings.operators, *findings.convolutions)
    proven = (operator.is_proven and operator.difference is None for operator in replaced)
    if not replaced or not all(proven):
        return False
    if interface.narrowed(context.models):  # a run of one size may not show it
        return False
    outputs: dict[bool, set[tuple[Place, str]]] = {True: set(), False: set()}
    for changed in findings.changed:
        settled = changed.proven and changed.difference is None and changed.doubt is None
        outputs[settled].update((changed.place, name) for name in changed.node.output)
    values = outputs[True] - outputs[False]
    return not any(unchanged.differences(context.definitions, findings.compared, values))


def _any_bits(program: Program, trials: Sequence[Trial], seed: int) -> list[Trial]:
    """Run a model that only moves its inputs on every bit pattern, too."""
    names = bit_patterns.moved_inputs(program)
    more = (bit_patterns.repeated(program, t, names, seed) for t in trials[:2]) if names else ()
    return [t for t in more if t is not None]


def _runs(trials: Sequence[Trial], context: Context) -> list[Run]:
    inputs = graph_inputs(context.models.converted.proto)
    defaults = {i.name for i in inputs if i.default is not None}
    return [
        Run(
            context.seed,
            {n: a.shape for n, a in trial.feeds.items()},
            {n: dtype_name(a) for n, a in trial.feeds.items()},
            tuple(n for n in trial.feeds if n in defaults),
        )
        for trial in trials
    ]


def _size(program: Program, index: int) -> int:
    """Return the bytes of an operator's data in the last run; 0 if it took no part in it."""
    met = program.site_inputs.get(index)
    return 0 if met is None else math.prod(met.shape) * dtype_of(met.element_type).itemsize


def _watch(session: WatchedSession, trials: Sequence[Trial], context: Context) -> None:
    """Run the converted model once more to compare operators in place."""
    try:
        session.load()
        for trial in trials:
            session.run(context.models.as_fed(trial.feeds), compare=not trial.any_bits)
    except RunFailure:
        return  # it ran before: then there is too little memory to look at so many values


def _compare(
    expected: Baseline, session: WatchedSession, trials: Sequence[Trial], context: Context
) -> bool:
    """Run the converted model and compare its outputs; return whether it loads."""
    findings, optimised = context.findings, session.optimised
    try:
        session.load()
    except RunFailure as failure:
        _broken(expected.program, optimised, NOT_LOADED, failure, trials[0], findings)
        return False
    for number, trial in enumerate(trials):
        if findings.model_differs and (trial.any_bits or trial.sizes_only):
            continue  # usual numbers and sizes show it already
        context.request.progress(f"run {number + 1}/{len(trials)}: {shapes(trial.feeds)}")
        try:
            outputs = session.run(context.models.as_fed(trial.feeds), compare=not trial.any_bits)
        except RunFailure as failure:
            _broken(expected.program, optimised, "does not run", failure, trial, findings)
            continue
        for name in trial.outputs:
            mark = expected.marks[name]
            tolerance = context.tolerances.of_output(name)
            if trial.any_bits and (mark.arithmetic or tolerance is not None):
                continue
            for result in expected.compare(name, number, optimised, trial, outputs[name]):
                if mark.random:
                    result = replace(result, passed=None, reason="random: not compared")
                    findings.outputs.append(result)
                else:
                    _record(result, trial, findings)
    return True


def _record(result: OutputResult, trial: Trial, findings: Findings) -> None:
    """Keep a comparison, and the inputs of the first one that failed."""
    message = f"output {result.name!r}{_mode(result.optimised)}: {result.reason}"
    if result.passed is None and not any(
        (o.name, o.optimised, o.passed) == (result.name, result.optimised, None)
        for o in findings.outputs
    ):
        findings.undecided.append(message)
    findings.outputs.append(result)
    if result.passed is False and findings.difference is None:
        mode = result.optimised
        findings.difference = Difference(
            "output", result.name, None, message, trial.feeds, optimised=mode
        )


def _broken(
    program: Program,
    optimised: bool,
    what: str,
    failure: RunFailure,
    trial: Trial,
    findings: Findings,
) -> None:
    """Note that the converted model does not load or run; no failure if the original does not."""
    message = f"the converted model {what}{_mode(optimised)}: {failure}"
    refused = program.pads and REFUSAL in str(failure)
    obstacle = None
    if refused or any(_anonymous(str(failure)) == _anonymous(s) for s in program.substitutes):
        obstacle = f"onnxruntime cannot run the rest of the model: {failure}"
    elif failure.out_of_memory:  # that says nothing
        obstacle = message
    if obstacle is not None:
        if obstacle not in findings.obstacles:
            findings.obstacles.append(obstacle)
        return
    modes = findings.aborted.setdefault((what, str(failure)), set())
    modes.add(optimised)
    if not optimised and what == NOT_LOADED:  # it is not tried with optimisations
        modes.add(True)
    findings.difference = findings.difference or Difference(
        "model", "", None, message, trial.feeds, optimised=optimised
    )


def _anonymous(message: str) -> str:
    """Remove the names of nodes from an error message; parts of a model give them other names."""
    return re.sub(r"'[^']*'", "", message)


def _mode(optimised: bool) -> str:
    return f" with optimisations {'on' if optimised else 'off'}"
