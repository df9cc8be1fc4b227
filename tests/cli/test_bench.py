"""`bench`, `convert --tune` and times in tables, as a person or a script meets them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import parser
from rich.console import Console

import onnx_spatial
from onnx_spatial.benchmark import bench
from onnx_spatial.cli import benchmark, render
from onnx_spatial.cli.main import run
from onnx_spatial.report.figures import headline

MODEL = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (float[N,4,6,3] x) => (y) <int32[2] block = {2, 3}, int32[2,2] pads = {1, 1, 0, 0}> {
    [s2b] y = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, pads)
}
"""
BROKEN = MODEL.replace("{2, 3}", "{5, 3}")
PLAIN = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,2] x) => (float[2,N] y) { y = Transpose<perm = [1, 0]>(x) }
"""
QUICK = ["bench", "--runs", "1", "--threads", "1"]


@pytest.fixture
def save(tmp_path: Path):
    def write(text: str, name: str = "model.onnx") -> str:
        path = tmp_path / name
        path.write_bytes(parser.parse_model(text).SerializeToString())
        return str(path)

    return write


def test_a_table_of_the_model_and_one_of_its_sites(save, capsys):
    assert run([*QUICK, save(MODEL)]) == 0
    text, err = capsys.readouterr()
    assert err == ""
    lines = text.splitlines()
    assert "onnxruntime" in lines[0]
    (converted,) = (line for line in lines if line.startswith("converted"))
    assert converted.split()[-1] in ("us", "ms")
    assert any("transpose *" in line and "s2b" in line for line in lines)
    assert any("row-gather " in line for line in lines)


def test_a_model_with_nothing_but_a_refused_convolution(save, capsys):
    model = save("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1,1,8,8] x) => (float[1,1,P,Q] y) <float[1,1,2,2] w = {1, 2, 3, 4}>
        { y = Conv <auto_pad = "SAME_UPPER", dilations = [2, 2]> (x, w) }""")
    assert run([*QUICK, model]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["original", "converted"]
    assert all("us" in line or "ms" in line for line in lines[2:])


def test_one_document(save, capsys):
    assert run([*QUICK, "--json", "--shape", "x=2,4,6,3", save(MODEL)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == 1
    assert document["inputs"]["x"]["shape"] == [2, 4, 6, 3]
    assert document["sites"][0]["shape"] == [2, 4, 6, 3]


def test_many_files_are_all_measured(save, capsys):
    models = [save(MODEL), save(BROKEN, "broken.onnx"), save(PLAIN, "plain.onnx"), "none.onnx"]
    assert run([*QUICK, "--json", *models]) == 3
    out, err = capsys.readouterr()
    documents = json.loads(out)["models"]
    assert [d.get("exit_code") for d in documents] == [None, 3, None, 2]
    assert len([line for line in err.splitlines() if line.startswith("error: ")]) == 2
    assert documents[2]["models"] == documents[2]["sites"] == []


def test_one_file_that_cannot_be_converted(save, capsys):
    assert run([*QUICK, save(BROKEN)]) == 3
    assert capsys.readouterr().err.startswith("error: ")
    assert run([*QUICK, "none.onnx"]) == 2


def test_nothing_to_measure_and_quiet(save, capsys):
    assert run([*QUICK, save(PLAIN)]) == 0
    assert "nothing to measure" in capsys.readouterr().out
    assert run([*QUICK, "-q", save(MODEL)]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "options",
    [["--threads", "many"], ["--threads", ""], ["--threads", "1,-2"], ["--runs", "0"]],
)
def test_bad_options(save, capsys, options):
    assert run(["bench", save(MODEL), *options]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_convert_tunes_and_says_so(save, tmp_path, capsys):
    cache, out = tmp_path / "tune.json", tmp_path / "out.onnx"
    command = ["convert", save(MODEL), "-o", str(out), "--tune", "--tune-cache", str(cache)]
    assert run([*command, "--tune-threads", "1", "--json"]) == 0
    (site,) = json.loads(capsys.readouterr().out)["inspection"]["sites"]
    assert site["measured_us"] >= 0
    first = out.read_bytes()
    assert run([*command, "--tune-threads", "1", "-v"]) == 0
    assert f"{site['strategy']} ({render.duration(site['measured_us'])}, estimated " in (
        capsys.readouterr().out
    )
    assert out.read_bytes() == first


def test_a_cache_wants_tuning_and_is_no_model(save, tmp_path, capsys):
    model = save(MODEL)
    before = Path(model).read_bytes()
    assert run(["convert", model, "--dry-run", "--tune-cache", "x.json"]) == 2
    assert run(["convert", model, "--dry-run", "--tune", "--tune-cache", model]) == 2
    assert "is not a tune cache" in capsys.readouterr().err
    assert Path(model).read_bytes() == before


def shown(found: onnx_spatial.Inspection, width: int, *, verbose: bool = False) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, color_system=None)
    render.inspection(console, found, verbose=verbose)
    return stream.getvalue()


def test_a_time_of_zero_is_called_too_short_to_measure(save):
    found = bench(save(MODEL), threads=(1,), runs=1)
    way = replace(found.sites[0].ways[0], measured_us={1: 0.0})
    assert benchmark._figures(found, way)[1:] == ["too short"]
    assert benchmark._figures(found, replace(way, measured_us={1: 2.5}))[1:] == ["2.50 us"]
    assert benchmark._figures(found, replace(way, measured_us={}))[1:] == ["-"]


def test_inspect_says_what_convert_makes_of_the_model(save):
    made = onnx_spatial.convert(path := save(MODEL), verify=False).summary
    assert f"after convert: {headline(made)}\n" in shown(onnx_spatial.inspect(path), 200)
    assert "after convert" not in shown(onnx_spatial.inspect(save(PLAIN)), 200)


def test_inspect_shows_times_where_there_is_room(save):
    found = onnx_spatial.inspect(save(MODEL))
    estimate = f"~{render.duration(found.sites[0].estimated_us)}"
    wide = shown(found, 200)
    assert " time" in wide and estimate in wide
    table = max(len(line.rstrip()) for line in wide.splitlines() if "s2b" in line or "node" in line)
    narrower = shown(found, table - 1)
    assert " time" not in narrower and estimate not in narrower and "action" in narrower
    assert estimate in shown(found, 40)  # a list has room for it
    first, second, *_ = (c.strategy for c in found.sites[0].candidates)
    assert f"lowerings of s2b: {first}" not in wide
    assert f"lowerings of s2b: {first} ({estimate}), {second} (~" in shown(
        found, 1000, verbose=True
    )


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, ""),
        (0.0, "0.00 us"),
        (3.14159, "3.14 us"),
        (99.44, "99.4 us"),
        (412.3, "412 us"),
        (1234.0, "1.23 ms"),
        (2.5e6, "2.50 s"),
    ],
)
def test_three_digits(us, text):
    assert render.duration(us) == text
