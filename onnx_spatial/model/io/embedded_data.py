"""Leave large tensors in the model file: parse a light model without their bytes.

The light model has the same nodes, names and fields. Its large tensors are external data in the
model file itself, so that onnxruntime can run the light model and maps the weights. A writer streams
the bytes back into the tensors.

    initializer {name, dims, raw_data: 400 MB}
      ->  initializer {name, dims, external_data {location: model.onnx, offset, length}}  ->  as before
"""

from __future__ import annotations

import math
import os
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import onnx

from onnx_spatial.errors import Code, ModelFileError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import protobuf_wire
from onnx_spatial.model.io.byte_ranges import Content, Range

#: Smaller tensors stay in the light model. More than `strip_weights.SMALL` elements of 8 bytes, so
#: that constant folding finds all the tensors that it may read.
MIN_BYTES = 2**16

#: Most bytes of a tensor's name, dims and documentation.
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
#: An attribute's tensor or graph; if a file holds it twice, protobuf merges both.
_SINGLE = frozenset({5, 6})

#: Sizes of the element types that onnxruntime can map from a file.
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
    """Tensors of a light model whose bytes are still in its file.

    Attributes:
        file: the open file; replacing the file at its path does not change it.
        location: its name in the external data of the light model's tensors.
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path of the file: another process opens it again."""
        return _reopened, (self.file.name, self.location, dict(self._tensors), self._stamp)

    def hold(self, tensor: onnx.TensorProto) -> bool:
        """Tell whether the bytes of a tensor are in the file."""
        return self._find(tensor) is not None

    def range_of(self, tensor: onnx.TensorProto) -> Range | None:
        """Return where in the file the bytes of a tensor are; None if they are not in it."""
        found = self._find(tensor)
        return None if found is None else found.raw_data

    def _find(self, tensor: onnx.TensorProto) -> _Tensor | None:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return None
        entry = {e.key: e.value for e in tensor.external_data}
        if entry.get("location") != self.location or not entry.get("offset", "").isdecimal():
            return None
        return self._tensors.get(int(entry["offset"]))

    def load(self, model: onnx.ModelProto) -> None:
        """Restore the bytes of a light model's tensors, in place.

        Raises:
            ModelFileError: the file was changed.
        """
        for tensor, stored in self._stored(model):
            self.file.seek(stored.raw_data.offset)
            _restore(tensor, stored, self.file.read(stored.raw_data.length))
        self.check()

    def content(self, model: onnx.ModelProto) -> Content:
        """Serialize a light model, with ranges of the file as the bytes of its tensors."""
        copy = deepcopy(model)
        token, ranges = secrets.token_bytes(32), list[Range]()
        for tensor, stored in self._stored(copy):
            _restore(tensor, stored, protobuf_wire.placeholder(token, len(ranges)))
            ranges.append(stored.raw_data)
        return Content(protobuf_wire.substitute(copy.SerializeToString(), token, ranges), self.file)

    def whole_file(self) -> Content:
        """Return the content of the whole file."""
        return Content([Range(0, self._stamp[0])], self.file)

    def close(self) -> None:
        """Close the file: some systems do not let an open file be replaced."""
        self.file.close()

    def check(self) -> None:
        """Check that the file was not changed since it was read.

        Raises:
            ModelFileError: it was changed.
        """
        if self._state() != self._stamp:
            raise ModelFileError(
                f"{self.file.name}: was changed while it was converted", code=Code.FILE_CHANGED
            )

    def _stored(self, model: onnx.ModelProto) -> Iterator[tuple[onnx.TensorProto, _Tensor]]:
        for tensor in traversal.tensors(model):
            stored = self._find(tensor)
            if stored is not None:
                yield tensor, stored


def _reopened(
    name: str, location: str, tensors: Mapping[int, _Tensor], stamp: tuple[int, int]
) -> Weights:
    """Open the file of pickled weights.

    Raises:
        ModelFileError: it cannot be read, or was changed.
    """
    try:
        weights = Weights(Path(name).open("rb"), location, tensors)  # noqa: SIM115  stays open
    except OSError as error:
        raise ModelFileError(f"{name}: cannot be read: {error.strerror or error}") from None
    object.__setattr__(weights, "_stamp", stamp)
    weights.check()
    return weights


def _restore(tensor: onnx.TensorProto, stored: _Tensor, data: bytes) -> None:
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    if stored.explicit:
        tensor.data_location = onnx.TensorProto.DEFAULT
    tensor.raw_data = data


def lighten(data: memoryview, file: BinaryIO, location: str) -> tuple[bytes, Weights] | None:
    """Remove the bytes of large tensors from a serialized model; None if it has no large tensors.

    Args:
        data: the content of the file.
        file: the same file, open for reading.
        location: its name.

    Returns:
        The light model, serialized, and the tensors that it lacks.
    """
    tensors: dict[int, _Tensor] = {}
    try:
        light = _lighten(data, "model", 0, len(data), location, tensors, 0)
    except protobuf_wire.WireError:  # protobuf's own parser says what is wrong
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
    fields = [
        f
        for f in protobuf_wire.fields(data, start, end)
        if f.number in inside and f.wire_type == protobuf_wire.LENGTH
    ]
    counts = Counter(f.number for f in fields)
    for item in fields:
        if item.end - item.start < MIN_BYTES:
            continue
        if message == "attribute" and item.number in _SINGLE and counts[item.number] > 1:
            continue
        inner = inside[item.number]
        if inner == "tensor":
            light = _lighten_tensor(data, item.start, item.end, location, tensors)
        else:
            light = _lighten(data, inner, item.start, item.end, location, tensors, depth + 1)
        if light is not None:
            parts += [bytes(data[done : item.key]), protobuf_wire.field(item.number, light)]
            done = item.end
    parts.append(bytes(data[done:end]))
    return b"".join(parts)


def _lighten_tensor(
    data: memoryview, start: int, end: int, location: str, tensors: dict[int, _Tensor]
) -> bytes | None:
    """Return the tensor with external data in place of its raw_data; None to leave it unchanged."""
    kept, raw, explicit = bytearray(), list[Range](), False
    for item in protobuf_wire.fields(data, start, end):
        is_varint = item.wire_type == protobuf_wire.VARINT
        if item.number == _RAW_DATA and item.wire_type == protobuf_wire.LENGTH:
            raw.append(Range(item.start, item.end - item.start))
        elif item.number == _DATA_LOCATION and is_varint and not item.value:
            explicit = True
        elif item.number in (_EXTERNAL_DATA, _DATA_LOCATION):
            return None
        else:
            kept += data[item.key : item.end]
            if len(kept) > _MAX_OTHER_BYTES:  # typed data beside raw_data
                return None
    if len(raw) != 1 or raw[0].length < MIN_BYTES:
        return None
    try:
        light = onnx.TensorProto.FromString(bytes(kept))
    except Exception:  # protobuf's own errors, which parsing the whole file raises again
        return None
    size = _SIZES.get(light.data_type)
    if size is None or math.prod(light.dims) * size != raw[0].length:
        return None  # dims and data disagree, or a rare type
    tensors[raw[0].offset] = _Tensor(raw[0], explicit)
    light.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": location, "offset": str(raw[0].offset), "length": str(raw[0].length)}
    for key, value in entries.items():
        light.external_data.add(key=key, value=value)
    return bytes(light.SerializeToString())
