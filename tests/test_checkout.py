"""A checkout is a whole package: installed or not, from its root or from anywhere else.

The copy has a version of its own, so that no other onnx_spatial of this machine is taken for it.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from onnx_spatial import custom_ops

ROOT = Path(__file__).parents[1]
FOLDERS = ("onnx_spatial", "cli", "custom_ops")
MODEL = ROOT / "models" / "wavenet" / "model.onnx"
pytestmark = pytest.mark.skipif(
    not all((ROOT / name).is_dir() for name in FOLDERS), reason="the tests stand alone"
)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    top = tmp_path_factory.mktemp("checkout")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, top / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", top)
    init = top / "onnx_spatial" / "__init__.py"
    text = init.read_text("utf-8")
    assert '__version__ = "' in text
    init.write_text(text.replace('__version__ = "', '__version__ = "9.'), "utf-8")
    return top


def python(checkout: Path, *arguments: str | Path, root: bool = True) -> str:
    """What Python writes, at the root of the checkout or elsewhere with the root on its path."""
    elsewhere = checkout.parent
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=checkout if root else elsewhere,
        env={**os.environ, "PYTHONPATH": "" if root else str(checkout)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


WHERE = """
import onnx_spatial.cli
from onnx_spatial import InferenceSession, custom_ops
from onnx_spatial.validation.run import validate
assert callable(validate)
print(*(m.__file__ for m in (onnx_spatial, onnx_spatial.cli, custom_ops)), sep="\\n")
"""


@pytest.mark.parametrize(("module", "root"), [("onnx_spatial", True), ("onnx_spatial.api", False)])
def test_its_modules_are_its_own_and_write_and_run_custom_operators(checkout, module, root):
    """Those are in a row above conversion and verification, which find them all the same."""
    given = f"{str(MODEL)!r}, mode='custom-op', verify={custom_ops.available()}"
    line = f"from {module} import convert; assert convert({given}).changed"
    found = python(checkout, "-c", line + WHERE, root=root).splitlines()
    assert found == [str(checkout / name / "__init__.py") for name in FOLDERS]


def test_validation_s_processes_are_of_the_same_package(checkout):
    """Their folder is another: the package must not be looked up there."""
    python(checkout, "-m", "onnx_spatial", "validate", MODEL, "--mode", "lower")


def test_another_project_s_folder_is_left_alone(checkout, tmp_path):
    """The package in a folder of somebody else's, whose `cli` is none of ours."""
    shutil.copytree(checkout / "onnx_spatial", tmp_path / "onnx_spatial")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "theirs"\n')
    found = python(tmp_path, "-c", "import onnx_spatial; print(*onnx_spatial.__path__)")
    assert found.split() == [str(tmp_path / "onnx_spatial")]


def test_the_source_distribution_has_what_the_tests_need(tmp_path):
    """Every file that git knows of, but for its own."""
    pytest.importorskip("setuptools", minversion="77", reason="builds the distribution")
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("the tests are not in a clone")
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True)
    copy = tmp_path / "clone"
    names = [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]
    for name in names:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    build = "from setuptools import build_meta; print(build_meta.build_sdist('dist'))"
    python(copy, "-c", build)
    (made,) = (copy / "dist").glob("*.tar.gz")
    with tarfile.open(made) as archive:
        held = {n.partition("/")[2] for n in archive.getnames()}
    assert set(names) - held == {".gitignore"}
