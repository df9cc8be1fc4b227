"""Chains are found by what their nodes do, and only if that is an operator for all sizes."""

from __future__ import annotations

import importlib
import itertools

import chain_models
import movement_models
import numpy as np
import onnx
import pytest
from chain_models import Net
from onnx import helper
from vocabulary import BatchToSpace, SpaceToBatch

import onnx_spatial
from onnx_spatial.chains import find
from onnx_spatial.maps import budget

S2B, B2S = SpaceToBatch, BatchToSpace

FORMS = {
    "six dims": (chain_models.six_dims(), [(S2B, (2, 2)), (B2S, (2, 2))]),
    "six dims, any size": (
        chain_models.six_dims(("n", "h", "w", 3)),
        [(S2B, (2, 2)), (B2S, (2, 2))],
    ),
    "depth": (chain_models.depth_to_space(), [(S2B, (2, 2)), (B2S, (1, 2, 2))]),
    "depth, block 5": (chain_models.depth_to_space(d=5), [(S2B, (5, 5)), (B2S, (1, 5, 5))]),
    "channels first": (chain_models.channels_first(), [(S2B, (1, 3, 3)), (B2S, (1, 3, 3))]),
    "one axis": (chain_models.one_dim(), [(S2B, (2,)), (B2S, (2,))]),
    "uneven": (chain_models.uneven(), [(S2B, (2, 1)), (B2S, (2,))]),
    "volume": (chain_models.volume(), [(S2B, (2, 2, 2)), (B2S, (2, 2, 2))]),
}


@pytest.mark.parametrize(("model", "expected"), FORMS.values(), ids=FORMS)
def test_forms(model, expected):
    chains = find(model)
    assert [(c.blocks.kind, c.blocks.block) for c in chains] == expected


STRATEGIES = ["transpose", "gather", "row-gather", "slices"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_lowerings_of_this_package(strategy):
    chains = find(chain_models.lowered(strategy))
    assert [(c.blocks.kind, c.blocks.block) for c in chains] == [(S2B, (2, 2)), (B2S, (2, 2))]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("shape", [(2, "h", "w", 3), ("n", 8, 12, 3)])
def test_lowerings_of_unknown_sizes(strategy, shape):
    """Steps of Slices are equal, and tables have as many numbers, only where the block divides."""
    chains = find(chain_models.lowered(strategy, shape))
    assert [(c.blocks.kind, c.blocks.block) for c in chains] == [(S2B, (2, 2)), (B2S, (2, 2))]


@pytest.mark.parametrize("strategy", ["gather", "row-gather"])
@pytest.mark.parametrize("op_type", ["SpaceToBatchND", "BatchToSpaceND"])
def test_lowerings_that_move_the_channels(strategy, op_type):
    """Between Transposes, whose order of axes the tables take over."""
    shape, domain, net = (8, 16, 9, 11), "ai.onnx.converters.tensorflow", Net()
    x = net("Transpose", net("Relu", "x"), perm=[0, 2, 3, 1])
    x = net(op_type, x, [2, 2], [[2, 3], [2, 3]], domain=domain)
    named = net.model(shape, net("Transpose", x, perm=[0, 3, 1, 2]))
    named.opset_import.append(helper.make_opsetid(domain, 1))
    model = onnx_spatial.convert(named, fuse=False, prefer=strategy, verify=False).model
    (chain,) = find(model)
    assert [a.constant for a in chain.blocks.ends if a.constant] == [3, 3]
    assert chain.blocks.kind is (S2B if op_type == "SpaceToBatchND" else B2S)


@pytest.mark.parametrize("zeros", ["first", "last", "mask", "GatherND"])
@pytest.mark.parametrize("shape", [(1, 64, 64, 3), (2, 8, 12, 3), (1, 6, 8, 5000)])
def test_tables_of_rows(shape, zeros):
    """Also with more entries than constants have that are sizes."""
    model = chain_models.by_table(shape, zeros=zeros)
    (chain,) = find(model)
    assert (chain.blocks.kind, chain.blocks.block) == (S2B, (2, 2))
    assert [a.constant for a in chain.blocks.begins] == [2, 2]
    assert chain.source == "x"


def test_tables_with_a_mistake():
    """One row of another place, or one element that is no zero."""
    model = chain_models.by_table()
    (table,) = [t for t in model.graph.initializer if len(t.dims) == 3]
    numbers = onnx.numpy_helper.to_array(table).copy()
    numbers[3, 20, 20] += 1
    table.CopyFrom(onnx.numpy_helper.from_array(numbers, table.name))
    assert find(model) == []
    model = chain_models.by_table()
    (zeros,) = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    zeros.CopyFrom(onnx.numpy_helper.from_array(np.float32([[0, 0, 1]]), zeros.name))
    assert find(model) == []


def test_what_the_data_itself_masks():
    """Its place does not decide what is zero then."""
    model = chain_models.by_table(zeros="mask")
    (less,) = [n for n in model.graph.node if n.op_type == "Less"]
    less.input[0] = next(n.input[2] for n in model.graph.node if n.op_type == "Where")
    model.graph.initializer.append(helper.make_tensor("zero", 1, [], [0.0]))
    less.input[1] = "zero"
    assert find(model) == []


def test_pairs_of_columns():
    """A Reshape to pairs runs where one size is even; the one behind it only where both are."""
    net = Net()
    _, h, w, _ = net("Split", net("Shape", "x"), outputs=4)
    rows, columns = net("Div", h, [2]), net("Div", w, [2])
    pairs = net("Split", net("Reshape", "x", [-1, 2]), axis=1, outputs=2)
    pairs = [net("Reshape", each, [-1, 1]) for each in pairs]
    x = net("Concat", *pairs, axis=1)
    x = net("Reshape", x, net("Concat", [3], rows, [2], columns, [2, 1], axis=0))
    x = net("Transpose", x, perm=[2, 4, 0, 1, 3, 5])
    x = net("Reshape", x, net("Concat", [12], rows, columns, [1], axis=0))
    (chain,) = find(net.model((3, "h", "w", 1), net("Relu", x)))
    assert (chain.blocks.kind, chain.blocks.block, len(chain.nodes)) == (S2B, (2, 2), 8)


def test_slices_that_run_at_other_sizes():
    """Parts of equal sizes are no SpaceToBatch where the block need not divide the size."""
    net = Net()
    parts = [net("Slice", "x", [i], [2], [1], [2]) for i in (0, 1)]
    assert find(net.model((2, "h", 3), net("Concat", *parts, axis=0))) == []


def test_pads_are_part_of_the_operator():
    (chain, _) = find(chain_models.six_dims(pads=(1, 3)))
    assert [a.constant for a in chain.blocks.begins] == [1, 1]
    assert [a.constant for a in chain.blocks.ends] == [3, 3]
    assert (chain.source, chain.nodes[0].op_type) == ("x", "Pad")


def test_crops_are_part_of_the_operator():
    net = Net()
    shape = (2, 8, 12, 3)
    x = chain_models.conv(net, chain_models.to_batch(net, "x", shape, 0, 2))
    model = net.model(shape, chain_models.to_space(net, x, 2, crops=(1, 0, 0, 1)))
    (_, chain) = find(model)
    assert [a.constant for a in chain.blocks.begins] == [1, 0]
    assert [a.constant for a in chain.blocks.ends] == [0, 1]


def test_axes_in_another_order():
    """The places along the second axis come first in the batch."""
    net = Net()
    x = net("Reshape", "x", [2, 4, 2, 6, 2, 3])
    x = net("Transpose", x, perm=[4, 2, 0, 1, 3, 5])
    (chain,) = find(net.model((2, 8, 12, 3), net("Reshape", x, [8, 4, 6, 3])))
    assert (chain.blocks.before, chain.blocks.block) == ((0, 2, 1, 3), (2, 2))


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
    chains = find(model)
    swapped = perm == [2, 4, 0, 3, 1, 5]
    assert [c.blocks.behind for c in chains] == ([(0, 2, 1, 3)] if swapped else [])


def test_pads_of_another_value():
    model = chain_models.six_dims()
    pad = model.graph.node[0]
    one = helper.make_node("Constant", [], ["one"], value_float=1.0)
    model.graph.node.insert(0, one)
    pad = model.graph.node[1]
    pad.input.append("one")
    chain = find(model)[0]
    assert (chain.source, chain.nodes[0].op_type) == (pad.output[0], "Reshape")


def test_sizes_that_blocks_may_not_divide():
    """With -1 for the batch the Reshape runs for some odd heights: it is no SpaceToBatch then."""
    net = Net()
    _, h, w, c = net("Split", net("Shape", "x"), outputs=4)
    rows, columns = net("Div", h, [2]), net("Div", w, [2])
    x = net("Reshape", "x", net("Concat", [-1], rows, [2], columns, [2], c, axis=0))
    x = net("Transpose", x, perm=[2, 4, 0, 1, 3, 5])
    x = net("Reshape", x, net("Concat", [-1], rows, columns, c, axis=0))
    assert find(net.model(("n", "h", "w", 3), x)) == []


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
    assert [c.nodes[0].op_type for c in find(model)] == ["Reshape"]


def test_local_functions_hide_operators():
    """A function called Transpose is not followed."""
    model = chain_models.six_dims()
    imports = [helper.make_opsetid("", 17)]
    body = [helper.make_node("Identity", ["a"], ["b"])]
    model.functions.append(helper.make_function("", "Transpose", ["a"], ["b"], body, imports))
    assert find(model) == []


def test_unknown_ranks():
    model = chain_models.six_dims()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert all(c.source != "x" for c in find(model))


def test_bad_parameters():
    """Nodes that fail in every run are no chain, and no error."""
    net = Net()
    x = net("Reshape", "x", [2, 4, 2, 6, 2, 5])
    x = net("Transpose", x, perm=[2, 4, 0, 1, 3])
    assert find(net.model((2, 8, 12, 3), net("Reshape", x, np.float32([1.0])))) == []


@pytest.mark.parametrize("op_type", ["Neg", "Mul"])
def test_crops_that_are_others_in_some_cases(op_type):
    """Without the Neg the Slice takes one element of odd sizes; without the Mul, none of even ones."""
    model = chain_models.depth_to_space()
    (node,) = [n for n in model.graph.node if n.op_type == op_type]
    node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))
    assert all("Slice" not in [n.op_type for n in c.nodes] for c in find(model))


def test_a_slow_machine_finds_the_same(monkeypatch):
    """Steps are counted; the clock is for the worst only."""
    model = chain_models.stacked()
    expected = find(model)
    clock = itertools.count(0.0, 0.01)
    monkeypatch.setattr(budget, "thread_time", lambda: next(clock))
    notes = []
    assert find(model, notes=notes) == expected
    assert len(expected) == 4
    assert notes == []


def test_the_last_limit_is_time(monkeypatch):
    clock = itertools.count(0.0, 100.0)
    monkeypatch.setattr(budget, "thread_time", lambda: next(clock))
    notes = []
    assert find(chain_models.stacked(), notes=notes) == []
    (note,) = notes
    assert note.startswith("the search for chains stopped after 300 seconds, between 'x' and ")


@pytest.mark.parametrize(("limit", "steps"), [("_PATH_STEPS", 300), ("_MODEL_STEPS", 5000)])
def test_limits_of_steps(monkeypatch, limit, steps):
    monkeypatch.setattr(importlib.import_module("onnx_spatial.chains.find_chains"), limit, steps)
    notes = []
    found = find(chain_models.stacked(), notes=notes)
    assert len(found) < 4
    assert f"stopped after {steps:,} steps" in notes[-1]
    assert find(chain_models.stacked()) == found


def test_the_search_for_movements_is_limited(monkeypatch):
    module = importlib.import_module("onnx_spatial.chains.movements")
    model = movement_models.computed_unshuffle()
    assert len(module.find_movements(model, max_rank=4)) == 1
    monkeypatch.setattr(module, "_MODEL_STEPS", 10)
    notes = []
    assert all(
        each.operator is None for each in module.find_movements(model, max_rank=4, notes=notes)
    )
    assert notes == ["the search for chains that only move data stopped after 10 steps"]


def test_equal_movements_are_tried_once(monkeypatch):
    """The heads of a transformer differ by names alone."""
    module = importlib.import_module("onnx_spatial.chains.movements")
    priced, tried = module._Search._priced_anew, []
    monkeypatch.setattr(
        module._Search, "_priced_anew", lambda s, p: tried.append(p) or priced(s, p)
    )

    def heads(count):
        net, x = Net(), "x"
        for _ in range(count):
            x = net(
                "Transpose", net("Reshape", net("Softmax", x), [0, -1, 4, 16]), perm=[0, 2, 1, 3]
            )
            x = net("Reshape", net("Softmax", x), [0, -1, 64])
        tried.clear()
        assert module.find_movements(net.model(("n", "s", 64), x)) == []
        return len(tried)

    assert heads(8) == heads(2) > 0


def test_gathers_by_lists_of_indices_are_not_read(monkeypatch):
    """Nets have many of them, and none is a block operator."""
    module = importlib.import_module("onnx_spatial.chains.find_blocks")
    reads = []
    monkeypatch.setattr(module, "ChainMap", lambda *given: reads.append(given))
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 17]>
        g (float[n,4,8] x) => (float[n,4,8] y) <int64[4] i = {0, 2, 1, 3}> {
            a = Gather<axis = 1>(x, i)
            b = Transpose<perm = [0, 2, 1]>(a)
            c = Gather<axis = 2>(b, i)
            y = Transpose<perm = [0, 2, 1]>(c)
        }"""
    )
    assert find(model) == []
    assert not reads
