"""Models of the onnx package's own backend tests go through without a byte changed.

Part of them lies in the package as files; the models of the single-operator tests are made by its
own generators, where they are not files too (until onnx 1.19).
"""

from __future__ import annotations

import functools
import warnings
from pathlib import Path

import onnx
import pytest
from onnx.backend.test.case import node

import onnx_spatial

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
FILES = sorted(DATA.rglob("*.onnx"))

#: All of them where they are few, else a spread: the default run is to be short.
SPREAD = FILES[:: max(1, len(FILES) // 100)]


@functools.cache
def generated() -> list[tuple[str, bytes]]:
    """(name, bytes) of the models that the package makes itself."""
    if (DATA / "node").is_dir():
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = node.collect_testcases(None)
    models = ((case.name, case.model) for case in cases if case.model is not None)
    return [(name, model.SerializeToString()) for name, model in models]


def changed(source: Path, output: Path) -> str | None:
    """What became of a model, if it is not the same file."""
    try:
        result = onnx_spatial.convert(source, output)
    except onnx_spatial.SpatialError as error:
        return f"{type(error).__name__}: {error}"
    if result.changed or output.read_bytes() != source.read_bytes():
        return "changed"
    return None


def failures(files: list[Path], folder: Path) -> dict[str, str]:
    """What went wrong, by file."""
    found = {str(f): changed(f, folder / f"{n}.onnx") for n, f in enumerate(files)}
    return {name: reason for name, reason in found.items() if reason is not None}


def saved(models: list[tuple[str, bytes]], folder: Path) -> list[Path]:
    """The models as files."""
    paths = []
    for name, data in models:
        paths.append(folder / f"{name}.in.onnx")
        paths[-1].write_bytes(data)
    return paths


def test_a_spread_of_the_files_keeps_its_bytes(tmp_path):
    assert len(SPREAD) >= 100
    assert failures(SPREAD, tmp_path) == {}


@pytest.mark.slow
def test_every_file_keeps_its_bytes(tmp_path):
    assert failures(FILES, tmp_path) == {}


@pytest.mark.slow
def test_every_operator_keeps_its_bytes(tmp_path):
    assert len(FILES) + len(generated()) > 1000
    assert failures(saved(generated(), tmp_path), tmp_path) == {}
