"""Break lines of the engine on purpose, one at a time, and count how many the golden tests notice.

    python tests/golden/break_lines.py --seed 1 --lines 12

Only lines inside functions are drawn, and only those that some golden test executes. A broken line is a
flipped comparison, an integer off by one, + and - or `and` and `or` swapped, a `not` dropped, or two
arguments swapped. It is tried in a copy of the checkout, with the tests that call its function.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnxruntime  # noqa: F401
import pytest

TOP = Path(__file__).parents[2]
ROOMS = ("lowering", "fusion", "operators", "conversion", "chains")
COPIED = ("onnx_spatial", "cli", "custom_ops", "tests", "models", "pyproject.toml")
#: Calls of a function in which its lines are recorded, and seconds that a broken engine may take.
CALLS, SECONDS = 3000, 400

SWAPPED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip

# ---------------------------------------------------------------- which tests execute which lines


class Recorder:
    """A plugin of pytest: which lines of a package tests execute, and which functions each test."""

    def __init__(self, package: Path, every: int, file: Path) -> None:
        self.package, self.every, self.file = f"{package}{os.sep}", every, file
        self.calls: Counter[object] = Counter()
        self.lines: set[tuple[str, int]] = set()
        self.tests: dict[tuple[str, int], set[str]] = defaultdict(set)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = items[:: self.every]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        def call(frame, event, argument):
            code = frame.f_code
            if not code.co_filename.startswith(self.package):
                return None
            self.tests[code.co_filename, code.co_firstlineno].add(item.nodeid)
            self.calls[code] += 1
            return line if self.calls[code] < CALLS else None

        def line(frame, event, argument):
            self.lines.add((frame.f_code.co_filename, frame.f_lineno))
            return line

        sys.settrace(call)
        try:
            return (yield)
        finally:
            sys.settrace(None)

    def pytest_sessionfinish(self) -> None:
        tests = [[*at, sorted(names)] for at, names in self.tests.items()]
        self.file.write_text(json.dumps({"lines": sorted(self.lines), "tests": tests}))


# ---------------------------------------------------------------- broken lines


def broken(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the ways to break one expression."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        yield ast.Compare(
            node.left, [SWAPPED[type(node.ops[0])](), *node.ops[1:]], node.comparators
        )
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPPED:
        yield ast.BinOp(node.left, SWAPPED[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(SWAPPED[type(node.op)](), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Call) and len(node.args) > 1:
        first, second, *others = node.args
        if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
            yield ast.Call(node.func, [second, first, *others], node.keywords)


def breaks(source: str) -> dict[int, list[tuple[int, str]]]:
    """By lines inside functions: the first line of the function, and the line when it is broken."""
    lines = source.splitlines(keepends=True)
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
        for statement in function.body:
            for node in _expressions(statement):
                if node.lineno == node.end_lineno:
                    text = lines[node.lineno - 1].encode()
                    before, after = text[: node.col_offset], text[node.end_col_offset :]
                    for other in broken(node):
                        # In brackets, so that the operators around it bind as before.
                        line = before + f"({ast.unparse(other)})".encode() + after
                        found[node.lineno][line.decode()] = first  # the inner function comes last
    return {at: [(first, text) for text, first in ways.items()] for at, ways in found.items()}


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what stands in a statement, but for the texts of f-strings, which say no columns."""
    if isinstance(node, ast.expr):
        yield node
    if not isinstance(node, ast.JoinedStr):
        for child in ast.iter_child_nodes(node):
            yield from _expressions(child)


# ---------------------------------------------------------------- the trial


def run(copy: Path, *arguments: str, plugins: Sequence[object] = ()) -> bool:
    """Return whether pytest passes in a copy of the checkout, in time.

    In a fork: what the tests import of others is there already.
    """
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_run, args=(copy, arguments, plugins))
    process.start()
    process.join(None if plugins else SECONDS)
    if process.exitcode is None:
        process.kill()
    return process.exitcode == 0


def _run(copy: Path, arguments: Sequence[str], plugins: Sequence[object]) -> None:
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        given = ["-n", "0", "-q", "-p", "no:cacheprovider", *arguments]
        sys.exit(pytest.main(given, list(plugins)))


def recorded(copy: Path, every: int) -> tuple[set[tuple[str, int]], dict[tuple[str, int], list]]:
    """Return the lines of the engine that golden tests execute, and the tests of each function."""
    file = copy / "recorded.json"
    if not file.exists():
        plugin = Recorder(copy / "onnx_spatial", every, file)
        if not run(copy, "tests/golden", plugins=[plugin]):
            raise SystemExit("golden tests fail without a broken line")
    found = json.loads(file.read_text())
    tests = {(path, first): names for path, first, names in found["tests"]}
    return set(map(tuple, found["lines"])), tests


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    parser.add_argument("--lines", type=int, default=12, help="for each seed")
    parser.add_argument("--every", type=int, default=1, help="try only each so-manieth test")
    parser.add_argument(
        "--copy", type=Path, help="keep the copy here, or take that of a call before"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copy = (arguments.copy or Path(folder)).resolve()
        if not (copy / "recorded.json").exists():
            for name in COPIED:
                copied = shutil.copytree if (TOP / name).is_dir() else shutil.copy
                copied(TOP / name, copy / name)
        lines, tests = recorded(copy, arguments.every)
        files = [p for room in ROOMS for p in sorted((copy / "onnx_spatial" / room).rglob("*.py"))]
        ways = {
            (path, at): found
            for path in files
            for at, found in breaks(path.read_text("utf-8")).items()
            if (str(path), at) in lines
        }
        print(f"{len(ways)} lines can be broken", flush=True)
        for seed in arguments.seed:
            rng, noticed = random.Random(seed), 0
            for path, at in rng.sample(list(ways), arguments.lines):
                first, text = rng.choice(ways[path, at])
                names = tests[str(path), first]
                rng.shuffle(names)
                noticed += (killed := try_line(copy, path, at, text, names))
                place = f"{path.relative_to(copy)}:{at}"
                print(f"{'noticed ' if killed else 'SURVIVED'} {place} ({len(names)} tests)")
                print(f"         {text.strip()}", flush=True)
            print(f"seed {seed}: {noticed} of {arguments.lines} are noticed", flush=True)
    return 0


def try_line(copy: Path, path: Path, at: int, text: str, names: list[str]) -> bool:
    """Return whether a test fails with a broken line."""
    source = path.read_text("utf-8")
    lines = source.splitlines(keepends=True)
    lines[at - 1] = text
    path.write_text("".join(lines), "utf-8")
    chosen = copy / "chosen"
    chosen.write_text("\n".join(names))
    try:
        return not run(copy, "-x", f"@{chosen}")
    finally:
        path.write_text(source, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
