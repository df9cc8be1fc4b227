"""Chains are found by what their nodes do, if that is an operator for all sizes; functions between."""

import chain_models
import ml_dtypes
import numpy as np
import onnx
import patch_models
import pytest
import running
from chain_models import Net
from onnx import TensorProto, helper, numpy_helper, parser
from patch_models import one_hot
from vocabulary import BatchToSpace, SpaceToBatch

import onnx_spatial
from onnx_spatial.chains.find_chains import list_chains, with_operators
from onnx_spatial.operators.spellings import chain_ops

S2B, B2S = SpaceToBatch, BatchToSpace
DOMAIN = "ai.onnx.converters.tensorflow"


def _blocks(chain):
    """The operator, and the blocks that are larger than 1."""
    return chain.blocks.kind, [block for block in chain.blocks.block if block > 1]


@pytest.mark.parametrize(("opset", "first", "sizes"), [(11, False, "nhw"), (11, True, ("n", 8, 8))])
@pytest.mark.parametrize("kind", [S2B, B2S])
def test_lowerings_of_unknown_sizes(kind, sizes, first, opset):
    """Before opset 14 a Where puts other numbers into a shape in the place of 0."""
    net, axes = Net(opset), len(sizes) - 1
    x = net("Relu", "x")
    x = net("Transpose", x, perm=[0, *range(2, axes + 2), 1]) if first else x
    x = net(f"{kind.__name__}ND", x, [2] * axes, [[2, 2]] * axes, domain=DOMAIN)
    x = net("Transpose", x, perm=[0, axes + 1, *range(1, axes + 1)]) if first else x
    shape = (sizes[0], 3, *sizes[1:]) if first else (*sizes, 3)
    named = net.model(shape, net("Relu", x))
    named.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    model = onnx_spatial.convert(named, fuse=False, prefer="transpose", verify=False).model
    (chain,) = list_chains(model)
    assert _blocks(chain) == (kind, [2] * axes)
    assert [a.constant for a in chain.blocks.begins if a.constant] == [2] * axes


def blocked(axes: int, *, first: str | None = None, last: str | None = None, pads: bool = False):
    """SpaceToBatch with blocks of 2 of sizes that are read; both batches may be -1."""
    net = Net()
    x = net("Pad", "x", "p") if pads else "x"
    n, *sizes, c = net("Split", net("Shape", x), outputs=axes + 2)
    cells = [net("Div", size, [2]) for size in sizes]
    split = [each for cell in cells for each in (cell, [2])]
    x = net("Reshape", x, net("Concat", n if first is None else [-1], *split, c, axis=0))
    places, rows = range(2, 2 * axes + 1, 2), range(1, 2 * axes, 2)
    x = net("Transpose", x, perm=[*places, 0, *rows, 2 * axes + 1])
    batch = net("Mul", n, [2**axes]) if last is None else [-1]
    x = net("Reshape", x, net("Concat", batch, *cells, c, axis=0))
    model = net.model(("n", *"hw"[:axes], 3), net("Relu", x))
    if pads:
        model.graph.input.append(helper.make_tensor_value_info("p", onnx.TensorProto.INT64, [8]))
    return model


def test_a_batch_that_is_what_is_left_and_pads_that_a_caller_gives():
    """With -1 for the batch one Reshape runs for odd sizes too, the other never does."""
    (chain,) = list_chains(blocked(1, first="-1"))
    assert _blocks(chain) == (S2B, [2])
    assert list_chains(blocked(1, first="-1", last="-1")) == []  # both run for some odd heights
    (chain,) = list_chains(blocked(2, pads=True))  # which may be negative, and crop then
    assert chain.nodes[0].op_type == "Reshape"


@pytest.mark.parametrize(("axes", "opset"), [(2, 11), (3, 13)])
def test_a_batch_that_is_divided(axes, opset):
    net = Net(opset)
    n, *sizes, c = net("Split", net("Shape", "x"), outputs=axes + 2)
    images = net("Div", n, [2**axes])
    x = net("Reshape", "x", net("Concat", *[[2]] * axes, images, *sizes, c, axis=0))
    cells = [place for i in range(axes) for place in (axes + 1 + i, i)]
    x = net("Transpose", x, perm=[axes, *cells, 2 * axes + 1])
    twice = [net("Mul", size, [2]) for size in sizes]
    x = net("Reshape", x, net("Concat", images, *twice, c, axis=0))
    (chain,) = list_chains(net.model(("n", *"dhw"[:axes], 4), net("Relu", x)))
    assert _blocks(chain) == (B2S, [2] * axes)


MOVES = {
    "windows": ([2, 2, 4, 3, 4, 3], [0, 1, 3, 2, 4, 5], [12, 4, 4, 3], []),
    "places behind the image": ([2, 4, 2, 6, 2, 3], [0, 2, 4, 1, 3, 5], [8, 4, 6, 3], []),
    "places among the channels": ([2, 4, 2, 6, 2, 3], [0, 1, 3, 2, 4, 5], [2, 4, 6, 12], []),
    # Only axes in another order are an operator, between Transposes.
    "mirrored": ([2, 4, 2, 6, 2, 3], [2, 4, 0, 3, 1, 5], [8, 6, 4, 3], [(0, 2, 1, 3)]),
    "nodes that fail": ([2, 4, 2, 6, 2, 5], [2, 4, 0, 1, 3], np.float32([1]), []),
}


@pytest.mark.parametrize(("first", "perm", "last", "behind"), MOVES.values(), ids=MOVES)
def test_other_movements(first, perm, last, behind):
    net = Net()
    x = net("Reshape", net("Transpose", net("Reshape", "x", first), perm=perm), last)
    assert [c.blocks.behind for c in list_chains(net.model((2, 8, 12, 3), x))] == behind


def test_pads_of_another_value_are_no_part_of_a_chain():
    model = chain_models.six_dims()
    model.graph.node.insert(0, helper.make_node("Constant", [], ["one"], value_float=1.0))
    pad = model.graph.node[1]
    pad.input.append("one")
    chain = list_chains(model)[0]
    assert (chain.source, chain.nodes[0].op_type) == (pad.output[0], "Reshape")


@pytest.mark.parametrize("op_type", ["Neg", "Mul"])
def test_crops_that_are_others_in_some_cases(op_type):
    """Without the Neg the Slice takes one element of odd sizes; without the Mul, none of even ones."""
    model = chain_models.depth_to_space()
    (node,) = [n for n in model.graph.node if n.op_type == op_type]
    node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))
    assert all("Slice" not in [n.op_type for n in c.nodes] for c in list_chains(model))


# Patches: one-hot Convs and Gathers of windows, if all that they copy is a whole window


def patches_of(model: onnx.ModelProto):
    (chain,) = list_chains(model)
    return chain.patches


def assert_same_values(model: onnx.ModelProto, shape) -> None:
    """Compare the model with its chain as a named operator, by its numpy kernel."""
    named, _ = with_operators(model, list_chains(model))
    x = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    converted = onnx_spatial.convert(named, domains=[chain_ops.DOMAIN], verify=False)
    assert all(node.op_type != "Conv" for node in converted.model.graph.node)
    before, after = (running.run(m, {"x": x})[0] for m in (model, converted.model))
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize(
    ("shape", "major"), [((2, 3, 9, 11), "place"), (("n", 3, "h", "w"), "channel")]
)
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"pads": [1, 1, 1, 1]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"pads": [0, 2, 1, 3], "strides": [2, 1]},
        {"strides": [8, 10]},
    ],
)
def test_one_hot_convolutions(shape, attributes, major):
    model = patch_models.channels_first(one_hot((3, 3), 3, major=major), shape, **attributes)
    found = patches_of(model).operator
    assert (found.kernel, found.major) == ((3, 3), major)
    assert_same_values(model, (2, 3, 9, 11))


@pytest.mark.parametrize(
    ("shape", "kernel", "strides"),
    [
        ((2, 2, 12), (2,), [2]),
        ((2, 3, 1, 12), (1, 3), [1, 2]),
        ((2, 3, 8, 12), (1, 3), [8, 2]),  # one row of windows
        ((2, 3, 8, 12), (3, 1), [2, 3]),
        ((2, 3, 8, 12), (2, 3), [2, 3]),  # side by side
        ((2, 2, 4, 6, 8), (2, 1, 2), [1, 2, 2]),
    ],
)
def test_windows_of_one_row_or_column_and_of_other_ranks(shape, kernel, strides):
    model = patch_models.channels_first(one_hot(kernel, shape[1]), shape, strides=strides)
    assert patches_of(model).operator.kernel == kernel
    assert_same_values(model, shape)


def test_other_forms_of_patches():
    grouped = one_hot((3, 3), 4, group=True)  # depthwise convolutions put the channels first
    model = patch_models.channels_first(grouped, ("n", 4, "h", "w"), group=4)
    assert patches_of(model).operator.major == "channel"
    assert_same_values(model, (2, 4, 7, 8))
    model = patch_models.channels_last(one_hot((2, 4), 3), ("n", "h", "w", 3), strides=[2, 3])
    (chain,) = list_chains(model)
    assert [node.op_type for node in chain.nodes] == ["Transpose", "Conv", "Transpose"]
    assert chain.patches.operator.layout == "channels_last"
    assert chain.patches.before == (0, 1, 2, 3)
    assert_same_values(model, (2, 9, 11, 3))
    for batch in (1, 2):
        model = patch_models.tf2onnx((batch, 9, 11, 3), stride=2)
        (chain,) = list_chains(model)
        assert (chain.source, chain.output) == ("x", model.graph.output[0].name)
        assert chain.patches.channels == 3
        assert_same_values(model, (batch, 9, 11, 3))


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("arguments", [(3, 2, 1, 2), (4, 4, 0)])
def test_gathers_of_windows(arguments, computed):
    shape = ("n", 2, "h", "w") if computed else (2, 2, 13, 12)
    model = patch_models.im2col(shape, *arguments, computed=computed)
    (chain,) = list_chains(model)
    assert chain.nodes[-1].op_type == "Reshape" and not chain.one_hot
    assert_same_values(model, (2, 2, 13, 12))


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_element_types(dtype):
    model = patch_models.channels_first(one_hot((2, 2), 3), (2, 3, 8, 10), opset=22)
    (tensor,) = model.graph.initializer
    array = numpy_helper.to_array(tensor).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = tensor.data_type
    assert patches_of(model).operator.kernel == (2, 2)


def changed(place: object, value: object) -> np.ndarray:
    weight = one_hot((3, 3), 2)
    weight[place] = weight[value] if isinstance(value, list) else value
    return weight


NO_PATCHES = {
    "two ones": changed((0, 0, 1, 1), 1),
    "a channel twice": changed([0], [1]),
    "mixed channels": changed(slice(None), [1, 0, *range(2, 18)]),
    "a part of the patches": one_hot((3, 3), 2)[:9],
    "NaN": changed((0, 1, 2, 2), np.nan),
    "a bias": one_hot((3, 3), 2),
    "one that callers may replace": one_hot((3, 3), 2),
}


@pytest.mark.parametrize("name", NO_PATCHES)
def test_other_convolutions_are_no_patches(name):
    model = patch_models.channels_first(NO_PATCHES[name], (1, 2, 9, 9))
    (weight,) = model.graph.initializer
    if name == "a bias":
        model.graph.initializer.append(numpy_helper.from_array(np.ones(18, "f"), "bias"))
        model.graph.node[0].input.append("bias")
    elif "replace" in name:
        info = helper.make_tensor_value_info(weight.name, TensorProto.FLOAT, weight.dims)
        model.graph.input.append(info)
    assert list_chains(model) == []


@pytest.mark.parametrize("rows", [[0, 1, 2], [2, 1, 0], [0, 1, 1]])
def test_grids_that_are_no_windows(rows):
    grid = np.array(rows)[:, None] + np.arange(8)
    net = Net()
    value = net("Gather", net("Gather", "x", grid, axis=2), grid, axis=4)
    value = net("Transpose", value, perm=[0, 1, 2, 4, 3, 5])
    model = net.model((1, 2, 10, 10), net("Reshape", value, [1, 18, 64]))
    assert len(list_chains(model)) == (rows == [0, 1, 2])


TO_DEPTH = "p = SpaceToDepth <blocksize = 2> (x)"
TO_SPACE = 'y = DepthToSpace <blocksize = 2, mode = "DCR"> (m)'
TO_LAST = "p = Transpose <perm = [0, 2, 3, 1]> (x)"
TO_FIRST = "y = Transpose <perm = [0, 3, 1, 2]> (m)"


def moved(body: str) -> onnx.ModelProto:
    head = '<ir_version: 9, opset_import: ["" : 17]>'
    return parser.parse_model(f"{head} g (float[N,3,H,W] x) => (float[?,?,?,?] y) {{ {body} }}")


GONE = {
    "SiLU": (TO_DEPTH, "s = Sigmoid(p) m = Mul(p, s)", TO_SPACE),
    "GELU": (
        TO_LAST,
        """two = Constant <value_float = 1.41> () one = Constant <value_float = 1.0> ()
        d = Div(p, two) e = Erf(d) a = Add(one, e) m = Mul(a, p)""",
        TO_FIRST,
    ),
    "one in another": (
        TO_DEPTH,
        "a = Relu(p) s = Sigmoid(a) b = Mul(a, s) t = Tanh(b) u = Add(t, a) m = Max(u, p, s)",
        TO_SPACE,
    ),
}


@pytest.mark.parametrize("parts", GONE.values(), ids=GONE)
def test_inverse_chains_vanish(parts):
    given = moved(" ".join(parts))
    result = onnx_spatial.optimize(given)
    made = result.model
    assert not {"SpaceToDepth", "DepthToSpace", "Transpose"} & {n.op_type for n in made.graph.node}
    assert len(made.graph.node) == len(given.graph.node) - 2
    assert result.verification.status == "passed"
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 6)).astype(np.float32)
    np.testing.assert_array_equal(running.run(made, {"x": x})[0], running.run(given, {"x": x})[0])


@pytest.mark.parametrize(
    ("function", "made", "opset"),
    [
        ("LeakyRelu <alpha = 0.3> (p)", "float", 17),
        ("Shrink <lambd = 0.3, bias = 0.1> (p)", "float", 17),
        ('Gelu <approximate = "tanh"> (p)', "float", 20),
        ("IsInf <detect_positive = 0> (p)", "bool", 17),
        ("Clip <min = -20.0, max = 20.0> (p)", "float", 9),
        ("Cast <to = 11> (p)", "double", 17),
        ("Mod <fmod = 1> (p, seven)", "float", 17),
    ],
)
def test_a_function_with_attributes_keeps_all_its_fields(function, made, opset):
    original = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[N,8,H,16] x) => ({made}[?,?,?,?] y) <float seven = {{7}}> {{
            {TO_LAST} [function] m = {function} {TO_FIRST} }}""")
    kept = original.graph.node[1]
    kept.doc_string = "keeps what it says"
    result = onnx_spatial.optimize(original)
    (node,) = result.model.graph.node
    assert (node.op_type, node.name, node.doc_string) == (kept.op_type, kept.name, kept.doc_string)
    assert sorted(map(str, node.attribute)) == sorted(map(str, kept.attribute))
    x = 30 * np.random.default_rng(0).standard_normal((2, 8, 4, 16)).astype(np.float32)
    x[0, 0, 0, :2] = np.inf, -np.inf
    before, after = (running.run(moved, {"x": x})[0] for moved in (original, result.model))
    np.testing.assert_array_equal(after, before)


KEPT = {
    "a value is read elsewhere": (
        TO_LAST,
        "s = Sigmoid(p) m = Mul(p, s)",
        TO_FIRST.replace("y =", "z =") + " r = ReduceSum <keepdims = 0> (s) y = Add(z, r)",
    ),
    "two sources": (
        TO_LAST,
        "n = Sin(x) q = Transpose <perm = [0, 2, 3, 1]> (n) m = Add(p, q)",
        TO_FIRST,
    ),
    "not inverse": (TO_DEPTH, "s = Sigmoid(p) m = Mul(p, s)", TO_SPACE.replace("DCR", "CRD")),
    "a table": (
        TO_LAST,
        "t = Constant <value = float[3] {1.0, 2.0, 3.0}> () s = Mul(p, t) m = Add(p, s)",
        TO_FIRST,
    ),
}


@pytest.mark.parametrize("parts", KEPT.values(), ids=KEPT)
def test_others_stay(parts):
    assert not onnx_spatial.optimize(moved(" ".join(parts)), verify=False).changed
