"""Damage to the bytes of a model: what disks, networks and careless tools do to a file.

Some of it knows nothing of the format (bits, runs, cuts, splices), some knows the wire format of
protobuf and breaks single fields of an otherwise sound file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import onnx
import protobuf_wire
from google.protobuf.descriptor import FieldDescriptor

EXTREMES = (0, 1, 127, 128, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)

#: number, wire type, content: bytes, an integer, or fields where it is a message.
Part = list[Any]


def bits(rng: Random, data: bytes, _: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 20))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def run_of_bytes(rng: Random, data: bytes, _: bytes) -> bytes:
    at, length = rng.randrange(len(data)), rng.choice((1, 2, 4, 16, 100))
    run = bytes([rng.choice((0, 0xFF, 0x80, 0x7F, rng.randrange(256)))]) * length
    run = run if rng.random() < 0.5 else rng.randbytes(length)
    return data[:at] + run + data[at + length :]


def cut_off(rng: Random, data: bytes, _: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def cut_out(rng: Random, data: bytes, _: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.choice((1, 2, 3, 8, 64)) :]


def inserted(rng: Random, data: bytes, _: bytes) -> bytes:
    at, start = rng.randrange(len(data) + 1), rng.randrange(len(data))
    more = rng.choice((rng.randbytes(rng.randint(1, 16)), data[start : start + rng.randint(1, 64)]))
    return data[:at] + more + data[at:]


def spliced(rng: Random, data: bytes, other: bytes) -> bytes:
    """The head of one file and the tail of another."""
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def merged(rng: Random, data: bytes, other: bytes) -> bytes:
    """Two messages, one after the other, are one to protobuf."""
    return data + other if rng.random() < 0.5 else data + data


def parse(data: bytes, descriptor: Any) -> list[Part]:
    """The fields of a serialized message, down to the last."""
    parts = []
    for found in protobuf_wire.fields(data, 0, len(data)):
        content: Any = bytes(data[found.start : found.end])
        known = descriptor.fields_by_number.get(found.number)
        if found.wire_type == protobuf_wire.VARINT:
            content = found.value
        elif (
            found.wire_type == protobuf_wire.LENGTH
            and known is not None
            and known.type == FieldDescriptor.TYPE_MESSAGE
        ):
            content = parse(content, known.message_type)
        parts.append([found.number, found.wire_type, content])
    return parts


def join(parts: list[Part]) -> bytes:
    """The bytes of fields; a fourth entry is the length to claim."""
    result = bytearray()
    for number, wire_type, content, *claimed in parts:
        result += protobuf_wire.varint(number << 3 | wire_type)
        if isinstance(content, int):
            result += protobuf_wire.varint(content)
            continue
        data = join(content) if isinstance(content, list) else content
        if wire_type == protobuf_wire.LENGTH:
            result += protobuf_wire.varint(claimed[0] if claimed else len(data))
        result += data
    return bytes(result)


def lists(parts: list[Part]) -> Iterator[list[Part]]:
    """Every message inside, and the whole."""
    if parts:
        yield parts
    for part in parts:
        if isinstance(part[2], list):
            yield from lists(part[2])


def removed(rng: Random, fields: list[Part], _: list[Part]) -> None:
    del fields[rng.randrange(len(fields))]


def doubled(rng: Random, fields: list[Part], _: list[Part]) -> None:
    part = rng.choice(fields)
    fields[rng.randrange(len(fields) + 1) : 0] = [part] * rng.choice((1, 1, 2, 50))


def reordered(rng: Random, fields: list[Part], _: list[Part]) -> None:
    rng.shuffle(fields)


def renumbered(rng: Random, fields: list[Part], _: list[Part]) -> None:
    rng.choice(fields)[0] = rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 15, 16, 20, 2**28))


def of_other_type(rng: Random, fields: list[Part], _: list[Part]) -> None:
    part = rng.choice(fields)
    part[1] = rng.choice((0, 1, 2, 3, 4, 5, 6, 7))
    if isinstance(part[2], int) != (part[1] == protobuf_wire.VARINT):
        part[2] = rng.choice(EXTREMES) if part[1] == protobuf_wire.VARINT else rng.randbytes(8)


def of_false_length(rng: Random, fields: list[Part], _: list[Part]) -> None:
    part = rng.choice(fields)
    if part[1] == protobuf_wire.LENGTH:
        size = len(part[2] if isinstance(part[2], bytes) else join(part[2]))
        part[3:] = [max(0, rng.choice((size - 1, size + 1, size // 2, rng.choice(EXTREMES))))]


def extreme(rng: Random, fields: list[Part], _: list[Part]) -> None:
    part = rng.choice(fields)
    if isinstance(part[2], int):
        part[2] = rng.choice((*EXTREMES, rng.randrange(30), rng.randrange(2**64)))
    elif isinstance(part[2], bytes):
        choices = (b"", b"\xff\xfe", part[2] * 2, part[2][:-1], rng.randbytes(len(part[2])))
        part[2] = rng.choice(choices)
    else:
        part[2] = []


def grafted(rng: Random, fields: list[Part], others: list[Part]) -> None:
    """A field of the other file, wherever that had it."""
    fields.insert(rng.randrange(len(fields) + 1), rng.choice(others))


FIELDS: tuple[Callable[[Random, list[Part], list[Part]], None], ...] = (
    removed,
    removed,
    doubled,
    reordered,
    renumbered,
    of_other_type,
    of_false_length,
    extreme,
    extreme,
    extreme,
    grafted,
)

BYTES: tuple[Callable[[Random, bytes, bytes], bytes], ...] = (
    bits,
    bits,
    run_of_bytes,
    cut_off,
    cut_out,
    inserted,
    spliced,
    merged,
)


def of_fields(rng: Random, data: bytes, other: bytes) -> tuple[str, bytes]:
    """A file with one to three of its fields broken, and how."""
    descriptor = onnx.ModelProto.DESCRIPTOR
    parts, others = parse(data, descriptor), parse(other, descriptor)
    names = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        mutate = rng.choice(FIELDS)
        names.append(mutate.__name__)
        # Small messages are many: half of the time the deeper ones have their turn alike.
        found = list(lists(parts))
        if not found:
            break
        mutate(rng, rng.choice(found), rng.choice(list(lists(others))))
    return "+".join(names), join(parts)


def of_bytes(rng: Random, data: bytes, other: bytes) -> tuple[str, bytes]:
    """A file with damaged bytes, and how."""
    mutate = rng.choice(BYTES)
    return mutate.__name__, mutate(rng, data, other)
