"""Weights that lie elsewhere: in links, hard and symbolic.

Model hubs and package installers keep files once and link to them. onnxruntime follows what stays in the
folder of the model (or of what the model is a link to); onnx's own loader follows no link of any kind.
"""

import os
from pathlib import Path

import adapter
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from definitions import space_to_batch
from parsing import model

import onnx_spatial

X = np.arange(1 * 4 * 6 * 3, dtype=np.float32).reshape(1, 4, 6, 3)
DATA = "model.onnx_data"
EXPECTED = space_to_batch(X, [2, 2], [(1, 1), (0, 2)]) + np.float32(2)  # the largest weight


def with_data(path: Path) -> Path:
    """A model with its weight, which is an output too, in a file beside it."""
    made = model(
        """g (float[1,4,6,3] x) => (float z, float[3] w) {
        y = SpaceToBatchND(x, block, pads) m = ReduceMax <keepdims = 0> (w) z = Add(y, m) }""",
        opset=13,
        **{"block": [2, 2], "pads": [[1, 1], [0, 2]], "w": np.arange(3, dtype=np.float32)},
    )
    made.graph.output[0].type.tensor_type.ClearField("shape")
    weight = made.graph.initializer[-1]
    path.with_name(DATA).write_bytes(weight.raw_data)
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=DATA)
    path.write_bytes(made.SerializeToString())
    return path


def hard_links(path: Path) -> Path:
    for name in (path.name, DATA):
        os.link(path.with_name(name), path.with_name(f"other-{name}"))
    return path


def link_within(path: Path) -> Path:
    path.with_name(DATA).rename(path.with_name("real"))
    path.with_name(DATA).symlink_to("real")
    return path


def hub(path: Path) -> Path:
    """snapshots/0/model.onnx -> ../../blobs/0, and its data the same."""
    folder = path.parent / "snapshots" / "0"
    folder.mkdir(parents=True)
    (path.parent / "blobs").mkdir()
    for number, name in enumerate((path.name, DATA)):
        path.with_name(name).rename(path.parent / "blobs" / str(number))
        (folder / name).symlink_to(f"../../blobs/{number}")
    return folder / path.name


def data_elsewhere(path: Path) -> Path:
    """onnxruntime refuses that one, and runs what is made of it."""
    (path.parent / "elsewhere").mkdir()
    (path.parent / "in").mkdir()
    path.with_name(DATA).rename(path.parent / "elsewhere" / "0")
    (path.parent / "in" / DATA).symlink_to("../elsewhere/0")
    return path.rename(path.parent / "in" / path.name)


@pytest.fixture(params=[hard_links, link_within, hub, data_elsewhere])
def linked(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(request.param(with_data(tmp_path / "model.onnx")))


def check(session: ort.InferenceSession) -> None:
    np.testing.assert_array_equal(session.run(["z"], {"x": X})[0], EXPECTED)


def content(folder: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in folder.iterdir() if p.is_file()}


@pytest.mark.parametrize("folder", ["", "out"])
def test_what_is_made_of_linked_data_runs(linked, folder):
    before = content(linked.parent)
    output = linked.parent / folder / "out.onnx"
    output.parent.mkdir(exist_ok=True)
    assert onnx_spatial.convert(linked, output).verification
    check(ort.InferenceSession(output))
    assert onnx_spatial.verify(linked, output)
    assert content(linked.parent).items() >= before.items()
    assert not any(p.is_symlink() for p in output.parent.iterdir() if p not in before)


@pytest.mark.parametrize("mode", ["lower", "function"])
def test_a_session_runs_it(linked, mode):
    check(onnx_spatial.InferenceSession(linked, mode=mode))


def test_in_place_a_copy_takes_the_place_of_a_link_that_leads_out(tmp_path):
    path = data_elsewhere(with_data(tmp_path / "model.onnx"))
    assert adapter.run(["convert", str(path), "--in-place"]) == 0
    check(ort.InferenceSession(path))
    assert sorted(os.listdir(path.parent)) == ["model.onnx", DATA, f"{DATA}_1"]
    assert not path.with_name(f"{DATA}_1").is_symlink()


def test_a_second_conversion_uses_the_copy_of_the_first_and_no_other(tmp_path):
    path = hub(with_data(tmp_path / "model.onnx"))
    (path.parent / "out.onnx_data").write_bytes(b"somebody else's")
    for _ in range(2):
        onnx_spatial.convert(path, path.parent / "out.onnx")
    made = {n for n in os.listdir(path.parent) if n.startswith("out")}
    assert made == {"out.onnx", "out.onnx_data", "out.onnx_data_1"}
    assert (path.parent / "out.onnx_data").read_bytes() == b"somebody else's"
