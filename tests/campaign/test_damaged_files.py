"""Whatever is in a file: a conversion that verifies, or one clear line; never a traceback or a crash.

The files are those of `damaged`. They are converted by the command, which says so if the package raises
anything but an error for users, in processes that may die of it. One case again:

    PYTHONPATH=tests:tests/campaign python -c \\
        "import test_damaged_files as t; print(t.convert('every field', 7))"
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import damaged
import onnxruntime as ort
import pytest
from adapter import run

#: A case takes no more processor time, and is answered in this time.
MAX_SECONDS, ANSWER_SECONDS = 10.0, 300.0
#: A process takes no more memory, nor address space, which is cheap.
MAX_MEBIBYTES, MAX_ADDRESS_SPACE = 2048, 8 * 2**30
#: A clear line is no longer, whatever the names in the file.
MAX_LINE = 2000
#: Cases that one process takes on.
CASES_OF_A_PROCESS = 1000

Case = tuple[str, int]


def convert(seed: str, number: int) -> tuple[str, str]:
    """Convert a mutant of a seed, and look at all that is left.

    Returns:
        What becomes of it ("verified", "undecided", "nothing to do", or the exit code), and the error.
    """
    mutant = damaged.make(seed, number)
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "in"), Path(folder, "out")
        after.mkdir()
        for name, data in mutant.files.items():
            (before / name).parent.mkdir(parents=True, exist_ok=True)
            (before / name).write_bytes(data)
        started = time.process_time()
        try:
            kind, message = by_command(before / damaged.MODEL, after / "out.onnx")
            assert time.process_time() - started < MAX_SECONDS
            assert files_in(before) == dict(mutant.files), "the input was changed"
            check_result(kind, mutant.files, after)
        except BaseException as error:
            error.add_note(f"{seed} {number} ({mutant.damage})")
            raise
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    assert peak < MAX_MEBIBYTES, f"{seed} {number} ({mutant.damage}): {peak} MiB"
    return kind, message


def by_command(path: Path, out: Path) -> tuple[str, str]:
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        code = run(["convert", str(path), "-o", str(out), "--json"])
    document, said = json.loads(stdout.getvalue()), stderr.getvalue()
    found = document.get("verification") or {}
    if code:
        (line,) = said.splitlines()
        assert line.startswith("error: ") and "please report" not in line, line
        assert len(line) <= MAX_LINE and line.isprintable(), line[:300]
        assert code in (1, 2, 3) and document["exit_code"] == code
        return f"exit code {code} {found.get('status', '')}".strip(), line
    assert said == ""
    if not document["changed"]:
        return "nothing to do", ""
    return "verified" if found["status"] == "passed" else "undecided", found["message"]


def files_in(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def check_result(kind: str, files: damaged.Files, after: Path) -> None:
    """What is written is complete, and loads; of what was refused nothing is left."""
    found = files_in(after)
    if kind.startswith("exit code"):
        assert not any(after.iterdir())
        return
    assert "out.onnx" in found and found.keys() <= {"out.onnx", *files} - {damaged.MODEL}
    if kind == "nothing to do":
        assert found["out.onnx"] == files[damaged.MODEL]
    if kind == "verified":
        options = ort.SessionOptions()
        options.log_severity_level = 4
        ort.InferenceSession(after / "out.onnx", options, providers=["CPUExecutionProvider"])


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def failures(cases: list[Case], processes: int, kinds: Counter[str]) -> Iterator[str]:
    """Convert mutants in other processes, count the results, and yield what should not happen."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, limit_memory, maxtasksperchild=CASES_OF_A_PROCESS) as pool:
        waiting = [(case, pool.apply_async(convert, case)) for case in cases]
        for case, answer in waiting:
            try:
                kinds[answer.get(ANSWER_SECONDS)[0]] += 1
            except multiprocessing.TimeoutError:
                yield f"{case}: the process died or hangs"
            except BaseException as error:  # a failed assertion, or what the package raised
                yield f"{case}: {type(error).__name__}: {error} {error.__cause__ or ''}"


@pytest.mark.parametrize(
    ("small", "nets", "processes"),
    [(5, 2, 1), pytest.param(50_000 // len(damaged.SMALL), 200, 2, marks=pytest.mark.slow)],
)
def test_damaged_files_are_converted_or_refused(small, nets, processes):
    cases = [(seed, number) for number in range(small) for seed in damaged.SMALL]
    cases += [(seed, number) for number in range(nets) for seed in damaged.NETS]
    kinds = Counter[str]()
    assert [*failures(cases, processes, kinds)] == []
    print(kinds)
    assert {"verified", "exit code 2", "exit code 3"} <= kinds.keys(), kinds
