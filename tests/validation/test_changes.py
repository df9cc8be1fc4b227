"""What git sees changed since a revision: a model, its weights, its recorded data."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from validating import image, record, save, space_to_batch

from onnx_spatial.errors import UsageError
from onnx_spatial.validation.select.changes import since

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit: a model with everything, one with weights beside it, one more."""
    top = tmp_path / "top"
    save(top / "full" / "model.onnx")
    record(top / "full", [image()], [space_to_batch(image())])
    np.savez(top / "full" / "model.npz", x=image())
    model = onnx.load(save(top / "heavy" / "model.onnx"))
    for tensor in model.graph.initializer:  # only raw data can go to another file
        raw = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name)
        tensor.CopyFrom(raw)
    onnx.save(
        model,
        top / "heavy" / "model.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    save(top / "other.onnx")
    (top / "readme.md").write_text("hello")
    git(tmp_path, "init", "-q", "-b", "main", str(top))
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "first")
    monkeypatch.chdir(top)
    return top


MODELS = ["full/model.onnx", "heavy/model.onnx", "other.onnx"]


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def test_nothing_changed(repository):
    (repository / "readme.md").write_text("other")
    assert since(MODELS, "HEAD") == []


@pytest.mark.parametrize(
    ("changed", "model"),
    [
        ("full/model.onnx", "full/model.onnx"),
        ("full/model.npz", "full/model.onnx"),
        ("full/test_data_set_0/output_0.pb", "full/model.onnx"),
        ("heavy/weights.bin", "heavy/model.onnx"),
        ("other.onnx", "other.onnx"),
    ],
)
@pytest.mark.parametrize("how", ["edited", "staged", "committed"])
def test_a_change_selects_its_model_only(repository, changed, model, how):
    append(repository / changed)
    if how != "edited":
        git(repository, "add", ".")
    if how == "committed":
        git(repository, "commit", "-q", "-m", "second")
    assert since(MODELS, "main~1" if how == "committed" else "main") == [model]


def test_recorded_data_that_is_gone_is_a_change(repository):
    (repository / "full/test_data_set_0/output_0.pb").unlink()
    assert since(MODELS, "HEAD") == ["full/model.onnx"]


@pytest.mark.parametrize("gone", ["test_data_set_0", "model.npz"])
def test_a_whole_set_that_is_gone_is_a_change(repository, gone):
    git(repository, "rm", "-rq", f"full/{gone}")
    assert since(MODELS, "HEAD") == ["full/model.onnx"]


def test_new_and_untracked_models_count(repository):
    save(repository / "new model é.onnx")
    assert since([*MODELS, "new model é.onnx"], "HEAD") == ["new model é.onnx"]


def test_paths_may_be_absolute_or_seen_from_below(repository, monkeypatch):
    append(repository / "other.onnx")
    monkeypatch.chdir(repository / "full")
    paths = ["../other.onnx", str(repository / "other.onnx"), "model.onnx"]
    assert since(paths, "HEAD") == paths[:2]


def test_a_model_that_cannot_be_read_counts_when_something_beside_it_changed(repository):
    (repository / "heavy" / "weights.bin").unlink()
    assert since(MODELS, "HEAD") == ["heavy/model.onnx"]


@pytest.mark.parametrize("revision", ["nowhere", "--help", ""])
def test_an_unknown_revision_is_an_error(repository, revision):
    with pytest.raises(UsageError, match=r"(knows no|is not a git) revision"):
        since(MODELS, revision)


def test_models_outside_a_repository_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UsageError, match="not a git repository"):
        since([str(save(tmp_path / "a.onnx"))], "HEAD")


def linked(repository: Path) -> None:
    """A model whose weights and recorded data are links, committed."""
    shared, folder = repository / "shared", repository / "linked"
    shared.mkdir(exist_ok=True)
    shutil.copytree(repository / "heavy", folder)
    shutil.move(folder / "weights.bin", shared / "first.bin")
    shutil.copy(shared / "first.bin", shared / "second.bin")
    shutil.copytree(repository / "full" / "test_data_set_0", shared / "set")
    shutil.copy(repository / "full" / "model.npz", shared / "model.npz")
    (folder / "weights.bin").symlink_to("../shared/first.bin")
    (folder / "test_data_set_0").symlink_to("../shared/set")
    (folder / "model.npz").symlink_to("../shared/model.npz")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "links")


@pytest.mark.parametrize("name", ["first.bin", "set/input_0.pb", "model.npz"])
def test_what_a_link_leads_to(repository: Path, name: str) -> None:
    linked(repository)
    path = repository / "shared" / name
    path.write_bytes(path.read_bytes() + b"1")
    assert since(["linked/model.onnx", "other.onnx"], "HEAD") == ["linked/model.onnx"]


@pytest.mark.parametrize(
    ("name", "target"),
    [("weights.bin", "second.bin"), ("test_data_set_0", "other"), ("model.npz", "other.npz")],
)
def test_a_link_that_leads_elsewhere(repository: Path, name: str, target: str) -> None:
    (repository / "shared" / "other").mkdir(parents=True)
    linked(repository)
    (repository / "linked" / name).unlink()
    (repository / "linked" / name).symlink_to(f"../shared/{target}")
    assert since(["linked/model.onnx", "other.onnx"], "HEAD") == ["linked/model.onnx"]


def test_a_submodule_that_is_at_another_commit(repository: Path, tmp_path: Path) -> None:
    """Its own HEAD has not changed: what the repository around it holds of it has."""
    other = tmp_path / "other"
    save(other / "model.onnx")
    git(tmp_path, "init", "-q", "-b", "main", str(other))
    git(other, "add", ".")
    git(other, "commit", "-q", "-m", "first")
    allowed = ("-c", "protocol.file.allow=always")
    git(repository, *allowed, "submodule", "add", "-q", str(other), "inner")
    git(repository, "commit", "-q", "-m", "submodule")
    models = ["inner/model.onnx", "other.onnx"]
    assert since(models, "HEAD") == []
    git(repository / "inner", "commit", "-q", "--allow-empty", "-m", "second")
    assert since(models, "HEAD") == ["inner/model.onnx"]
