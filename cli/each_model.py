"""Do the work of a command on every model of a command line, also after one that fails.

model   work -> result    show it, or its JSON document    exit code, and a section of --html
        error             one line, or its JSON document   exit code, and a section of --html
in the end    "3 written, 1 failed: NAME", the one JSON document, the highest exit code
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from onnx_spatial.cli.html import HtmlReport, Result
from onnx_spatial.cli.output import Output, error_document
from onnx_spatial.cli.text import say
from onnx_spatial.errors import SpatialError

#: Called with lines of progress; None where there is no terminal.
Progress = Callable[[str], None] | None
R = TypeVar("R", bound=Result)


class Task(Generic[R]):
    """What a command does with each of its models."""

    def work(self, model: str, progress: Progress) -> R:
        """Return the result for a model; `progress` is called with lines of progress.

        Raises:
            SpatialError: the model fails.
        """
        raise NotImplementedError

    def show(self, model: str, result: R) -> None:
        """Print a result for a person."""
        raise NotImplementedError

    def explain(self, error: SpatialError) -> None:
        """Print more about an error than its message."""

    def exit_code(self, result: R) -> int:
        """Return the exit code of a result."""
        return 0

    def outcome(self, result: R) -> str:
        """Say in a word or two what became of a model, for the last line."""
        return "done"


def each_model(output: Output, models: Sequence[str], task: Task[R], report: HtmlReport) -> int:
    """Do the work on every model, also after one that fails, and return the highest exit code.

    Args:
        output: of the run; with --json it gets one document in the end.
        models: paths.
        task: what is done with each.
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
                result = task.work(model, progress)
        except SpatialError as error:
            report.add_error(model, error)
            task.explain(error)
            if one:
                raise
            say(output.err, f"error: {error}")
            document = error_document(str(error), error.exit_code, error.code)
            documents.append({"model": model, **document})
            code = max(code, error.exit_code)
            failed.append(model)
            continue
        report.add(result.section, model)
        code = max(code, task.exit_code(result))
        outcomes[task.outcome(result)] += 1
        if output.json:
            documents.append(result.to_dict())
        elif not output.quiet:
            task.show(model, result)
    if output.json:
        output.document(documents[0] if one else {"version": 2, "models": documents})
    elif not (one or output.quiet):
        counts = [f"{count} {outcome}" for outcome, count in outcomes.items()]
        counts += [f"{len(failed)} failed: {', '.join(failed)}"] if failed else []
        say(output.out, ", ".join(counts))
    return code
