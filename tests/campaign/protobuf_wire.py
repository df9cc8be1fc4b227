"""Parse the protobuf wire format.

A message is a sequence of fields; each has a key (number and wire type) and, if it is a string or a
message, a length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

Buffer = bytes | memoryview


class WireError(ValueError):
    """Bytes that are not a message."""


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
