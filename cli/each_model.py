"""Do the work of a command on every model of a command line, also after one that fails.

model   work -> result    show it, or its JSON document    exit code, and a section of --html
        error             one line, or its JSON document   exit code, and a section of --html
in the end    "3 written, 1 failed: NAME", the one JSON document, the highest exit code
"""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onnx_spatial.cli.output import Output, error_document, say
from onnx_spatial.errors import SpatialError

if TYPE_CHECKING:
    from onnx_spatial.report.outcome import Outcome
    from onnx_spatial.report.results import Conversion, Inspection


#: Called with lines of progress; None where there is no terminal.
Progress = Callable[[str], None] | None
R = TypeVar("R", "Inspection", "Conversion")


def each_model(
    output: Output,
    models: Sequence[str],
    work: Callable[[str, Progress], R],
    show: Callable[[str, R], None],
    conclude: Callable[[R], tuple[str, int]],
    report: HtmlReport,
) -> int:
    """Do the work on every model, also after one that fails, and return the highest exit code.

    Args:
        output: of the run; with --json it gets one document in the end.
        models: paths.
        work: returns the result for a model, or raises a SpatialError; the function that it gets is
            called with lines of progress.
        show: prints a result for a person.
        conclude: says in a word or two what became of a model, and the exit code.
        report: gets a section for each.

    Raises:
        SpatialError: the only model fails.
    """
    code = 0
    documents: list[dict[str, object]] = []
    outcomes: Counter[str] = Counter()
    failed: list[str] = []
    one = len(models) == 1
    for model in models:
        try:
            with output.progress() as progress:
                result = work(model, progress)
        except SpatialError as error:
            report.add_error(model, error)
            output.explain(error)
            if one:
                raise
            say(output.err, f"error: {output.short(str(error), error)}")
            document = error_document(str(error), error.exit_code, error.code)
            documents.append({"model": model, **document})
            code = max(code, error.exit_code)
            failed.append(model)
            continue
        report.add(result, model)
        outcome, exit_code = conclude(result)
        code = max(code, exit_code)
        outcomes[outcome] += 1
        if output.json:
            documents.append(result.to_dict())
        elif not output.quiet:
            show(model, result)
    if output.json:
        output.document(documents[0] if one else {"version": 2, "models": documents})
    elif not output.quiet:
        done = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        lines = [f"took {output.time}" if one else f"{done} in {output.time}"] if done else []
        lines += [f"{len(failed)} failed: {', '.join(failed)}"] if failed else []
        say(output.out, ", ".join(lines), style="dim" if one else "")
    return code


# Where results go


@dataclass(frozen=True)
class Destinations:
    """Where the results of the models of a command line go, and in which form.

    Attributes:
        path: file or folder of -o OUT.
        in_place: replace each model.
        dry_run: write nothing.
        check: write nothing, and fail if a model would change.
        external: write the weights to a file beside the model.

    Raises:
        click.UsageError: the options contradict each other, or name no place.
    """

    path: str | None
    in_place: bool
    dry_run: bool
    check: bool
    external: bool

    def __post_init__(self) -> None:
        if self.check and (self.path or self.in_place):
            raise click.UsageError("--check writes nothing: it takes no -o OUT and no --in-place")
        if self.external and self.in_place:
            raise click.UsageError("--save-as-external-data requires -o OUT, a file or a folder")
        if not (self.path or self.in_place or self.dry_run or self.check):
            raise click.UsageError(
                "missing output: use -o OUT, --in-place, or --dry-run to write nothing"
            )
        if self.in_place and self.path:
            raise click.UsageError("-o OUT and --in-place cannot be combined")

    def of(self, models: Sequence[str]) -> dict[str, str | None]:
        """Return the file of -o OUT for each model, None if there is none; make missing folders.

        Raises:
            click.UsageError: it is open whether the path is a file or a folder, or a model has no
                place of its own in the folder.
        """
        path = self.path
        if path is None:
            return dict.fromkeys(models)
        if not _is_folder(path, len(models)):
            return {models[0]: None if self.dry_run else path}
        targets = [Path(path) / place for place in _places_in_folder(models, path)]
        sources = {_absolute_path(model) for model in models}
        if overwritten := [target for target in targets if _absolute_path(target) in sources]:
            raise click.UsageError(
                f"-o {path}: {overwritten[0]} is a model of this call, and the output must not be "
                "the input"
            )
        if self.dry_run:
            return dict.fromkeys(models)
        _make_folders(path, targets)
        return dict(zip(models, map(str, targets), strict=True))


def _is_folder(path: str, models: int) -> bool:
    """Return whether -o PATH means a folder, for this number of models.

    A folder is what exists as one or ends in a slash; for several models also a path that does not
    exist and is not called .onnx. One model goes to a file that exists or has a suffix.

    Raises:
        click.UsageError: the path is a file, and there are several models; or it could be either.
    """
    # os.path, because Path raises for names that are too long.
    if path.endswith(("/", os.sep)) or os.path.isdir(path):  # noqa: PTH112
        return True
    exists, suffix = os.path.exists(path), Path(path).suffix  # noqa: PTH110
    if models > 1:
        if exists:
            raise click.UsageError(f"several models need a folder, and -o {path} is a file")
        if suffix == ".onnx":
            raise click.UsageError(
                f"several models need a folder: write -o {path}/ if that is its name"
            )
        return True
    if not exists and not suffix:
        raise click.UsageError(
            f"-o {path} could be a file or a folder: write {path}.onnx for a file, {path}/ for a folder"
        )
    return False


def _places_in_folder(models: Sequence[str], path: str) -> list[Path]:
    """Return where models go within the folder -o PATH: as they lie in the folder that holds all.

    Raises:
        click.UsageError: a model has no name, is given twice, or lies on another drive.
    """
    sources = [_absolute_path(model) for model in models]
    if twice := [model for model, s in zip(models, sources, strict=True) if sources.count(s) > 1]:
        raise click.UsageError(f"the model {twice[0]} is given twice")
    try:
        root = os.path.commonpath([source.parent for source in sources])
    except ValueError:
        raise click.UsageError("models on several drives have no folder in common") from None
    return [source.relative_to(root) for source in sources]


def _absolute_path(path: str | Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  without "..", but with links


def _make_folders(path: str, targets: Sequence[Path]) -> None:
    """Make the folders of these files, which lie in the folder -o PATH.

    Raises:
        click.UsageError: one cannot be made.
    """
    try:
        for target in targets:
            target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"the folder cannot be made: {error.strerror or error}"
        raise click.UsageError(f"-o {path}: {reason}") from None


# The HTML report


class HtmlReport:
    """The HTML report of a command, a context that writes it, also if a model fails.

    Args:
        command: name of the command, in the title.
        path: file of the report; None: nothing is collected.
        output: of the run.
        others: files that the command reads or writes, if they are known.

    Raises:
        UsageError: jinja2 is missing.
        ModelFileError: the report cannot be written.
        click.UsageError: it would replace one of the other files.
    """

    def __init__(
        self, command: str, path: str | None, output: Output, others: Iterable[str | None]
    ) -> None:
        self._command, self._output = command, output
        self.path = None if path is None else Path(path)
        self.outcomes: list[Outcome] = []
        if self.path is None:
            return
        from onnx_spatial.report.page import check_file, require

        require("jinja2")
        for other in filter(None, others):
            if _is_same(self.path, Path(other)):
                raise click.UsageError(f"--html {path} would replace the model {other}")
        check_file(self.path)

    def add(self, result: Inspection | Conversion, model: str, error: str = "") -> None:
        """Add what became of a model."""
        if self.path is not None:
            self.outcomes.append(result.describe(model, error=error))

    def add_error(self, model: str, error: SpatialError) -> None:
        """Add a model that failed, with all that is known of it."""
        known: Any = getattr(error, "conversion", None) or getattr(error, "inspection", None)
        if known is not None:
            self.add(known, model, str(error))
        elif self.path is not None:
            from onnx_spatial.report.outcome import Outcome

            self.outcomes.append(Outcome(model, "failed", str(error)))

    def __enter__(self) -> HtmlReport:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self.path is None or not (error is None or isinstance(error, SpatialError)):
            return
        from onnx_spatial.report.page import render, run_facts, versions, write

        line = shlex.join(["onnx-spatial", *sys.argv[1:]])
        facts = run_facts(line, datetime.now(UTC), versions())
        write(self.path, render(self._command, self.outcomes, facts=facts).encode())
        if not self._output.quiet:
            say(self._output.err, f"report: {self.path}")


def _is_same(path: Path, other: Path) -> bool:
    if path.exists() and other.exists():
        return path.samefile(other)
    return path.absolute().resolve() == other.absolute().resolve()
