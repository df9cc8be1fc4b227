"""Codes of errors and warnings: each error has one, each is explained, and none changes its meaning."""

from __future__ import annotations

import ast
import json
import pickle
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnx_spatial
from onnx_spatial import errors
from onnx_spatial.cli.main import commands, run
from onnx_spatial.errors import Code, messages

TOP = Path(__file__).parents[1]
SOURCES = [p for part in ("onnx_spatial", "cli", "custom_ops") for p in (TOP / part).rglob("*.py")]
TREES = {path: ast.parse(path.read_text("utf-8")) for path in SOURCES}

#: The meaning of a code is for ever: a new one goes to the end of its group, none is removed.
PINNED = """
OS101 USAGE                OS102 INPUT_DATA         OS103 NAME              OS104 SAME_FILE
OS105 PACKAGE_MISSING      OS106 NO_MODELS          OS107 REGISTRATION
OS201 UNREADABLE           OS202 NOT_ONNX           OS203 GIT_LFS_POINTER   OS204 EXPORT_FIRST
OS205 EXTERNAL_DATA        OS206 INVALID_GRAPH      OS207 DAMAGED           OS208 TOO_LARGE
OS209 UNWRITABLE           OS210 FILE_CHANGED       OS211 DATA_FILE         OS212 NO_REPRODUCER
OS213 NO_MEMORY
OS301 OPERATOR_RULE        OS302 NOT_DIVISIBLE      OS303 CROPS_EXCEED      OS304 OUT_OF_RANGE
OS305 RANK                 OS306 OVERFLOW           OS307 WINDOW            OS308 ATTRIBUTE
OS309 PARAMETER
OS401 NOT_CONVERTED        OS402 OPSET_TOO_OLD      OS403 IR_VERSION        OS404 UNKNOWN_DOMAIN
OS405 NO_LOWERING          OS406 ELEMENT_TYPE       OS407 OPSET_NOT_RAISED  OS408 FUNCTION_BODY
OS409 FOREIGN_OPERATOR
OS410 BEYOND_LIMITS
OS501 DIFFERENT            OS502 UNVERIFIED         OS503 NOT_PROVEN        OS504 WOULD_CHANGE
OS601 RECORDED_DATA        OS602 DOES_NOT_RUN       OS603 CRASH             OS604 TIMEOUT
OS605 MEMORY_LIMIT         OS606 WORKER_LOST        OS607 NOT_VALIDATED     OS608 PASSED_UNEXPECTEDLY
OS901 BUG                  OS902 INTERRUPTED
""".split()

#: Exceptions that are caught inside of the package, or that Python's own protocols ask for.
INTERNAL = {
    *("AssertionError", "AttributeError", "BudgetExhausted", "Closed", "Ended", "FileExistsError"),
    *("Interrupted", "KeyboardInterrupt", "LookupError", "MemoryError", "OSError", "OverflowError"),
    "ModuleNotFoundError",
    *(
        "IllegalError",
        "RunFailure",
        "Silent",
        "TimeLimitError",
        "TooLargeError",
        "TypeError",
        "UndecidedError",
        "UnnamedError",
    ),
    *("AgainError", "ValueError", "WireError", "_InvalidError", "_UnknownError"),
}


def subclasses(kind: type[errors.SpatialError]) -> set[type[errors.SpatialError]]:
    return {kind, *(each for sub in kind.__subclasses__() for each in subclasses(sub))}


def calls():
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield path, node


def test_no_code_changes_its_meaning():
    assert [*zip(PINNED[::2], PINNED[1::2], strict=True)] == [(c.value, c.name) for c in Code]


def test_every_code_is_explained():
    assert [*messages.MESSAGES] == [*Code]
    titles = {message.title for message in messages.MESSAGES.values()}
    assert len(titles) == len(Code)
    for code, message in messages.MESSAGES.items():
        assert code[:3] in messages.GROUPS
        assert (TOP / "docs" / message.page).is_file(), code
        for text in (message.cause, message.remedy):
            assert text[-1] in ".)" and text[0] != " ", code
        assert message.example


def test_the_page_of_codes_is_what_the_table_says():
    page = (TOP / "docs" / "codes.md").read_text("utf-8")
    assert page == messages.markdown(), "python -m onnx_spatial.errors.messages > docs/codes.md"


def test_every_exception_has_a_code_or_stays_inside():
    names = {kind.__name__ for kind in subclasses(errors.SpatialError)} | {"UsageError", "Exit"}
    raised = {
        node.exc.func.id
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
        and node.exc.func.id[0] in "_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        and (node.exc.func.id[0] != "_" or node.exc.func.id.endswith("Error"))
    }
    assert raised - names - INTERNAL == set()


def test_codes_are_given_by_name():
    names = {kind.__name__ for kind in subclasses(errors.SpatialError)}
    given = 0
    for path, call in calls():
        code = next((k.value for k in call.keywords if k.arg == "code"), None)
        if call.func.id in names and isinstance(code, ast.Attribute):
            named = ast.unparse(code).removeprefix("Code.")
            assert named in Code.__members__ or "." in named, f"{path}:{call.lineno}"
            given += 1
    assert given > 100


def test_every_code_is_in_use():
    used = {
        node.attr
        for path, tree in TREES.items()
        if path.name != "messages.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Code"
    }
    assert used == {*Code.__members__}


@pytest.mark.parametrize("kind", sorted(subclasses(errors.SpatialError), key=lambda c: c.__name__))
def test_every_class_has_a_code(kind):
    assert isinstance(kind.code, Code)


def test_a_code_survives_a_process_boundary():
    error = errors.ModelFileError("m.onnx: is a pointer", code=Code.GIT_LFS_POINTER)
    assert pickle.loads(pickle.dumps(error)).code == "OS203"
    assert errors.ModelFileError("m.onnx: cannot be read").code == "OS201"


def test_an_error_has_its_code_on_screen_in_json_and_in_python(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"")
    assert run(["inspect", str(path)]) == 2
    assert capsys.readouterr().err.endswith(" is not an ONNX model: it is empty [OS202]\n")
    assert run(["inspect", str(path), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["code"] == "OS202"
    assert "OS202" not in document["error"]
    with pytest.raises(onnx_spatial.ModelFileError) as caught:
        onnx_spatial.inspect(path)
    assert caught.value.code == "OS202"


def test_a_wrong_option_has_a_code(capsys):
    assert run(["convert", "m.onnx", "--no-such-option", "--json"]) == 2
    out, err = capsys.readouterr()
    assert err.rstrip().endswith("[OS101]")
    assert json.loads(out)["code"] == "OS101"


def test_a_refused_operator_has_the_code_of_its_rule():
    node = onnx.helper.make_node(
        "SpaceToBatchND", ["x", "b", "p"], ["y"], "n", domain="ai.onnx.converters.tensorflow"
    )
    block, pads = (
        onnx.numpy_helper.from_array(array, name)
        for name, array in (("b", np.array([2])), ("p", np.array([[0, 0]])))
    )
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 5, 3]), ("y", None))
    )
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y], [block, pads]))
    (site,) = onnx_spatial.inspect(model).sites
    assert site.code == "OS302"
    with pytest.raises(onnx_spatial.ConversionError) as caught:
        onnx_spatial.convert(model)
    assert caught.value.code == "OS302"


def test_explain_says_cause_and_remedy(capsys):
    assert run(["explain", "205", "os901"]) == 0
    out = capsys.readouterr().out
    for code in (Code.EXTERNAL_DATA, Code.BUG):
        message = messages.MESSAGES[code]
        assert f"{code}: {message.title}" in out and message.cause in out and message.remedy in out


def test_explain_lists_all_codes(capsys):
    assert run(["explain"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {code}  {messages.MESSAGES[code].title}\n" in out for code in Code)
    assert run(["explain", "--json"]) == 0
    assert [m["code"] for m in json.loads(capsys.readouterr().out)["codes"]] == [*Code]


def test_an_unknown_code_is_one_line(capsys):
    assert run(["explain", "OS999"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: there is no code OS999; 'onnx-spatial explain' lists all codes [OS101]\n"


def test_no_error_or_warning_is_printed_without_a_code():
    """A text that begins so is an argument of `coded`, itself or by the name that it is given."""
    bare = []
    for path, tree in TREES.items():
        if path.parent.name != "cli":
            continue
        source = path.read_text("utf-8")
        inside = {
            id(part)
            for call in ast.walk(tree)
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "coded"
            for part in ast.walk(call)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and str(node.value).startswith(
                ("error: ", "warning: ")
            ):
                line = source.splitlines()[node.lineno - 1]
                if id(node) not in inside and not re.match(r" *text = f", line):
                    bare.append(f"{path.name}:{node.lineno}: {line.strip()}")
    assert bare == []


def test_explanations_and_guides_name_options_that_exist():
    own = {
        name
        for command in commands.commands.values()
        for parameter in command.params
        for name in parameter.opts
    }
    of_tf2onnx = {"--custom-ops", "--graphdef", "--inputs", "--keras", "--output", "--outputs"}
    of_tf2onnx |= {"--opset", "--saved-model", "--tflite"}
    pages = [
        *(TOP / "docs" / "guides").glob("*.md"),
        TOP / "docs" / "codes.md",
        *(TOP / "docs" / "errors").glob("*.md"),
    ]
    for page in pages:
        named = {*re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text("utf-8"))}
        assert named - own - of_tf2onnx == {"--help"} & named, page.name
