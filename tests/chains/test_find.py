"""Chains are found by what their nodes do, and only if that is an operator for all sizes."""

from __future__ import annotations

import chain_models
import numpy as np
import onnx
import pytest
from chain_models import Net
from onnx import helper
from vocabulary import BatchToSpace, SpaceToBatch

import onnx_spatial
from onnx_spatial.chains.find_chains import list_chains

S2B, B2S = SpaceToBatch, BatchToSpace


def _blocks(chain):
    """The operator, and the blocks that are larger than 1."""
    return chain.blocks.kind, [block for block in chain.blocks.block if block > 1]


DOMAIN = "ai.onnx.converters.tensorflow"


@pytest.mark.parametrize(
    ("opset", "first", "sizes"),
    [(11, False, "nhw"), (11, True, ("n", 8, 8))],
)
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


@pytest.mark.parametrize("axes", [1, 2])
def test_a_batch_that_is_what_is_left(axes):
    """With -1 for the batch one Reshape runs for odd sizes too, the other never does."""
    net = Net(13)
    n, *sizes, c = net("Split", net("Shape", "x"), outputs=axes + 2)
    cells = [net("Div", size, [2]) for size in sizes]
    split = [each for cell in cells for each in (cell, [2])]
    x = net("Reshape", "x", net("Concat", [-1], *split, c, axis=0))
    places, rows = range(2, 2 * axes + 1, 2), range(1, 2 * axes, 2)
    x = net("Transpose", x, perm=[*places, 0, *rows, 2 * axes + 1])
    batch = net("Mul", n, [2**axes])
    x = net("Reshape", x, net("Concat", batch, *cells, c, axis=0))
    (chain,) = list_chains(net.model(("n", *"hw"[:axes], 3), net("Relu", x)))
    assert _blocks(chain) == (S2B, [2] * axes)


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


def _moves(*steps) -> onnx.ModelProto:
    net, x = Net(), "x"
    for op_type, *inputs, attributes in steps:
        x = net(op_type, x, *inputs, **attributes)
    return net.model((2, 8, 12, 3), x)


IMAGES_FIRST = [2, 4, 2, 6, 2, 3], [0, 2, 4, 1, 3, 5], [8, 4, 6, 3]
OTHERS = {
    "windows": ([2, 2, 4, 3, 4, 3], [0, 1, 3, 2, 4, 5], [12, 4, 4, 3]),
    "places behind the image": IMAGES_FIRST,
    "places among the channels": ([2, 4, 2, 6, 2, 3], [0, 1, 3, 2, 4, 5], [2, 4, 6, 12]),
    "mirrored": ([2, 4, 2, 6, 2, 3], [2, 4, 0, 3, 1, 5], [8, 6, 4, 3]),
}


@pytest.mark.parametrize(("first", "perm", "last"), OTHERS.values(), ids=OTHERS)
def test_other_movements(first, perm, last):
    """Only axes in another order are an operator, between Transposes."""
    model = _moves(("Reshape", first, {}), ("Transpose", {"perm": perm}), ("Reshape", last, {}))
    chains = list_chains(model)
    swapped = perm == [2, 4, 0, 3, 1, 5]
    assert [c.blocks.behind for c in chains] == ([(0, 2, 1, 3)] if swapped else [])


def test_pads_of_another_value():
    model = chain_models.six_dims()
    pad = model.graph.node[0]
    one = helper.make_node("Constant", [], ["one"], value_float=1.0)
    model.graph.node.insert(0, one)
    pad = model.graph.node[1]
    pad.input.append("one")
    chain = list_chains(model)[0]
    assert (chain.source, chain.nodes[0].op_type) == (pad.output[0], "Reshape")


def test_sizes_that_blocks_may_not_divide():
    """With -1 for the batch the Reshape runs for some odd heights: it is no SpaceToBatch then."""
    net = Net()
    _, h, w, c = net("Split", net("Shape", "x"), outputs=4)
    rows, columns = net("Div", h, [2]), net("Div", w, [2])
    x = net("Reshape", "x", net("Concat", [-1], rows, [2], columns, [2], c, axis=0))
    x = net("Transpose", x, perm=[2, 4, 0, 1, 3, 5])
    x = net("Reshape", x, net("Concat", [-1], rows, columns, c, axis=0))
    assert list_chains(net.model(("n", "h", "w", 3), x)) == []


def test_pads_that_a_caller_gives():
    """They may be negative, which crops."""
    net = Net()
    x = net("Pad", "x", "p")
    n, h, w, c = net("Split", net("Shape", x), outputs=4)
    rows, columns = net("Div", h, [2]), net("Div", w, [2])
    x = net("Reshape", x, net("Concat", n, rows, [2], columns, [2], c, axis=0))
    x = net("Transpose", x, perm=[2, 4, 0, 1, 3, 5])
    x = net("Reshape", x, net("Concat", net("Mul", n, [4]), rows, columns, c, axis=0))
    model = net.model(("n", "h", "w", 3), x)
    model.graph.input.append(helper.make_tensor_value_info("p", onnx.TensorProto.INT64, [8]))
    assert [c.nodes[0].op_type for c in list_chains(model)] == ["Reshape"]


def test_bad_parameters():
    """Nodes that fail in every run are no chain, and no error."""
    net = Net()
    x = net("Reshape", "x", [2, 4, 2, 6, 2, 5])
    x = net("Transpose", x, perm=[2, 4, 0, 1, 3])
    assert list_chains(net.model((2, 8, 12, 3), net("Reshape", x, np.float32([1.0])))) == []


@pytest.mark.parametrize("op_type", ["Neg", "Mul"])
def test_crops_that_are_others_in_some_cases(op_type):
    """Without the Neg the Slice takes one element of odd sizes; without the Mul, none of even ones."""
    model = chain_models.depth_to_space()
    (node,) = [n for n in model.graph.node if n.op_type == op_type]
    node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))
    assert all("Slice" not in [n.op_type for n in c.nodes] for c in list_chains(model))
