"""Messages are removed from repeated fields in place, and the rest keeps its order."""

from __future__ import annotations

import onnx

from onnx_spatial.model.graph.repeated_fields import remove_named, remove_where


def graph() -> onnx.GraphProto:
    made = onnx.GraphProto()
    for name in "abcb":
        made.node.add(name=name, op_type="Neg" if name == "c" else "Abs")
    return made


def test_removed_messages_come_back_in_order():
    made = graph()
    removed = remove_where(made.node, lambda node: node.op_type == "Abs")
    assert [node.name for node in removed] == ["a", "b", "b"]
    assert [node.name for node in made.node] == ["c"]


def test_names_that_are_not_there_remove_nothing():
    made = graph()
    assert remove_named(made.node, {"x"}) == []
    assert remove_named(made.node, {"b", "x"}) == ["b", "b"]
    assert [node.name for node in made.node] == ["a", "c"]
