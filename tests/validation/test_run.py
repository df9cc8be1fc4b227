"""Every model is looked at, counted once, and reported in the order of the list; here and on a Dask cluster."""

from __future__ import annotations

import sys

import pytest
from validating import CRASHING, HANGING, HUNGRY, PLAIN, S2B, save

from onnx_spatial.validation import Options
from onnx_spatial.validation.models import find
from onnx_spatial.validation.run import validate

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")


@posix
def test_three_that_misbehave_do_not_disturb_the_others(tmp_path):
    bad = {2: (CRASHING, "crash"), 5: (HANGING, "timeout"), 7: (HUNGRY, "memory")}
    for number in range(12):
        text = bad[number][0] if number in bad else (S2B, PLAIN)[number % 2]
        save(tmp_path / f"{number:02}.onnx", text)
    seen: list[int] = []
    report = validate(
        find([str(tmp_path)]),
        jobs=2,
        timeout=20,
        memory=2**30,
        watch=lambda number, result: seen.append(number),
    )
    assert [m.model[-7:] for m in report.models] == [f"{n:02}.onnx" for n in range(12)]
    assert sorted(seen) == list(range(12))
    assert {n: m.kind for n, m in enumerate(report.models) if m.status != "passed"} == {
        number: kind for number, (_, kind) in bad.items()
    }
    crash, timeout, memory = (report.models[number] for number in bad)
    assert {model.status for model in (crash, timeout, memory)} == {"unverified"}
    assert crash.message == (
        "unverified: the process ends with SIGFPE: the original loads with optimisations on "
        "(--shape gives other sizes)"
    )
    assert "Floating point exception" in (crash.log or "")
    assert timeout.message.startswith("unverified: the process takes longer than 20 s (--timeout ")
    assert "needs more than 1 GiB of memory (--memory " in memory.message
    assert report.message == "12 models: 9 passed, 3 unverified"
    assert report.exit_code == 0
    report.options = Options(strict=True)
    assert report.exit_code == 1
    assert all(m.seconds > 0 for m in report.models)
