"""What a release needs: metadata, absolute links on PyPI, one version everywhere, the recipe."""

from __future__ import annotations

import importlib.util
import re
import shutil
import tomllib
from pathlib import Path

import pytest

import onnx_spatial

TOP = Path(__file__).parents[1]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
REPOSITORY = "https://example.com/someone/onnx-spatial"


@pytest.fixture(scope="module")
def release():
    spec = importlib.util.spec_from_file_location("release", TOP / ".ci" / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path):
    """The files that a release changes."""
    for name in ("README.md", "CHANGELOG.md", "pyproject.toml"):
        shutil.copy(TOP / name, tmp_path / name)
    for name in ("onnx_spatial/__init__.py", "conda/recipe.yaml"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(TOP / name, tmp_path / name)
    return tmp_path


def test_the_links_of_the_readme_are_absolute_on_pypi(release, copy):
    relative = [path for _, _, path in release.LINK.findall((TOP / "README.md").read_text("utf-8"))]
    assert len(relative) > 10
    release.addresses(copy, REPOSITORY)
    text = (copy / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    start = f"{REPOSITORY}/blob/v{onnx_spatial.__version__}/"
    paths = {link.removeprefix(start) for link in links if link.startswith(start)}
    assert {"docs/operators.md", "docs/codes.md"} <= paths
    assert [p for p in paths if not (TOP / p.partition("#")[0]).exists()] == []


@pytest.mark.parametrize("pages", ["https://example.com/docs/", None])
def test_the_addresses_are_in_the_metadata(release, copy, pages):
    release.addresses(copy, f"{REPOSITORY}/", pages)
    urls = tomllib.loads((copy / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    assert urls["Source"] == REPOSITORY and urls["Issues"] == f"{REPOSITORY}/issues"
    tag = f"v{onnx_spatial.__version__}"
    assert urls["Documentation"] == (
        "https://example.com/docs" if pages else f"{REPOSITORY}/tree/{tag}/docs"
    )
    assert all(re.match(r"https://example\.com/\S+$", url) for url in urls.values())
    with pytest.raises(SystemExit, match="already"):
        release.addresses(copy, REPOSITORY)


def test_a_release_has_one_version_and_its_section(release, copy):
    with pytest.raises(SystemExit, match=r"the tag is v9\.8\.7, the version"):
        release.check(copy, "v9.8.7")
    release.set_version(copy, "9.8.7")
    release.check(copy, "v9.8.7")
    assert release.notes(copy).startswith("### Added")
    assert "## Unreleased\n\n## 9.8.7 - 2" in (copy / "CHANGELOG.md").read_text("utf-8")
    (copy / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n", "utf-8")
    with pytest.raises(SystemExit, match="no section"):
        release.check(copy, "v9.8.7")
    with pytest.raises(SystemExit, match="not a version"):
        release.set_version(copy, "9.8")


def test_classifiers_name_every_python_of_the_matrix():
    yaml = pytest.importorskip("yaml")
    ci = yaml.safe_load((TOP / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    matrix = ci["jobs"]["tests"]["strategy"]["matrix"]
    minors = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    assert matrix["python"] == minors == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == f">={minors[0]}"
    assert [name.partition("-")[0] for name in matrix["os"]] == ["ubuntu", "macos", "windows"]


def test_the_recipe_is_that_of_the_project():
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((TOP / "conda" / "recipe.yaml").read_text("utf-8"))
    assert recipe["context"]["version"] == onnx_spatial.__version__
    needed = {d.replace(">=", " >=") for d in PROJECT["dependencies"] if ";" not in d}
    assert {*recipe["requirements"]["run"]} == needed | {f"python {PROJECT['requires-python']}"}
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert entry == f"onnx-spatial = {PROJECT['scripts']['onnx-spatial']}"
    assert recipe["about"]["license"] == PROJECT["license"]
