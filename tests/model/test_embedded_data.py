"""Large embedded weights stay in the file: what is parsed is light, what is written is whole."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import running
from building import TF
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import onnx_spatial
from onnx_spatial import ModelFileError
from onnx_spatial.model.io import byte_ranges, embedded_data, protobuf_wire, reader, writer

ZOO = Path(__file__).parents[2] / "models"
LARGE = embedded_data.MIN_BYTES


def large(name: str, dtype: object = np.float32) -> TensorProto:
    """A tensor that is just large enough to stay in its file."""
    values = np.arange(LARGE // np.dtype(dtype).itemsize) % 101
    return numpy_helper.from_array(values.astype(dtype), name)


def network() -> onnx.ModelProto:
    """Large tensors wherever a model can hold one, between spatial operators."""
    value = helper.make_tensor_value_info
    branches = {
        name: helper.make_graph(
            [
                helper.make_node("Constant", [], [f"k_{name}"], value=large("k")),
                helper.make_node("Sum", ["s", f"w_{name}", f"k_{name}"], [f"r_{name}"]),
            ],
            name,
            [],
            [value(f"r_{name}", 1, None)],
            [large(f"w_{name}")],
        )
        for name in ("then_branch", "else_branch")
    }
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("SpaceToBatch", ["b", "pads"], ["c"], "site", domain=TF, block_size=2),
        helper.make_node("Reshape", ["c", "flat"], ["s"]),
        helper.make_node("If", ["choice"], ["y"], **branches),
    ]
    stored = [
        large("w"),
        numpy_helper.from_array(np.array([1, 64, 64, LARGE // 4 // 4096], np.int64), "shape"),
        numpy_helper.from_array(np.array([-1], np.int64), "flat"),
        numpy_helper.from_array(np.zeros((2, 2), np.int32), "pads"),
    ]
    inputs = [value("x", 1, [LARGE // 4]), value("choice", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", 1, [LARGE // 4])], stored)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(TF, 1)]
    return helper.make_model(graph, ir_version=9, opset_imports=imports)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    target = tmp_path / "in" / "model.onnx"
    target.write_bytes(network().SerializeToString())
    return target


def written(source: reader.Source, folder: Path) -> bytes:
    writer.write(source.holding(source.proto), folder / "out.onnx")
    return (folder / "out.onnx").read_bytes()


def test_what_is_parsed_is_light_and_what_is_written_is_whole(path, tmp_path):
    source = reader.read(path)
    assert path.stat().st_size > 5 * LARGE
    assert source.proto.ByteSize() < 2000
    assert source.whole() == network()
    assert written(source, tmp_path) == path.read_bytes()
    assert len([t for t in source.proto.graph.initializer if source.weights.hold(t)]) == 1


def test_a_conversion_leaves_them_in_the_file_and_writes_them(path, tmp_path):
    result = onnx_spatial.convert(path, tmp_path / "out.onnx")
    assert result.verification
    assert result.result.proto.ByteSize() < 20_000
    converted = onnx.load(tmp_path / "out.onnx")
    assert converted == result.model
    gone = result.touched["initializers_removed"]
    kept = [t for t in network().graph.initializer if t.name not in gone]
    assert kept and list(converted.graph.initializer)[: len(kept)] == kept
    x = np.arange(LARGE // 4, dtype=np.float32)
    (y,) = running.run(converted, {"x": x, "choice": np.array(True)})
    w = x % 101
    blocks = (x + w).reshape(32, 2, 32, 2, -1).transpose(1, 3, 0, 2, 4).reshape(-1)
    np.testing.assert_array_equal(y, blocks + w + w)


def test_the_command_of_the_verification_sees_through_it(path, tmp_path):
    onnx_spatial.convert(path, tmp_path / "out.onnx", verify=False)
    assert onnx_spatial.verify(path, tmp_path / "out.onnx")
    wrong = onnx.load(tmp_path / "out.onnx")
    wrong.graph.initializer[0].raw_data = wrong.graph.initializer[0].raw_data[:-1] + b"\x43"
    (tmp_path / "out.onnx").write_bytes(wrong.SerializeToString())
    assert not onnx_spatial.verify(path, tmp_path / "out.onnx")


def test_nothing_to_do_is_a_copy_of_the_file(path, tmp_path):
    model = network()
    model.graph.node[2].op_type = "Identity"
    model.graph.node[2].domain = ""
    del model.graph.node[2].attribute[:], model.graph.node[2].input[1]
    data = b"\xc2\x3e\x02hi" + model.SerializeToString()  # a field that no ONNX version has
    path.write_bytes(data)
    assert not onnx_spatial.convert(path, tmp_path / "out.onnx").changed
    assert (tmp_path / "out.onnx").read_bytes() == data


def test_in_place_the_weights_are_read_from_the_file_that_was(path):
    result = onnx_spatial.convert(path, in_place=True)
    assert onnx.load(path) == result.model
    assert os.listdir(path.parent) == ["model.onnx"]


def test_a_file_that_changes_meanwhile_is_noticed(path, tmp_path):
    source = reader.read(path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))
    with pytest.raises(ModelFileError, match=r"model.onnx: was changed while it was converted"):
        source.whole()
    with pytest.raises(ModelFileError, match="was changed while"):
        written(source, tmp_path)
    assert os.listdir(tmp_path) == ["in"]


def test_a_model_hub_s_links_are_followed(path, tmp_path):
    (tmp_path / "blobs").mkdir()
    path.rename(tmp_path / "blobs" / "0123")
    path.symlink_to(tmp_path / "blobs" / "0123")
    assert onnx_spatial.convert(path, path.parent / "out.onnx").verification
    assert onnx.load(path.parent / "out.onnx").graph.initializer[0] == large("w")


DTYPES = [f"{k}{b}" for k in ("int", "uint") for b in (8, 16, 32, 64)]


@pytest.mark.parametrize("dtype", [*DTYPES, "float16", "float32", "float64", "bool"])
def test_every_plain_element_type(dtype, tmp_path):
    check(large("w", dtype), tmp_path, cut=True)


def check(tensor: TensorProto, folder: Path, *, cut: bool, data: bytes | None = None) -> None:
    """A model with the tensor is read and written back as it was."""
    model = network()
    model.graph.initializer[0].CopyFrom(tensor)
    (folder / "model.onnx").write_bytes(data or model.SerializeToString())
    source = reader.read(folder / "model.onnx")
    assert source.weights is not None
    assert source.weights.hold(source.proto.graph.initializer[0]) == cut
    assert source.whole() == onnx.load(folder / "model.onnx", load_external_data=False)
    assert written(source, folder) == model.SerializeToString()


def test_bfloat16(tmp_path):
    tensor = large("w", np.uint16)
    tensor.data_type = TensorProto.BFLOAT16
    check(tensor, tmp_path, cut=True)


def test_a_location_that_is_spelled_out_is_kept(tmp_path):
    tensor = large("w")
    tensor.data_location = TensorProto.DEFAULT
    check(tensor, tmp_path, cut=True)


def test_all_fields_of_a_tensor_are_kept(tmp_path):
    tensor = large("w")
    tensor.doc_string = "of the first layer"
    tensor.metadata_props.add(key="scale", value="0.5")
    tensor.MergeFromString(b"\xc2\x3e\x02hi")
    check(tensor, tmp_path, cut=True)


def odd(change: str) -> TensorProto:
    tensor = large("w")
    match change:
        case "too long":
            tensor.raw_data += b"\0\0\0\0"
        case "too short":
            tensor.raw_data = tensor.raw_data[:-4] + b""
            tensor.dims[0] += 1
        case "rare type":
            tensor.data_type = TensorProto.FLOAT8E4M3FN
        case "no type":
            tensor.ClearField("data_type")
        case "typed field":
            values = numpy_helper.to_array(tensor)
            tensor.ClearField("raw_data")
            tensor.float_data.extend(values)
        case "both fields":
            tensor.float_data.extend([1.0] * LARGE)
        case "small":
            tensor = numpy_helper.from_array(np.zeros(LARGE // 4 - 1, np.float32), "w")
    return tensor


CHANGES = "too long|too short|rare type|no type|typed field|both fields|small".split("|")


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_is_out_of_the_ordinary_stays_as_it_is(change, tmp_path):
    check(odd(change), tmp_path, cut=False)


def test_what_protobuf_would_merge_stays_as_it_is(tmp_path):
    """An attribute may hold its tensor twice on the wire; the second one then adds to the first."""
    half = helper.make_attribute("value", large("k")).SerializeToString()
    twice = half + TensorProto(doc_string="more").SerializeToString().join([b"\x2a\x06", b""])
    node = onnx.NodeProto(op_type="Constant", output=["k"]).SerializeToString()
    node += protobuf_wire.field(5, twice)
    model = network()
    data = model.SerializeToString() + protobuf_wire.field(7, protobuf_wire.field(1, node))
    (tmp_path / "model.onnx").write_bytes(data)
    source = reader.read(tmp_path / "model.onnx")
    merged = source.proto.graph.node[-1].attribute[0].t
    assert len(merged.raw_data) == LARGE
    assert merged.doc_string == "more"
    assert source.whole() == onnx.load(tmp_path / "model.onnx")


def test_a_damaged_file_is_left_for_protobuf_to_judge(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelFileError, match="was cut off: protobuf cannot parse its"):
        reader.read(path)


def test_what_would_exceed_2_gib_is_refused(path, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "MAX_BYTES", path.stat().st_size - 1)
    with pytest.raises(ModelFileError, match=r"out.onnx: the model exceeds the 2 GiB"):
        written(reader.read(path), tmp_path)
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize("name", sorted(p.parent.name for p in ZOO.glob("*/model.onnx")))
def test_every_model_of_the_zoo_survives_the_cut(name, tmp_path, monkeypatch):
    monkeypatch.setattr(embedded_data, "MIN_BYTES", 1)
    model = onnx.load(ZOO / name / "model.onnx")
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    source = reader.read(tmp_path / "model.onnx")
    assert source.weights is not None
    assert not any(t.HasField("raw_data") and t.raw_data for t in source.proto.graph.initializer)
    assert source.whole() == model
    assert written(source, tmp_path) == model.SerializeToString()
    ir.from_proto(source.proto)


# The wire format


@given(st.integers(0, 2**64 - 1))
def test_numbers_are_written_as_protobuf_does(value):
    message = onnx.TensorProto(int64_data=[value - 2**63])
    assert message.SerializeToString() == b"\x3a" + protobuf_wire.varint(
        len(protobuf_wire.varint((value - 2**63) % 2**64))
    ) + protobuf_wire.varint((value - 2**63) % 2**64)


def test_every_kind_of_field_is_told():
    message = onnx.AttributeProto(name="a", f=1.0, i=300, type=onnx.AttributeProto.INT)
    data = message.SerializeToString() + b"\xc1\x3e" + bytes(8)
    found = [
        (f.number, f.wire_type, f.end - f.start) for f in protobuf_wire.fields(data, 0, len(data))
    ]
    assert found == [(1, 2, 1), (2, 5, 4), (3, 0, 2), (20, 0, 1), (1000, 1, 8)]
    assert [f.value for f in protobuf_wire.fields(data, 0, len(data))][2] == 300


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abcd",
        b"\x80",
        b"\x08\x80",
        b"\x0b\x0c",
        b"\x09abc",
        b"\x02\x00",
        b"\xff" * 11,
    ],
)
def test_what_is_no_message_is_an_error(data):
    with pytest.raises(protobuf_wire.WireError):
        list(protobuf_wire.fields(data, 0, len(data)))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 300)), min_size=1, max_size=8))
def test_lengths_around_a_replaced_field_are_corrected(places):
    """Whatever the depth and the size, what comes out is what protobuf writes of the whole."""

    def model(payload: list[bytes]) -> bytes:
        made = onnx.ModelProto(producer_name="p", doc_string="after")
        for (depth, _), data in zip(places, payload, strict=True):
            graph = made.graph
            for _ in range(depth):
                graph = graph.node.add(op_type="If").attribute.add(name="then_branch").g
            graph.initializer.add(name="w", raw_data=data)
        return made.SerializeToString()

    token = b"\xfe unlikely \xff"
    sizes = [size for _, size in places]
    offsets = [sum(sizes[:i]) for i in range(len(sizes))]
    ranges = [byte_ranges.Range(o, s) for o, s in zip(offsets, sizes, strict=True)]
    stored = bytes(i % 251 for i in range(sum(sizes)))
    parts = protobuf_wire.substitute(
        model([protobuf_wire.placeholder(token, i) for i in range(len(places))]), token, ranges
    )
    whole = b"".join(
        stored[p.offset : p.offset + p.length] if isinstance(p, byte_ranges.Range) else p
        for p in parts
    )
    assert whole == model([stored[o : o + s] for o, s in zip(offsets, sizes, strict=True)])
