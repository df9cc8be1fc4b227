"""Damaged model files, each made of a seed's name and a number alone.

    bytes      what disks, networks and careless tools do: bits, cuts, runs, splices
    messages   what broken exporters and scripts over protobuf write: a field of any message that the
               model holds is emptied, doubled, reordered, grafted from elsewhere, or gets a value that
               it has no business to have

Fields are found by the descriptors of the format, so that none is left out. Seeds are the nets of
models/, cells of the grid, a model with every field of ONNX, and one with external data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import every_field
import grid
import numpy as np
import onnx
from building import OPENVINO, TF
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import TensorProto, numpy_helper, parser

#: A model file and its files of external data, by name.
Files = Mapping[str, bytes]
MODEL = "model.onnx"
ZOO = Path(__file__).parents[2] / "models"

NUMBERS = (0, 1, 2, 3, 5, 13, -1, 10**9, *(s * 2**p for p in (31, 40, 62) for s in (1, -1)))
NUMBERS += (2**31 - 1, 2**63 - 1, -(2**63))
FLOATS = (0.0, -1.0, 0.5, float("nan"), float("inf"), 1e38)
#: Beside the texts of the model: operators, domains, attributes, and what breaks lines and paths.
TEXTS = (
    "", "new", "SpaceToBatchND", "BatchToSpace", "ExtractImagePatches", "Loop", "If", "Scan", "Reshape",
    "Constant", "Pad", "Conv", "Expand", "Range", "ConstantOfShape", "Gather", TF, OPENVINO, "ai.onnx",
    "com.microsoft", "loc", "nobody.knows", "block_shape", "ksizes", "auto_pad", "body", "SAME", "VALID",
    "location", "offset", "length", "model.onnx", "weights.bin", "../x", "/etc/passwd", str(2**70),
    "a\nb\n\nc", "\x1b[31m\x00", "'\"{}%s\\", "[bold]", "N", "H*2", "é" * 100_000,
)  # fmt: skip


# ---------------------------------------------------------------- seeds


def external_data() -> Files:
    """Weights and a block in one file, at offsets; a bias in another one, without."""
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 17, "{TF}" : 1]>
        g (float[4,4,6,8] x) => (float[?,?,?,?] y) <int64[2,2] none = {{0, 0, 0, 0}}> {{
            s = {TF}.SpaceToBatchND(x, block, none)
            c = Add(s, weight)
            d = Add(c, bias)
            y = {TF}.BatchToSpaceND(d, block, none)
        }}""")
    weight, block = np.arange(8, dtype=np.float32), np.array([2, 2])
    bias = np.full(8, 0.5, np.float32)
    for name, array, location, offset in (
        ("weight", weight, "weights.bin", 64),
        ("block", block, "weights.bin", 96),
        ("bias", bias, "sub/bias.bin", None),
    ):
        tensor = numpy_helper.from_array(array, name)
        entries = {"location": location}
        if offset is not None:
            entries |= {"offset": str(offset), "length": str(array.nbytes)}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        model.graph.initializer.append(tensor)
    weights = b"\0" * 64 + weight.tobytes() + block.tobytes()
    return {
        MODEL: model.SerializeToString(),
        "weights.bin": weights,
        "sub/bias.bin": bias.tobytes(),
    }


#: A cell of each column and row of the grid, dealt out so that rows and columns meet.
_CELLS = {cell.name: cell for cell in grid.CELLS[::7]}
NETS = tuple(sorted(path.parent.name for path in ZOO.glob("*/model.onnx")))
SMALL = ("external data", "every field", *_CELLS)


@cache
def files(seed: str) -> Files:
    """The files of a seed."""
    if seed == "external data":
        return external_data()
    if seed == "every field":
        return {MODEL: every_field.build().SerializeToString()}
    if seed in _CELLS:
        return {MODEL: grid.model(_CELLS[seed]).SerializeToString()}
    return {MODEL: (ZOO / seed / MODEL).read_bytes()}


@dataclass(frozen=True)
class Mutant:
    """A damaged model.

    Attributes:
        files: by name, the model and its external data.
        damage: what was done to it.
    """

    files: Files
    damage: str


def make(seed: str, number: int) -> Mutant:
    """The `number`-th damaged file of a seed."""
    rng = Random(f"{seed} {number}")
    found = dict(files(seed))
    damage, data = "", found[MODEL]
    if rng.random() < 0.7:
        damage, data = of_messages(rng, data)
    if not damage or rng.random() < 0.05:
        how = rng.choice(list(BYTES))
        damage, data = f"{damage} {how}".strip(), BYTES[how](rng, data or b"\0", _other(rng))
    found[MODEL] = data
    if len(found) > 1 and rng.random() < 0.15:
        name = rng.choice([name for name in found if name != MODEL])
        cut = rng.randrange(len(found[name]) + 1)
        damage += " external data"
        if cut % 4:
            found[name] = found[name][:cut]
        else:
            del found[name]
    return Mutant(found, damage)


def _other(rng: Random) -> bytes:
    return files(rng.choice(SMALL))[MODEL]


# ---------------------------------------------------------------- bytes


def _bits(rng: Random, data: bytes, _: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 20))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _run(rng: Random, data: bytes, _: bytes) -> bytes:
    at, length = rng.randrange(len(data)), rng.choice((1, 2, 4, 16, 100))
    run = bytes([rng.choice((0, 0xFF, 0x80, 0x7F))]) * length
    return data[:at] + rng.choice((run, rng.randbytes(length))) + data[at + length :]


def _cut_out(rng: Random, data: bytes, _: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.choice((1, 2, 3, 8, 64, len(data))) :]


def _inserted(rng: Random, data: bytes, _: bytes) -> bytes:
    at, start = rng.randrange(len(data) + 1), rng.randrange(len(data))
    more = rng.choice((rng.randbytes(rng.randint(1, 16)), data[start : start + rng.randint(1, 64)]))
    return data[:at] + more + data[at:]


def _spliced(rng: Random, data: bytes, other: bytes) -> bytes:
    """The head of one file and the tail of another; two whole messages are one to protobuf."""
    if rng.random() < 0.2:
        return data + rng.choice((data, other))
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


BYTES = {"bits": _bits, "run": _run, "cut": _cut_out, "inserted": _inserted, "spliced": _spliced}

# ---------------------------------------------------------------- messages


def of_messages(rng: Random, data: bytes) -> tuple[str, bytes]:
    """A model with one to three of its fields damaged, and which."""
    model, done = onnx.ModelProto.FromString(data), []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        # Tensors and nodes are many: each kind of message has its turn alike.
        kinds: dict[str, list[Message]] = defaultdict(list)
        for message in messages(model):
            kinds[message.DESCRIPTOR.name].append(message)
        kind = rng.choice(sorted(kinds))
        message = rng.choice(kinds[kind])
        present = [field for field, _ in message.ListFields()]
        field = rng.choice(present if present and rng.random() < 0.9 else message.DESCRIPTOR.fields)
        others = [
            m for found in kinds.values() for m in found if m.DESCRIPTOR is field.message_type
        ]
        try:
            how = _damaged(rng, message, field, others, texts(model))
        except (TypeError, ValueError):  # a number that the field cannot hold
            continue
        done.append(f"{kind}.{field.name} {how}")
    return ", ".join(done), bytes(model.SerializeToString())


def messages(message: Message) -> Iterator[Message]:
    """The message and all that it holds."""
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for each in value if hasattr(value, "extend") else [value]:
                yield from messages(each)


def texts(model: onnx.ModelProto) -> list[str]:
    """The names in a model, and odd ones."""
    nodes = [m for m in messages(model) if isinstance(m, onnx.NodeProto)]
    return [name for n in nodes for name in (*n.input, *n.output, n.op_type)] * 3 + [*TEXTS]


def _damaged(
    rng: Random, message: Message, field: Any, others: list[Message], names: list[str]
) -> str:
    """Damage a field of a message, and return how."""
    value = getattr(message, field.name)
    if not hasattr(value, "extend"):
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if others and rng.random() < 0.7:
                value.CopyFrom(_copy(rng.choice(others)))
                return "grafted"
            message.ClearField(field.name)
            return "cleared"
        setattr(message, field.name, _scalar(rng, field, value, names))
        return "changed"
    items = [_copy(item) if isinstance(item, Message) else item for item in value]
    how = rng.choice(("dropped", "changed", "changed", "doubled", "moved", "grafted"))
    at = rng.randrange(len(items)) if items else 0
    if how == "dropped" and items:
        del items[at]
    elif how == "doubled" and items:
        items += [items[at]] * rng.choice((1, 1, 2, 50))
    elif how == "moved" and items:
        rng.shuffle(items)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        items[at : at + (how == "changed")] = [_copy(rng.choice(others))] if others else []
    else:
        old = items[at] if items else b""
        items[at : at + (how == "changed")] = [_scalar(rng, field, old, names)]
    message.ClearField(field.name)
    getattr(message, field.name).extend(items)
    return how


def _copy(message: Message) -> Message:
    return type(message).FromString(message.SerializeToString())


def _scalar(rng: Random, field: Any, old: Any, names: list[str]) -> Any:
    """A value of the field's type that is seldom right."""
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.choice(FLOATS)
    if field.type == FieldDescriptor.TYPE_STRING:
        return rng.choice(names)
    if field.type != FieldDescriptor.TYPE_BYTES:
        return rng.choice((*NUMBERS, *range(26)))
    if len(old) % 4 or not old or rng.random() < 0.3:
        return rng.choice((b"", b"SAME", b"\xff\xfe", old[:-1], old * 2, rng.randbytes(len(old))))
    # Block shapes, pads and sizes are numbers in bytes.
    width = 8 if len(old) % 8 == 0 and rng.random() < 0.8 else 4
    at, number = rng.randrange(len(old) // width) * width, rng.choice(NUMBERS) % 2 ** (8 * width)
    return old[:at] + number.to_bytes(width, "little") + old[at + width :]
