"""Whatever is in a file: a conversion that verifies, or one clear line; never a traceback or a crash.

    bytes      what disks, networks and careless tools do: bits, cuts, runs, splices
    messages   what broken exporters and scripts over protobuf write: a field of any message that the
               model holds is emptied, doubled, reordered, grafted from elsewhere, or gets a value that
               it has no business to have

A damaged file is made of a seed's name and a number alone. Seeds are the nets of models/, cells of the
grid, a model with every field of ONNX, and one with external data. They are converted by the command,
which says so if the package raises anything but an error for users, in processes that may die of it.
One case again:

    PYTHONPATH=tests python -c \\
        "from campaign import test_damaged_files as t; print(t.convert('every field', 7))"
"""

import contextlib
import io
import json
import multiprocessing
import resource
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import every_field
import grid
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from adapter import run
from building import OPENVINO, TF
from every_field import messages
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import TensorProto
from parsing import model

#: A model file and its files of external data, by name.
Files = dict[str, bytes]
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
    weight, block = np.arange(8, dtype=np.float32), np.array([2, 2])
    made = model(
        """g (float[4,4,6,8] x) => (float[?,?,?,?] y) { s = tf.SpaceToBatchND(x, block, none)
        c = Add(s, weight) d = Add(c, bias) y = tf.BatchToSpaceND(d, block, none) }""",
        **{"none": np.zeros((2, 2), np.int64), "block": block},
        **{"weight": weight, "bias": np.full(8, 0.5, np.float32)},
    )
    places = {
        "weight": {"location": "weights.bin", "offset": "64", "length": "32"},
        "block": {"location": "weights.bin", "offset": "96", "length": "16"},
        "bias": {"location": "sub/bias.bin"},
    }
    found = {"weights.bin": bytes(64) + weight.tobytes() + block.tobytes()}
    for tensor in made.graph.initializer[1:]:
        for key, value in places[tensor.name].items():
            tensor.external_data.add(key=key, value=value)
        found.setdefault(places[tensor.name]["location"], tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
    return {MODEL: made.SerializeToString()} | found


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


def damaged(seed: str, number: int) -> tuple[Files, str]:
    """The `number`-th damaged model of a seed, and what was done to it."""
    rng = Random(f"{seed} {number}")
    found = dict(files(seed))
    damage, data = "", found[MODEL]
    if rng.random() < 0.7:
        damage, data = of_messages(rng, data)
    if not damage or rng.random() < 0.05:
        how, data = of_bytes(rng, data or b"\0", files(rng.choice(SMALL))[MODEL])
        damage = f"{damage} {how}".strip()
    found[MODEL] = data
    if len(found) > 1 and rng.random() < 0.15:
        name = rng.choice([name for name in found if name != MODEL])
        cut = rng.randrange(len(found[name]) + 1)
        damage += " external data"
        if cut % 4:
            found[name] = found[name][:cut]
        else:
            del found[name]
    return found, damage


def of_bytes(rng: Random, data: bytes, other: bytes) -> tuple[str, bytes]:
    """Bytes that are flipped, overwritten, cut out, inserted, or go on as another file."""
    at, length = rng.randrange(len(data) + 1), rng.choice((1, 2, 3, 8, 64, len(data)))
    some = rng.choice((rng.randbytes(length), bytes([rng.choice((0, 0xFF, 0x80))]) * length))
    rest = {
        "flipped": bytes(b ^ 1 << rng.randrange(8) for b in data[at : at + length]),
        "overwritten": some,
        "cut out": b"",
        "inserted": some + data[at : at + length],
    }
    how = rng.choice((*rest, "spliced", "repeated"))
    if how == "repeated":  # two whole messages are one to protobuf
        return how, data + rng.choice((data, other))
    if how == "spliced":
        return how, data[:at] + other[rng.randrange(len(other) + 1) :]
    return how, data[:at] + rest[how] + data[at + length :]


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


# ---------------------------------------------------------------- conversions

#: A case takes no more processor time, and is answered in this time.
MAX_SECONDS, ANSWER_SECONDS = 10.0, 300.0
#: A process takes no more memory, nor address space, which is cheap.
MAX_MEBIBYTES, MAX_ADDRESS_SPACE = 2048, 8 * 2**30
#: A clear line is no longer, whatever the names in the file.
MAX_LINE = 2000
#: Cases that one process takes on.
CASES_OF_A_PROCESS = 1000

Case = tuple[str, int]


def convert(seed: str, number: int) -> tuple[str, str]:
    """Convert a mutant of a seed, and look at all that is left.

    Returns:
        What becomes of it ("verified", "undecided", "nothing to do", or the exit code), and the error.
    """
    files_before, damage = damaged(seed, number)
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "in"), Path(folder, "out")
        after.mkdir()
        for name, data in files_before.items():
            (before / name).parent.mkdir(parents=True, exist_ok=True)
            (before / name).write_bytes(data)
        started = time.process_time()
        try:
            kind, message = by_command(before / MODEL, after / "out.onnx")
            assert time.process_time() - started < MAX_SECONDS
            assert files_in(before) == files_before, "the input was changed"
            check_result(kind, files_before, after)
        except BaseException as error:
            error.add_note(f"{seed} {number} ({damage})")
            raise
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    assert peak < MAX_MEBIBYTES, f"{seed} {number} ({damage}): {peak} MiB"
    return kind, message


def by_command(path: Path, out: Path) -> tuple[str, str]:
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        code = run(["convert", str(path), "-o", str(out), "--json"])
    document, said = json.loads(stdout.getvalue()), stderr.getvalue()
    found = document.get("verification") or {}
    if code:
        (line,) = said.splitlines()
        assert line.startswith("error: ") and "please report" not in line, line
        assert len(line) <= MAX_LINE and line.isprintable(), line[:300]
        assert code in (1, 2, 3) and document["exit_code"] == code
        return f"exit code {code} {found.get('status', '')}".strip(), line
    assert said == ""
    if not document["changed"]:
        return "nothing to do", ""
    return "verified" if found["status"] == "passed" else "undecided", found["message"]


def files_in(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def check_result(kind: str, files: Files, after: Path) -> None:
    """What is written is complete, and loads; of what was refused nothing is left."""
    found = files_in(after)
    if kind.startswith("exit code"):
        assert not any(after.iterdir())
        return
    assert "out.onnx" in found and found.keys() <= {"out.onnx", *files} - {MODEL}
    if kind == "nothing to do":
        assert found["out.onnx"] == files[MODEL]
    if kind == "verified":
        options = ort.SessionOptions()
        options.log_severity_level = 4
        ort.InferenceSession(after / "out.onnx", options, providers=["CPUExecutionProvider"])


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def failures(cases: list[Case], processes: int, kinds: Counter[str]) -> Iterator[str]:
    """Convert mutants in other processes, count the results, and yield what should not happen."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, limit_memory, maxtasksperchild=CASES_OF_A_PROCESS) as pool:
        waiting = [(case, pool.apply_async(convert, case)) for case in cases]
        for case, answer in waiting:
            try:
                kinds[answer.get(ANSWER_SECONDS)[0]] += 1
            except multiprocessing.TimeoutError:
                yield f"{case}: the process died or hangs"
            except BaseException as error:  # a failed assertion, or what the package raised
                yield f"{case}: {type(error).__name__}: {error} {error.__cause__ or ''}"


@pytest.mark.parametrize(
    ("small", "nets", "processes"),
    [(1, 1, 1), pytest.param(50_000 // len(SMALL), 200, 2, marks=pytest.mark.slow)],
)
def test_damaged_files_are_converted_or_refused(small, nets, processes):
    cases = [(seed, number) for number in range(small) for seed in SMALL]
    cases += [(seed, number) for number in range(nets) for seed in NETS]
    kinds = Counter[str]()
    assert [*failures(cases, processes, kinds)] == []
    print(kinds)
    assert {"verified", "exit code 2", "exit code 3"} <= kinds.keys(), kinds
