"""The process that forks for each model has imported by then what a model needs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from onnx_spatial.validation.options import Options
from onnx_spatial.validation.workers.job import Job

MODEL = Path(__file__).parents[2] / "models" / "wavenet" / "model.onnx"
PROGRAM = """
import sys
from dataclasses import asdict
from pathlib import Path
from onnx_spatial.validation.workers import job, worker
worker.available()
before = set(sys.modules)
job.do(Path(sys.argv[1]))
print(*(name for name in set(sys.modules) - before if name.startswith(("onnx", "numpy"))))
"""


def test_a_fork_imports_nothing_of_its_own(tmp_path):
    options = Options(modes=("lower", "function", "custom-op"))
    job = Job(MODEL.name, str(MODEL.parent), options.to_dict())
    (tmp_path / "job.json").write_text(json.dumps(asdict(job)))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
    assert json.loads((tmp_path / "result.json").read_text())["status"] == "passed"
