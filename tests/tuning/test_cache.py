"""The file of figures: shared, replaced in one step, never in the way."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from onnx_spatial.errors import ModelFileError, UsageError
from onnx_spatial.tuning import Cache, default_path
from onnx_spatial.tuning.cache import key_of

REQUEST = {"operator": "SpaceToBatch", "shape": [1, 2, 3]}
FIGURES = {"transpose": 1.5, "row-gather": None}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tune.json"


def test_what_was_kept_is_found_again(path):
    assert Cache(path).get(REQUEST) is None
    assert Cache(path).put(REQUEST, FIGURES) == FIGURES
    assert Cache(path).get(REQUEST) == FIGURES
    assert Cache(path).get({**REQUEST, "shape": [1, 2, 4]}) is None
    assert [p.name for p in path.parent.iterdir()] == ["tune.json"]


def test_the_order_of_a_description_does_not_matter():
    assert key_of(dict(reversed(REQUEST.items()))) == key_of(REQUEST)


def test_in_memory_only():
    cache = Cache()
    cache.put(REQUEST, FIGURES)
    assert cache.get(REQUEST) == FIGURES


def test_the_first_process_counts(path):
    first, second = Cache(path), Cache(path)
    first.put(REQUEST, FIGURES)
    second.put({"operator": "other"}, FIGURES)
    assert second.put(REQUEST, {"transpose": 9.0, "row-gather": 9.0}) == FIGURES
    assert len(json.loads(path.read_text())["entries"]) == 2


def test_figures_of_other_strategies_are_replaced(path):
    Cache(path).put(REQUEST, FIGURES)
    now = {"transpose": 3.0}
    assert Cache(path).put(REQUEST, now) == now
    assert Cache(path).get(REQUEST) == now


def kept() -> str:
    entries = {key_of(REQUEST): {"request": REQUEST, "measured_us": FIGURES}}
    return json.dumps({"onnx_spatial_tune_cache": 1, "entries": entries})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0" * 100,
        kept()[:-10],
        kept().replace('cache": 1', 'cache": 2'),
        kept().replace("1.5", "NaN"),
        kept().replace("1.5", "-1"),
        kept().replace("1.5", "true"),
        kept().replace("1.5", '"fast"'),
        kept().replace('"entries": {', '"entries": [], "old": {'),
        '{"onnx_spatial_tune_cache": 1}',
        '{"onnx_spatial_tune_cache": 1, "entries": {"a": 3}}',
        '{"onnx_spatial_tune_cache": ' + "[" * 20_000,
    ],
)
def test_a_damaged_file_counts_as_empty(path, text):
    path.write_text(text)
    cache = Cache(path)
    assert cache.get(REQUEST) is None
    cache.put(REQUEST, FIGURES)
    assert Cache(path).get(REQUEST) == FIGURES


@pytest.mark.parametrize("content", [b"\x08\x08\x12\x07pytorch", b"{}", b"notes"])
def test_a_file_of_something_else_stays(path, content):
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"is not a tune cache and is not overwritten"):
        Cache(path)
    assert path.read_bytes() == content


def test_a_file_that_was_asked_for_must_work(tmp_path):
    with pytest.raises(ModelFileError, match="there is no folder"):
        Cache(tmp_path / "none" / "tune.json")
    with pytest.raises(ModelFileError, match="cannot be read"):
        Cache(tmp_path)


def test_the_default_is_made_and_is_never_in_the_way(tmp_path):
    deep = tmp_path / "a" / "b" / "tune.json"
    Cache(deep, required=False).put(REQUEST, FIGURES)
    assert Cache(deep).get(REQUEST) == FIGURES
    (tmp_path / "file").touch()
    nowhere = Cache(tmp_path / "file" / "tune.json", required=False)
    assert nowhere.put(REQUEST, FIGURES) == FIGURES
    assert Cache(tmp_path, required=False).get(REQUEST) is None


def test_where_the_default_is(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert default_path() == Path("/caches/onnx-spatial/tune.json")
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert default_path() == Path("/home/me/.cache/onnx-spatial/tune.json")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_path() == Path("/home/me/Library/Caches/onnx-spatial/tune.json")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert default_path() == Path("/local/onnx-spatial/tune.json")


def test_without_a_home_there_is_no_default(monkeypatch):
    def home() -> Path:
        raise RuntimeError("could not determine home directory")

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    assert default_path() is None
