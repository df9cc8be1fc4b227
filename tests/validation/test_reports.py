"""JSON, JUnit XML and annotations are what their readers expect."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from validating import FOREIGN, PLAIN, REFUSED, ZOO, image, record, save

from onnx_spatial.validation import Entry, ModelResult, Options, Report, page, reports
from onnx_spatial.validation.result import KINDS
from onnx_spatial.validation.run import validate

SCHEMAS = Path(__file__).parents[1] / "data" / "schemas"


def made_up(strict: bool = False) -> Report:
    """One model for every way not to pass, and names that want care everywhere."""
    models = [
        ModelResult("a/b.c/good.onnx", "passed", "passed: yes", seconds=1.25, peak_memory=10**8),
        ModelResult(
            'a/bad: 100%, <&">\x1b é\udcff.onnx',
            "failed",
            "failed: first (and 1 more)",
            "difference",
            [
                Entry("error", "verify:lower", "first\nline \x00", ("node <1>",), "difference"),
                Entry("warning", "recorded:m.npz", "a remark", (), "recorded-data"),
                Entry("info", "inspect", "of no importance"),
            ],
            log="Fatal\x1b[0m\nerror",
        ),
    ]
    for kind in KINDS:
        status = {"unverified": "unverified", "not-run": "skipped"}.get(kind, "failed")
        models.append(ModelResult.without(f"{kind}.onnx", status, kind, f"it is {kind}"))
    known = ModelResult.without("known.onnx", "failed", "conversion", "it is known")
    models.append(known.expected_to_fail(Options()))
    return Report(models, Options(strict=strict), 12.3456, {"version": "0"}, ["a note"])


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Report:
    """What a run gives."""
    folder = tmp_path_factory.mktemp("models")
    record(folder / "odd", [image()], [image()])
    paths = [
        ZOO / "deeplab" / "model.onnx",
        save(folder / "refused.onnx", REFUSED),
        save(folder / "foreign.onnx", FOREIGN),
        save(folder / "odd" / "m.onnx"),
        save(folder / "plain.onnx", PLAIN),
        folder / "gone.onnx",
    ]
    options = Options(modes=("lower", "function"), static=(("K", 2),))
    return validate([str(p) for p in paths], options, jobs=2)


def cases(report: Report) -> dict[str, ElementTree.Element]:
    root = ElementTree.fromstring(reports.junit_xml(report))
    return {case.get("name", ""): case for case in root.iter("testcase")}


def test_junit_is_what_the_schema_says_and_figures_add_up(real):
    document = real.to_dict()
    summary = document["summary"]
    assert summary["models"] == len(document["models"]) == 6
    assert (summary["passed"], summary["failed"], summary["unverified"]) == (2, 3, 1)
    assert (document["status"], document["exit_code"]) == ("failed", 1)
    schema = pytest.importorskip("xmlschema").XMLSchema(SCHEMAS / "junit-10.xsd")
    empty = Report([], Options(), tools={"version": "0"})
    for report in (real, made_up(), made_up(strict=True), empty):
        schema.validate(ElementTree.fromstring(reports.junit_xml(report)))


@pytest.mark.parametrize(("strict", "unverified"), [(False, "skipped"), (True, "failure")])
def test_verdicts_are_what_ci_systems_count(strict, unverified):
    outcomes = {
        name: [c.tag for c in case if not c.tag.startswith("system")]
        for name, case in cases(made_up(strict)).items()
    }
    assert outcomes["good.onnx"] == []
    assert outcomes["recorded-data.onnx"] == outcomes["conversion.onnx"] == ["failure"]
    assert outcomes["crash.onnx"] == outcomes["timeout.onnx"] == ["error"]
    assert outcomes["unverified.onnx"] == [unverified]
    assert outcomes["not-run.onnx"] == outcomes["known.onnx"] == ["skipped"]
    (suite,) = ElementTree.fromstring(reports.junit_xml(made_up(strict)))
    for tag, key in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert int(suite.get(key, "")) == sum(o == [tag] for o in outcomes.values())


def test_a_case_says_what_is_wrong_and_how_to_see_it_again():
    (case,) = (c for n, c in cases(made_up()).items() if n.startswith("bad"))
    failure = case.find("failure")
    assert failure.get("type") == "difference"
    assert failure.text.startswith("verify:lower: first")
    assert failure.text.splitlines()[0].endswith("[different]")
    assert "of no importance" not in failure.text
    assert "run it again with: onnx-spatial validate" in case.findtext("system-out")
    assert case.findtext("system-err") == "Fatal\ufffd[0m\nerror"


def test_each_model_that_is_not_all_right_gets_one_line_of_its_file_in_the_checkout(
    tmp_path, monkeypatch
):
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    for strict, level in ((False, "warning"), (True, "error")):
        lines = reports.github_annotations(made_up(strict)).splitlines()
        right = [m for m in made_up().models if m.status in ("passed", "xfailed")]
        assert len(lines) == len(made_up().models) - len(right)
        (line,) = (x for x in lines if "unverified.onnx" in x)
        assert line.startswith(f"::{level} file=unverified.onnx,")
    assert lines[0] == (
        '::error file=a/bad%3A 100%25%2C <&">\x1b é\udcff.onnx,title=onnx-spatial%3A FAILED '
        "[different]::"
        "failed: first (and 1 more)%0Arun it again with: onnx-spatial validate "
        "'a/bad: 100%25, <&\">\x1b é\udcff.onnx' --seed 0 --strict"
    )
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    model = ModelResult.without(str(tmp_path / "x" / "m.onnx"), "failed", "crash", "no")
    line = reports.github_annotations(Report([model], Options()))
    assert line.startswith("::error file=x/m.onnx,")


@pytest.mark.parametrize(
    "render", [reports.junit_xml, reports.github_annotations, reports.github_summary, page.render]
)
def test_every_result_is_rendered_as_text(render):
    text = render(made_up())
    assert isinstance(text, str) and text.endswith("\n")
    assert all(f"{kind}.onnx" in text for kind in KINDS)
