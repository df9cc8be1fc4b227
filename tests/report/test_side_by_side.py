"""Graphs that are too large for a page of many models keep what changed, and say what is left out."""

from __future__ import annotations

import json

import pytest
from report_models import net, without_blocks

from onnx_spatial.report.graph_data import script_json
from onnx_spatial.report.side_by_side import SideBySide


def compared() -> SideBySide:
    model = net(300, 2)
    return SideBySide.of(model, without_blocks(model))


def test_small_graphs_are_whole():
    shown = compared()
    shown.leave_out(len(script_json(compared().graphs)))
    assert shown == compared()
    assert shown.left_out == ""


@pytest.mark.parametrize("most", [20_000, 10_000])
def test_nodes_near_regions_stay(most):
    shown, (whole,) = compared(), compared().graphs["graphs"]
    shown.leave_out(most)
    (graph,) = shown.graphs["graphs"]
    assert len(script_json(shown.graphs)) <= most
    in_regions = [[n["l"] for n in g["before"] if "r" in n] for g in (whole, graph)]
    assert in_regions[0] == in_regions[1] != []
    assert f"{len(graph['before']) + len(graph['after'])} of " in shown.left_out
    for side, other in (("before", "after"), ("after", "before")):
        for index, node in enumerate(graph[side]):
            if "p" in node:  # partners are partners of each other, by their new positions
                assert graph[other][node["p"]]["p"] == index
    for node in graph["after"]:
        assert "o" in node or "o" in graph["before"][node["p"]]


def test_values_to_nodes_that_are_left_out_are_known():
    shown, (whole,) = compared(), compared().graphs["graphs"]
    shown.leave_out(15_000)
    (graph,) = shown.graphs["graphs"]
    kept = {node["l"] for node in graph["before"]}
    rest = [node for node in whole["before"] if node["l"] not in kept]
    touched = {name for node in graph["before"] for key in "iu" for name in node.get(key, ())}
    expected = {name for node in rest for key in "iu" for name in node.get(key, ())} & touched
    assert graph["outside"][0] == sorted(expected) != []


def test_graphs_without_room_are_left_out():
    shown = compared()
    before = shown.regions()
    shown.leave_out(100)
    assert shown.graphs is None
    assert shown.left_out.startswith("The graphs, with 588 nodes, are not drawn")
    assert before and shown.regions() == {}


def test_it_survives_json():
    shown = compared()
    shown.leave_out(20_000)
    again = SideBySide(**json.loads(json.dumps(shown.to_dict())))
    assert again.graphs == shown.graphs and again.left_out == shown.left_out
