"""Models of other frameworks are named, with the command that exports them."""

from __future__ import annotations

import zipfile

import pytest

import onnx_spatial

OPS = "--custom-ops SpaceToBatchND,BatchToSpaceND,ExtractImagePatches,ExtractVolumePatches"


def archive(path, name):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(name, b"{}")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved = tmp_path / "my net"
    saved.mkdir()
    (saved / "saved_model.pb").write_bytes(b"\x08\x01\x12\x02\x0a\x00")
    (tmp_path / "net.tflite").write_bytes(b"\x1c\x00\x00\x00TFL3\x14\x00")
    (tmp_path / "net.h5").write_bytes(b"\x89HDF\r\n\x1a\n\x00\x00")
    (tmp_path / "frozen.pb").write_bytes(b"\x0a\x05\x0a\x03inp")
    archive(tmp_path / "net.keras", "config.json")
    archive(tmp_path / "net.pt", "archive/data.pkl")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("my net", f"--saved-model 'my net' --output 'my net.onnx' --opset 17 {OPS}"),
        ("net.tflite", f"--tflite net.tflite --output net.onnx --opset 17 {OPS}"),
        ("net.keras", f"--keras net.keras --output net.onnx --opset 17 {OPS}"),
        (
            "frozen.pb",
            "--graphdef frozen.pb --inputs INPUT:0 --outputs OUTPUT:0 --output frozen.onnx --opset 17 "
            + OPS,
        ),
    ],
)
def test_tensorflow_gets_the_command_of_tf2onnx(folder, path, command):
    with pytest.raises(onnx_spatial.ModelFileError) as caught:
        onnx_spatial.inspect(path)
    assert caught.value.code == "export-first"
    assert str(caught.value).endswith(f"export it first with: python -m tf2onnx.convert {command}")


def test_pytorch_has_an_exporter_of_its_own(folder):
    with pytest.raises(onnx_spatial.ModelFileError, match=r"torch\.onnx\.export"):
        onnx_spatial.inspect("net.pt")


def test_others_keep_their_message(folder):
    (folder / "empty").mkdir()
    (folder / "bad.onnx").write_bytes(b"\xff\xff")
    archive(folder / "other.zip", "readme.txt")
    (folder / "cut.zip").write_bytes(b"PK\x03\x04")
    for path, code in (
        ("empty", "unreadable"),
        ("bad.onnx", "not-onnx"),
        ("other.zip", "not-onnx"),
        ("cut.zip", "not-onnx"),
        ("none.onnx", "unreadable"),
    ):
        with pytest.raises(onnx_spatial.ModelFileError) as caught:
            onnx_spatial.inspect(path)
        assert caught.value.code == code, path
