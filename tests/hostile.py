"""Models that are damaged, contradict themselves or ask for the impossible, and who tries them out.

Each case is a function that makes the model and a pattern of what must become of it: the class of
the error and its message, "converted", or "nothing to do".
"""

from __future__ import annotations

import itertools
import resource
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

import onnx_spatial

TF = "ai.onnx.converters.tensorflow"
HEAD = f'<ir_version: 8, opset_import: ["" : 17, "{TF}" : 1, "loc" : 1, "my.own" : 1]>\n'
PARAMETERS = "int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}"
DEEP = 10_000

Model = onnx.ModelProto | bytes


@dataclass(frozen=True)
class Case:
    """A model and what must become of it; where nothing runs it, it is not verified."""

    make: Callable[[], Model]
    outcome: str


CASES: dict[str, Case] = {}


def case(outcome: str) -> Callable[[Callable[[], Model]], Callable[[], Model]]:
    """Register a function that makes a model."""

    def register(make: Callable[[], Model]) -> Callable[[], Model]:
        CASES[make.__name__] = Case(make, outcome)
        return make

    return register


def cases(name: str, make: Callable[[Any], Model], variants: Mapping[str, tuple[Any, str]]) -> None:
    """Register one case per variant: what `make` is called with, and the outcome."""
    for variant, (argument, outcome) in variants.items():
        CASES[f"{name}: {variant}"] = Case(lambda a=argument: make(a), outcome)


def text(source: str) -> onnx.ModelProto:
    """Text in which M. stands for the domain of the operators."""
    return parser.parse_model(HEAD + source.replace("M.", f"{TF}."))


def good() -> onnx.ModelProto:
    """A model that converts."""
    return text(f"""g (float[1,4,4,1] x) => (float[a,b,c,d] z) <{PARAMETERS}> {{
        [site] y = M.SpaceToBatchND(x, block, none)
        z = Neg(y)
    }}""")


def changed(change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    """The good model after a change."""
    model = good()
    change(model)
    return model


# Bytes


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def nested(payload: bytes, fields: Iterable[tuple[int, bytes]]) -> bytes:
    """`payload` inside messages; fields are (number, what stands before it), the outermost first."""
    heads, total = [], len(payload)
    for number, before in reversed(list(fields)):
        head = varint(number << 3 | 2) + varint(len(before) + total) + before
        heads.append(head)
        total += len(head)
    return b"".join(reversed(heads)) + payload


def nested_ifs(depth: int) -> bytes:
    attribute = b"\x0a\x0bthen_branch\xa0\x01\x05"
    level = [(1, b"\x22\x02If"), (5, attribute), (6, b"")]
    return b"\x08\x08" + nested(b"", [(7, b""), *level * depth])


def nested_types(depth: int) -> bytes:
    return b"\x08\x08" + nested(
        b"", [(7, b""), (11, b"\x0a\x01x"), (2, b""), *[(4, b""), (1, b"")] * depth]
    )


NO_MODEL = "ModelFileError: model: is not an ONNX model"
cases(
    "cut off",
    lambda n: good().SerializeToString()[:n],
    {str(n): (n, NO_MODEL) for n in (0, 1, 9, -1, -40)},
)
cases(
    "bytes",
    lambda data: data,
    {
        "more than there is": (b"\x3a\xff\xff\xff\xff\x07abc", NO_MODEL),
        "graphs 10,000 deep": (nested_ifs(DEEP), NO_MODEL),
        "types 10,000 deep": (nested_types(DEEP), NO_MODEL),
        "graphs as deep as can be read": (nested_ifs(33), "nothing to do"),
    },
)


@case("ModelFileError: model: graphs are nested more than 33 deep")
def graphs_in_memory_10000_deep() -> onnx.ModelProto:
    model = good()
    graph = model.graph
    for number in range(DEEP):
        node = graph.node.add(op_type="If", output=[f"o{number}"])
        graph = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
    return model


@case("ModelFileError: (model: )?the model is damaged|converted")  # older protobufs copy it
def types_in_memory_1000_deep() -> onnx.ModelProto:
    model = good()
    kind = model.graph.value_info.add(name="y").type
    for _ in range(1000):
        kind = kind.sequence_type.elem_type
    kind.tensor_type.elem_type = TensorProto.FLOAT
    return model


def not_text(name: bytes) -> bytes:
    model = good()
    model.graph.name, model.doc_string = "gname", "docstring"
    model.metadata_props.add(key="metakey", value="metavalue")
    model.graph.initializer[0].doc_string = "tensordoc"
    model.graph.node[1].name = "negname"
    attribute = helper.make_attribute("attrname", "attrvalue")
    model.graph.node.append(helper.make_node("Other", ["x"], ["valname"], domain="my.own"))
    model.graph.node[-1].attribute.append(attribute)
    model.graph.node[-1].overload = "ovload"
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "dimname"
    model.graph.input[0].type.denotation = "denoted"
    data = model.SerializeToString()
    assert name in data
    return data.replace(name, b"\xff\xfe" + name[2:])


NO_TEXT = "ModelFileError: .*(is not UTF-8 text|must be a string|got bytes)"
cases(
    "not UTF-8",
    not_text,
    {
        **{
            name: (name.encode(), NO_TEXT)
            for name in (
                "gname",
                "site",
                "negname",
                "Other",
                "my.own",
                "block",
                "ovload",
            )
        },
        # Whether the name of a value is looked at as text depends on the version of protobuf.
        "valname": (b"valname", f"{NO_TEXT}|converted"),
        # What says nothing to anybody is kept as it is.
        **{
            name: (name.encode(), "converted")
            for name in ("docstring", "metakey", "metavalue", "tensordoc", "attrvalue", "denoted")
        },
    },
)


# Graphs


def flow(body: str) -> onnx.ModelProto:
    return text(f"g (float[1,4,4,1] x) => (float[a,b,c,d] z) <{PARAMETERS}> {{ {body} }}")


WAITS = "ModelFileError: model: .* in main graph is part of a cycle: "
cases(
    "order",
    flow,
    {
        "a cycle": (
            "y = M.SpaceToBatchND(w, block, none) w = Neg(y) z = Neg(y)",
            WAITS + "<y>, <w>",
        ),
        "not sorted": ("z = Neg(y) y = M.SpaceToBatchND(w, block, none) w = Neg(x)", "converted"),
        "given twice": (
            "z = M.SpaceToBatchND(x, block, none) z = Neg(x)",
            "ModelFileError: model: 'z' in main graph has two producers: SpaceToBatchND '<z>' and",
        ),
        "what nothing gives": (
            "z = M.SpaceToBatchND(w, block, none)",
            "ModelFileError: model: .*<z>' in main graph reads 'w', "
            "which no node, input or initializer produces",
        ),
    },
)


def _inputs(model: onnx.ModelProto, names: list[str]) -> None:
    del model.graph.node[0].input[:]
    model.graph.node[0].input.extend(names)


def _ends_here(model: onnx.ModelProto) -> None:
    del model.graph.node[0].output[:]
    model.graph.node[1].input[0] = "x"


REFUSED = "ConversionError: model: SpaceToBatchND 'site' in main graph"
cases(
    "graph",
    changed,
    {
        "two initializers of one name": (
            lambda m: m.graph.initializer.append(
                numpy_helper.from_array(np.int32([1, 1]), "block")
            ),
            "converted",
        ),
        "two inputs of one name": (
            lambda m: m.graph.input.append(m.graph.input[0]),
            "ModelFileError: model: main graph has two inputs of the name",
        ),
        "no graph": (lambda m: m.ClearField("graph"), f"{NO_MODEL}|nothing to do"),
        "no inputs at all": (lambda m: _inputs(m, []), f"{REFUSED}: the data input is missing"),
        "missing inputs": (lambda m: _inputs(m, [""] * 3), f"{REFUSED}: the data input is missing"),
        "no outputs": (_ends_here, f"{REFUSED} .*: the node has no output"),
        "an unknown type": (
            lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 999),
            "ModelFileError: model: input 'x' of main graph has element type 999, which onnx",
        ),
        "an opset of the far future": (
            lambda m: setattr(m.opset_import[0], "version", 999),
            "converted: unverified: .*Opset 999",
        ),
    },
)


# Dims, tensors, types


def sized(dims: list[int]) -> onnx.ModelProto:
    model = good()
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, dims))
    return model


OVERFLOWS = f"{REFUSED} .*overflows int64"
NOT_RUN = "converted: unverified: "
cases(
    "dims",
    sized,
    {
        "0": ([1, 0, 4, 1], "converted"),
        "2^31": ([1, 2**31, 4, 1], NOT_RUN),
        "2^62": ([1, 2**62, 4, 1], OVERFLOWS),
        "40,000 by 40,000": ([1, 40_000, 40_000, 1], NOT_RUN),
        "100,000 of them": ([2] * 100_000, f"{REFUSED} .*100000 dims"),
    },
)


def block(change: Callable[[TensorProto], object]) -> onnx.ModelProto:
    model = good()
    tensor = model.graph.initializer[0]
    tensor.CopyFrom(TensorProto(name="block", data_type=TensorProto.INT32, dims=[2]))
    change(tensor)
    return model


UNFILLED = f"{REFUSED} .*the stored tensor 'block' is damaged: it does not hold int32\\[2\\]"
cases(
    "tensor",
    block,
    {
        "no data": (lambda t: None, UNFILLED),
        "negative dims": (lambda t: t.dims.__setitem__(0, -2), f"{REFUSED} .*: "),
        "2^80 of them": (lambda t: t.dims.extend([2**62, 2**18]), f"{REFUSED} .*must be 1-D"),
        "of no type": (lambda t: setattr(t, "data_type", 999), f"{REFUSED} .*: "),
        "in a file that is not said": (lambda t: setattr(t, "data_location", 1), "ModelFileError"),
    },
)


def typed(change: Callable[[onnx.TypeProto], object]) -> onnx.ModelProto:
    model = good()
    model.graph.input[0].type.Clear()
    change(model.graph.input[0].type)
    return model


NO_TENSOR = f"{REFUSED}: the data input is of %s type, not a dense tensor"
cases(
    "type",
    typed,
    {
        "optional": (lambda t: t.optional_type.elem_type.SetInParent(), NO_TENSOR % "optional"),
        "none": (lambda t: None, "converted"),
    },
)


# Parameters that ask for too much


def blocks(arguments: tuple[str, str, str]) -> onnx.ModelProto:
    shape, size, pads = arguments
    return text(f"""g (float[{shape}] x) => (float[a,b,c,d] z)
        <int64[2] block = {{{size}}}, int64[2,2] pads = {{{pads}}}> {{
            [site] z = M.SpaceToBatchND(x, block, pads)
    }}""")


BILLION = 10**9
cases(
    "blocks",
    blocks,
    {
        "of 10^9, padded to fit": (
            ("1,4,4,1", f"{BILLION},{BILLION}", f"0,{BILLION - 4},0,{BILLION - 4}"),
            NOT_RUN,
        ),
        "padded by 10^12": (("1,4,4,1", "2,2", f"0,{10**12},{10**12},0"), OVERFLOWS),
        "of 2^62 by 4": (
            ("N,H,W,1", f"{2**62},4", "0,0,0,0"),
            f"{REFUSED} .*block_shape .* overflows",
        ),
        "of -2^63": (("1,4,4,1", f"{-(2**63)},2", "0,0,0,0"), f"{REFUSED} .*at least 1"),
    },
)


def patches(arguments: tuple[str, int, int, int, str]) -> onnx.ModelProto:
    shape, kernel, stride, rate, padding = arguments
    return text(f"""g (float[{shape}] x) => (float[a,b,c,d] z) {{
        [site] z = M.ExtractImagePatches <ksizes = [1, {kernel}, {kernel}, 1],
            strides = [1, {stride}, {stride}, 1], rates = [1, {rate}, {rate}, 1],
            padding = "{padding}"> (x)
    }}""")


PATCHES = "ConversionError: model: ExtractImagePatches 'site' in main graph"
cases(
    "patches",
    patches,
    {
        "10^9 wide": (("1,4,4,1", BILLION, 1, 1, "SAME"), f"{PATCHES} .*overflows int64"),
        "2^63 apart": (("N,H,W,1", 3, 2**63 - 1, 1, "SAME"), f"{PATCHES}.*must fit into 32 bits"),
        "of 10^18 images": (
            (f"1,{BILLION},{BILLION},1", 2, 1, 1, "VALID"),
            NOT_RUN,
        ),
    },
)


def kind_of(change: dict[str, Any]) -> onnx.ModelProto:
    model = patches(("1,4,4,1", 2, 1, 1, "SAME"))
    node = model.graph.node[0]
    name = change.get("of", "ksizes")
    fields = {key: value for key, value in change.items() if key != "of"}
    attribute = next(a for a in node.attribute if a.name == name)
    attribute.CopyFrom(onnx.AttributeProto(name=name, **fields))
    return model


MUST_BE = f"{PATCHES} .*: attribute ksizes must be a list of integers"
cases(
    "attribute",
    kind_of,
    {
        "floats": ({"type": 6, "floats": [1, float("nan"), 2, 1]}, MUST_BE),
        "without a type": ({"ints": [1, 2, 2, 1]}, MUST_BE),
        "100,000 integers": ({"type": 7, "ints": [1] * 100_000}, f"{PATCHES} .*not 100000"),
        "a megabyte of text": (
            {"of": "padding", "type": 3, "s": b"S" * 10**6},
            f"{PATCHES} .*padding must be SAME or VALID",
        ),
    },
)


@case("ModelFileError: model: Constant '<b>' .*'value_ints' does not have the type INTS")
def a_constant_of_the_wrong_kind() -> onnx.ModelProto:
    model = flow("b = Constant<value_int = 1>() z = M.SpaceToBatchND(x, b, none)")
    attribute = model.graph.node[0].attribute[0]
    attribute.name, attribute.type = "value_ints", onnx.AttributeProto.TENSOR
    return model


# Constants that would fill the memory


def folded(body: str) -> onnx.ModelProto:
    return text(f"""g (float[1,4,4,1] x) => (float[a,b,c,d] z) <
            int32[2,2] none = {{0, 0, 0, 0}}, int64[1] one = {{1}}, int64[1] three = {{3}},
            int64[1] big = {{10000000000}}, int64 zero = {{0}}, int64 step = {{1}},
            int64 end = {{10000000000}}, int64[2] seed = {{2, 2}}, int64[2] pads = {{0, 1000000000000}},
            float[1] scales = {{1000000000.0}}> {{
        {body}
        b = Slice(c, one, three)
        z = M.SpaceToBatchND(x, b, none)
    }}""")


NOT_RUN = "VerificationError: .*does not run on generated data|converted"
cases(
    "folding",
    folded,
    {
        "ConstantOfShape": ("c = ConstantOfShape <value = int64[1] {2}> (big)", NOT_RUN),
        "Tile": ("c = Tile(seed, big)", NOT_RUN),
        "4,000 by 4,000": (
            "n = Constant <value_ints = [4000]> () k = Constant <value_ints = [4000, 1]> ()"
            "v = ConstantOfShape <value = int64[1] {1}> (n) w = Reshape(v, k) s = Add(v, w)"
            "m = Constant <value_ints = [-1]> () c = Reshape(s, m)",
            "converted",
        ),
    },
)


# Functions

FUNCTION = f'<opset_import: ["" : 17, "loc" : 1, "{TF}" : 1], domain: "loc"> '


def calls(count: int, each: int) -> onnx.ModelProto:
    """`count` functions, each of which calls the next one so many times."""
    model = good()
    model.graph.node[0].CopyFrom(helper.make_node("f0", ["x"], ["y"], domain="loc"))
    imports = [helper.make_opsetid(d, v) for d, v in (("", 17), ("loc", 1), (TF, 1))]
    for number in range(count):
        names = ["a", *(f"v{k}" for k in range(each))]
        nodes = [
            helper.make_node(f"f{number + 1}", [a], [b], domain="loc")
            for a, b in itertools.pairwise(names)
        ]
        if number == count - 1:
            nodes = [helper.make_node("Neg", ["a"], [names[-1]])]
        model.functions.append(
            helper.make_function("loc", f"f{number}", ["a"], [names[-1]], nodes, imports)
        )
    last = model.functions[-1].node
    block, none = (numpy_helper.from_array(np.array(v)) for v in ([1, 1], [[0, 0], [0, 0]]))
    last.append(helper.make_node("Constant", [], ["block"], value=block))
    last.append(helper.make_node("Constant", [], ["none"], value=none))
    last.append(helper.make_node("SpaceToBatchND", ["a", "block", "none"], ["s"], domain=TF))
    return model


CALL = "g (float[1,4,4,1] x) => (float[a,b,c,d] y) { y = loc.f(x) }"
cases(
    "functions",
    lambda make: make(),
    {
        "that call themselves in a branch": (
            lambda: text(
                f"{CALL} {FUNCTION} f (a) => (b) {{ b = If (a) <then_branch = t () => (float[1] u)"
                "{ u = loc.f(a) }, else_branch = e () => (float[1] v) { v = Neg(a) }> }"
            ),
            "ModelFileError: model: functions call each other in a cycle: loc:f",
        ),
        "that call twice, 40 deep": (
            lambda: calls(40, 2),
            "ModelFileError: model: its inlined function calls have 3[0-9]{12} nodes",
        ),
        "in a chain of 1,000": (lambda: calls(1000, 1), "converted"),
    },
)


# Loops

BODY = (
    "<body = b (int64 i, bool on, float[?,?,?,?] v) => (bool go, float[?,?,?,?] w)"
    "{ go = Identity(on) %s }>"
)


def looped(arguments: tuple[str, int]) -> onnx.ModelProto:
    body, turns = arguments
    return text(f"""g (float[1,4,4,1] x) => (float[a,b,c,d] z)
        <{PARAMETERS}, int64 n = {{{turns}}}, bool t = {{1}}> {{
            l = Loop {BODY % body} (n, t, x)
            z = M.SpaceToBatchND(l, block, none)
    }}""")


THERE_AND_BACK = "q = M.SpaceToBatchND(v, block, none) w = M.BatchToSpaceND(q, block, none)"
GIVEN_UP = "converted: unverified: .*the verification was stopped after 5 s"
cases(
    "loop",
    looped,
    {
        "of 2^63 turns around an operator": ((THERE_AND_BACK, 2**63 - 1), GIVEN_UP),
        "of 3 turns": ((THERE_AND_BACK, 3), "converted.*passed"),
    },
)


# Size


def chain(arguments: tuple[int, int]) -> onnx.ModelProto:
    """So many nodes in a row, of which one in so many is ours."""
    count, distance = arguments
    model = good()
    del model.graph.node[:]
    for number in range(count):
        names = [f"v{number - 1}" if number else "x"]
        if number % distance:
            node = helper.make_node("Neg", names, [f"v{number}"])
        else:
            op_type = ("SpaceToBatchND", "BatchToSpaceND")[number // distance % 2]
            node = helper.make_node(op_type, [*names, "block", "none"], [f"v{number}"], domain=TF)
        model.graph.node.append(node)
    model.graph.node.append(helper.make_node("Neg", [f"v{count - 1}"], ["z"]))
    return model


def ifs(count: int) -> onnx.ModelProto:
    """So many branches in a row."""
    model = good()
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    for number in range(count):
        branches = [
            helper.make_graph(
                [
                    helper.make_node(
                        "Neg", [f"o{number - 1}" if number else "x"], [f"{tag}{number}"]
                    )
                ],
                tag,
                [],
                [onnx.ValueInfoProto(name=f"{tag}{number}")],
            )
            for tag in "te"
        ]
        model.graph.node.append(
            helper.make_node(
                "If", ["yes"], [f"o{number}"], then_branch=branches[0], else_branch=branches[1]
            )
        )
    return model


cases(
    "many",
    lambda make: make(),
    {
        "operators": (lambda: chain((100, 1)), "converted"),
        "refused operators": (
            lambda: changed(
                lambda m: m.graph.node.extend(
                    helper.make_node("SpaceToBatchND", ["x"], [f"q{i}"], domain=TF)
                    for i in range(1000)
                )
            ),
            "ConversionError: .*and 990 more",
        ),
    },
)

#: The same at full size: without verification, which is a matter of time there.
LARGE: dict[str, Case] = {
    "100,000 nodes": Case(lambda: chain((100_000, 100_000)), "converted"),
    "100,000 nodes, 5,000 operators": Case(lambda: chain((100_000, 20)), "converted"),
    "20,000 operators": Case(lambda: chain((20_000, 1)), "converted"),
    "20,000 branches": Case(lambda: ifs(20_000), "converted"),
    "a chain of 10,000 functions": Case(lambda: calls(10_000, 1), "converted"),
}


# Trying out

#: Seconds of a verification: loops of 2^63 turns take all of them.
TIME_LIMIT = 5.0


def limit_memory() -> None:
    """Let a bomb fail instead of taking the machine along."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


def attempt(name: str, *, verify: bool) -> tuple[str, int]:
    """Return what becomes of a case, in words, and the most MiB that this process ever had."""
    options = onnx_spatial.VerifyOptions(time_limit=TIME_LIMIT)
    try:
        made = (CASES | LARGE)[name].make()
        result = onnx_spatial.convert(made, verify=options if verify else False)
    except onnx_spatial.SpatialError as error:
        words = f"{type(error).__name__}: {error}"
    except BaseException as error:  # that is what is looked for
        words = f"traceback: {type(error).__name__}: {error}"
    else:
        found = result.verification
        words = f"converted{'' if found is None else f': {found.message}'}"
        words = words if result.changed else "nothing to do"
    return words, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
