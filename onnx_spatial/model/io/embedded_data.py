"""Weights that are embedded in a model file stay there: they are cut out while the file is parsed.

What remains is a light model of the same nodes, names and fields. Each large tensor says, in ONNX's
own terms for external data, where in the file its bytes lie: onnxruntime can run the light model and
maps the weights. Written out, the bytes are streamed back into place.

    initializer {name, dims, raw_data: 400 MB}
      ->  initializer {name, dims, external_data {location: model.onnx, offset, length}}  ->  as before
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import onnx

from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import protobuf_wire
from onnx_spatial.model.io.byte_ranges import Content, Range

#: Smaller tensors stay in the light model. More than `strip_weights.SMALL` elements of 8 bytes, so that
#: everything that may be folded is at hand.
MIN_BYTES = 2**16

#: Name, dims and documentation of a tensor take less.
_MAX_OTHER_BYTES = 2**16

_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14

#: Fields that lead to tensors: message -> number -> message. Sparse tensors keep their bytes.
_INSIDE: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "function": {7: "node"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
}
#: An attribute's tensor or graph; where a file gives it twice, protobuf merges both.
_SINGLE = frozenset({5, 6})

#: Element types whose bytes onnxruntime takes from a file as they are.
_SIZES = {
    getattr(onnx.TensorProto, name): size
    for name, size in (
        *((n, 1) for n in ("BOOL", "INT8", "UINT8")),
        *((n, 2) for n in ("INT16", "UINT16", "FLOAT16", "BFLOAT16")),
        *((n, 4) for n in ("INT32", "UINT32", "FLOAT")),
        *((n, 8) for n in ("INT64", "UINT64", "DOUBLE")),
    )
}


@dataclass(frozen=True)
class _Tensor:
    raw_data: Range
    explicit: bool


@dataclass(frozen=True)
class Weights:
    """The tensors of a light model that are still in its file.

    Attributes:
        file: open for reading, for as long as they are needed: who moves another file to its name
            does not change ours.
        location: its name, as the tensors of the light model give it.
    """

    file: BinaryIO
    location: str
    _tensors: Mapping[int, _Tensor]
    _stamp: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_stamp", self._state())

    def _state(self) -> tuple[int, int]:
        state = os.fstat(self.file.fileno())
        return state.st_size, state.st_mtime_ns

    def hold(self, tensor: onnx.TensorProto) -> bool:
        """Whether the bytes of a tensor are among them."""
        return self._of(tensor) is not None

    def _of(self, tensor: onnx.TensorProto) -> _Tensor | None:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return None
        entry = {e.key: e.value for e in tensor.external_data}
        if entry.get("location") != self.location or not entry.get("offset", "").isdecimal():
            return None
        return self._tensors.get(int(entry["offset"]))

    def load(self, model: onnx.ModelProto) -> None:
        """Put the bytes into a light model, in place.

        Raises:
            ModelFileError: the file was changed.
        """
        for tensor, found in self._held(model):
            self.file.seek(found.raw_data.offset)
            _restore(tensor, found, self.file.read(found.raw_data.length))
        self.check()

    def content(self, model: onnx.ModelProto) -> Content:
        """A light model serialized, with ranges of the file where the bytes of tensors belong."""
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        token, ranges = secrets.token_bytes(32), list[Range]()
        for tensor, found in self._held(copy):
            _restore(tensor, found, protobuf_wire.placeholder(token, len(ranges)))
            ranges.append(found.raw_data)
        return Content(protobuf_wire.substitute(copy.SerializeToString(), token, ranges), self.file)

    def whole_file(self) -> Content:
        """The file that holds them, byte for byte."""
        return Content([Range(0, self._stamp[0])], self.file)

    def close(self) -> None:
        """Let go of the file, which some systems let nobody replace as long as it is open."""
        self.file.close()

    def check(self) -> None:
        """Raise if the file was changed since it was read.

        Raises:
            ModelFileError: it was.
        """
        if self._state() != self._stamp:
            raise ModelFileError(f"{self.file.name}: was changed while it was converted")

    def _held(self, model: onnx.ModelProto) -> Iterator[tuple[onnx.TensorProto, _Tensor]]:
        for tensor in traversal.tensors(model):
            found = self._of(tensor)
            if found is not None:
                yield tensor, found


def _restore(tensor: onnx.TensorProto, found: _Tensor, data: bytes) -> None:
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    if found.explicit:
        tensor.data_location = onnx.TensorProto.DEFAULT
    tensor.raw_data = data


def lighten(data: memoryview, file: BinaryIO, location: str) -> tuple[bytes, Weights] | None:
    """A serialized model without the bytes of its large tensors; None if it has none.

    Args:
        data: the content of the file.
        file: open for reading.
        location: its name.
    """
    tensors: dict[int, _Tensor] = {}
    try:
        light = _lighten(data, "model", 0, len(data), location, tensors, 0)
    except protobuf_wire.WireError:  # protobuf knows better what is wrong
        return None
    if not tensors:
        return None
    return light, Weights(file, location, tensors)


def _lighten(
    data: memoryview,
    message: str,
    start: int,
    end: int,
    location: str,
    tensors: dict[int, _Tensor],
    depth: int,
) -> bytes:
    if depth > protobuf_wire.MAX_DEPTH:
        raise protobuf_wire.WireError("nested too deeply")
    inside, parts, done = _INSIDE[message], [], start
    held = [
        f
        for f in protobuf_wire.fields(data, start, end)
        if f.number in inside and f.wire_type == protobuf_wire.LENGTH
    ]
    for found in held:
        if found.end - found.start < MIN_BYTES:
            continue
        if message == "attribute" and found.number in _SINGLE and _is_merged(held, found.number):
            continue
        what = inside[found.number]
        if what == "tensor":
            light = _lighten_tensor(data, found.start, found.end, location, tensors)
        else:
            light = _lighten(data, what, found.start, found.end, location, tensors, depth + 1)
        if light is not None:
            parts += [bytes(data[done : found.key]), protobuf_wire.field(found.number, light)]
            done = found.end
    parts.append(bytes(data[done:end]))
    return b"".join(parts)


def _is_merged(found: Sequence[protobuf_wire.Field], number: int) -> bool:
    return sum(f.number == number for f in found) > 1


def _lighten_tensor(
    data: memoryview, start: int, end: int, location: str, tensors: dict[int, _Tensor]
) -> bytes | None:
    """The tensor without its raw_data; None if it is to stay as it is."""
    kept, raw, explicit = bytearray(), list[Range](), False
    for found in protobuf_wire.fields(data, start, end):
        if found.number == _RAW_DATA and found.wire_type == protobuf_wire.LENGTH:
            raw.append(Range(found.start, found.end - found.start))
        elif (
            found.number == _DATA_LOCATION
            and found.wire_type == protobuf_wire.VARINT
            and not found.value
        ):
            explicit = True
        elif found.number in (_EXTERNAL_DATA, _DATA_LOCATION):
            return None
        else:
            kept += data[found.key : found.end]
            if len(kept) > _MAX_OTHER_BYTES:  # it has data of another kind, too
                return None
    if len(raw) != 1 or raw[0].length < MIN_BYTES:
        return None
    light = onnx.TensorProto()
    try:
        light.ParseFromString(bytes(kept))
    except Exception:  # protobuf's own errors; it will say the same of the whole file
        return None
    size = _SIZES.get(light.data_type)
    if size is None or math.prod(light.dims) * size != raw[0].length:
        return None  # it contradicts itself, or is of a rare type
    tensors[raw[0].offset] = _Tensor(raw[0], explicit)
    light.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (
        ("location", location),
        ("offset", str(raw[0].offset)),
        ("length", str(raw[0].length)),
    ):
        light.external_data.add(key=key, value=value)
    return bytes(light.SerializeToString())
