"""Do the work of a command on every model of a command line, also after one that fails.

model   work -> result    show it, or its JSON document    exit code, and a section of --html
        error             one line, or its JSON document   exit code, and a section of --html
in the end    "3 written, 1 failed: NAME", the one JSON document, the highest exit code
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from onnx_spatial.cli.html import HtmlReport
from onnx_spatial.cli.output import Output, error_document
from onnx_spatial.cli.text import say
from onnx_spatial.errors import SpatialError

if TYPE_CHECKING:
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
