"""Models with the legal sizes of their inputs, built of text, and the data that is fed to them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import editing
import numpy as np
import onnx
from onnx import helper, numpy_helper

TF = "ai.onnx.converters.tensorflow"

Feeds = dict[str, np.ndarray]
Rng = np.random.Generator

#: Ways to fill an input with reals.
KINDS = (
    "normal",
    "outlier",
    "ties",
    "images",
    "large",
    "constants",
    "zeros",
    "nan",
    "offset",
    "huge",
)

#: Element types by their names in text.
NUMPY = {
    "float": np.float32,
    "float16": np.float16,
    "double": np.float64,
    "int64": np.int64,
    "int32": np.int32,
    "uint8": np.uint8,
}


@dataclass(frozen=True)
class Net:
    """A model with the legal sizes of its inputs.

    Attributes:
        name: what it is.
        model: the original.
        dims: of each input: numbers, or letters of open dims.
        step, offset: legal sizes of an open dim are an offset plus multiples of a step.
    """

    name: str
    model: onnx.ModelProto
    dims: Mapping[str, tuple[int | str, ...]]
    step: Mapping[str, int] = field(default_factory=dict)
    offset: Mapping[str, int] = field(default_factory=dict)

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
            found[info.name] = filled(rng, tuple(shape), dtype, kind, self.model)
        return found

    @property
    def letters(self) -> list[str]:
        """Names of the open dims."""
        return sorted({d for dims in self.dims.values() for d in dims if isinstance(d, str)})


def filled(
    rng: Rng, shape: tuple[int, ...], dtype: np.dtype, kind: str, model: onnx.ModelProto
) -> np.ndarray:
    """Draw an array of one of `KINDS`."""
    if dtype.kind in "iu":
        high = {"large": 2**31 + 40, "huge": 2**40}.get(kind, 200)
        top = min(high, np.iinfo(dtype).max)
        bottom = top - 40 if kind in ("large", "huge") else 0
        return rng.integers(bottom, top, shape).astype(dtype)
    normal = rng.uniform(-1.5, 1.5, shape)
    if kind == "ties":
        normal = rng.integers(-16, 17, shape) / 2
    elif kind == "images":
        normal = rng.integers(0, 256, shape)
    elif kind == "large":
        normal = normal * 3000
    elif kind == "huge":
        normal = normal * 1e6
    elif kind == "outlier":
        normal = np.where(rng.random(shape) < 0.5, normal, rng.integers(-16, 17, shape) / 2)
        normal.reshape(-1)[: max(1, normal.size // 1000)] = 100
    elif kind == "offset":
        normal = normal + 1000
    elif kind == "zeros":
        normal = rng.choice([-0.0, 0.0, 1.0, -1.0], shape)
    elif kind == "nan":
        normal = np.where(rng.random(shape) < 0.1, np.nan, normal)
    elif kind == "constants":
        stored = [a.reshape(-1)[:64] for a in editing.constants(model.graph).values()]
        numbers = np.concatenate([a for a in stored if a.dtype.kind in "fiu"] + [[0.0, 1.0]])
        normal = rng.choice(numbers.astype(np.float64), shape)
    with np.errstate(over="ignore"):
        return normal.astype(dtype)


def net(
    name: str,
    inputs: str,
    text: str,
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    outputs: Mapping[str, int] | None = None,
    opset: int = 17,
    functions: str = "",
    domains: tuple[str, ...] = (),
    step: Mapping[str, int] | None = None,
    offset: Mapping[str, int] | None = None,
) -> Net:
    """Build a net of text.

    Args:
        name: what it is.
        inputs: such as "float[n,h,w,3] x".
        text: nodes, with `;` between them; `$0.5` is a number of the type of the first input, `#5`
            a list of one int64, `##5` an int64.
        constants: initializers by name.
        outputs: element types by name; default: y, of the type of the first input.
        opset: of the default domain.
        functions: local functions as text.
        domains: further domains.
        step, offset: see `Net`.
    """
    dims = {}
    types = {}
    for kind, shape, value in re.findall(r"(\w+)(?:\[([^\]]*)\])? (\w+)", inputs):
        types[value] = kind
        dims[value] = tuple(int(d) if d.isdigit() else d for d in shape.split(",") if d)
    dtype = NUMPY[next(iter(types.values()))]
    stored = {n: numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()}

    def number(found: re.Match[str]) -> str:
        sign, digits = found.groups()
        key = f"c{'_' * len(sign) if sign != '$' else 'f'}{digits}"
        key = key.replace("-", "m").replace(".", "p").replace("+", "")
        array = np.asarray(float(digits), dtype) if sign == "$" else np.asarray(int(digits))
        stored[key] = numpy_helper.from_array(array.reshape([1] if sign == "#" else []), key)
        return key

    text = text.replace(";", "\n")
    text = re.sub(r"(\$|##?)(-?[\d.]+(?:e-?\d+)?)", number, text)
    imports = {"": opset, TF: 1, "my": 1, **dict.fromkeys(domains, 1)}
    head = ", ".join(f'"{d}" : {v}' for d, v in imports.items())
    model = onnx.parser.parse_model(
        f"<ir_version: 8, opset_import: [{head}]> g ({inputs}) => () {{ {text} }} {functions}"
    )
    if not functions:
        kept = [o for o in model.opset_import if o.domain != "my"]
        del model.opset_import[:]
        model.opset_import.extend(kept)
    read = {n for node in model.graph.node for n in _reads(node)}
    model.graph.initializer.extend(t for n, t in stored.items() if n in read)
    element = model.graph.input[0].type.tensor_type.elem_type
    for output, kind in (outputs or {"y": element}).items():
        info = onnx.ValueInfoProto(name=output)
        info.type.tensor_type.elem_type = kind
        model.graph.output.append(info)
    return Net(name, model, dims, step or {}, offset or {})


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _reads(inner)


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
