"""No wrong conversion of the classes of `deceptions` passes, and no right one of `equivalents` fails.

pytest tests/mutation               one or two of each class
pytest -m slow tests/mutation       many of each class, and the outputs of tools
"""

from __future__ import annotations

from pathlib import Path

import beside_foreign
import bookkeeping
import deceiving
import deceptions
import equivalents
import judging
import numpy as np
import onnx
import pytest
import rewritten_by_tools
from deceiving import Draw, Outcome

#: Draws of a class that show a difference soon; the default is the first.
_SHOWN = {"NaN becomes 0": (1,), "cut at 400 or 1,000": (1,), "foreign operator": (0, 9)}


def outcomes(side: str, kind: str, numbers: range | tuple[int, ...]) -> list[Outcome]:
    found = [deceiving.run(Draw(side, kind, number, 0)) for number in numbers]
    return [outcome for outcome in found if outcome.status]


@pytest.mark.parametrize("kind", deceptions.CLASSES)
def test_deceptions_are_noticed(kind: str) -> None:
    found = outcomes("wrong", kind, _SHOWN.get(kind, (0,)))
    assert any(o.shown for o in found)
    assert [*deceiving.lines(found)] == []


@pytest.mark.parametrize("kind", equivalents.CLASSES)
def test_equivalents_pass(kind: str) -> None:
    found = outcomes("right", kind, (1,))
    assert [o.shown for o in found] == [None]
    assert [*deceiving.lines(found)] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", deceptions.CLASSES)
def test_all_deceptions_are_noticed(kind: str) -> None:
    found = outcomes("wrong", kind, range(40))
    assert sum(o.shown is not None for o in found) >= 15
    assert [*deceiving.lines(found)] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", equivalents.CLASSES)
def test_all_equivalents_pass(kind: str) -> None:
    found = outcomes("right", kind, range(80))
    assert len(found) >= 60
    assert [*deceiving.lines(found)] == []


@pytest.mark.slow
@pytest.mark.parametrize("tool", [*rewritten_by_tools.TOOLS, rewritten_by_tools.EXPORTS])
def test_outputs_of_tools_pass(tool: str) -> None:
    if tool in rewritten_by_tools.missing():
        pytest.skip(f"{tool} is not installed")
    found = outcomes("tool", tool, range(80))
    assert len(found) >= (5 if tool == rewritten_by_tools.EXPORTS else 40)
    assert [*deceiving.lines(found)] == []


def test_a_witness_is_a_difference() -> None:
    made = deceptions.draw("Relu6 for Relu", 0)
    feeds = list(made.feeds())
    assert judging.witness(made.original, made.right, made.wrong, feeds) is not None
    assert judging.witness(made.original, made.right, made.right, feeds) is None


def test_bits_count_where_data_is_moved() -> None:
    for number in range(8):
        made = deceptions.draw("bits, with sizes of another value", number)
        shown = judging.witness(made.original, made.right, made.wrong, made.feeds(), made.exact)
        assert shown is None or "bits" in shown or "apart" in shown
    assert made.exact


@pytest.mark.parametrize("number", range(2))
def test_nodes_out_of_order_are_invalid(number: int) -> None:
    made = deceptions.draw("foreign operator", number)
    for value in made.wrong.graph.output:
        value.type.tensor_type.shape.dim.add()
    with pytest.raises(onnx.checker.ValidationError, match="topologically"):
        onnx.checker.check_model(made.wrong)
    assert made.must_fail and made.fact == [*beside_foreign.WAYS][number]


def test_draws_are_the_same_each_time() -> None:
    for kind in ("second output", "one bit of a weight"):
        first, second = (deceptions.draw(kind, 3, seed=7) for _ in range(2))
        assert first.what == second.what
        assert first.wrong.SerializeToString() == second.wrong.SerializeToString()


def test_an_outcome_offends_or_not() -> None:
    def outcome(side: str, kind: str, **known: object) -> bool:
        return Outcome(Draw(side, kind, 0, 0), "model", **known).offends

    assert outcome("wrong", "Round", shown="differs", status="passed")
    assert not outcome("wrong", "Round", shown="differs", status="unverified")
    doubt = {"shown": "differs", "status": "unverified", "must_fail": True}
    assert outcome("wrong", "foreign operator", **doubt, operators_only=True)
    assert not outcome("wrong", "foreign operator", **doubt)
    assert not outcome("wrong", "Round", shown=None, status="passed")
    assert outcome("right", "bare", status="failed")
    assert outcome("right", "bare", status="unverified")
    assert not outcome("right", "names swapped", status="unverified", doubtful=True)
    assert not outcome("right", "bare", shown="not right at all", status="failed")
    assert outcome("right", "bare", status="died")
    shorter = {"shown": "1e-3 of the largest value apart", "less_exact": True}
    assert outcome("tool", "float16", status="passed", **shorter)
    assert outcome("tool", "float16", status="failed", message="other types", **shorter)
    message = "outputs are at most 1e-3 of the largest value apart"
    assert not outcome("tool", "float16", status="failed", message=message, **shorter)


def test_names_that_are_exchanged_change_no_value() -> None:
    made = equivalents.draw("names exchanged", 0)
    assert made.doubtful
    assert deceiving.unlike(made) is None
    assert set(bookkeeping.MISLEADING) <= equivalents.CLASSES.keys()


def test_outcomes_are_kept(tmp_path: Path) -> None:
    known = Outcome(Draw("wrong", "Round", 1, 0), "a model", "differs", status="failed")
    path = tmp_path / "outcomes.jsonl"
    path.write_text(deceiving.written(known) + "\n")
    assert deceiving.read(path) == [known]
    assert "| Round | 1 | 1 | 1 | 0 | 0 | 0 | 0 |" in deceiving.table([known])


def test_errors_of_values_that_are_not_finite() -> None:
    whole, broken = np.array([1.0, np.nan]), np.array([1.0, 0.0])
    assert judging.apart(whole, whole) == 0
    assert judging.apart(whole, broken) == float("inf")
    assert judging.apart(np.array([2.0, 1.0]), np.array([2.0, 1.5])) == 0.25
