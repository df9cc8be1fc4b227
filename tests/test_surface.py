"""The surface of 1.0: every command, option, function, parameter and public name, in one place.

A name that is added or goes fails here: after 1.0 none may change without a new major version.
"""

from __future__ import annotations

import inspect
import re

import adapter
import pytest

import onnx_spatial
from onnx_spatial import passes, reference

OUTPUT = "--json -q/--quiet -v/--verbose -h/--help"
EDITING = "--domain --static --prefer --max-rank"
CONVERSION = f"{EDITING} --mode --no-fuse --checked"
COMPARED = "--strict --strict-proof --shape --seed --memory"
VERIFICATION = f"{COMPARED} --inputs --time-limit --reproducer --rtol --atol --outputs-only"
WRITING = "-o/--output --in-place --dry-run --check --save-as-external-data --no-verify"
OPTIONS = {
    "inspect": f"{EDITING} {OUTPUT}",
    "convert": f"{CONVERSION} {WRITING} {VERIFICATION} --html {OUTPUT}",
    "optimize": f"{CONVERSION} {WRITING} {VERIFICATION} --html {OUTPUT}",
    "verify": f"--domain --static {VERIFICATION} --html {OUTPUT}",
    "validate": f"{CONVERSION} {COMPARED} --timeout --optimize --exclude --expect-failure -j/--jobs "
    f"--junit-xml --executor --scheduler --html {OUTPUT}",
}

NAMES = """
    Conversion ConversionError InferenceSession Inspection ModelFileError OperatorError SpatialError
    UsageError Verification VerificationError VerifyOptions __version__ convert custom_ops inspect
    optimize passes reference verify
"""
CUSTOM_OPS = "available explain prepare raising register"

EDITED = (
    "mode='lower', fuse=True, prefer=None, max_rank=None, checked=False, domains=(), static=None"
)
WITH_CHAINS = EDITED.replace("prefer", "chains=False, prefer")
COMPARE = """strict=False, strict_proof=False, inputs=None, shapes=None, seed=0, rtol=None, atol=None,
    outputs_only=False, time_limit=60.0, memory=None, reproducer=None"""
SIGNATURES = {
    onnx_spatial.inspect: "model, *, chains=True, prefer=None, max_rank=None, domains=(), static=None",
    onnx_spatial.convert: f"model, output=None, *, {WITH_CHAINS}, verify=True, external_data=False, "
    "progress=None",
    onnx_spatial.optimize: f"model, output=None, *, {EDITED}, verify=True, external_data=False, "
    "progress=None",
    onnx_spatial.verify: "original, converted, options=VerifyOptions("
    f"{COMPARE.replace('inputs=None, ', '')}), *, domains=(), static=None",
    onnx_spatial.VerifyOptions: COMPARE,
    onnx_spatial.InferenceSession: "path_or_bytes=None, sess_options=None, providers=None, "
    "provider_options=None, *, model=None, mode='lower', fuse=True, chains=False, domains=(), "
    "static=None, verify=False, **onnxruntime_arguments",
    onnx_spatial.custom_ops.prepare: "model",
    onnx_spatial.custom_ops.register: "sess_options",
    onnx_spatial.custom_ops.raising: "",
    onnx_spatial.custom_ops.explain: "error",
    onnx_spatial.custom_ops.available: "",
    passes.SpatialPass: f"*, {WITH_CHAINS}, verify=False",
    reference.operators: "domain",
}


def test_commands_are_these(capsys):
    assert adapter.run(["--help"]) == 0
    commands = capsys.readouterr().out.partition("Commands")[2]
    assert set(re.findall(r"^ +([a-z]+)  ", commands, re.MULTILINE)) == {*OPTIONS}


@pytest.mark.parametrize("command", OPTIONS)
def test_a_command_has_these_options(command, capsys):
    assert adapter.run([command, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = [re.match(r" +(?:(-\w), )?(--[a-z-]+)\b", line) for line in lines]
    options = {"/".join(filter(None, each.groups())) for each in found if each}
    assert options == {*OPTIONS[command].split()}


def test_public_names_are_these():
    assert sorted(onnx_spatial.__all__) == sorted(NAMES.split())
    assert sorted(onnx_spatial.custom_ops.__all__) == CUSTOM_OPS.split()
    assert all(hasattr(onnx_spatial, name) for name in onnx_spatial.__all__)


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda f: f.__name__)
def test_a_function_has_these_parameters(function):
    signature = inspect.signature(function)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    found = str(signature.replace(parameters=plain, return_annotation=signature.empty))
    assert re.sub(r"\s+", "", found) == re.sub(r"\s+", "", f"({SIGNATURES[function]})")


@pytest.mark.parametrize("function", [onnx_spatial.convert, onnx_spatial.optimize])
def test_an_unknown_keyword_is_a_type_error(function):
    with pytest.raises(TypeError, match="strategy"):
        function(b"", strategy="gather")


def test_optimize_is_convert_with_chains():
    with pytest.raises(TypeError, match="chains"):
        onnx_spatial.optimize(b"", chains=True)
