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
import os
import resource
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import damaged
import onnxruntime as ort
import pytest
from adapter import run

#: A case takes no more processor time, is answered in this time, and takes no more memory.
MAX_SECONDS, ANSWER_SECONDS = 10.0, 300.0
MAX_BYTES = 3 * 2**29  # 1.5 GiB
#: The machine's protection, not a measure: address space is cheap.
MAX_ADDRESS_SPACE = 8 * 2**30
#: A clear line is no longer, whatever the names in the file.
MAX_LINE = 2000
#: Cases that one process takes on.
CASES_OF_A_PROCESS = 1000


@dataclass(frozen=True)
class Outcome:
    """What became of one file.

    Attributes:
        seed, number: of the mutant.
        damage: what was done to the file.
        kind: "verified", "undecided", "nothing to do", or the class of the error.
        message: of the error.
        info: what should not have happened, if anything.
        seconds, peak: of the conversion; bytes beyond those held before.
    """

    seed: str
    number: int
    damage: str = ""
    kind: str = ""
    message: str = ""
    info: str = ""
    seconds: float = 0.0
    peak: int = 0


class Wrong(Exception):
    """What should not have happened."""


def convert(seed: str, number: int) -> Outcome:
    """Make a mutant, convert it, and look at all that is left."""
    with tempfile.TemporaryDirectory() as folder:
        return _convert(seed, number, Path(folder))


def _convert(seed: str, number: int, folder: Path) -> Outcome:
    mutant = damaged.make(seed, number)
    before, after = folder / "in", folder / "out"
    for name, data in mutant.files.items():
        target = before / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    after.mkdir()
    out = after / "out.onnx"
    _forget_peak()
    held = _memory("VmRSS")
    start = _processor_seconds()
    info = ""
    kind, message = "", ""
    try:
        kind, message = _by_command(before / damaged.MODEL, out)
        _check_files(mutant.files, before, after, kind)
        if kind == "verified":
            _check_loads(out)
        if kind == "nothing to do" and out.read_bytes() != mutant.files[damaged.MODEL]:
            raise Wrong("the copy differs")
    except Wrong as wrong:
        info = str(wrong)
    except BaseException:
        info = traceback.format_exc()
    seconds, peak = _processor_seconds() - start, _memory("VmHWM") - held
    if seconds > MAX_SECONDS:
        info = info or f"took {seconds:.0f} s"
    if peak > MAX_BYTES:
        info = info or f"took {peak / 2**20:.0f} MiB"
    return Outcome(
        seed, number, mutant.damage, kind, message[:MAX_LINE], info, round(seconds, 3), peak
    )


def _by_command(path: Path, out: Path) -> tuple[str, str]:
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        code = run(["convert", str(path), "-o", str(out), "--json"])
    try:
        document = json.loads(stdout.getvalue())
    except ValueError:
        raise Wrong(f"stdout is no JSON: {stdout.getvalue()[:200]!r}") from None
    if code:
        lines = stderr.getvalue().splitlines()
        if len(lines) != 1 or not lines[0].startswith("error: ") or "please report" in lines[0]:
            raise Wrong(f"stderr is not one clear line: {stderr.getvalue()[:500]!r}")
        _check_line(lines[0])
        if document["exit_code"] != code or code not in (1, 2, 3):
            raise Wrong(f"exit code {code}, in the document {document['exit_code']}")
        verdict = (document.get("verification") or {}).get("status", "")
        return f"exit code {code} {verdict}".strip(), lines[0]
    if stderr.getvalue():
        raise Wrong(f"stderr after success: {stderr.getvalue()[:500]!r}")
    if not document["changed"]:
        return "nothing to do", ""
    kind = "verified" if document["verification"]["status"] == "passed" else "undecided"
    return kind, document["verification"]["message"]


def _check_line(line: str) -> None:
    if not line or len(line) > MAX_LINE or not line.isprintable():
        raise Wrong(f"no clear line ({len(line)} characters): {line[:300]!r}")


def _check_files(files: damaged.Files, before: Path, after: Path, kind: str) -> None:
    found = {str(p.relative_to(before)): p.read_bytes() for p in before.rglob("*") if p.is_file()}
    if found != dict(files):
        raise Wrong(f"the input was changed: {sorted(found)}")
    names = {str(p.relative_to(after)) for p in after.rglob("*") if p.is_file()}
    done = kind in ("verified", "undecided", "nothing to do")
    allowed = {"out.onnx", *files} - {damaged.MODEL} if done else set()
    if not names <= allowed or ("out.onnx" in names) != done:
        raise Wrong(f"files left after {kind!r}: {sorted(names)}")
    if not done and any(after.iterdir()):
        raise Wrong("a folder is left")


def _check_loads(path: Path) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Wrong(f"verified, but does not load: {error}") from None


def _processor_seconds() -> float:
    return sum(os.times()[:4])


def _forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _memory(which: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{which}:")[1].split()[0]) * 1024


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def outcomes(cases: Iterable[tuple[str, int]], processes: int = 1) -> Iterator[Outcome]:
    """Convert mutants, given by seed and number, in other processes."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, limit, maxtasksperchild=CASES_OF_A_PROCESS) as pool:
        waiting = [(case, pool.apply_async(convert, case)) for case in cases]
        for case, answer in waiting:
            try:
                yield answer.get(ANSWER_SECONDS)
            except multiprocessing.TimeoutError:
                yield Outcome(*case, damage="", kind="", info="the process died or hangs")


def check(cases: list[tuple[str, int]], processes: int = 1) -> Counter[str]:
    """Nothing happens that should not, in any case; what became of them."""
    found = [*outcomes(cases, processes)]
    infos = [f"{o.seed} {o.number} ({o.damage}): {o.info}" for o in found if o.info]
    assert not infos, "\n".join(infos)
    assert len(found) == len(cases)
    print(len(found), counted := Counter(o.kind for o in found))
    return counted


def test_damaged_files_are_converted_or_refused():
    cases = [(seed, number) for number in range(5) for seed in damaged.SMALL]
    kinds = check([*cases, *((seed, number) for number in range(2) for seed in damaged.NETS)])
    assert {"verified", "exit code 2", "exit code 3"} <= kinds.keys(), kinds


@pytest.mark.slow
def test_50000_damaged_files_are_converted_or_refused():
    each = 50_000 // len(damaged.SMALL)
    cases = [(seed, number) for number in range(1000, 1000 + each) for seed in damaged.SMALL]
    cases += [(seed, number) for number in range(1000, 1200) for seed in damaged.NETS]
    check(cases, processes=2)
