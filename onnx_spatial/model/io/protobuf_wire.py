"""Parse the protobuf wire format, as far as needed to cut tensors out of a file and restore them.

A message is a sequence of fields; each has a key (number and wire type) and, if it is a string or a
message, a length. An edit deep inside changes the lengths of all enclosing fields:

    model [7: graph [5: initializer [9: raw_data ......]]]        number: length-prefixed content
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from onnx_spatial.model.io.byte_ranges import Range, size_of

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

#: Depth limit of protobuf's parsers, which refuse files that are nested deeper.
MAX_DEPTH = 100

_INDEX_BYTES = 4

Buffer = bytes | memoryview


class WireError(ValueError):
    """Bytes that are not a message, or one that is left to protobuf's own parser."""


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: its number in the .proto file.
        wire_type: `VARINT`, `FIXED64`, `LENGTH` or `FIXED32`.
        key: offset of its key.
        start, end: offsets of its content.
        value: the number, for `VARINT`.
    """

    number: int
    wire_type: int
    key: int
    start: int
    end: int
    value: int = 0


def fields(data: Buffer, start: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message in data[start:end].

    Raises:
        WireError: the message is cut off, or holds a group or an invalid key.
    """
    position = start
    while position < end:
        key = position
        tag, position = _varint(data, position, end)
        number, wire_type, value = tag >> 3, tag & 7, 0
        begin = position
        if wire_type == LENGTH:
            length, begin = _varint(data, position, end)
            position = begin + length
        elif wire_type == VARINT:
            value, position = _varint(data, position, end)
        elif wire_type == FIXED64:
            position += 8
        elif wire_type == FIXED32:
            position += 4
        else:
            raise WireError(f"wire type {wire_type}")
        if position > end or not number:
            raise WireError("a field is cut off")
        yield Field(number, wire_type, key, begin, position, value)


def _varint(data: Buffer, position: int, end: int) -> tuple[int, int]:
    result = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
        if shift > 63:
            break
    raise WireError("a number is cut off")


def varint(value: int) -> bytes:
    """Encode a number that is not negative."""
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def field(number: int, content: bytes) -> bytes:
    """Encode a length-prefixed field."""
    return varint(number << 3 | LENGTH) + varint(len(content)) + content


def substitute(data: bytes, token: bytes, ranges: Sequence[Range]) -> list[bytes | Range]:
    """Replace the placeholders in a serialized message by ranges of a file.

    Args:
        data: a message.
        token: first bytes of every placeholder, which occur nowhere else in the message.
        ranges: the i-th replaces `placeholder(token, i)`, which is the whole content of a field.

    Returns:
        The parts of the message, with corrected lengths.
    """
    offsets: dict[int, Range] = {}
    position = data.find(token)
    while position >= 0:
        after = position + len(token)
        offsets[position] = ranges[int.from_bytes(data[after : after + _INDEX_BYTES], "big")]
        position = data.find(token, after)
    parts, _ = _substitute(data, 0, len(data), list(offsets), offsets)
    return parts


def placeholder(token: bytes, index: int) -> bytes:
    """Return the placeholder of the `index`-th range."""
    return token + index.to_bytes(_INDEX_BYTES, "big")


def _substitute(
    data: bytes, start: int, end: int, positions: Sequence[int], offsets: Mapping[int, Range]
) -> tuple[list[bytes | Range], int]:
    """Split data[start:end] at the placeholders at `positions`; return the parts and their size."""
    parts: list[bytes | Range] = []
    done, first = start, 0
    remaining = fields(data, start, end)
    while first < len(positions):
        outer = next(f for f in remaining if f.end > positions[first])
        last = first
        while last < len(positions) and positions[last] < outer.end:
            last += 1
        if outer.start == positions[first]:
            inner: list[bytes | Range] = [offsets[outer.start]]
            size = offsets[outer.start].length
        else:
            inner, size = _substitute(data, outer.start, outer.end, positions[first:last], offsets)
        parts += [data[done : outer.key], varint(outer.number << 3 | LENGTH) + varint(size), *inner]
        done, first = outer.end, last
    parts.append(data[done:end])
    return parts, sum(size_of(part) for part in parts)
