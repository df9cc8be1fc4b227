"""JSON, JUnit XML, annotations, the action and the hook are what their readers and services expect."""

import json
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from xml.etree import ElementTree

import pytest
from validating import FOREIGN, PLAIN, REFUSED, ZOO, image, record, save

from onnx_spatial.validation import Entry, ModelResult, Options, Report, reports
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
    "render",
    [reports.junit_xml, reports.github_annotations, reports.github_summary, reports.render],
)
def test_every_result_is_rendered_as_text(render):
    text = render(made_up())
    assert isinstance(text, str) and text.endswith("\n")
    assert all(f"{kind}.onnx" in text for kind in KINDS)


yaml = pytest.importorskip("yaml", reason="needs PyYAML")

TOP = Path(__file__).parents[2]
bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def environment(**more: str) -> dict[str, str]:
    """A shell's, with the command of the environment that the tests run in."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "CI_"))}
    path = os.pathsep.join((sysconfig.get_path("scripts"), inherited.get("PATH", "")))
    return {**inherited, "PATH": path, **more}


class Action:
    """action.yml, whose shell steps run here as GitHub's runner would run them."""

    def __init__(self, folder: Path, **inputs: str) -> None:
        self.document = yaml.safe_load((TOP / "action.yml").read_text("utf-8"))
        assert inputs.keys() <= self.document["inputs"].keys()
        defaults = {name: item["default"] for name, item in self.document["inputs"].items()}
        self.inputs = {**defaults, **inputs}
        self.folder, self.output = folder, folder.parent / "github-output"
        self.output.write_text("")
        (folder.parent / "temp").mkdir(exist_ok=True)

    def run(self, step_name: str, **more: str) -> subprocess.CompletedProcess[str]:
        (step,) = (s for s in self.document["runs"]["steps"] if s["name"] == step_name)
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "what a user writes must not become script"
        given = {name: self._expand(text) for name, text in step.get("env", {}).items()}
        runner = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.folder),
            "GITHUB_ACTION_PATH": str(TOP),
            "GITHUB_OUTPUT": str(self.output),
            "RUNNER_TEMP": str(self.folder.parent / "temp"),
        }
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
            cwd=self.folder,
            env=environment(**{**runner, **given, **more}),
            capture_output=True,
            text=True,
            check=False,
        )

    def outputs(self) -> dict[str, str]:
        """By the names that a workflow reads."""
        of_step = dict(line.split("=", 1) for line in self.output.read_text().splitlines())
        values = {name: item["value"] for name, item in self.document["outputs"].items()}
        return {
            name: re.sub(
                r"\$\{\{ steps\.validate\.outputs\.(\S+) \}\}", lambda m: of_step[m[1]], value
            )
            for name, value in values.items()
        }

    def _expand(self, text: str) -> str:
        return re.sub(r"\$\{\{ inputs\.(\S+) \}\}", lambda match: self.inputs[match[1]], text)


@bash
def test_the_action_passes_what_is_right(tmp_path):
    top = tmp_path / "checkout"
    save(top / "models" / "a $(touch bad).onnx")
    save(top / "exports" / "v2" / "b.onnx", PLAIN)
    action = Action(
        top,
        **{
            "paths": "models\nexports/**/*.onnx\n",
            "options": "--mode lower\n --mode function",
            "junit-xml": "r.xml",
        },
    )
    done = action.run("Validate")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("PASSED  2 models: all passed")
    assert action.outputs()["exit-code"] == "0"
    assert len(list(ElementTree.parse(top / "r.xml").iter("testcase"))) == 2
    assert not (top / "bad").exists()


@bash
def test_the_action_fails_what_is_wrong_and_annotates_it(tmp_path):
    top = tmp_path / "checkout"
    save(top / "a.onnx", REFUSED)
    action = Action(top)
    done = action.run("Validate")
    assert done.returncode == 1
    assert action.outputs()["exit-code"] == "1"
    assert "::error file=a.onnx,title=onnx-spatial%3A FAILED [not-divisible]::" in done.stderr
    assert Action(top, paths="nowhere").run("Validate").returncode == 2


def test_every_input_of_the_action_is_used_and_described():
    document = yaml.safe_load((TOP / "action.yml").read_text("utf-8"))
    used = set(re.findall(r"inputs\.([\w-]+)", json.dumps(document["runs"])))
    assert used == set(document["inputs"])
    assert all(item["description"] for item in document["inputs"].values())
    assert document["runs"]["using"] == "composite"


@bash
@pytest.mark.parametrize(
    ("names", "code"), [(["good.onnx"], 0), (["good.onnx", "bad one.onnx"], 1)]
)
def test_the_hook_looks_at_the_files_that_it_is_given(names, code, tmp_path):
    (hook,) = yaml.safe_load((TOP / ".pre-commit-hooks.yaml").read_text("utf-8"))
    save(tmp_path / "good.onnx")
    save(tmp_path / "bad one.onnx", REFUSED)
    assert all(re.search(hook["files"], name) for name in names)
    done = subprocess.run(
        [*hook["entry"].split(), *names],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert f" {len(names)} model" in done.stdout.splitlines()[-1]


def snippets(language: str) -> list[dict[str, object]]:
    """The YAML in the documentation."""
    text = (TOP / "docs" / "validation.md").read_text("utf-8")
    found = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [yaml.safe_load(snippet) for snippet in found]


def test_the_documented_hook_and_action_are_those_of_this_repository():
    (hook,) = yaml.safe_load((TOP / ".pre-commit-hooks.yaml").read_text("utf-8"))
    (config,) = (s for s in snippets("yaml") if "repos" in s)
    assert config["repos"][0]["hooks"][0]["id"] == hook["id"]
    (workflow,) = (s for s in snippets("yaml") if "jobs" in s)
    inputs = yaml.safe_load((TOP / "action.yml").read_text("utf-8"))["inputs"]
    assert workflow["jobs"]["models"]["steps"][1]["with"].keys() <= inputs.keys()


def test_the_documented_keys_and_kinds_are_those_of_the_document():
    text = (TOP / "docs" / "validation.md").read_text("utf-8")
    report = Report([ModelResult("m.onnx", "passed", "passed")], Options())
    document = report.to_dict()
    for names in (document, document["models"][0]):
        assert not [n for n in names if f"`{n}`" not in text and n != "version"]
    assert not [kind for kind in KINDS if f"`{kind}`" not in text]
