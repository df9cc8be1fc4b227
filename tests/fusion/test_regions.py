"""Random regions around SpaceToBatch -> .. -> BatchToSpace come out as the definitions say.

    pytest -m slow tests/fusion/test_regions.py     20,000 of them

Every case is made from a seed, its number and kind, which a failure names.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random

import graphs
import holders
import pytest
import regions
import running
from vocabulary import LOWERINGS

import onnx_spatial
from onnx_spatial.model.inference.functions import inline

SEED, SHORT, LONG = 0, 30, 20_000


def tried(number: int, kind: str = "") -> tuple[int, int, list[str]]:
    """How many operators of a case became part of something else, of how many; what is wrong."""
    rng = Random(f"{SEED} {number}")
    case = graphs.build(rng, kind or rng.choice(regions.KINDS))
    found = onnx_spatial.convert(case.model, verify=False, prefer=regions.LOWERING)
    wrong = running.mistakes(found.model, case)
    if wrong:  # what is wrong without fusion, too, is another room's, or of onnxruntime's optimizer
        plain = onnx_spatial.convert(case.model, verify=False, fuse=False, prefer=regions.LOWERING)
        known = running.mistakes(plain.model, case)
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


def test_in_a_function_as_much_is_fused_as_if_it_were_inlined() -> None:
    for number in range(10):
        rng = Random(f"{SEED + 7} {number}")
        case = graphs.build(rng, rng.choice(regions.KINDS))
        called = holders.in_function(case.model)
        converted = onnx_spatial.convert(called, verify=False, prefer=regions.LOWERING)
        inlined = onnx_spatial.convert(inline(called), verify=False, prefer=regions.LOWERING)
        assert not running.mistakes(converted.model, case), number
        sites, copies = (
            sorted(str(site.lowering) for site in each.operators) for each in (converted, inlined)
        )
        assert sites == copies, number
