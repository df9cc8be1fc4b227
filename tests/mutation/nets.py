"""Models built of text, with the legal sizes of their inputs, and the data that is fed to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

import editing
import numpy as np
import onnx
import sampling
from onnx import TensorProto, helper, numpy_helper

TF = "ai.onnx.converters.tensorflow"

Feeds = dict[str, np.ndarray]
Rng = np.random.Generator

#: Ways to fill an input with reals, the likeliest to show a difference first.
KINDS = ("normal", "ties", "images", "large", "constants", "zeros", "nan")

#: Element types by their names in text.
_NUMPY = {
    "float": np.float32,
    "float16": np.float16,
    "int64": np.int64,
    "i32": np.int32,
    "i8": np.int8,
    "u8": np.uint8,
    "u64": np.uint64,
}


def inlined(text: str, real: type = np.float32) -> tuple[str, dict[str, TensorProto]]:
    """Return text with names in the place of its numbers, and these as constants.

    #5 is a list of one int64, ##5 an int64, #u8:5 a list of one uint8, $0.5 a real.
    """
    stored = {}

    def name(found: re.Match[str]) -> str:
        sign, kind, digits = found.groups()
        key = f"{'real' if sign == '$' else 'number'}{len(sign)}{kind or ''}_{digits}"
        key = key.translate({ord("-"): "minus", ord("."): "p", ord(":"): None})
        if sign == "$":
            array = np.array(float(digits), real)
        else:
            array = np.array([int(digits)], _NUMPY[kind[:-1]] if kind else np.int64)
        stored[key] = numpy_helper.from_array(
            array.reshape([] if sign == "##" else array.shape), key
        )
        return key

    return re.sub(r"(\$|##?)((?:u8|u64|i32|i8):)?(-?[\d.]+(?:e-?\d+)?)", name, text), stored


def parsed(
    text: str, opset: int = 18, real: type = np.float32
) -> tuple[list[onnx.NodeProto], dict[str, TensorProto]]:
    """Parse nodes and the numbers in them, as of `inlined`, which become constants."""
    text, stored = inlined(text, real)
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}, "my" : 1, "{TF}" : 1]> '
        f"g () => () {{ {text.replace(';', ' ')} }}"
    )
    return list(model.graph.node), stored


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
        first, _, nodes = " ".join(lines).rpartition("-->")
        yield name, options, first.strip(), nodes.strip()


def spliced(text: str, real: type = np.float32) -> Callable[[str, str], list[onnx.NodeProto]]:
    """Make nodes of text that compute `t` of `s`, for values of other names."""

    def make(source: str, target: str) -> list[onnx.NodeProto]:
        nodes, stored = parsed(text, real=real)
        held = [helper.make_node("Constant", [], [n], value=t) for n, t in stored.items()]
        names = {n: f"{source}_{n}" for node in (*held, *nodes) for n in node.output}
        names |= {"s": source, "t": target}
        for node in (*held, *nodes):
            node.input[:] = [names.get(n, n) for n in node.input]
            node.output[:] = [names.get(n, n) for n in node.output]
        return [*held, *nodes]

    return make


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the same model as another message."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


@dataclass(frozen=True)
class Net:
    """A model with the legal sizes of its inputs.

    Attributes:
        name: what it is.
        model: the original.
        dims: of each input: numbers, or letters of open dims.
        step, offset: legal sizes of an open dim are an offset plus multiples of a step.
        bounds: of inputs of integers.
    """

    name: str
    model: onnx.ModelProto
    dims: Mapping[str, tuple[int | str, ...]]
    step: Mapping[str, int] = field(default_factory=dict)
    offset: Mapping[str, int] = field(default_factory=dict)
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def size(self, letter: str, least: int) -> int:
        """Return the smallest legal size from `least` on."""
        step, offset = self.step.get(letter, 1), self.offset.get(letter, 0)
        least = max(least, offset)
        return -(-(least - offset) // step) * step + offset

    def feeds(self, rng: Rng, kind: str = "normal", **sizes: int) -> Feeds:
        """Draw data of at least these sizes; open dims that are not given get small ones."""
        known = {n: self.size(n, s) for n, s in sizes.items()}
        found = {}
        for info in self.model.graph.input:
            if info.name not in self.dims:
                continue
            shape = [
                d if isinstance(d, int) else known.setdefault(d, self.size(d, 2 if d == "n" else 9))
                for d in self.dims[info.name]
            ]
            dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            if info.name in self.bounds:
                found[info.name] = rng.integers(*self.bounds[info.name], shape).astype(dtype)
            else:
                found[info.name] = _filled(rng, tuple(shape), dtype, kind, self.model)
        return found

    def random(self, rng: Rng, kind: str = "normal") -> Feeds:
        """Draw data of random sizes."""
        sizes = {n: int(rng.integers(1, 4 if n == "n" else 30)) for n in self.letters}
        return self.feeds(rng, kind, **sizes)

    @property
    def letters(self) -> list[str]:
        """Names of the open dims."""
        return sorted({d for dims in self.dims.values() for d in dims if isinstance(d, str)})


def _filled(
    rng: Rng, shape: tuple[int, ...], dtype: np.dtype, kind: str, model: onnx.ModelProto
) -> np.ndarray:
    """Draw an array of one of `KINDS`, or of any bits."""
    if kind == "bits" or dtype.kind in "Ob":
        name = "string" if dtype.kind == "O" else dtype.name
        bits = sampling.array(Random(int(rng.integers(1 << 30))), name, shape)
        if name == "float16":  # whose signalling NaNs kernels of onnxruntime's own make quiet
            bits.view(np.uint16)[np.isnan(bits)] |= 0x0200
        return bits
    if dtype.kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    stored = [a.reshape(-1)[:64] for a in editing.constants(model.graph).values()]
    numbers = np.concatenate([a for a in stored if a.dtype.kind in "fiu"] + [[0.0, 1.0]])
    draw: dict[str, Callable[[], np.ndarray]] = {
        "normal": lambda: rng.uniform(-1.5, 1.5, shape),
        "ties": lambda: rng.integers(-16, 17, shape) / 2,
        "images": lambda: rng.integers(0, 256, shape),
        "large": lambda: rng.uniform(-4500, 4500, shape),
        "constants": lambda: rng.choice(numbers.astype(np.float64), shape),
        "zeros": lambda: rng.choice([-0.0, 0.0, 1.0, -1.0], shape),
        "nan": lambda: np.where(rng.random(shape) < 0.1, np.nan, rng.uniform(-1.5, 1.5, shape)),
    }
    with np.errstate(over="ignore", invalid="ignore"):
        return draw[kind]().astype(dtype)


def net(
    name: str,
    inputs: str,
    text: str,
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    step: Mapping[str, int] | None = None,
    offset: Mapping[str, int] | None = None,
) -> Net:
    """Build a net of text.

    Args:
        name: what it is.
        inputs: such as "float[n,h,w,3] x".
        text: nodes as for `parsed`; they give y.
        constants: initializers by name.
        step, offset: see `Net`.
    """
    found = re.findall(r"(\w+)\[([^\]]*)\] (\w+)", inputs)
    dims = {v: tuple(int(d) if d.isdigit() else d for d in s.split(",")) for _, s, v in found}
    nodes, stored = parsed(text, 17, _NUMPY.get(found[0][0], np.float32))
    stored |= {n: numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()}
    head = f'<ir_version: 8, opset_import: ["" : 17, "{TF}" : 1]>'
    model = onnx.parser.parse_model(f"{head} g ({inputs}) => () {{}}")
    graph = model.graph
    graph.node.extend(nodes)
    read = {n for spot in editing.spots(model) for n in spot.node.input}
    graph.initializer.extend(t for n, t in stored.items() if n in read)
    element = graph.input[0].type.tensor_type.elem_type
    graph.output.append(helper.make_tensor_value_info("y", element, None))
    return Net(name, model, dims, step or {}, offset or {})


def weight(name: str, *shape: int, dtype: type = np.float32, scale: float = 0.0) -> np.ndarray:
    """Draw a weight that depends on its name; by default sums of products keep their size."""
    rng = np.random.default_rng([ord(c) for c in name])
    fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
    return (rng.standard_normal(shape) * (scale or fan**-0.5)).astype(dtype)


def renamed(model: onnx.ModelProto, names: Mapping[str, str]) -> None:
    """Rename values of the main graph, in bodies too."""

    def inside(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
        for node in graph.node:
            node.input[:] = [names.get(n, n) for n in node.input]
            node.output[:] = [names.get(n, n) for n in node.output]
            for attribute in node.attribute:
                for body in (attribute.g, *attribute.graphs):
                    made = {v.name for v in (*body.input, *body.initializer)}
                    made |= {o for n in body.node for o in n.output}
                    inside(body, {k: v for k, v in names.items() if k not in made})
                    for value in body.output:
                        if value.name not in made:
                            value.name = names.get(value.name, value.name)
        for tensor in graph.initializer:
            tensor.name = names.get(tensor.name, tensor.name)

    inside(model.graph, names)
    del model.graph.value_info[:]
