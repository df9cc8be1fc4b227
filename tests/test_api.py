"""The public calls: their names and parameters, what may be given, what comes back, what is left.

A name that is added or goes fails here: after 1.0 none may change without a new major version.
"""

import re
from inspect import signature as signature_of
from pathlib import Path

import adapter
import numpy as np
import onnx
import onnx_ir as ir
import pytest
import running
import structure
from definitions import space_to_batch
from onnx import parser

import onnx_spatial
from onnx_spatial import (
    ConversionError,
    ModelFileError,
    SpatialError,
    UsageError,
    VerificationError,
    convert,
    inspect,
    passes,
    reference,
)

TEXT = """<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[N,4,W,1] x) => (float[?,?,?,?] y) <int32[2] block = {2, 2}, int32[2,2] pads = {PADS}> {
        [site] y = com.microsoft.SpaceToBatchND(x, block, pads)
    }"""


def model(pads: str = "1, 1, 0, 0") -> onnx.ModelProto:
    return parser.parse_model(TEXT.replace("PADS", pads))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "in.onnx"
    target.write_bytes(model().SerializeToString())
    return target


def broken(tmp_path: Path) -> Path:
    target = tmp_path / "broken.onnx"
    target.write_bytes(model("-1, 1, 0, 0").SerializeToString())
    return target


@pytest.mark.parametrize("kind", ["path", "string", "bytes", "ModelProto", "onnx_ir.Model"])
def test_a_model_is_given_in_any_form_and_stays_as_it_was(kind, path):
    before = path.read_bytes()
    given = {
        "path": path,
        "string": str(path),
        "bytes": before,
        "ModelProto": onnx.load(path),
        "onnx_ir.Model": ir.load(path),
    }[kind]
    result = convert(given)
    assert isinstance(result.model, onnx.ModelProto)
    assert not structure.spatial(result.model)
    assert result.changed
    assert bool(result.verification)
    assert path.read_bytes() == before
    if kind == "ModelProto":
        assert given == onnx.load(path)
    if kind == "onnx_ir.Model":
        assert [n.op_type for n in given.graph] == ["SpaceToBatchND"]
    x = np.arange(24, dtype=np.float32).reshape(1, 4, 6, 1)
    (y,) = running.run(result.model, {"x": x})
    assert running.same_bits(y, space_to_batch(x, (2, 2), [(1, 1), (0, 0)]))


def test_a_refused_operator_is_an_error_that_names_it_and_no_file_is_left(tmp_path):
    source = broken(tmp_path)
    with pytest.raises(ConversionError) as caught:
        convert(source, tmp_path / "out.onnx")
    assert str(caught.value) == (
        f"{source}: SpaceToBatchND 'site' in main graph on [N, 4, W, 1]: "
        "SpaceToBatch: paddings[0][0] is -1; it must not be negative"
    )
    assert caught.value.exit_code == 3
    assert caught.value.inspection.operators[0].action == "refuse"
    assert [p.name for p in tmp_path.iterdir()] == ["broken.onnx"]


def test_what_cannot_be_verified_is_not_written(path, tmp_path, monkeypatch):
    """A lowering that is wrong must be found out by the verification."""
    from onnx_spatial.lowering import permutation

    stage = permutation.Stage
    monkeypatch.setattr(
        permutation,
        "Stage",
        lambda kind, before, after: stage(kind, before, after[1::-1] + after[2:]),
    )
    with pytest.raises(VerificationError) as caught:
        convert(path, tmp_path / "out.onnx", prefer="transpose")
    assert caught.value.verification is not None and "site" in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["in.onnx"]


def test_every_error_is_one_line_and_of_one_family(tmp_path):
    for error in (ConversionError, ModelFileError, UsageError, VerificationError):
        assert issubclass(error, SpatialError)
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    for given in (tmp_path / "none.onnx", tmp_path / "bad.onnx", broken(tmp_path), tmp_path):
        for call in (inspect, convert):
            if call is inspect and given.name == "broken.onnx":
                continue  # to be told what is broken is what inspect is for
            with pytest.raises(SpatialError) as caught:
                call(given)
            assert "\n" not in str(caught.value)
            assert str(given) in str(caught.value)


def test_the_repr_of_a_conversion_holds_no_model():
    made = model()
    made.graph.doc_string = "x" * 9999
    for given in (made, made.SerializeToString(), ir.from_proto(made)):
        shown = repr(convert(given, verify=False))
        assert "1 operator (1 lower)" in shown and "\n" not in shown and len(shown) < 100


def test_a_folder_is_said_to_be_one_whatever_the_system_says_of_it(tmp_path, monkeypatch):
    real = Path.open

    def denied(self: Path, *arguments: str, **named: object) -> object:
        if self.is_dir():
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, *arguments, **named)

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(ModelFileError, match="is a folder, not a model file"):
        convert(tmp_path)


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


def test_commands_and_options_are_these(capsys):
    assert adapter.run(["--help"]) == 0
    commands = capsys.readouterr().out.partition("Commands")[2]
    assert set(re.findall(r"^ +([a-z]+)  ", commands, re.MULTILINE)) == {*OPTIONS}
    for command, listed in OPTIONS.items():
        assert adapter.run([command, "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        found = [re.match(r" +(?:(-\w), )?(--[a-z-]+)\b", line) for line in lines]
        options = {"/".join(filter(None, each.groups())) for each in found if each}
        assert options == {*listed.split()}, command


def test_public_names_are_these():
    assert sorted(onnx_spatial.__all__) == sorted(NAMES.split())
    assert sorted(onnx_spatial.custom_ops.__all__) == CUSTOM_OPS.split()
    assert all(hasattr(onnx_spatial, name) for name in onnx_spatial.__all__)


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda f: f.__name__)
def test_a_function_has_these_parameters(function):
    signature = signature_of(function)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    found = str(signature.replace(parameters=plain, return_annotation=signature.empty))
    assert re.sub(r"\s+", "", found) == re.sub(r"\s+", "", f"({SIGNATURES[function]})")
