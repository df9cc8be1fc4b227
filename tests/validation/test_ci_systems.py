"""The action, the hook and the snippet, as far as they can be run without the services."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from xml.etree import ElementTree

import pytest
from validating import PLAIN, REFUSED, save

from onnx_spatial.validation import ModelResult, Options, Report
from onnx_spatial.validation.result import KINDS

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
    assert done.stdout.splitlines()[-1].startswith("PASSED  2 models: 2 passed")
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
