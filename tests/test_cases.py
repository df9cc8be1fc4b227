"""What tests/golden does not say of the 176 executable cases, each as a model of one node."""

import cases
import definitions
import numpy as np
import pytest
import running
from adapter import convert

from onnx_spatial import ConversionError

ALL = cases.load()
POSITIVE = [c for c in ALL if c.error is None and not c.is_complex]
COMPLEX = [c for c in ALL if c.error is None and c.is_complex]
NEGATIVE = [c for c in ALL if c.error is not None]


def ids(chosen: list[cases.Case]) -> dict[str, object]:
    return {"argvalues": chosen, "ids": [c.id for c in chosen]}


@pytest.mark.parametrize("case", **ids([c for c in POSITIVE if not c.quantised]))
def test_the_definitions_agree(case):
    result = definitions.node(case.op_type, case.inputs, case.attributes)
    assert running.same_bits(result, case.expected)


@pytest.mark.parametrize("case", **ids([c for c in NEGATIVE if not c.may_accept]))
def test_broken_rules_are_refused_or_fail_in_runs_that_are_checked(case):
    """That a refusal names the rule is held by tests/spellings and tests/operators."""
    with pytest.raises(ConversionError, match="'site' in main graph"):
        convert(case.model())
    for run_time in (False, True):
        model = case.model(symbolic=True, run_time_parameters=run_time)
        try:
            checked = convert(model, checked=True)
        except ConversionError:
            continue
        for level in running.LEVELS:
            session = running.session(checked, level)
            with pytest.raises(Exception, match=r"Non-zero status|RUNTIME_EXCEPTION|Invalid"):
                running.run_session(session, case.feeds(run_time_parameters=run_time))


def test_what_only_one_runtime_refuses_or_breaks_no_rule_runs_checked_too():
    limits = [c for c in NEGATIVE if c.may_accept]
    assert (len(ALL), len(NEGATIVE), len(limits), len(COMPLEX)) == (176, 40, 2, 5)
    for case in (*limits, *POSITIVE[::9]):
        expected = case.expected
        if expected is None:
            expected = definitions.node(case.op_type, case.inputs, case.attributes)
        for symbolic in (False, True):
            (output,) = running.run(
                convert(case.model(symbolic=symbolic), checked=True), case.feeds()
            )
            assert running.same_bits(np.asarray(output), expected), case.id


@pytest.mark.parametrize("case", **ids(COMPLEX))
def test_complex_tensors_are_refused(case):
    with pytest.raises(ConversionError, match=r"'site'.*onnxruntime has no complex tensors"):
        convert(case.model())
