"""Help, the version, completion and the package itself import nothing that takes long."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import onnx_spatial
from onnx_spatial.cli.main import commands
from onnx_spatial.conversion import options

MODELS = Path(__file__).parents[2] / "models"

HEAVY = ("google.protobuf", "numpy", "onnx", "onnx_ir", "onnxruntime", "rich", "sympy")

#: Run the command line, or else the code that is given, and list what has been imported by then.
PROGRAM = f"""
import sys
if sys.argv[1] == "-c":
    exec(sys.argv[2])
else:
    from onnx_spatial.cli import main
    try:
        main(sys.argv[2:])
    except SystemExit as end:
        assert not end.code, end.code
print("imported:", *(name for name in {HEAVY} if name in sys.modules))
"""


def ran(*arguments: str, **variables: str) -> tuple[str, list[str]]:
    """What a fresh process prints, and the heavy packages that it imports."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    out, _, imported = done.stdout.rpartition("imported:")
    return out, imported.split()


@pytest.mark.parametrize(
    "arguments", ["--version", "--help", *(f"{name} --help" for name in commands.commands)]
)
def test_help_and_version_import_nothing_heavy(arguments):
    out, imported = ran("main", *arguments.split())
    assert "onnx-spatial" in out
    assert imported == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("onnx-spatial ", [*commands.commands]),
        ("onnx-spatial convert --mo", ["--mode"]),
        ("onnx-spatial convert --mode ", [*options.MODES]),
        ("onnx-spatial inspect --prefer ", [*options.STRATEGY_NAMES]),
    ],
)
def test_completion_imports_nothing_heavy(words, expected):
    number = str(len(words.split()) - (not words.endswith(" ")))
    out, imported = ran(
        "main", _ONNX_SPATIAL_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=number
    )
    assert sorted(line.partition(",")[2] for line in out.splitlines()) == sorted(expected)
    assert imported == []


def test_the_script_for_completion_imports_nothing_heavy():
    out, imported = ran("main", _ONNX_SPATIAL_COMPLETE="zsh_source")
    assert "#compdef onnx-spatial" in out
    assert imported == []


@pytest.mark.parametrize(
    "code",
    [
        "import onnx_spatial; dir(onnx_spatial)",
        "from onnx_spatial import SpatialError, UsageError, __version__",
        "from onnx_spatial.validation import Options, Report; Options()",
    ],
)
def test_the_package_imports_nothing_heavy(code):
    assert ran("-c", code) == ("", [])


def test_a_command_imports_what_it_needs():
    """Otherwise the tests above would see nothing."""
    imported = ran("-c", "import onnx_spatial; onnx_spatial.convert")[1]
    assert {"numpy", "onnx", "onnx_ir", "onnxruntime"} <= {*imported}


def test_no_command_loads_sympy():
    """onnx_ir imports it, which takes some 0.4 s; the model has sizes with names."""
    model = str(MODELS / "yolov2_dynamic" / "model.onnx")
    code = f"""
import sys
import onnx_spatial
from onnx_spatial.cli import main
sys.argv[1:] = ["inspect", "-q", {model!r}]
try:
    main()
except SystemExit as end:
    print(end.code)
print(onnx_spatial.convert({model!r}).verification.status)  # in this process
print("onnx_ir" in sys.modules, "sympy.core" in sys.modules)
"""
    assert ran("-c", code)[0].split()[-4:] == ["0", "passed", "True", "False"]


def test_verify_loads_no_lowering(tmp_path):
    model, converted = str(MODELS / "wavenet" / "model.onnx"), str(tmp_path / "converted.onnx")
    onnx_spatial.convert(model, converted, verify=False)
    code = f"""
import gc, sys
from onnx_spatial.cli import main
sys.argv[1:] = ["verify", {model!r}, {converted!r}]
try:
    main()
except SystemExit as end:
    print(end.code, gc.isenabled())
unneeded = ("fusion", "lowering", "chains.find_chains", "report.page")
print(*(name for name in unneeded if f"onnx_spatial.{{name}}" in sys.modules))
print(type(sys.modules["onnx.reference"]).__name__)
"""
    words = ran("-c", code)[0].split()
    assert words[0] == "PASSED"
    assert words[-3:] == ["0", "True", "_LazyModule"]


def test_modules_that_commands_do_not_need_are_there_on_first_use():
    pytest.importorskip("sympy", reason="needs sympy, which newer versions of onnx_ir require")
    code = """
from onnx_spatial.cli import lazy_imports
lazy_imports.install()
import sympy, sys
print("sympy.core" in sys.modules, sympy.Integer(2) + 1 == 3)
print("sympy.core" in sys.modules)
"""
    assert ran("-c", code)[0].split() == ["False", "True", "True"]


def test_every_public_name_is_found_and_listed():
    for name in onnx_spatial.__all__:
        assert getattr(onnx_spatial, name) is not None
        assert name in dir(onnx_spatial)
    with pytest.raises(AttributeError, match="no attribute 'transmogrify'"):
        onnx_spatial.transmogrify  # noqa: B018


@pytest.mark.parametrize(
    "first", ["verification.run.sessions", "verification", "api", "cli.verify", "custom_ops"]
)
def test_functions_are_not_shadowed_by_modules(first):
    code = f"import onnx_spatial.{first}; print(onnx_spatial.verify, onnx_spatial.convert)"
    assert ran("-c", code)[0].count("<function") == 2
