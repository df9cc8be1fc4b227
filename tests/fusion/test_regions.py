"""Random regions around SpaceToBatch -> .. -> BatchToSpace come out as the definitions say.

    pytest -m slow -s tests/fusion/test_regions.py     20,000 of them, and how much was fused

Every case is made from a seed and its number; a failure names them:

    python -m tests.fusion.campaign --seed SEED --first NUMBER --cases 1
"""

from __future__ import annotations

import os
from random import Random

import campaign
import making
import numpy as np
import onnx
import pytest
import regions
from adapter import plan
from onnx import numpy_helper

import onnx_spatial

SEED = 0
SHORT, LONG = 12, 20_000


def report(found: list[campaign.Outcome]) -> str:
    wrong = [outcome for outcome in found if outcome.wrong]
    lines = [f"seed {SEED}, case {o.number}, {o.labels}: {'; '.join(o.wrong)}" for o in wrong[:5]]
    return f"{len(wrong)} of {len(found)} are wrong\n" + "\n".join(lines)


@pytest.mark.parametrize("kind", regions.KINDS)
def test_regions(kind):
    found = list(campaign.outcomes(SEED, range(SHORT), kind))
    assert not any(outcome.wrong for outcome in found), report(found)


@pytest.mark.slow
def test_regions_at_length(capsys):
    found = list(campaign.outcomes(SEED, range(LONG), processes=os.cpu_count() or 1))
    with capsys.disabled():
        print(f"\n{campaign.table(found)}")
    assert not any(outcome.wrong for outcome in found), report(found)


def test_every_class_comes_up():
    cases = [regions.build(SEED, number) for number in range(600)]
    labels = {(heading, name) for case in cases for heading, name in case.labels.items()}
    kinds = {name for heading, name in labels if heading == "kind"}
    assert set(regions.KINDS) <= kinds <= {*regions.KINDS, *making.OBSTACLES}
    assert {name for heading, name in labels if heading == "mode"} == set(regions.MODES)
    assert {name for heading, name in labels if heading == "layout"} == {
        *(f"channels last, {rank}-D" for rank in (1, 2, 3)),
        *(f"channels first, {rank}-D" for rank in (1, 2, 3)),
        "unsqueezed, 1-D",
    }


def test_a_wrong_kernel_is_seen():
    """One kernel of a converted model is off by a thousandth: the comparison must notice."""
    seen, tried = 0, 0
    for number in range(40):
        case = regions.build(SEED, number, "one Conv")
        converted = onnx_spatial.convert(case.model, verify=False).model
        if spoil(converted, Random(number)):
            tried += 1
            seen += bool(campaign.mistakes(converted, case))
    assert tried >= 25
    assert seen >= 0.8 * tried  # what meets nothing but pads, or is cropped, cannot be seen


def spoil(model: onnx.ModelProto, rng: Random) -> bool:
    """Change one kernel a little; whether there was one."""
    kernels = [t for t in model.graph.initializer if t.name.startswith("kernel")]
    if not kernels:
        return False
    tensor = rng.choice(kernels)
    weights = numpy_helper.to_array(tensor) * np.float32(1.001)
    tensor.CopyFrom(numpy_helper.from_array(weights, tensor.name))
    return True


def test_no_region_takes_away_what_a_checked_model_has_to_find():
    text = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
    g (float[1,{size},5] x) => (y)
    <int32[1] block = {{2}}, int32[1,2] table = {{0, 0}}, float[5,5,1] w = {{{w}}}> {{
        [s2b] blocks = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, table)
        rows = Transpose<perm = [0, 2, 1]>(blocks)
        sums = Conv(rows, w)
        back = Transpose<perm = [0, 2, 1]>(sums)
        [b2s] y = ai.onnx.converters.tensorflow.BatchToSpaceND(back, block, table)
    }}"""
    weights = ", ".join(["1.0"] * 25)
    for size, checked, strategy in (
        ("T", False, "dilated convolution"),
        ("T", True, None),
        ("6", True, "dilated convolution"),
    ):
        model = onnx.parser.parse_model(text.format(size=size, w=weights))
        sites = plan(model, checked=checked).operators
        taken = {site.lowering for site in sites}
        if strategy is not None:
            assert taken == {strategy}
            continue
        assert "dilated convolution" not in taken
        assert all("are checked at run time" in " ".join(site.declined) for site in sites)


def test_no_blocked_axis_and_crops_of_the_run():
    """There is no entry of the crops to read."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[4,3] x, int32[0,2] crops) => (float[?,?] y) {
            a = com.microsoft.SpaceToBatchND(x, block, none)
            y = com.microsoft.BatchToSpaceND(a, block, crops)
        }""")
    for name, shape in (("block", [0]), ("none", [0, 2])):
        empty = np.zeros(shape, np.int32)
        model.graph.initializer.append(numpy_helper.from_array(empty, name))
    assert onnx_spatial.convert(model).verification.status == "passed"
