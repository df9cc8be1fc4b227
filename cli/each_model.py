"""Process every model of a command line, also after one that fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from onnx_spatial.cli.output import Output, error_document
from onnx_spatial.cli.text import say
from onnx_spatial.errors import SpatialError

#: Called with lines of progress; None where there is no terminal.
Progress = Callable[[str], None] | None


class Documented(Protocol):
    """A result about one model that can be printed as JSON."""

    def to_dict(self) -> dict[str, object]:
        """Return the JSON document."""


D = TypeVar("D", bound=Documented)


def each_model(
    output: Output,
    models: Sequence[str],
    process: Callable[[str, Progress], D],
    show: Callable[[str, D], None],
    code_of: Callable[[D], int] = lambda _: 0,
    explain: Callable[[SpatialError], None] = lambda _: None,
    outcome_of: Callable[[D], str] = lambda _: "done",
) -> int:
    """Process every model, also after one that fails, and return the highest exit code.

    For several models the last line counts them: "3 written, 1 failed: NAME".

    Args:
        output: of the run; with --json it gets one document in the end.
        models: paths.
        process: processes one of them; its second argument is called with lines of progress.
        show: prints the result for a model, for a person.
        code_of: the exit code of a result.
        explain: prints more about an error than its message.
        outcome_of: what became of the model of a result, in a word or two for the last line.

    Raises:
        SpatialError: the only model fails.
    """
    code = 0
    documents: list[dict[str, object]] = []
    outcomes: Counter[str] = Counter()
    failed: list[str] = []
    for model in models:
        try:
            with output.progress() as progress:
                result = process(model, progress)
        except SpatialError as error:
            explain(error)
            if len(models) == 1:
                raise
            say(output.err, f"error: {error}")
            document = error_document(str(error), error.exit_code, error.code)
            documents.append({"model": model, **document})
            code = max(code, error.exit_code)
            failed.append(model)
            continue
        if output.json:
            documents.append(result.to_dict())
        code = max(code, code_of(result))
        outcomes[outcome_of(result)] += 1
        if not output.json and not output.quiet:
            show(model, result)
    if len(models) > 1 and not output.json and not output.quiet:
        counts = [f"{count} {outcome}" for outcome, count in outcomes.items()]
        counts += [f"{len(failed)} failed: {', '.join(failed)}"] if failed else []
        say(output.out, ", ".join(counts))
    if output.json:
        one = len(models) == 1
        output.document(documents[0] if one else {"version": 2, "models": documents})
    return code
