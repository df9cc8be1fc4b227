"""What is known of targets, and what limits admit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from onnx_spatial.model.limits import Limits
from onnx_spatial.model.targets import TARGETS

DOCS = Path(__file__).parents[2] / "docs" / "targets.md"
COREML, NCNN, TENSORRT = TARGETS["coreml"], TARGETS["ncnn"], TARGETS["tensorrt"]


def test_the_names_and_limits():
    ranks = {name: target.max_rank for name, target in TARGETS.items()}
    assert ranks == {"coreml": 5, "qnn": 5, "tflite": 4, "tensorrt": 8, "ncnn": 4}


@pytest.mark.parametrize("target", TARGETS.values(), ids=[*TARGETS])
def test_every_fact_has_a_source_and_is_documented(target):
    text = DOCS.read_text("utf-8")
    section = text.partition(f"\n## {target.title}\n")[2].partition("\n## ")[0]
    assert f"`{target.name}`" in section
    for fact in target.facts:
        assert fact.sources, fact.text
        assert fact.text in section
        for source in fact.sources:
            assert source.startswith("https://")
            assert source in section


@pytest.mark.parametrize("target", TARGETS.values(), ids=[*TARGETS])
def test_every_operator_type_is_of_onnx_and_documented(target):
    section = DOCS.read_text("utf-8").partition(f"\n## {target.title}\n")[2].partition("\n## ")[0]
    for op_type in (*target.refused, *target.avoided, *target.max_rank_of):
        assert onnx.defs.has(op_type)
        assert op_type in section
    assert not target.refused & target.avoided


@pytest.mark.parametrize(
    ("limits", "op_type", "limit"),
    [
        (Limits(4), "Conv", 4),
        (Limits(5, COREML), "Relu", 5),
        (Limits(5, COREML), "Conv", 4),
        (Limits(3, COREML), "Conv", 3),
        (Limits(3, COREML), "Relu", 3),
        (Limits(4, NCNN), "Conv", 5),
        (Limits(3, NCNN), "Conv", 3),
        (Limits(4, replace(COREML, max_rank=4)), "Conv", 4),
        (Limits(), "Relu", None),
    ],
)
def test_the_smaller_rank_counts(limits, op_type, limit):
    assert limits.rank_of(op_type) == limit


def test_the_title_names_what_limits():
    assert Limits(4).title == "rank 4"
    assert Limits(5, COREML).title == "Core ML"
    assert Limits(4, COREML).title == "Core ML and rank 4"


def test_a_batch_axis_of_1_does_not_count_for_ncnn():
    for first, rank in ((1, 4), ("N", 4), (None, 4), (2, 5)):
        assert Limits(4, NCNN).counted((first, 2, 3, 4, 5)) == rank
        assert Limits(4).counted((first, 2, 3, 4, 5)) == 5
    assert Limits(4, NCNN).counted(()) == 0


def test_refused_operators():
    assert Limits(5, COREML).refusal("SpaceToDepth") == "Core ML does not run SpaceToDepth"
    assert Limits(5, COREML).refusal("Transpose") is None
    assert Limits(5).refusal("SpaceToDepth") is None
    assert Limits(8, TENSORRT).refusal("MaxPool", [1, 2]) is not None
    assert Limits(8, TENSORRT).refusal("MaxPool", [1, 1]) is None
    assert Limits(4, NCNN).refusal("MaxPool", [1, 2]) is None  # nothing is known
