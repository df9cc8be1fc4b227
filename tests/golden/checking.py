"""Convert a subject and run it: what every golden test does."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import running
import structure
from golden.converting import converted
from golden.subjects import Subject

COUNTS = Path(__file__).parent / "node_counts.json"


def recorded_counts() -> dict[str, int]:
    """Numbers of nodes by the names of subjects."""
    return json.loads(COUNTS.read_text("utf-8"))


def check(subject: Subject) -> int:
    """Check the results with onnxruntime's optimisations off and on; return the number of nodes."""
    built = subject.build()
    model = converted(built.model, **subject.options)
    kept = subject.options.get("mode") == "function"
    assert kept or not structure.spatial(model)
    for level in running.LEVELS:
        session = running.session(model, level, built.settings)
        for feeds, right in built.runs:
            right(running.run_session(session, dict(feeds)))
    return count(model)


def count(model: onnx.ModelProto) -> int:
    """The number of nodes, those in subgraphs and functions included, Constants left out."""
    return sum(node.op_type != "Constant" for node in structure.nodes(model))
