"""Whatever is in a file: one clear line or a right conversion, soon, and in little memory."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.pool import Pool

import onnx
import onnx.helper
import onnx.parser
import pytest

import onnx_spatial

if sys.platform == "win32":
    pytest.skip("needs limits on memory", allow_module_level=True)
import hostile

#: Far from what any case needs, on a slow and busy machine too.
SECONDS = 60
#: MiB of a process that tries cases out; 400 or so are the interpreter's and libraries' own.
MEMORY = 1536
LONGEST_LINE = 2000


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """A process that tries cases out; a new one after each that it does not survive."""
    with get_context("spawn").Pool(1, hostile.limit_memory) as pool:
        yield pool


def attempt(pool: Pool, name: str, *, verify: bool, seconds: float = SECONDS) -> str:
    """Return what becomes of a case; TimeoutError if the process dies or hangs."""
    words, memory = pool.apply_async(hostile.attempt, (name,), {"verify": verify}).get(seconds)
    assert memory < MEMORY
    return words


def is_clean(outcome: str) -> bool:
    """Whether it is one line that a person can read."""
    bad = outcome.startswith("traceback") or "\n" in outcome
    return not bad and len(outcome) < LONGEST_LINE


@pytest.mark.parametrize("name", hostile.CASES)
def test_a_clear_line_or_a_right_conversion(name, pool):
    unverified, outcome = (attempt(pool, name, verify=verify) for verify in (False, True))
    assert is_clean(unverified), unverified
    assert is_clean(outcome), outcome
    assert re.match(hostile.CASES[name].outcome, outcome), outcome


@pytest.mark.slow
@pytest.mark.parametrize("name", hostile.LARGE)
def test_size_alone_is_no_matter(name, pool):
    assert attempt(pool, name, verify=False, seconds=300) == hostile.LARGE[name].outcome


def _without_inputs(model: onnx.ModelProto, op_type: str, kept: int) -> None:
    node = next(node for node in model.graph.node if node.op_type == op_type)
    del node.input[kept:]


@pytest.mark.parametrize(
    "call", [onnx_spatial.convert, onnx_spatial.optimize, onnx_spatial.inspect]
)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda m: setattr(m.opset_import[0], "version", 2**40), "32 bits at most"),
        (lambda m: setattr(m.opset_import[1], "version", -(2**40)), "32 bits at most"),
        (
            lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 10**9),
            "input 'x' of main graph has element type 1000000000",
        ),
        (
            lambda m: setattr(m.graph.output[0].type.tensor_type, "elem_type", 10**9),
            "output 'y' of main graph has element type 1000000000",
        ),
        (
            lambda m: m.graph.node[1].attribute.append(onnx.helper.make_attribute("group", 1.5)),
            "Conv 'conv' in main graph: the attribute 'group' does not have the type INT",
        ),
        (lambda m: _without_inputs(m, "Conv", 0), "Conv 'conv' in main graph has no input 0"),
        (lambda m: _without_inputs(m, "Reshape", 1), "Reshape 'r' in main graph has no input 1"),
    ],
)
def test_what_the_schema_requires_is_asked_for_first(call, damage, message):
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[1,1,8,8] x, float[1,1,1,1] w) => (float[?,?,?,?] y)
        <int32[2] block = {2, 2}, int32[2,2] pads = {0, 0, 0, 0}, int64[4] s = {1, 1, 8, 8}> {
            [r] a = Reshape(x, s)
            [conv] b = Conv(a, w)
            [t] c = Transpose<perm = [0, 2, 3, 1]>(b)
            [s2b] y = com.microsoft.SpaceToBatchND(c, block, pads)
        }"""
    )
    call(model)
    damage(model)
    with pytest.raises(onnx_spatial.ModelFileError, match=message):
        call(model)
