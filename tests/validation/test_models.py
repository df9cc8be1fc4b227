"""Files, folders and globs become a list of models that is the same every time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onnx_spatial.errors import UsageError
from onnx_spatial.validation.run import find


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models, as the current one."""
    for name in (
        "b.onnx", "a.onnx", "a10.onnx", "notes.txt", "deep/er/c.ONNX", "deep/model.onnx",
        "deep/model.npz", ".git/hidden.onnx", ".hidden.onnx",
    ):  # fmt: skip
        path = tmp_path / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(paths: list[str]) -> list[str]:
    return [Path(p).as_posix() for p in paths]


def test_a_folder_stands_for_all_models_below_it_sorted(tree):
    assert names(find(["models"])) == [
        "models/a.onnx",
        "models/a10.onnx",
        "models/b.onnx",
        "models/deep/er/c.ONNX",
        "models/deep/model.onnx",
    ]


def test_globs_stand_for_what_they_match(tree):
    assert names(find(["models/a*.onnx"])) == ["models/a.onnx", "models/a10.onnx"]
    assert names(find(["models/**/model.*"])) == ["models/deep/model.onnx"]
    assert names(find(["mod*"])) == names(find(["models"]))
    assert find([str(tree / "models" / "b*")]) == [str(tree / "models" / "b.onnx")]


def test_each_model_comes_once_in_the_order_of_the_paths_and_each_link_too(tree):
    """A store of large files makes them: equal models are links to one file, with data of their own."""
    (tree / "models" / "z-link.onnx").symlink_to("b.onnx")
    found = names(find(["models/b.onnx", "models", "./models/a.onnx"]))
    assert found[0] == "models/b.onnx" and "models/z-link.onnx" in found
    assert len(found) == 6


def test_a_folder_that_cannot_be_listed_is_no_empty_one(tree, monkeypatch):
    scandir = os.scandir

    def refusing(path):
        if Path(path).name == "er":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(UsageError, match="er: cannot be listed: Permission denied"):
        find(["models"])


def test_what_is_excluded_is_left_out_of_folders_and_globs_only(tree):
    assert names(find(["models"], ["a*", "models/deep/*"])) == ["models/b.onnx"]
    assert names(find(["./models"], ["a*", "./models/deep/*"])) == ["models/b.onnx"]
    assert names(find(["models/a.onnx"], ["a*"])) == ["models/a.onnx"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nowhere", "there is no such file or folder"),
        ("models/*.tflite", "matches no file"),
        ("models/.git/empty", "contains no .onnx file"),
    ],
)
def test_a_path_without_a_model_is_an_error(tree, path, reason):
    (tree / "models/.git/empty").mkdir()
    with pytest.raises(UsageError, match=reason):
        find(["models/a.onnx", path])
