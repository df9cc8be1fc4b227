"""The protobuf wire format, as far as it takes to cut large tensors out of a file and put them back.

A message is a row of fields; each has a key (number and wire type) and, where it is a string or a
message, a length. Whoever changes what is deep inside must correct the length of all around it:

    model [7: graph [5: initializer [9: raw_data ......]]]        number: length-prefixed content
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from onnx_spatial.model.io.byte_ranges import Range, size_of

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

#: What protobuf's parsers follow at most; whatever is deeper is theirs to refuse.
MAX_DEPTH = 100

_INDEX_BYTES = 4

Buffer = bytes | memoryview


class WireError(ValueError):
    """The bytes are no message, or one that protobuf itself should judge."""


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: its number in the .proto file.
        wire_type: `VARINT`, `FIXED64`, `LENGTH` or `FIXED32`.
        key: where its key begins.
        start, end: where its content lies.
        value: of a varint.
    """

    number: int
    wire_type: int
    key: int
    start: int
    end: int
    value: int = 0


def fields(data: Buffer, start: int, end: int) -> Iterator[Field]:
    """The fields of the message in data[start:end].

    Raises:
        WireError: it is cut off, or holds a group or an invalid key.
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
    """A number that is not negative, as protobuf writes it."""
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def field(number: int, content: bytes) -> bytes:
    """A length-prefixed field."""
    return varint(number << 3 | LENGTH) + varint(len(content)) + content


def substitute(data: bytes, token: bytes, ranges: Sequence[Range]) -> list[bytes | Range]:
    """A serialized message in parts, with placeholders in it replaced by ranges of a file.

    Args:
        data: a message.
        token: what placeholders begin with, and nothing else in the message does.
        ranges: the i-th replaces the placeholder `placeholder(token, i)`, all that is in some field.

    Returns:
        The parts of the message, lengths corrected.
    """
    places: dict[int, Range] = {}
    position = data.find(token)
    while position >= 0:
        after = position + len(token)
        places[position] = ranges[int.from_bytes(data[after : after + _INDEX_BYTES], "big")]
        position = data.find(token, after)
    parts, _ = _substitute(data, 0, len(data), list(places), places)
    return parts


def placeholder(token: bytes, index: int) -> bytes:
    """What stands for the `index`-th range."""
    return token + index.to_bytes(_INDEX_BYTES, "big")


def _substitute(
    data: bytes,
    start: int,
    end: int,
    positions: Sequence[int],
    places: Mapping[int, Range],
) -> tuple[list[bytes | Range], int]:
    """Parts of data[start:end], in which `positions` lie, and their size in all."""
    parts: list[bytes | Range] = []
    done, first = start, 0
    found = fields(data, start, end)
    while first < len(positions):
        here = next(f for f in found if f.end > positions[first])
        last = first
        while last < len(positions) and positions[last] < here.end:
            last += 1
        if here.start == positions[first]:
            inner: list[bytes | Range] = [places[here.start]]
            size = places[here.start].length
        else:
            inner, size = _substitute(data, here.start, here.end, positions[first:last], places)
        parts += [data[done : here.key], varint(here.number << 3 | LENGTH) + varint(size), *inner]
        done, first = here.end, last
    parts.append(data[done:end])
    return parts, sum(size_of(part) for part in parts)
