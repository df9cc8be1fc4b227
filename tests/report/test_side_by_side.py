"""Graphs that are too large for a page of many models are left out, and the page says why."""

from __future__ import annotations

import json

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


def test_graphs_without_room_are_left_out():
    shown = compared()
    before = shown.regions()
    shown.leave_out(100)
    assert shown.graphs is None
    assert shown.left_out.startswith("The graphs, with 588 nodes, are not drawn")
    assert before and shown.regions() == {}


def test_it_survives_json():
    shown = compared()
    again = SideBySide(**json.loads(json.dumps(shown.to_dict())))
    assert again.graphs == shown.graphs and again.left_out == shown.left_out
