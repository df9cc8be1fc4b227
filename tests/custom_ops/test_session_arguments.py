"""What `InferenceSession` takes beside onnxruntime's arguments, and what it refuses."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import onnxruntime
import pytest
import running
import sessions
from building import one_node
from definitions import space_to_batch
from onnx import helper, numpy_helper, parser

import onnx_spatial
from onnx_spatial import InferenceSession, VerificationError

X = np.arange(2 * 8 * 8 * 3, dtype=np.float32).reshape(2, 8, 8, 3)
EXPECTED = space_to_batch(X, [2, 2], [(0, 0), (0, 0)])

MODES = [
    "lower",
    "function",
    pytest.param("custom-op", marks=pytest.mark.skipif(
        not onnx_spatial.custom_ops.available(), reason="needs onnxruntime-extensions")),
]  # fmt: skip

DILATED = """
<ir_version: 8, opset_import: ["" : 13]>
g (float[N, 8, 8, 1] x) => (float[N, a, b, 1] y)
<int64[2] block = {2, 2}, int64[2, 2] none = {0, 0, 0, 0}, float[1, 1, 3, 3] w = {1,2,3,4,5,6,7,8,9},
 int64[2, 2] pads = {2, 2, 2, 2}>
{
    s = SpaceToBatchND (x, block, pads)
    t = Transpose <perm = [0, 3, 1, 2]> (s)
    c = Conv (t, w)
    u = Transpose <perm = [0, 2, 3, 1]> (c)
    y = BatchToSpaceND (u, block, none)
}
"""


PLAIN = '<ir_version: 8, opset_import: ["" : 13]> g (float[N] x) => (float[N] y) {y = Relu(x)}'


def spatial(**options: object) -> onnx.ModelProto:
    return one_node("SpaceToBatchND", (X, np.array([2, 2]), np.zeros((2, 2), int)), **options)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("mod", "mode"),
        ("zzz", None),
    ],
)
def test_unknown_names_are_refused(name, meant):
    with pytest.raises(TypeError, match=f"argument {name!r}") as caught:
        InferenceSession(spatial(), **{name: None})
    assert ("did you mean" in str(caught.value)) == (meant is not None)
    assert meant is None or repr(meant) in str(caught.value)


def test_one_model_is_given_by_either_name():
    for named in ({"model": spatial()}, {"path_or_bytes": spatial().SerializeToString()}):
        assert running.same_bits(InferenceSession(**named).run(None, {"x": X})[0], EXPECTED)
    for wrong in ({}, {"model": spatial(), "path_or_bytes": spatial()}):
        with pytest.raises(TypeError, match="takes one model"):
            InferenceSession(**wrong)


@pytest.mark.parametrize("mode", MODES)
def test_verify_verifies_it_first(mode, monkeypatch):
    session = InferenceSession(spatial(), mode=mode, verify=True)
    assert session.conversion.verification
    assert InferenceSession(spatial(), mode=mode).conversion.verification is None
    found = session.conversion.verification

    def fails(*_: object, **__: object) -> object:
        found.status = "failed"
        return found

    monkeypatch.setattr("onnx_spatial.api.verify_conversion", fails)
    with pytest.raises(VerificationError):
        InferenceSession(spatial(), mode=mode, verify=True)


def test_a_session_logs_one_line(caplog):
    def logged(**named: object) -> str:
        caplog.clear()
        InferenceSession(parser.parse_model(DILATED), **named)
        (record,) = (r for r in caplog.records if r.levelno == logging.INFO)
        return record.getMessage()

    caplog.set_level(logging.INFO, "onnx_spatial")
    assert logged() == "model: 2 operators became 1 dilated convolution"
    assert logged(verify=True).startswith("model: 2 operators became 1 dilated convolution; passed")
    caplog.clear()
    InferenceSession(parser.parse_model(PLAIN))
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.INFO] == [
        "model: nothing to convert"
    ]
    session = InferenceSession(parser.parse_model(PLAIN), static={"N": 3})
    assert session.get_inputs()[0].shape == [3]


# External data that lies in memory


def elsewhere(model: onnx.ModelProto) -> tuple[onnx.ModelProto, bytes]:
    """A model whose initializers lie in the file w.bin, and that file."""
    data = b""
    for tensor in model.graph.initializer:
        raw = numpy_helper.to_array(tensor).tobytes()
        lean = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        lean.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "w.bin"), ("offset", len(data)), ("length", len(raw))):
            lean.external_data.add(key=key, value=str(value))
        tensor.CopyFrom(lean)
        data += raw
    return model, data


def added() -> onnx.ModelProto:
    """y = spatial(x) + weight, all parameters initializers."""
    model = spatial()
    model.graph.node[0].output[0] = "moved"
    model.graph.node.append(helper.make_node("Add", ["moved", "weight"], ["y"]))
    model.graph.initializer.append(numpy_helper.from_array(np.float32([7, 8, 9]), "weight"))
    return model


#: onnxruntime reads them when a session is made.
KEPT: list[object] = []


def by_name(names: tuple[str, ...]) -> onnxruntime.SessionOptions:
    arrays = {t.name: numpy_helper.to_array(t) for t in added().graph.initializer}
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(arrays[n]) for n in names]
    options = sessions.options()
    options.add_external_initializers(list(names), values)
    KEPT.append(values)
    return options


def in_files(data: bytes) -> onnxruntime.SessionOptions:
    options = sessions.options()
    options.add_external_initializers_from_files_in_memory(["w.bin"], [data], [len(data)])
    return options


@pytest.mark.skipif(
    not hasattr(onnxruntime.SessionOptions, "add_external_initializers_from_files_in_memory"),
    reason="this onnxruntime takes no files in memory",
)
@pytest.mark.parametrize("mode", MODES)
def test_external_data_may_be_given_in_memory(tmp_path, mode):
    wanted = EXPECTED + np.float32([7, 8, 9])
    model, data = elsewhere(added())
    names = tuple(t.name for t in model.graph.initializer)
    partly = added()
    weight, _ = elsewhere(added())
    partly.graph.initializer[-1].CopyFrom(weight.graph.initializer[-1])
    cases = [
        (given, take, held)
        for take, held, models in (
            (in_files, data, (model, partly)),
            (by_name, names, (model,)),
            (by_name, ("weight",), (partly,)),
        )
        for given in models
    ]
    for given, take, held in cases:
        (tmp_path / "w.bin").write_bytes(bytes(len(data)))  # what is in memory goes before it
        path = tmp_path / "model.onnx"
        path.write_bytes(given.SerializeToString())
        options = take(held)
        for form in (given.SerializeToString(), given, path):
            session = InferenceSession(form, options, mode=mode)
            assert running.same_bits(session.run(None, {"x": X})[0], wanted)


@pytest.mark.parametrize("mode", MODES)
def test_data_that_is_nowhere_is_named(tmp_path, mode):
    model, _ = elsewhere(added())
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    for options in (None, sessions.options()):
        with pytest.raises(
            onnx_spatial.ModelFileError, match=r"'w\.bin' is missing.*put it beside"
        ):
            InferenceSession(tmp_path / "model.onnx", options, mode=mode)


def test_conversion_in_memory_reads_no_weights(tmp_path):
    partly, whole = added(), elsewhere(added())[0]
    partly.graph.initializer[-1].CopyFrom(whole.graph.initializer[-1])
    (tmp_path / "model.onnx").write_bytes(partly.SerializeToString())
    for given in (partly, tmp_path / "model.onnx"):
        assert onnx_spatial.convert(given, verify=False).changed
        with pytest.raises(onnx_spatial.ModelFileError, match=r"w\.bin"):
            onnx_spatial.convert(given)
        with pytest.raises(onnx_spatial.ModelFileError, match=r"w\.bin"):
            onnx_spatial.convert(given, tmp_path / "out.onnx", verify=False)
