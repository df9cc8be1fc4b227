"""Calls that break a rule of their operator are refused, or fail in the run if they are checked."""

from __future__ import annotations

import cases
import definitions
import numpy as np
import pytest
import running
from golden.converting import converted

from onnx_spatial import ConversionError

ALL = cases.load()
INVALID = [c for c in ALL if c.error is not None and not c.may_accept]
ACCEPTED = [c for c in ALL if c.may_accept]
COMPLEX = [c for c in ALL if c.error is None and c.is_complex]


def test_all_cases_are_there():
    assert len(ALL) == 176
    assert [len(INVALID), len(ACCEPTED), len(COMPLEX)] == [38, 2, 5]


@pytest.mark.parametrize("case", INVALID, ids=lambda case: case.id)
@pytest.mark.parametrize("run_time", [False, True], ids=["known", "run-time"])
def test_checked_models_fail_where_sizes_and_parameters_break_a_rule(case, run_time):
    try:
        model = converted(
            case.model(symbolic=True, run_time_parameters=run_time and len(case.inputs) > 1),
            checked=True,
        )
    except ConversionError:
        return
    feeds = case.feeds(run_time_parameters=run_time)
    for level in running.LEVELS:
        session = running.session(model, level)
        with pytest.raises(Exception, match=r"Non-zero status|RUNTIME_EXCEPTION|Invalid"):
            running.run_session(session, feeds)


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.id)
def test_limits_of_one_runtime_are_no_rules(case, symbolic):
    expected = definitions.node(case.op_type, case.inputs, case.attributes)
    model = converted(case.model(symbolic=symbolic), checked=symbolic)
    for level in running.LEVELS:
        (output,) = running.run(model, case.feeds(), level)
        assert running.same_bits(output, expected)


@pytest.mark.parametrize("case", COMPLEX, ids=lambda case: case.id)
def test_complex_tensors_are_refused(case):
    with pytest.raises(ConversionError, match=r"'site'.*onnxruntime has no complex tensors"):
        converted(case.model())


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_checked_models_run_where_no_rule_is_broken(symbolic):
    valid = [c for c in ALL if c.error is None and not c.is_complex]
    for case in valid[::9]:
        model = converted(case.model(symbolic=True, run_time_parameters=symbolic), checked=True)
        (output,) = running.run(model, case.feeds(run_time_parameters=symbolic))
        assert running.same_bits(np.asarray(output), case.expected), case.id
