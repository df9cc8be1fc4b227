"""Define a broken model: its files, its error, and the message that is expected for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx
from onnx import parser

MODEL = "model.onnx"

TENSORFLOW = "ai.onnx.converters.tensorflow"
OPENVINO = "org.openvinotoolkit"
OURS = "onnx_spatial.ops"

#: Text for parameters that are right for data of [2, 4, 6, 3].
BLOCK = "int32[2] block = {2, 3}, int32[2,2] amounts = {0, 0, 0, 0}"

#: Exit codes of `convert` and `inspect` by kind; 0 for all others.
_EXIT_CODES = {"unreadable": 2, "conversion": 3}


@dataclass(frozen=True)
class Case:
    """A model whose failure is the expected result.

    Attributes:
        wrong: what is wrong with it, in one sentence.
        kind: of failure, as docs/validation.md lists them.
        says: what the message has to hold: where it is, which number is wrong, what to do.
        files: content by path in the folder of the model.
        status: of `validate`.
        convert, inspect: exit codes of these commands; None: that of the kind, which is 0 where it takes
            recorded data, or a runtime, to see what is wrong.
    """

    wrong: str
    kind: str
    says: tuple[str, ...]
    files: Mapping[str, bytes]
    status: str = "failed"
    convert: int | None = None
    inspect: int | None = None

    @property
    def convert_code(self) -> int:
        """Exit code of `onnx-spatial convert`."""
        return _EXIT_CODES.get(self.kind, 0) if self.convert is None else self.convert

    @property
    def inspect_code(self) -> int:
        """Exit code of `onnx-spatial inspect`."""
        return _EXIT_CODES.get(self.kind, 0) if self.inspect is None else self.inspect


def parsed(graph: str, *, opset: int = 17, functions: str = "") -> onnx.ModelProto:
    """Parse ONNX text in which TF. and OV. stand for the domains of the converters."""
    head = f'<ir_version: 8, opset_import: ["" : {opset}, "{TENSORFLOW}" : 1, "{OPENVINO}" : 1, '
    head += f'"{OURS}" : 1, "my.layers" : 1, "somebody.else" : 1]>\n'
    text = (graph + functions).replace("TF.", f"{TENSORFLOW}.").replace("OV.", f"{OPENVINO}.")
    return parser.parse_model(head + text.replace("OURS.", f"{OURS}."))


def serialized(model: onnx.ModelProto) -> bytes:
    """Serialize a model to the same bytes each time."""
    return bytes(model.SerializeToString(deterministic=True))


def files(graph: str, *, opset: int = 17, functions: str = "") -> dict[str, bytes]:
    """Return the files of a model that is given as text."""
    return {MODEL: serialized(parsed(graph, opset=opset, functions=functions))}


def one_node(call: str, x: str, constants: str = "") -> dict[str, bytes]:
    """Return the text of a model of one node, called "broken", and its parameters."""
    held = f" <{constants}>" if constants else ""
    return files(f"net ({x} x) => (float[n,h,w,c] y){held} {{ [broken] y = {call} }}")


def pairs(*values: int) -> str:
    """Return the text of a table of paddings or crops, two values for each axis."""
    return f"int32[{len(values) // 2},2] amounts = {{{', '.join(map(str, values))}}}"


def block(*values: int) -> str:
    """Return the text of a block shape."""
    return f"int32[{len(values)}] block = {{{', '.join(map(str, values))}}}"
