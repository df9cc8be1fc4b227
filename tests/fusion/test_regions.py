"""Random regions around SpaceToBatch -> .. -> BatchToSpace come out as the definitions say.

    pytest -m slow tests/fusion/test_regions.py     20,000 of them

Every case is made from a seed, its number and kind, which a failure names.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import onnx
import pytest
import regions
from vocabulary import LOWERINGS

import onnx_spatial
from onnx_spatial.model.inference.functions import inline

SEED, SHORT, LONG = 0, 30, 20_000


def tried(number: int, kind: str | None = None) -> tuple[int, int, list[str]]:
    """How many operators of a case became part of something else, of how many; what is wrong."""
    case = regions.build(SEED, number, kind)
    found = onnx_spatial.convert(case.model, verify=False, prefer=regions.LOWERING)
    wrong = regions.mistakes(found.model, case)
    if wrong:  # what is wrong without fusion, too, is another room's, or of onnxruntime's optimizer
        plain = onnx_spatial.convert(case.model, verify=False, fuse=False, prefer=regions.LOWERING)
        known = regions.mistakes(plain.model, case)
        wrong = {k: v for k, v in wrong.items() if k not in known}
    fused = sum(site.lowering not in LOWERINGS for site in found.operators)
    told = [f"case {number}, {kind}: {place}: {what}" for place, what in wrong.items()]
    return fused, len(found.operators), told


@pytest.mark.parametrize("kind", regions.KINDS)
def test_regions(kind: str) -> None:
    fused, sites, wrong = zip(*(tried(number, kind) for number in range(SHORT)), strict=True)
    assert [line for lines in wrong for line in lines] == []
    assert kind == "anything" or sum(fused) > 0.7 * sum(sites)


@pytest.mark.slow
def test_regions_at_length() -> None:
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for _, _, wrong in pool.map(tried, range(LONG), chunksize=100):
            assert not wrong


@pytest.mark.parametrize("calls", [1, 2])
def test_in_a_function_as_much_is_fused_as_if_it_were_inlined(calls: int) -> None:
    for number in range(8):
        case = regions.in_function(regions.build(SEED + 7, number), calls)
        converted = onnx_spatial.convert(case.model, verify=False, prefer=regions.LOWERING)
        copy = onnx.ModelProto.FromString(case.model.SerializeToString())
        inlined = onnx_spatial.convert(inline(copy), verify=False, prefer=regions.LOWERING)
        assert not regions.mistakes(converted.model, case), number
        sites = [str(site.lowering) for site in converted.operators]
        copies = [str(site.lowering) for site in inlined.operators]
        assert sorted(sites * calls) == sorted(copies), number
