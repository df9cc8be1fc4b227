"""Random regions in random places: graphs, branches, loops, functions, and functions in functions.

A region blocks its input and unblocks it again, so what goes in comes out and the value in between is
known by definition. Around it everything varies: what is declared of the shapes (guesses that are
wrong, too), where the parameters come from, how many calls a function gets and with what, and which
lowering is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import definitions
import numpy as np
import onnx
import pytest
import running
import sampling
import structure
from adapter import convert
from building import ELEMENT_TYPES, TF, element_type
from onnx import TensorProto, helper
from vocabulary import LOWERINGS

INT = TensorProto.INT64
#: Loop and Scan have no bfloat16, and Loop of onnxruntime 1.23 frees stacked strings twice.
NOT_THERE = {"in_a_loop": ("bfloat16", "string"), "in_a_scan": ("bfloat16",)}
#: Types that one function can be called with: Pad has a kernel for each.
PADDED_TYPES = ("float32", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64")


@dataclass(frozen=True)
class Region:
    """What goes in, and the block and pads that it is moved by."""

    data: np.ndarray
    block: np.ndarray
    pads: np.ndarray

    @property
    def moved(self) -> np.ndarray:
        pads = [tuple(pair) for pair in self.pads.tolist()]
        return definitions.space_to_batch(self.data, self.block.tolist(), pads)


def region(rng: Random, dtype: str, blocked: int, rest: int) -> Region:
    found = sampling.blocking(rng, True, blocked, rest)
    table = np.array(found.amounts, np.int64).reshape(blocked, 2)
    data = sampling.array(rng, dtype, found.shape)
    return Region(data, np.array(found.block, np.int64).reshape(blocked), table)


def info(rng: Random, name: str, array: np.ndarray, *, guess: bool = False) -> onnx.ValueInfoProto:
    """A declaration that knows some of the dims."""
    kind = rng.choice(("static", "some", "none"))
    known = {"static": 1.0, "some": 0.5, "none": 0.0}[kind]
    dims = [
        d if guess or rng.random() < known else rng.choice((None, f"{name}{i}"))
        for i, d in enumerate(array.shape)
    ]
    return helper.make_tensor_value_info(name, element_type(array), dims)


def body(tag: str, names: tuple[str, str, str]) -> list[onnx.NodeProto]:
    """names are those of data, block and pads; gives s{tag}, y{tag} and h{tag}, the shape of s."""
    data, block, pads = names
    op = helper.make_node
    return [
        op("SpaceToBatchND", [data, block, pads], [f"s{tag}"], domain=TF),
        op("Identity", [f"s{tag}"], [f"i{tag}"]),
        op("Shape", [f"i{tag}"], [f"h{tag}"]),  # onnxruntime folds it if it believes a shape
        op("BatchToSpaceND", [f"i{tag}", block, pads], [f"y{tag}"], domain=TF),
    ]


class Builder:
    """Collects what a model is made of."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.value_info: list[onnx.ValueInfoProto] = []
        self.functions: list[onnx.FunctionProto] = []
        self.feeds: dict[str, np.ndarray] = {}
        self.expected: dict[str, np.ndarray] = {}
        self.opset = rng.choice((14, 17, 18, 21))
        self.ir_version = 10

    def data(self, tag: str, found: Region) -> tuple[str, str, str]:
        """Names of data, block and pads in the main graph."""
        name = f"x{tag}"
        self.inputs.append(info(self.rng, name, found.data))
        self.feeds[name] = found.data
        sources = [
            self.parameter(f"{kind}{tag}", value)
            for kind, value in (("block", found.block), ("pads", found.pads))
        ]
        return name, *sources

    def parameter(self, name: str, value: np.ndarray) -> str:
        kind = self.rng.choice(("initializer", "constant", "chain", "input"))
        tensor = onnx.numpy_helper.from_array(value, name)
        if kind == "initializer":
            self.initializers.append(tensor)
        elif kind == "input":
            self.inputs.append(helper.make_tensor_value_info(name, INT, value.shape))
            self.feeds[name] = value
        elif kind == "constant":
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.initializers.append(
                onnx.numpy_helper.from_array(value.astype(np.int32), f"{name}_")
            )
            self.nodes.append(helper.make_node("Cast", [f"{name}_"], [name], to=INT))
        return name

    def guess(self, tag: str, found: Region) -> list[onnx.ValueInfoProto]:
        """An exporter's guess: the shape stays."""
        if self.rng.random() < 0.5:
            return []
        names = self.rng.sample((f"s{tag}", f"i{tag}"), self.rng.randint(1, 2))
        return [info(self.rng, name, found.data, guess=True) for name in names]

    def output(self, name: str, value: np.ndarray) -> None:
        declared = helper.make_tensor_value_info(name, element_type(value), [None] * value.ndim)
        self.outputs.append(declared)
        self.expected[name] = value

    def call(self, function: str, names: tuple[str, ...], outputs: list[str]) -> None:
        self.nodes.append(helper.make_node(function, list(names), outputs, domain="local"))

    def function(self, name: str, nodes: list[onnx.NodeProto], outputs: list[str]) -> None:
        imports = [
            helper.make_opsetid(domain, version)
            for domain, version in (("", self.opset), (TF, 1), ("local", 1))
        ]
        self.functions.append(
            helper.make_function("local", name, ["x", "block", "pads"], outputs, nodes, imports)
        )

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "g",
            self.inputs,
            self.outputs,
            self.initializers,
            value_info=self.value_info,
        )
        imports = [
            helper.make_opsetid(domain, version)
            for domain, version in (("", self.opset), (TF, 1), ("local", 1))
        ]
        return helper.make_model(
            graph, opset_imports=imports, ir_version=self.ir_version, functions=self.functions
        )


def in_the_main_graph(make: Builder, found: Region) -> None:
    names = make.data("", found)
    make.nodes += body("", names)
    make.value_info += make.guess("", found)
    make.output("s", found.moved)
    make.output("y", found.data)
    make.output("h", np.array(found.moved.shape, np.int64))


def in_a_branch(make: Builder, found: Region) -> None:
    names = make.data("", found)
    make.inputs.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    make.feeds["c"] = np.array(make.rng.random() < 0.5)
    typed = element_type(found.data)
    graphs = []
    for tag in "te":
        outputs = [
            helper.make_tensor_value_info(f"{v}{tag}", typed, [None] * found.data.ndim)
            for v in "sy"
        ]
        outputs.append(helper.make_tensor_value_info(f"h{tag}", INT, [None]))
        graphs.append(
            helper.make_graph(
                body(tag, names), tag, [], outputs, value_info=make.guess(tag, found)[:1]
            )
        )
    # What comes out of the If is unblocked once more outside.
    outputs = ["s", "y", "h"]
    node = helper.make_node("If", ["c"], outputs, then_branch=graphs[0], else_branch=graphs[1])
    again = helper.make_node("BatchToSpaceND", ["s", *names[1:]], ["z"], domain=TF)
    make.nodes += [node, again]
    make.value_info += [v for v in make.guess("", found) if v.name == "s"]
    shape = np.array(found.moved.shape, np.int64)
    for name, value in (("s", found.moved), ("y", found.data), ("h", shape), ("z", found.data)):
        make.output(name, value)


def in_a_loop(make: Builder, found: Region) -> None:
    names = make.data("", found)
    count = make.rng.randint(1, 3)
    make.initializers.append(onnx.numpy_helper.from_array(np.array(count), "n"))
    make.initializers.append(onnx.numpy_helper.from_array(np.array(True), "go"))
    typed = element_type(found.data)
    inputs = [
        helper.make_tensor_value_info("i_", INT, []),
        helper.make_tensor_value_info("c_", TensorProto.BOOL, []),
        info(make.rng, "carried", found.data),
    ]
    outputs = [
        helper.make_tensor_value_info("c1", TensorProto.BOOL, []),
        helper.make_tensor_value_info("y_in", typed, [None] * found.data.ndim),
        helper.make_tensor_value_info("s_in", typed, [None] * found.data.ndim),
    ]
    keep = helper.make_node("Identity", ["c_"], ["c1"])
    nodes = [keep, *body("_in", ("carried", *names[1:]))]
    guesses = [v for v in make.guess("_in", found) if v.name == "i_in"]
    step = helper.make_graph(nodes, "step", inputs, outputs, value_info=guesses)
    make.nodes.append(helper.make_node("Loop", ["n", "go", names[0]], ["y", "s"], body=step))
    make.output("y", found.data)
    make.output("s", np.stack([found.moved] * count))


def in_a_scan(make: Builder, found: Region) -> None:
    batch = make.rng.randint(1, 3)
    stacked = np.stack([found.data] * batch)
    names = make.data("", Region(stacked, found.block, found.pads))
    typed = element_type(found.data)
    inputs = [info(make.rng, "one", found.data)]
    outputs = [
        helper.make_tensor_value_info(name, typed, [None] * found.data.ndim)
        for name in ("s_in", "y_in")
    ]
    step = helper.make_graph(body("_in", ("one", *names[1:])), "step", inputs, outputs)
    make.nodes.append(
        helper.make_node("Scan", [names[0]], ["s", "y"], body=step, num_scan_inputs=1)
    )
    make.output("s", np.stack([found.moved] * batch))
    make.output("y", stacked)


def in_a_function(make: Builder, *found: Region) -> None:
    make.function("F", body("", ("x", "block", "pads")), ["s", "y", "h"])
    for number, each in enumerate(found):
        names = make.data(str(number), each)
        outputs = [f"s{number}", f"y{number}", f"h{number}"]
        make.call("F", names, outputs)
        make.output(outputs[0], each.moved)
        make.output(outputs[1], each.data)
        make.output(outputs[2], np.array(each.moved.shape, np.int64))


def in_a_function_in_a_function(make: Builder, *found: Region) -> None:
    make.function("F", body("", ("x", "block", "pads")), ["s", "y"])
    calls = [
        helper.make_node("F", ["x", "block", "pads"], ["s", "u"], domain="local"),
        helper.make_node("F", ["u", "block", "pads"], ["r", "y"], domain="local"),
    ]
    make.function("G", calls, ["r", "y"])
    for number, each in enumerate(found):
        names = make.data(str(number), each)
        outputs = [f"r{number}", f"y{number}"]
        make.call("G", names, outputs)
        make.output(outputs[0], each.moved)
        make.output(outputs[1], each.data)


ONE = (in_the_main_graph, in_a_branch, in_a_loop, in_a_scan)
MANY = (in_a_function, in_a_function_in_a_function)


def build(rng: Random, place: str) -> Builder:
    make = Builder(rng)
    blocked, rest = rng.randint(1, 2), rng.randint(0, 2)
    where = next(p for p in (*ONE, *MANY) if p.__name__ == place)
    if where in ONE:
        missing = NOT_THERE.get(where.__name__, ())
        types = [t for t in ELEMENT_TYPES if t not in missing]
        where(make, region(rng, rng.choice(types), blocked, rest))
        return make
    dtype = rng.choice(list(ELEMENT_TYPES))
    found = [region(rng, dtype, blocked, rest)]
    for _ in range(rng.randint(1, 2)):
        kind = rng.choice(("same", "shape", "rank", "type"))
        if kind == "same":
            found.append(found[0])
        elif kind == "type" and dtype in PADDED_TYPES:
            found.append(region(rng, rng.choice(PADDED_TYPES), blocked, rest))
        else:
            found.append(region(rng, dtype, blocked, rest + (kind == "rank")))
    where(make, *found)
    return make


def failures(place: str, numbers: range) -> list[str]:
    found = []
    for number in numbers:
        make = build(Random(f"{place} {number}"), place)
        model = make.model()
        try:
            converted = convert(model, prefer=make.rng.choice((None, *LOWERINGS)))
            assert not structure.spatial(converted)
            for level in running.LEVELS:
                results = running.run(converted, make.feeds, level)
                for result, (name, wanted) in zip(results, make.expected.items(), strict=True):
                    if not running.same_bits(result, wanted):
                        found.append(f"{place} {number}: {name} differs at {level}")
        except Exception as error:
            found.append(f"{place} {number}: {type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("count", [12, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("place", [p.__name__ for p in (*ONE, *MANY)])
def test_regions(place, count):
    found = failures(place, range(count))
    assert not found, f"{len(found)} failed\n" + "\n".join(found[:5])
