"""Run the command line in the current process or in one of its own, and hold what it prints."""

import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import parser

PLAIN = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,2] x) => (float[2,N] y) { y = Transpose<perm = [1, 0]>(x) }
"""
S2B = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (float[N,4,6,3] x) => (y) <int32[2] block = {2, 3}, int32[2,2] pads = {1, 1, 0, 0}> {
    [s2b] y = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, pads)
}
"""
#: A program that is the command line, for code in front of it.
MAIN = "import sys; from onnx_spatial.cli.main import main\n{}\nmain(sys.argv[1:])"


@dataclass(frozen=True)
class Ran:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def document(self) -> dict[str, Any]:
        """What --json printed; nothing else is on stdout."""
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def error(self) -> str:
        """The one line on stderr."""
        (line,) = filter(None, self.err.splitlines())
        assert line.startswith("error: ")
        return line


def write(text: str, path: str | Path) -> str:
    """Write a model given as ONNX text."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(parser.parse_model(text).SerializeToString())
    return str(path)


def in_process(words: str, before: str = "", **named: Any) -> subprocess.Popen[str]:
    """Start a command line in a process of its own, behind some code."""
    command = [sys.executable, "-P", "-c", MAIN.format(before), *shlex.split(words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **{**pipes, **named})


def ran(words: str, before: str = "", **named: Any) -> Ran:
    """Run a command line in a process of its own, behind some code."""
    with in_process(words, before, **named) as process:
        out, err = process.communicate(timeout=300)
    return Ran(process.returncode, out, err)
