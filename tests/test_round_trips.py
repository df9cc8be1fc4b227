"""Models of the onnx package's own backend tests go through without a byte changed."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import onnx_spatial

FILES = sorted((Path(onnx.__file__).parent / "backend" / "test" / "data").rglob("*.onnx"))

#: All of them where they are few, else a spread: the default run is to be short.
SPREAD = FILES[:: max(1, len(FILES) // 100)]


@pytest.mark.parametrize(
    "files",
    [pytest.param(SPREAD, id="spread"), pytest.param(FILES, id="all", marks=pytest.mark.slow)],
)
def test_files_without_operators_keep_their_bytes(files, tmp_path):
    assert len(files) >= 100
    for number, source in enumerate(files):
        output = tmp_path / f"{number}.onnx"
        assert not onnx_spatial.convert(source, output).changed, source
        assert output.read_bytes() == source.read_bytes(), source
