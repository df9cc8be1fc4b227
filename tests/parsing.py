"""Models as text, in onnx's own language for them, with short words for what it lacks.

model("g (float[N,H] x) => (y) { b = tf.SpaceToBatchND(x, block, pads) y = Mul(b, $0.5) }",
      block=[2], pads=[[0, 0]])

tf. ov. M. ours.    domains of operators: TensorFlow's, OpenVINO's, Microsoft's, our own
#5  ##5  #u8:5      a list of one int64, an int64, a list of one uint8
$0.5                a real
"""

import re
from collections.abc import Iterator

import numpy as np
import onnx
import running
import structure
from building import OPENVINO, TF
from onnx import TensorProto, numpy_helper, parser

DOMAINS = {
    "tf": TF,
    "ov": OPENVINO,
    "M": "com.microsoft",
    "nchwc": "com.microsoft.nchwc",
    "ours": "onnx_spatial.ops",
}

_INTEGERS = {
    "i32": np.int32, "i8": np.int8, "u8": np.uint8, "u64": np.uint64,
}  # fmt: skip


def model(
    text: str, opset: int = 17, ir: int = 0, real: type = np.float32, **arrays: object
) -> onnx.ModelProto:
    """Parse a graph, and functions behind it; every domain that is used is imported.

    Args:
        text: of the model, without a header.
        opset, ir: of the model; IR 8 or what the opset needs, if nothing else is said.
        real: type of the reals in the text.
        arrays: initializers, as far as a node reads them.
    """
    text, stored = inlined(text, real)
    text = re.sub(rf"\b({'|'.join(DOMAINS)})\.(?=[A-Z])", lambda m: f"{DOMAINS[m[1]]}.", text)
    ir = ir or max(8, running.ir_version_of(opset))
    made = parser.parse_model(f'<ir_version: {ir}, opset_import: ["" : {opset}]> {text}')
    read = {name for node in structure.nodes(made) for name in node.input}
    given = {n: numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items() if n in read}
    made.graph.initializer.extend((stored | given).values())
    for holder in (made, *made.functions):
        used = {n.domain for n in structure.nodes(holder)}
        for domain in sorted(used - {each.domain for each in holder.opset_import}):
            holder.opset_import.add(domain=domain, version=1)
    return made


def nodes(
    text: str, real: type = np.float32
) -> tuple[list[onnx.NodeProto], dict[str, TensorProto]]:
    """Parse nodes, with semicolons or not between them, and the numbers that they read."""
    made = model(f"g () => () {{ {text.replace(';', ' ')} }}", real=real)
    return list(made.graph.node), {t.name: t for t in made.graph.initializer}


def inlined(text: str, real: type = np.float32) -> tuple[str, dict[str, TensorProto]]:
    """Return text with names in the place of its numbers, and these as constants."""
    stored = {}

    def name(found: re.Match[str]) -> str:
        sign, kind, digits = found.groups()
        key = f"{'real' if sign == '$' else 'number'}{len(sign)}{kind or ''}_{digits}"
        key = key.translate({ord("-"): "minus", ord("."): "p"})
        dtype = real if sign == "$" else _INTEGERS.get(kind, np.int64)
        value = np.array(float(digits) if sign == "$" else int(digits), dtype)
        array = value.reshape(1) if sign == "#" else value
        stored[key] = numpy_helper.from_array(array, key)
        return key

    kinds = "|".join(_INTEGERS)
    return re.sub(rf"(\$|##?)(?:({kinds}):)?(-?[\d.]+(?:e-?\d+)?)", name, text), stored


def rows(table: str) -> Iterator[tuple[str, list[str], str, str]]:
    """Read a table of models: a name with options, nodes of the original (if any), other nodes.

    name | option | option
        nodes of the original -->
        nodes
    """
    found: list[tuple[list[str], list[str]]] = []
    for line in table.strip("\n").splitlines():
        if line.startswith(" "):
            found[-1][1].append(line.strip())
        else:
            found.append((line.split(" | "), []))
    for (name, *options), lines in found:
        first, _, last = " ".join(lines).rpartition("-->")
        yield name, options, first.strip(), last.strip()


def image(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """Count from 1."""
    return np.arange(1, np.prod(shape) + 1).astype(dtype).reshape(shape)
