"""Whatever is in a file: one clear line or a right conversion, soon, and in little memory."""

import re
import sys
import warnings
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path

import onnx
import pytest
from adapter import run
from onnx import helper
from parsing import model

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
    """Return what becomes of a case, one line that a person can read.

    TimeoutError if the process dies or hangs.
    """
    words, memory = pool.apply_async(hostile.attempt, (name,), {"verify": verify}).get(seconds)
    assert memory < MEMORY
    assert not words.startswith("traceback") and len(words) < LONGEST_LINE
    assert words.isprintable(), words
    return words


@pytest.mark.parametrize("name", hostile.CASES)
def test_a_clear_line_or_a_right_conversion(name, pool):
    outcome = attempt(pool, name, verify=True)
    assert re.match(hostile.CASES[name].outcome, outcome), outcome


@pytest.mark.slow
@pytest.mark.parametrize("name", hostile.LARGE)
def test_size_alone_is_no_matter(name, pool):
    assert attempt(pool, name, verify=False, seconds=300) == "converted"


NET = """g (float[1,1,8,8] x, float[1,1,1,1] w) => (float[?,?,?,?] y) {
    [r] a = Reshape(x, s) [conv] b = Conv(a, w) [t] c = Transpose<perm = [0, 2, 3, 1]>(b)
    [s2b] y = M.SpaceToBatchND(c, block, pads) }"""


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda m: setattr(m.opset_import[0], "version", 2**40), "32 bits at most"),
        (lambda m: setattr(m.opset_import[1], "version", -(2**40)), "32 bits at most"),
        (
            lambda m: setattr(m.graph.output[0].type.tensor_type, "elem_type", 10**9),
            "output 'y' of main graph has element type 1000000000",
        ),
        (
            lambda m: m.graph.node[1].attribute.append(helper.make_attribute("group", 1.5)),
            "Conv 'conv' in main graph: the attribute 'group' does not have the type INT",
        ),
        (lambda m: m.graph.node[1].ClearField("input"), "Conv 'conv' in main graph has no input 0"),
        (lambda m: m.graph.node[0].input.pop(), "Reshape 'r' in main graph has no input 1"),
    ],
)
def test_what_the_schema_requires_is_asked_for_first(damage, message):
    made = model(NET, block=[2, 2], pads=[[0, 0], [0, 0]], s=[1, 1, 8, 8])
    for call in (onnx_spatial.convert, onnx_spatial.optimize, onnx_spatial.inspect):
        call(made)
    damage(made)
    for call in (onnx_spatial.convert, onnx_spatial.optimize, onnx_spatial.inspect):
        with pytest.raises(onnx_spatial.ModelFileError, match=message):
            call(made)


def with_external_block(folder: Path, *entries: tuple[str, str], size: int = 2) -> Path:
    made = hostile.graph()
    block = made.graph.initializer[0]
    (folder / "w.bin").write_bytes(block.raw_data)
    block.ClearField("raw_data")
    block.dims[0], block.data_location = size, onnx.TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), *entries):
        block.external_data.add(key=key, value=value)
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    return folder / "m.onnx"


@pytest.mark.parametrize("size", [-(2**62), 2**62])
def test_external_data_of_a_size_that_cannot_be_is_not_read(size, tmp_path):
    with pytest.raises(onnx_spatial.SpatialError):
        onnx_spatial.convert(with_external_block(tmp_path, size=size))


def test_what_libraries_remark_is_not_printed_by_the_command(tmp_path, capsys, monkeypatch):
    path = with_external_block(tmp_path, ("lefgth", "16"))
    monkeypatch.setattr(sys, "warnoptions", [])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert run(["convert", str(path), "-o", str(tmp_path / "o.onnx")]) == 0
    assert capsys.readouterr().err == "" and not told


def test_onnxruntime_prints_nothing_of_its_own(tmp_path, capsys):
    """A name in its message that it cannot decode is a failed provider to it, it says on stdout."""
    made = hostile.graph()
    made.graph.node[1].attribute.append(helper.make_attribute("MARK", 1))
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString().replace(b"MARK", b"\xff\xfe\xfd\xfc"))
    assert run(["convert", str(path), "--dry-run", "--json", "--strict"]) != 0
    assert "Falling back" not in capsys.readouterr().out
