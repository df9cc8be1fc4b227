"""Random regions around SpaceToBatch -> .. -> BatchToSpace come out as the definitions say.

    pytest -m slow -s tests/fusion/test_regions.py     20,000 of them

Every case is made from a seed and its number; a failure names them:

    python -m tests.fusion.campaign --seed SEED --first NUMBER --cases 1
"""

from __future__ import annotations

import os
from random import Random

import campaign
import numpy as np
import onnx
import pytest
import regions
from onnx import numpy_helper

import onnx_spatial

SEED = 0
SHORT, LONG = 16, 20_000
#: Kinds of which nearly all regions are fused, if their blocks are known.
FUSIBLE = ("row", "consecutive", "side_by_side", "transposed")


def wrong(found: list[campaign.Outcome]) -> list[str]:
    return [f"seed {SEED}, case {o.number}: {'; '.join(o.wrong)}" for o in found if o.wrong]


@pytest.mark.parametrize("kind", regions.NAMES)
def test_regions(kind: str) -> None:
    found = list(campaign.outcomes(SEED, range(SHORT), kind))
    assert not wrong(found)
    fused, sites = (sum(n) for n in zip(*((o.fused, o.sites) for o in found), strict=True))
    assert kind not in FUSIBLE or fused > 0.7 * sites


@pytest.mark.slow
def test_regions_at_length() -> None:
    assert not wrong(list(campaign.outcomes(SEED, range(LONG), processes=os.cpu_count() or 1)))


def test_a_wrong_kernel_is_seen() -> None:
    """One kernel of a converted model is half as large again: the comparison must notice."""
    seen, tried = 0, 0
    for number in range(16):
        case = regions.build(SEED, number, "row")
        converted = onnx_spatial.convert(case.model, verify=False).model
        if spoil(converted, Random(number)):
            tried += 1
            seen += bool(campaign.mistakes(converted, case))
    assert tried >= 10
    assert seen >= 0.7 * tried  # what meets nothing but pads, or is cropped, cannot be seen


def spoil(model: onnx.ModelProto, rng: Random) -> bool:
    """Change one kernel a little; whether there was one."""
    kernels = [t for t in model.graph.initializer if t.name.startswith("kernel")]
    if not kernels:
        return False
    tensor = rng.choice(kernels)
    array = numpy_helper.to_array(tensor) * np.float32(1.5)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return True


def test_no_blocked_axis_and_crops_of_the_run() -> None:
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
