"""What `mypy --strict` says of programs that use the package."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="it checks the types of the package (extra [test])")

TOP = Path(__file__).parents[1]

#: The modules whose types programs see; all others would take mypy a minute.
SEEN = """
onnx_spatial onnx_spatial.api onnx_spatial.passes
onnx_spatial.conversion.options onnx_spatial.custom_ops onnx_spatial.custom_ops.session
onnx_spatial.model.io.reader onnx_spatial.model.io.source
"""

RIGHT = """
import onnx_spatial
from typing import Literal

def opened(model: str, mode: Literal["lower", "function"]) -> onnx_spatial.InferenceSession:
    return onnx_spatial.InferenceSession(model, mode=mode, static={"N": 1}, enable_fallback=0)

onnx_spatial.convert("m.onnx", "o.onnx", mode="function").touched["nodes_added"].append("n")
onnx_spatial.passes.SpatialPass(mode="lower", domains=["com.mine"])
"""

#: Wrong lines, and the code of mypy's error.
WRONG = {
    'onnx_spatial.InferenceSession("m.onnx", mode="lowr")': "arg-type",
    'onnx_spatial.InferenceSession("m.onnx", mod="lower")': "call-arg",
    'onnx_spatial.InferenceSession("m.onnx", None, None, None, "lower")': "call-arg",
    "onnx_spatial.InferenceSession(3)": "arg-type",
    'onnx_spatial.convert("m.onnx", mode="lowr")': "arg-type",
    'onnx_spatial.passes.SpatialPass(mode="lowr")': "arg-type",
    'onnx_spatial.optimize("m.onnx", chains=True)': "call-arg",
}


def test_mypy_strict_takes_right_programs_and_refuses_wrong_ones(tmp_path):
    package = tmp_path / "site" / "onnx_spatial"
    package.mkdir(parents=True)
    for path in (*(TOP / "onnx_spatial").iterdir(), TOP / "custom_ops", TOP / "cli"):
        (package / path.name).symlink_to(path)
    skipped = ["[mypy]", "[mypy-onnx_spatial.*]", "follow_imports = skip"]
    seen = [f"[mypy-{name}]\nfollow_imports = silent" for name in SEEN.split()]
    (tmp_path / "mypy.ini").write_text("\n".join([*skipped, *seen]))
    (tmp_path / "right.py").write_text(RIGHT)
    head = "import onnx_spatial.passes\n"
    (tmp_path / "wrong.py").write_text(head + "\n".join(WRONG))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "right.py", "wrong.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(tmp_path / "site"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[:2] for line in lines] == [
        ["wrong.py", str(number)] for number, _ in enumerate(WRONG, start=2)
    ], done.stdout + done.stderr
    assert [line.rpartition("[")[2].rstrip("]") for line in lines] == [*WRONG.values()]
