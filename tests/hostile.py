"""Models that are damaged, contradict themselves or ask for the impossible, and who tries them out.

name | what must become of it | input | block | pads       what must become of it, a pattern: the
    nodes from x to z                                      class of the error and its message,
                                                           "converted", or "nothing to do"
"""

import itertools
import resource
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from parsing import model, rows

import onnx_spatial

DEEP = 10_000
BLOCK, NONE = [2, 2], [[0, 0], [0, 0]]
SITE = "[site] y = tf.SpaceToBatchND(x, block, none) z = Neg(y)"


class Case(NamedTuple):
    """What makes a model, and the pattern of what must become of it."""

    make: Callable[[], onnx.ModelProto | bytes]
    outcome: str


def graph(nodes: str = SITE, x: str = "float[1,4,4,1]", block: object = BLOCK, none: object = NONE):
    """A model of nodes from x to z."""
    kind = x.partition("[")[0]
    return model(f"g ({x} x) => ({kind}[a,b,c,d] z) {{ {nodes} }}", block=block, none=none)


# ---------------------------------------------------------------- as text

_REFUSED = "ConversionError: model: SpaceToBatchND 'site' in main graph"
_PATCHES = "ConversionError: model: ExtractImagePatches 'site' in main graph"
_NOT_RUN = "VerificationError: .*does not run on generated data|converted"
_PATCHED = (
    'z = tf.ExtractImagePatches <ksizes = [1, {0}, {0}, 1], padding = "{3}", '
    "strides = [1, {1}, {1}, 1], rates = [1, {2}, {2}, 1]> (x)"
)
_FOLDED = "b = Slice(c, #1, #3) z = tf.SpaceToBatchND(x, b, none)"
_LOOP = (
    "n = Constant <value_int = 3> () t = Constant <value = bool {1}> () l = Loop <body = b (int64 i, "
    "bool on, float[?,?,?,?] v) => (bool go, float[?,?,?,?] w) { go = Identity(on) "
    "q = tf.SpaceToBatchND(v, block, none) w = tf.BatchToSpaceND(q, block, none) }> (n, t, x) "
    "z = tf.SpaceToBatchND(l, block, none)"
)
TABLE = f"""
a cycle | ModelFileError: model: .* in main graph is part of a cycle: <y>, <w>
    y = tf.SpaceToBatchND(w, block, none) w = Neg(y) z = Neg(y)
not sorted | converted
    z = Neg(y) y = tf.SpaceToBatchND(w, block, none) w = Neg(x)
given twice | ModelFileError: model: 'z' in main graph has two producers: SpaceToBatchND '<z>' and
    z = tf.SpaceToBatchND(x, block, none) z = Neg(x)
what nothing gives | ModelFileError: model: .*<z>' in main graph reads 'w', which no node, input or init
    z = tf.SpaceToBatchND(w, block, none)
no inputs at all | {_REFUSED}: the data input is missing
    [site] y = tf.SpaceToBatchND() z = Neg(y)
1,000 refused operators | ConversionError: .*and 990 more
    {SITE} {" ".join(f"q{n} = tf.SpaceToBatchND(x)" for n in range(1000))}
no elements | converted | float[1,0,4,1]
2^31 rows | converted: unverified: | float[1,{2**31},4,1]
2^62 rows | {_REFUSED} .*overflows int64 | float[1,{2**62},4,1]
40,000 by 40,000 | converted: unverified: | float[1,40000,40000,1]
100,000 dims | {_REFUSED} .*100000 dims | float[{"2," * 99_999}2]
255 dims | converted: unverified: .*numpy | float[{"N,H,W," * 84}N,H,W]
blocks of 10^9 | converted: unverified: | float[1,4,4,1] | [10**9] * 2 | [[0, 10**9 - 4]] * 2
pads of 10^12 | {_REFUSED} .*overflows int64 | float[1,4,4,1] | [2, 2] | [[0, 10**12], [10**12, 0]]
blocks of 2^62 by 4 | {_REFUSED} .*block_shape .* overflows | float[N,H,W,1] | [2**62, 4]
blocks of -2^63 | {_REFUSED} .*at least 1 | float[1,4,4,1] | [-2**63, 2]
texts that are padded far | .*too large to be compared | string[1,4,4,2] | [2, 2] | [[2**21, 0], [0, 0]]
    [site] y = tf.SpaceToBatchND(x, block, none) z = Identity(y)
patches of 10^9 | {_PATCHES} .*overflows int64
    [site] {_PATCHED.format(10**9, 1, 1, "SAME")}
patches 2^63 apart | {_PATCHES}.*must fit into 32 bits | float[N,H,W,1]
    [site] {_PATCHED.format(3, 2**63 - 1, 1, "SAME")}
patches of 10^18 pixels | converted: unverified: | float[1,{10**9},{10**9},1]
    [site] {_PATCHED.format(2, 1, 1, "VALID")}
floats for integers | {_PATCHES} .*: attribute ksizes must be a list of integers
    [site] {_PATCHED.format("2.0", 1, 1, "SAME").replace("[1, 2.0, 2.0, 1]", "[1.0, 2.0, 2.0, 1.0]")}
100,000 integers | {_PATCHES} .*not 100000
    [site] {_PATCHED.format(", ".join(["1"] * 49_999), 1, 1, "SAME")}
a megabyte of text | {_PATCHES} .*padding must be SAME or VALID
    [site] {_PATCHED.format(2, 1, 1, "S" * 10**6)}
ConstantOfShape of 10^10 | {_NOT_RUN}
    c = ConstantOfShape <value = int64[1] {{2}}> (#10000000000) {_FOLDED}
Tile by 10^10 | {_NOT_RUN}
    s = Shape(x) c = Tile(s, #10000000000) {_FOLDED}
a sum of 4,000 by 4,000 | converted
    n = Constant <value_ints = [4000]> () k = Constant <value_ints = [4000, 1]> ()
    v = ConstantOfShape <value = int64[1] {{1}}> (n) w = Reshape(v, k) s = Add(v, w)
    c = Reshape(s, #-1) {_FOLDED}
a Loop of 3 turns | converted.*passed
    {_LOOP}
"""


def _of_text() -> Iterator[tuple[str, Case]]:
    for name, (outcome, *given), _, nodes in rows(TABLE):
        shape, *numbers = given or ["float[1,4,4,1]"]
        tables = [eval(each) for each in numbers]  # lists that are written above
        yield name, Case(lambda n=nodes, x=shape, t=tables: graph(n or SITE, x, *t), outcome)


# ---------------------------------------------------------------- a good model after a change


def changed(change: Callable[[onnx.ModelProto], object]) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        made = graph()
        change(made)
        return made

    return make


def _ends_here(made: onnx.ModelProto) -> None:
    del made.graph.node[0].output[:]
    made.graph.node[1].input[0] = "x"


def _refill(**fields: object) -> Callable[[onnx.ModelProto], object]:
    """Let the block be a tensor of these fields."""
    given = {"name": "block", "data_type": TensorProto.INT32, "dims": [2]} | fields
    return lambda m: m.graph.initializer[0].CopyFrom(TensorProto(**given))


def _retype(change: Callable[[onnx.TypeProto], object]) -> Callable[[onnx.ModelProto], object]:
    def retype(made: onnx.ModelProto) -> None:
        made.graph.input[0].type.Clear()
        change(made.graph.input[0].type)

    return retype


def _nested(made: onnx.ModelProto) -> None:
    held = made.graph
    for number in range(DEEP):
        node = held.node.add(op_type="If", input=["x"], output=[f"o{number}"])
        held = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g


def _nested_type(made: onnx.ModelProto) -> None:
    kind = made.graph.value_info.add(name="y").type
    for _ in range(1000):
        kind = kind.sequence_type.elem_type
    kind.tensor_type.elem_type = TensorProto.FLOAT


def _many_entries(made: onnx.ModelProto) -> None:
    for name in ("block", "none"):
        declared = [2**62] if name == "block" else [2**62, 2]
        made.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, declared))
    del made.graph.initializer[:]


def _constant_of_a_wrong_kind(made: onnx.ModelProto) -> None:
    constant = helper.make_node("Constant", [], ["b"])
    constant.attribute.add(name="value_ints", type=onnx.AttributeProto.TENSOR)
    made.graph.node.insert(0, constant)


_NO_MODEL = "ModelFileError: model: is not an ONNX model"
_UNFILLED = f"{_REFUSED} .*the stored tensor 'block' is damaged: it does not hold int32\\[2\\]"
_RED = "red \x1b[31m\nnode" + "é" * 10**5
CHANGES = {
    "two initializers of one name": (
        lambda m: m.graph.initializer.append(numpy_helper.from_array(np.array([1, 1]), "block")),
        "converted",
    ),
    "two inputs of one name": (
        lambda m: m.graph.input.append(m.graph.input[0]),
        "ModelFileError: model: main graph has two inputs of the name",
    ),
    "no graph": (lambda m: m.ClearField("graph"), f"{_NO_MODEL}|nothing to do"),
    "no outputs": (_ends_here, f"{_REFUSED} .*: the node has no output"),
    "an unknown type": (
        lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 999),
        "ModelFileError: model: input 'x' of main graph has element type 999, which onnx",
    ),
    "an opset of the far future": (
        lambda m: setattr(m.opset_import[0], "version", 999),
        "converted: unverified: .*Opset 999",
    ),
    "graphs 10,000 deep in memory": (
        _nested,
        "ModelFileError: model: graphs are nested more than 33 deep",
    ),
    "types 1,000 deep in memory": (  # older protobufs copy it
        _nested_type,
        "ModelFileError: (model: )?the model is damaged|converted",
    ),
    "a tensor without data": (_refill(), _UNFILLED),
    "a tensor with negative dims": (_refill(dims=[-2]), f"{_REFUSED} .*: "),
    "a tensor of 2^80 elements": (_refill(dims=[2**62, 2**18]), f"{_REFUSED} .*must be 1-D"),
    "a tensor of no type": (_refill(data_type=999), f"{_REFUSED} .*: "),
    "a tensor in a file that is not said": (_refill(data_location=1), "ModelFileError"),
    "optional data": (
        _retype(lambda t: t.optional_type.elem_type.SetInParent()),
        f"{_REFUSED}: the data input is of optional type, not a dense tensor",
    ),
    "no type": (_retype(lambda t: None), "converted"),
    "a constant of the wrong kind": (
        _constant_of_a_wrong_kind,
        "ModelFileError: model: Constant '<b>' .*'value_ints' does not have the type INTS",
    ),
    "parameters of 2^62 entries": (_many_entries, ".*no tensor has so many dims"),
    "a name that paints": (
        lambda m: (
            setattr(m.graph.node[0], "name", _RED),
            m.graph.input[0].type.tensor_type.shape.dim[1].__setattr__("dim_value", 3),
        ),
        r"ConversionError: .*\\x1b\[31m\\nnode.*\[\.\.\.\]",
    ),
}


# ---------------------------------------------------------------- bytes


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def nested(fields: Iterable[tuple[int, bytes]]) -> bytes:
    """Nothing inside messages; fields are (number, what stands before it), the outermost first."""
    heads, total = [], 0
    for number, before in reversed(list(fields)):
        heads.append(varint(number << 3 | 2) + varint(len(before) + total) + before)
        total += len(heads[-1])
    return b"\x08\x08" + b"".join(reversed(heads))


def ifs_in_ifs(depth: int) -> bytes:
    level = [(1, b"\x22\x02If"), (5, b"\x0a\x0bthen_branch\xa0\x01\x05"), (6, b"")]
    return nested([(7, b""), *level * depth])


BYTES = {
    **{
        f"cut off at {n}": (lambda n=n: graph().SerializeToString()[:n]) for n in (0, 1, 9, -1, -40)
    },
    "more than there is": lambda: b"\x3a\xff\xff\xff\xff\x07abc",
    "graphs 10,000 deep": lambda: ifs_in_ifs(DEEP),
    "types 10,000 deep": lambda: nested(
        [(7, b""), (11, b"\x0a\x01x"), (2, b""), *[(4, b""), (1, b"")] * DEEP]
    ),
}


def not_text(name: str) -> bytes:
    """A model with a name that is not UTF-8."""
    made = model(
        "gname (float[dimname,4,4,1] x) => (float[a,b,c,d] z) { "
        "[site] y = tf.SpaceToBatchND(x, block, none)"
        '[negname] z = Neg(y) valname = my.own.Other <attrname = "attrvalue"> (x) }',
        block=BLOCK,
        none=NONE,
    )
    made.doc_string, made.graph.initializer[0].doc_string = "docstring", "tensordoc"
    made.metadata_props.add(key="metakey", value="metavalue")
    made.graph.node[-1].overload = "ovload"
    made.graph.input[0].type.denotation = "denoted"
    if name == "location":
        made.graph.initializer[0].data_location = TensorProto.EXTERNAL
        made.graph.initializer[0].external_data.add(key="location", value=name)
    data = made.SerializeToString()
    assert name.encode() in data
    return data.replace(name.encode(), b"\xff\xfe" + name.encode()[2:])


_NO_TEXT = "ModelFileError: .*(is not UTF-8 text|must be a string|got bytes)"
_NAMES = {
    _NO_TEXT: "gname site negname Other my.own block ovload dimname location",
    # Whether the name of a value is looked at as text depends on the version of protobuf.
    f"{_NO_TEXT}|converted": "valname",
    # What says nothing to anybody is kept as it is.
    "converted": "docstring metakey metavalue tensordoc attrvalue denoted",
}


# ---------------------------------------------------------------- size, and functions


def calls(count: int, each: int) -> onnx.ModelProto:
    """`count` functions, each of which calls the next one so many times."""
    head = '<opset_import: ["" : 17, "loc" : 1], domain: "loc">'
    texts = []
    for number in range(count):
        steps = [f"v{k + 1} = loc.f{number + 1}(v{k})" for k in range(each)]
        if number == count - 1:
            steps = [f"v{each} = Neg(v0)", "block = Constant <value_ints = [1, 1]> ()"]
            steps += ["none = Constant <value = int64[2,2] {0, 0, 0, 0}> ()"]
            steps += ["s = tf.SpaceToBatchND(v0, block, none)"]
        texts.append(f"{head} f{number} (v0) => (v{each}) {{ {' '.join(steps)} }}")
    return model(
        f"g (float[1,4,4,1] x) => (float[a,b,c,d] y) {{ y = loc.f0(x) }} {' '.join(texts)}"
    )


def chain(count: int, distance: int) -> onnx.ModelProto:
    """So many nodes in a row, of which one in so many is ours."""
    ours = itertools.cycle(
        ("tf.SpaceToBatchND({}, block, none)", "tf.BatchToSpaceND({}, block, none)")
    )
    texts = (
        f"v{n + 1} = {'Neg({})' if n % distance else next(ours)}".format(f"v{n}" if n else "x")
        for n in range(count)
    )
    return graph(f"{' '.join(texts)} z = Neg(v{count})")


_RECURSIVE = """g (float[1,4,4,1] x) => (float[a,b,c,d] y) { y = loc.f(x) }
    <opset_import: ["" : 17, "loc" : 1], domain: "loc"> f (a) => (b) { b = If (a) <then_branch = t () =>
    (float[1] u) { u = loc.f(a) }, else_branch = e () => (float[1] v) { v = Neg(a) }> }"""

CASES = {
    **dict(_of_text()),
    **{name: Case(changed(change), outcome) for name, (change, outcome) in CHANGES.items()},
    **{name: Case(make, _NO_MODEL) for name, make in BYTES.items()},
    "graphs as deep as can be read": Case(lambda: ifs_in_ifs(33), "nothing to do"),
    **{
        f"not UTF-8: {name}": Case(lambda n=name: not_text(n), outcome)
        for outcome, names in _NAMES.items()
        for name in names.split()
    },
    "functions that call themselves in a branch": Case(
        lambda: model(_RECURSIVE),
        "ModelFileError: model: functions call each other in a cycle: loc:f",
    ),
    "functions that call twice, 40 deep": Case(
        lambda: calls(40, 2),
        "ModelFileError: model: its inlined function calls have 3[0-9]{12} nodes",
    ),
    "a chain of 1,000 functions": Case(lambda: calls(1000, 1), "converted"),
    "100 operators": Case(lambda: chain(100, 1), "converted"),
}
#: The same at full size, which are converted without verification: that is a matter of time there.
LARGE = {
    "100,000 nodes": lambda: chain(100_000, 100_000),
    "100,000 nodes, 5,000 operators": lambda: chain(100_000, 20),
    "20,000 operators": lambda: chain(20_000, 1),
    "a chain of 10,000 functions": lambda: calls(10_000, 1),
}


# ---------------------------------------------------------------- trying out


def limit_memory() -> None:
    """Let a bomb fail instead of taking the machine along."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


def attempt(name: str, *, verify: bool) -> tuple[str, int]:
    """Return what becomes of a case, in words, and the most MiB that this process ever had."""
    options = onnx_spatial.VerifyOptions(time_limit=5.0)
    try:
        made = LARGE[name]() if name in LARGE else CASES[name].make()
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
