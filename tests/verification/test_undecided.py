"""What rounding leaves open: decided on small numbers, or a gap in the verification."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from onnx_spatial.verification.checks import region_results
from onnx_spatial.verification.checks.conclude import conclude
from onnx_spatial.verification.checks.findings import Findings, OperatorCheck
from onnx_spatial.verification.checks.region import RegionComparison
from onnx_spatial.verification.checks.region_judge import Compared, Undecided
from onnx_spatial.verification.compare.rounding import Verdict
from onnx_spatial.verification.report import Check, OperatorResult


def compared(reason: str | None, verdict: Verdict | None = None) -> Compared:
    return Compared(Check("isolated", False, "float32", (4,), 4, reason=reason), {}, verdict)


OPEN = compared("4 of 4 elements differ", Verdict.UNDECIDED)
ACCEPTED = compared(None, Verdict.ACCEPTED)
WRONG = compared("3 of 4 elements differ", Verdict.DIFFERS)
RIGHT = compared(None)


@pytest.mark.parametrize(
    ("usual", "small", "left"),
    [
        ([RIGHT], [WRONG], [RIGHT]),  # small numbers are not asked for
        ([OPEN, RIGHT], [RIGHT], [RIGHT, RIGHT]),
        ([OPEN], [WRONG], [WRONG]),
        ([ACCEPTED], [WRONG], [ACCEPTED, WRONG]),
        ([OPEN, WRONG], [RIGHT], [WRONG]),
        ([OPEN], [], None),
        ([OPEN], [ACCEPTED], None),
    ],
)
def test_small_numbers_decide(
    usual: list[Compared], small: list[Compared], left: list[Compared] | None
) -> None:
    comparison = object.__new__(RegionComparison)
    comparison.spread = lambda kinds: small if kinds == ("small",) else []  # type: ignore[method-assign]
    found = comparison._decided(usual)
    assert isinstance(found, Undecided) if left is None else found == left


@pytest.mark.parametrize(
    ("all_of_them", "left"),
    [
        ([RIGHT, ACCEPTED], [RIGHT, ACCEPTED]),
        ([RIGHT, OPEN], None),
        ([OPEN, WRONG], [WRONG]),
        ("it has no inputs", "it has no inputs"),
    ],
)
def test_rare_numbers_that_stay_open_are_no_pass(
    all_of_them: list[Compared] | str, left: list[Compared] | str | None
) -> None:
    found = region_results._decided(all_of_them)
    assert isinstance(found, Undecided) if left is None else found == left


def test_a_region_that_stays_open_leaves_the_result_unverified() -> None:
    result = OperatorResult("site", "main graph", "SpaceToBatchND", "", end_to_end=True)
    site = OperatorCheck(
        SimpleNamespace(known_domain=True, index=0, error=None),
        result,
        undecided="rounding may explain",
    )
    found = conclude(
        Findings([site], executed={0}, outputs=[SimpleNamespace(name="y", passed=True)])
    )
    assert found.status == "unverified"
    assert "SpaceToBatchND node 'site' (main graph): rounding may explain" in found.problems
    result.checks.append(RIGHT.check)  # compared in place after all
    site.undecided = None
    assert conclude(Findings([site], executed={0})).status == "passed"


def test_the_message_counts_failures_alone() -> None:
    found = conclude(Findings(failures=["one", "two"], gaps=["three"]))
    assert (found.message, found.problems) == ("failed: one (and 1 more)", ["one", "two", "three"])
