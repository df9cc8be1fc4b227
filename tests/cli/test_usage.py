"""What is wrong with a command line, a file or an operator is one line; defaults of options."""

import os
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
from commands import PLAIN, S2B, write
from onnx import numpy_helper, parser

import onnx_spatial

TOO_LONG = "x" * 300
USAGE = [
    ("convert m.onnx", "missing output: use -o OUT, --in-place, or --dry-run to write nothing"),
    ("convert m.onnx -o m.onnx", "the output must not be the input"),
    ("convert m.onnx -o o.onnx --in-place", "-o OUT and --in-place cannot be combined"),
    ("convert m.onnx -o no/folder/o.onnx", "there is no folder"),
    ("convert m.onnx --check --rtol 1", "--rtol and --check cannot be combined"),
    ("convert m.onnx --in-place --save-as-external-data", "requires -o OUT"),
    ("convert m.onnx -o out -q", "write out.onnx for a file, out/ for a folder"),
    ("convert m.onnx p.onnx -o p.onnx", "-o p.onnx is a file"),
    ("convert m.onnx p.onnx -o new.onnx", "write -o new.onnx/ if that is its name"),
    ("convert m.onnx p.onnx -o .", "m.onnx is a model of this call"),
    ("optimize m.onnx --dry-run --strict-proof --outputs-only", "outputs only cannot be combined"),
    (
        "optimize m.onnx --dry-run --no-verify --rtol 0.1",
        "--rtol and --no-verify cannot be combined",
    ),
    ("convert m.onnx --dry-run --static H=4", "no symbolic dim named H"),
    ("convert m.onnx --dry-run --static N=1 --static N=2", "--static 'N' is set twice"),
    ("convert m.onnx --dry-run --static N=9999999999999999999", "9999999999999999999 is too large"),
    ("convert m.onnx --dry-run --shape x=a,b", "--shape must be NAME=SIZES"),
    ("convert m.onnx --dry-run --mode magic", "Invalid value"),
    ("inspect m.onnx --prefer magic", "magic"),
    ("convert m.onnx --dry-run --max-rank 0", "Invalid value"),
    ("inspect", "Missing argument"),
    (
        "inspect .",
        ".: is a folder, not a model file; name a file in it, such as m.onnx, or give it to",
    ),
    ("frobnicate m.onnx", "No such command"),
    (f"validate m.onnx --junit-xml {TOO_LONG}", TOO_LONG),
    ("convert m.onnx -j 2", "-j is an option of validate; onnx-spatial convert --help"),
    ("inspect m.onnx --statik N=1", "No such option"),
    ("convert m.onnx -o o.onnx --html no/r.html", "there is no folder"),
    ("convert m.onnx -o o.onnx --html m.onnx", "would replace the model m.onnx"),
    ("validate m.onnx --html m.onnx", "m.onnx: cannot be written: it exists, and is no report"),
    ("validate m.onnx --junit-xml m.onnx", "it exists, and is no report"),
    ("convert m.onnx --dry-run --html p.onnx", "it exists, and is no report"),
    ("validate m.onnx --html r --junit-xml ./r", "--html and --junit-xml name the same file"),
    ("validate nowhere", "nowhere: there is no such file or folder"),
    ("validate m.onnx *.tflite", "matches no file"),
    ("validate m.onnx --junit-xml no/r.xml", "no/r.xml: cannot be written"),
    ("validate m.onnx --scheduler tcp://x", "requires --executor dask"),
    (
        "validate m.onnx --executor dask --scheduler x -j 2",
        "--jobs cannot be combined with --executor",
    ),
    ("validate m.onnx --timeout nan", "timeout must be above 0"),
    ("validate", "PATH"),
    ("convert m.onnx -o o.onnx --rtol -1", "--rtol must be a number of 0 or more"),
    ("verify m.onnx m.onnx --rtol y=", "--rtol must be a number of 0 or more"),
    ("verify m.onnx m.onnx --rtol z=0.1", "rtol: the model has no output 'z'; its outputs are 'y'"),
    ("convert m.onnx -o o.onnx --rtol z=0.1", "rtol: the model has no output 'z'"),
    ("convert m.onnx -o o.onnx --rtol 0.1 --rtol 0.2", "--rtol is set twice"),
]


@pytest.mark.parametrize(("words", "message"), USAGE, ids=[words[:40] for words, _ in USAGE])
def test_bad_usage_is_exit_code_2_and_one_line(words, message, cli):
    write(S2B, "m.onnx")
    write(PLAIN, "p.onnx")
    done = cli(words)
    assert (done.code, done.out) == (2, "")
    assert message in done.error
    assert sorted(os.listdir()) == ["m.onnx", "p.onnx"]


def test_a_refusal_is_in_the_document_and_in_inspect(cli):
    write(S2B.replace("block = {2, 3}", "block = {2, 0}"), "m.onnx")
    done = cli("convert m.onnx --dry-run --json")
    (site,) = done.document["operators"]
    assert (done.code, done.document["exit_code"], site["action"]) == (3, 3, "refuse")
    assert "block_shape[1] is 0" in site["reason"]
    done, said = cli("inspect m.onnx"), "SpaceToBatch: block_shape[1] is 0"
    assert done.code == 3 and f"'s2b' cannot be converted: {said}" in done.out


UNCOUNTED = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (float[1,4,6,3] x, int64[K] given, int64[M,2] pads) => (y) {
    block = Identity(given)
    [s2b] y = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, pads)
}
"""


def test_blocks_of_an_unknown_number_are_refused_in_the_same_words_everywhere(cli):
    model = write(UNCOUNTED, "m.onnx")
    reason = (
        "block_shape is computed at run time and its length is unknown; the number of blocked "
        "axes must be known: declare its shape, with --static NAME=N where the dim has a name"
    )
    assert f"'s2b' cannot be converted: {reason}" in cli("inspect m.onnx").out
    for mode in ("lower", "function", "custom-op"):
        done = cli(f"convert m.onnx -o out.onnx --mode {mode}")
        assert done.code == 3 and "SpaceToBatchND 's2b' in main graph" in done.error
        assert reason in done.error
        with pytest.raises(onnx_spatial.ConversionError, match=r"'s2b' in main graph.*--static"):
            onnx_spatial.InferenceSession(model, mode=mode)
    assert cli("convert m.onnx -o out.onnx --static K=2 --no-verify").code == 0


def test_what_nobody_thought_of_is_one_line_and_leaves_no_file(cli, monkeypatch):
    write(S2B, "m.onnx")
    for error, code, message in (
        (RuntimeError("first line\nsecond line"), 2, "unexpected RuntimeError: first line (a bug"),
        (KeyboardInterrupt(), 130, "error: interrupted"),
        (MemoryError(), 2, "not enough memory; smaller sizes may help (--shape)"),
        (OSError(28, "No space left on device"), 2, "error: No space left on device"),
    ):
        for where in ("api.convert_source", "api.verify_conversion", "model.io.atomic.os.fsync"):
            with monkeypatch.context() as patch:
                patch.setattr(f"onnx_spatial.{where}", Mock(side_effect=error))
                done = cli("convert m.onnx -o out.onnx -q")
            if where != "model.io.atomic.os.fsync" or code == 130:
                assert done.code == code and message in done.error
            assert os.listdir() == ["m.onnx"]


def test_inputs_of_the_user(cli):
    write(S2B, "m.onnx")
    np.savez("data.npz", x=np.ones((3, 4, 6, 3), np.float32))
    done = cli("convert m.onnx -o out.onnx --inputs data.npz --json")
    (made,) = done.document["verification"]["runs"]
    assert made["inputs"]["x"]["shape"] == [3, 4, 6, 3]
    np.savez("other.npz", z=np.ones(3))
    done = cli("verify m.onnx out.onnx --inputs other.npz")
    assert done.code == 2 and "no array for x" in done.error


def test_a_name_with_control_characters_is_escaped(cli):
    model = parser.parse_model(S2B)
    model.graph.node[0].name = "\x1b[2Jgone"
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([2, 2]), "block"))
    onnx.save(model, "m.onnx")
    shown = cli("inspect m.onnx -v").out
    assert "\x1b" not in shown and "\\x1b[2Jgone" in shown


TABLE = "[tool.onnx-spatial]\n"


# [tool.onnx-spatial] of the nearest pyproject.toml sets defaults of options


@pytest.fixture
def folder(cli, monkeypatch):
    write(S2B.replace("ai.onnx.converters.tensorflow", "my"), "models/m.onnx")
    monkeypatch.chdir("models")


@pytest.mark.parametrize(
    ("files", "used"),
    [
        ({}, False),
        ({"../pyproject.toml": f'{TABLE}domain = "my"\n[tool.onnx-spatial.inspect]\n'}, True),
        ({"pyproject.toml": '[tool.onnx-spatial.convert]\ndomain = ["my"]'}, True),
        ({"../pyproject.toml": f'{TABLE}domain = "my"', "pyproject.toml": "[tool"}, True),
        ({"pyproject.toml": f'{TABLE}domain = "my"\nconvert.domain = "other"'}, False),
    ],
)
def test_options_of_the_nearest_file_are_defaults(files, used, cli, folder):
    for name, text in files.items():
        Path(name).write_text(text)
    words = "convert m.onnx --dry-run --json"
    assert cli(words).document["changed"] is used
    assert not cli(f"{words} --domain other").document["changed"]  # the command line goes first


def test_options_of_validate(cli, folder):
    Path("../pyproject.toml").write_text(
        "[tool.onnx-spatial.validate]\njunit-xml = 'r.xml'\nno-fuse = true\nseed = 3\n"
        "mode = ['lower', 'function']\ndomain = ['my']\n"
        "expect-failure = ['other/*']\nexclude = ['other/*']"
    )
    done = cli("validate . --json")
    asked = done.document["options"]
    assert (asked["modes"], asked["fuse"], asked["seed"]) == (["lower", "function"], False, 3)
    assert "other" not in done.err  # globs of a file may match nothing
    assert Path("../r.xml").exists()  # paths are seen from the file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{TABLE}domains = 1", "no command has an option 'domains'; did you mean 'domain'?"),
        (
            f"{TABLE}convert = 1",
            "convert is a command; its options are a table [tool.onnx-spatial.convert]",
        ),
        ("[tool.onnx-spatial.convert]\noutput = 'x'", "convert has no option 'output'"),
        ("[tool.onnx-spatial.convert]\nno-verify = 'x'", "is not a valid boolean"),
        (f"{TABLE}domain = 'my'\nshape = ['x=9,9']", "'x'"),
        ("[tool]\nonnx-spatial = 1", "tool.onnx-spatial must be a table"),
        (f'{TABLE}domain = "my', "pyproject.toml: is no TOML: "),
    ],
)
def test_what_is_no_option_is_bad_usage(text, message, cli, folder):
    Path("pyproject.toml").write_text(text)
    done = cli("convert m.onnx --dry-run")
    assert done.code == 2 and message in done.error
