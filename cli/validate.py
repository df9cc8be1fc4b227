"""Validate the models of a command line, and print the report.

PASSED  a/model.onnx  10 operators, 2.64 s    a line for each model, as soon as it is done
FAILED  b/model.onnx                          the problems of each that did not pass,
  load: is not an ONNX model
  run it again with: onnx-spatial ...         and a command that validates it again
FAILED  2 models: 1 passed, 1 failed          the verdict
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.cells import cell_len
from rich.console import Console

from onnx_spatial.cli.output import Output, append_markdown, badge, print_sections, say
from onnx_spatial.errors import count, first_lines, one_line
from onnx_spatial.report.figures import duration
from onnx_spatial.report.outcome import MORE
from onnx_spatial.report.page import check_file, require, write
from onnx_spatial.validation import ModelResult, Options, Report, reports, run
from onnx_spatial.verification.evidence import UNCHANGED, count_proofs

#: Letters of the longest status.
_STATUS_LETTERS = len("UNVERIFIED")
#: Problems of one model that are shown without -v.
_MAX_SHOWN_PROBLEMS = 5
#: Failed models that one command line names.
_MAX_NAMED_MODELS = 20


def validate_models(paths: Sequence[str], output: Output, values: Mapping[str, Any]) -> int:
    """Validate models as the values of a command say, print the report, and return the exit code.

    Raises:
        click.UsageError: options contradict each other.
        SpatialError: a path holds no model, or a report cannot be written.
    """
    jobs, scheduler = values["jobs"], values["scheduler"]
    if scheduler is not None and values["executor"] == "local":
        raise click.UsageError("--scheduler requires --executor dask")
    if scheduler is None and values["executor"] != "local":
        raise click.UsageError(f"--executor {values['executor']} requires --scheduler ADDRESS")
    if scheduler is not None and jobs is not None:
        raise click.UsageError(
            "--jobs cannot be combined with --executor: the cluster decides how many run at a time"
        )
    renderings = {"junit_xml": reports.junit_xml, "html": reports.render}
    files = {name: Path(values[name]) for name in renderings if values[name] is not None}
    if len({path.resolve() for path in files.values()}) < len(files):
        raise click.UsageError("--html and --junit-xml name the same file")
    for path in files.values():
        check_file(path)
    if values["html"] is not None:
        require("jinja2")
    models = run.find(paths, values["exclude"])
    same = "optimize checked prefer max_rank domains seed strict strict_proof"
    options = Options(
        modes=tuple(dict.fromkeys(values["modes"])),
        fuse=not values["no_fuse"],
        static=tuple(values["static"].items()),
        shapes=tuple(values["shapes"].items()),
        **{name: values[name] for name in same.split()},
    )
    with (
        nullcontext() if scheduler is None else run.dask_executor(scheduler) as cluster,
        output.progress(timed=False) as progress,
    ):
        rows = _Rows(output, models, progress)
        report = run.validate(
            models,
            options,
            jobs=jobs or (1 if jobs is None else os.cpu_count() or 1),
            timeout=values["timeout"],
            memory=values["memory"],
            expect_failure=values["expect_failure"],
            graphs=values["html"] is not None,
            executor=cluster,
            watch=rows.watch,
        )
    report.notes += [*_useless_globs(paths, models, values), *_useless_names(report)]
    if os.environ.get("GITHUB_ACTIONS", "").lower() == "true":
        output.err.print(reports.github_annotations(report), end="", soft_wrap=True)
    for name, path in files.items():
        write(path, renderings[name](report).encode("utf-8", "backslashreplace"))
        if not (output.quiet or report.interrupted):
            say(output.err, f"report: {path}")
    append_markdown(reports.github_summary(report))
    if output.quiet:
        for model in report.failed():
            say(output.err, f"error: {one_line(model.model)}: {model.message}")
    if output.json:
        output.document(report.to_dict())
        if not output.quiet:
            _print_verdict(output.err, report)
    elif not output.quiet:
        rows.finish(report)
        _print_report(output.out, report, verbose=output.verbose)
    if report.interrupted:
        output.err.print("error: interrupted")
    return report.exit_code


def _useless_globs(
    paths: Sequence[str], models: Sequence[str], values: Mapping[str, Any]
) -> Iterator[str]:
    """Yield a note on each glob of the command line that matches no model.

    Those of pyproject.toml are for other calls, too.
    """
    source = click.get_current_context().get_parameter_source
    for name, advice in (("exclude", "; for a folder write '{}/*'"), ("expect_failure", "")):
        if values[name] and source(name) == ParameterSource.COMMANDLINE:
            every = run.find(paths) if name == "exclude" else models
            for glob in values[name]:
                if not any(run.matches(model, [glob]) for model in every):
                    option = name.replace("_", "-")
                    yield f"--{option} {glob}: matches no model{advice.format(glob.rstrip('/'))}"


def _useless_names(report: Report) -> Iterator[str]:
    """Yield a note on each name of --static and --shape that no model has."""
    read = [model for model in report.models if model.kind not in ("not-run", "unreadable")]
    for entry in read[0].entries if read else ():
        if (entry.level, entry.source) == ("info", "load") and all(
            entry in model.entries for model in read
        ):
            yield f"{entry.message} in any model"


class _Rows:
    """A line for each model, printed as soon as it and those before it are done.

    On a terminal a line of progress stands there instead, and the rows follow in the end.

    Args:
        output: of the run; with --json and --quiet it gets none.
        models: paths, as the results have them.
        progress: changes the line of progress; None without one.
    """

    def __init__(
        self, output: Output, models: Sequence[str], progress: Callable[[str], None] | None
    ) -> None:
        self._output, self._progress = output, progress
        self._width = max((cell_len(one_line(model)) for model in models), default=0)
        self._total, self._printed = len(models), 0
        self._done: dict[int, ModelResult] = {}
        if progress is not None:
            progress(f"0/{self._total}")

    def watch(self, number: int, model: ModelResult) -> None:
        """Take the result of the model at this position in the list."""
        self._done[number] = model
        if self._progress is not None:
            count_done = f"{len(self._done)}/{self._total}"
            self._progress(one_line(f"{count_done} {model.model}: {model.status}"))
        elif not (self._output.json or self._output.quiet):
            while (done := self._done.get(self._printed)) is not None:
                self._print(done)

    def finish(self, report: Report) -> None:
        """Print the rows that are missing: after a run that was interrupted, or all."""
        for model in report.models[self._printed :]:
            self._print(model)

    def _print(self, model: ModelResult) -> None:
        name = one_line(model.model)
        gap = " " * (self._width - cell_len(name))
        row = f"{name}{gap}  {_model_figures(model, verbose=self._output.verbose)}".rstrip()
        say(self._output.out, row, badge=badge(model.status, _STATUS_LETTERS))
        self._printed += 1


def _print_report(console: Console, report: Report, *, verbose: bool) -> None:
    for model in report.models:
        _print_details(console, report, model, verbose=verbose)
    if _is_one_command(report):
        command = one_line(report.command(*report.failed()))
        console.print(f"\nrun the failed models again with: {command}", soft_wrap=True)
    for note in report.notes:
        say(console, note)
    if scopes := [*_proof_scopes(report)]:
        console.print(count_proofs(scopes))
    _print_verdict(console, report)


def _proof_scopes(report: Report) -> Iterator[str | None]:
    """Yield for `count_proofs` what is proven of each operator that was converted, in each mode."""
    for mode in (mode for model in report.models for mode in model.modes):
        if mode["status"] in ("passed", "unverified"):
            without_proof = None if mode["status"] == "passed" else ""
            for operator in mode["verification"]["operators"]:
                if operator["reason"] != UNCHANGED:
                    yield operator["proven"] or without_proof


def _is_one_command(report: Report) -> bool:
    """Tell whether one command line names all models that failed, instead of one for each."""
    return 1 < len(report.failed()) <= _MAX_NAMED_MODELS


def _print_verdict(console: Console, report: Report) -> None:
    time = f" in {duration(report.seconds * 1e6)}" if report.models else ""
    say(console, f"{report.message}{time}", badge=badge(_run_word(report)))


def _run_word(report: Report) -> str:
    """Return the status of a run, or "unverified" if no model of it was verified."""
    statuses = {model.status for model in report.models}
    if report.status == "passed" and statuses and statuses <= {"unverified", "skipped"}:
        return "unverified" if "unverified" in statuses else "skipped"
    return report.status


def _model_figures(model: ModelResult, *, verbose: bool) -> str:
    if model.kind == "not-run":
        return ""
    sets = len({line["set"] for line in model.recorded})
    peak = model.peak_memory if verbose else None
    memory = "" if peak is None else f"{peak / 2**20:.0f} MB"
    recorded = f"{count(sets, 'set')} of recorded data" if sets else ""
    time = duration(model.seconds * 1e6)
    return ", ".join(
        filter(None, (count(len(model.operators), "operator"), recorded, memory, time))
    )


def _print_details(console: Console, report: Report, model: ModelResult, *, verbose: bool) -> None:
    shown = reports.describe(report, model, verbose=verbose)
    if not verbose and (model.status in ("skipped", "xfailed") or not model.problems()):
        return
    console.print()
    say(console, one_line(model.model), badge=badge(model.status))
    if verbose and (model.status != "passed" or not shown.checks):
        say(console, f"  {model.message}")
    remarks = [text for text, _ in shown.remarks]
    for line in first_lines(remarks, None if verbose else _MAX_SHOWN_PROBLEMS, MORE):
        say(console, f"  {one_line(line)}")
    print_sections(console, shown.checks)
    if verbose and shown.log:
        console.print("\n".join(f"  | {one_line(line)}" for line in shown.log.splitlines()))
    if model.status not in ("passed", "xfailed") and not _is_one_command(report):
        console.print(f"  run it again with: {one_line(shown.command)}", soft_wrap=True)
