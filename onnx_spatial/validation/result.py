"""What validation found out, as data that goes through JSON and back: entries, results, a report."""

from __future__ import annotations

import dataclasses
import glob
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from onnx_spatial.errors import one_line
from onnx_spatial.validation.options import Options

Status = Literal["passed", "failed", "xfailed", "unverified", "skipped"]
Level = Literal["error", "warning", "info"]
#: Why a model did not pass.
Kind = Literal[
    "difference",  # the conversion gives something else than the original
    "recorded-data",  # what a model gives is not what is recorded, or the data does not fit it
    "unreadable",  # no ONNX model, or data that is missing or damaged
    "conversion",  # an operator breaks its rules or cannot be converted
    "does-not-run",  # a model without spatial operators that onnxruntime does not run
    "unverified",  # something in it cannot be run here, or no legal sizes were found
    "crash",  # its process ended by a signal, or with another code than 0
    "timeout",  # it took longer than it may
    "memory",  # it took more memory than it may
    "lost",  # the worker that had it went away, again and again
    "not-run",  # another one had failed before (--fail-fast), or the run was interrupted
    "xpassed",  # --expect-failure: it does not fail
]
KINDS: tuple[Kind, ...] = get_args(Kind)

VERSION = 1


@dataclass(frozen=True)
class Entry:
    """One thing to say of a model.

    Attributes:
        level: "error" fails the model, "warning" leaves it unverified or wants a look, "info" is
            for the curious.
        source: what found it: "load", "inspect", "convert:MODE", "verify:MODE", "run", "recorded:SET",
            "record", "process", "expectation".
        message: one line.
        nodes: names of the nodes that it is about.
        kind: what sort of failure it is; None for infos.
    """

    level: Level
    source: str
    message: str
    nodes: tuple[str, ...] = ()
    kind: Kind | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", one_line(self.message))

    def to_dict(self) -> dict[str, Any]:
        """The attributes by name."""
        return {**dataclasses.asdict(self), "nodes": list(self.nodes)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Entry:
        """The way back."""
        return cls(**{**values, "nodes": tuple(values["nodes"])})


@dataclass
class ModelResult:
    """What became of one model.

    Attributes:
        model: its path, as it was found.
        status: "skipped" if it was not looked at, "xfailed" if it failed as it was expected to.
        message: the result in one line.
        kind: of what is wrong first; None if it passed.
        entries: all that there is to say.
        sites: its spatial operators, see `Site.to_dict`.
        modes: per mode: mode, changed, status, message, verification (`Verification.to_dict`).
        recorded: per set and mode: set, mode (None: the model as it is), optimised, output,
            passed, and figures.
        seconds: wall-clock time.
        peak_memory: of its process, bytes; None where that is not known.
        cached: whether the result is one of an earlier run on the same files.
        log: the end of what its process wrote, where it crashed.
    """

    model: str
    status: Status
    message: str
    kind: Kind | None = None
    entries: list[Entry] = field(default_factory=list)
    sites: list[dict[str, Any]] = field(default_factory=list)
    modes: list[dict[str, Any]] = field(default_factory=list)
    recorded: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    peak_memory: int | None = None
    cached: bool = False
    log: str | None = None

    @classmethod
    def without(
        cls, model: str, status: Status, kind: Kind, message: str, source: str = "process"
    ) -> ModelResult:
        """The result of a model that gave none itself."""
        level: Level = "error" if status == "failed" else "warning"
        entry = Entry(level, source, message, kind=kind)
        return cls(model, status, f"{status}: {entry.message}", kind, [entry])

    def to_dict(self) -> dict[str, Any]:
        """The attributes by name, ready for JSON."""
        return {**vars(self), "entries": [entry.to_dict() for entry in self.entries]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelResult:
        """The way back."""
        return cls(**{**values, "entries": [Entry.from_dict(e) for e in values["entries"]]})

    def fails(self, options: Options) -> bool:
        """Whether a run fails for it: with strict also when it is unverified."""
        return self.status == "failed" or (options.strict and self.status == "unverified")

    def expected_to_fail(self, options: Options) -> ModelResult:
        """The same where a failure is what was expected: "xfailed", or "failed" if it does not fail.

        A model that was not looked at is as it was.
        """
        if self.status == "skipped":
            return self
        if self.fails(options):
            message = f"failed as expected: {self.message.partition(': ')[2]}"
            return replace(self, status="xfailed", message=message)
        message = "it was expected to fail (--expect-failure), and does not"
        entry = Entry("error", "expectation", message, kind="xpassed")
        message = f"failed: {message}: {self.message}"
        entries = [entry, *self.entries]
        return replace(self, status="failed", message=message, kind="xpassed", entries=entries)

    def problems(self) -> list[Entry]:
        """What a person has to look at: errors, and behind them warnings."""
        return [e for level in ("error", "warning") for e in self.entries if e.level == level]


@dataclass
class Report:
    """What became of all models, in the order in which they were found.

    Attributes:
        models: one result for each.
        options: what they went through.
        seconds: wall-clock time of the run.
        tools: versions of what was used.
        notes: what is to say of the run as a whole.
        limits: options of the command line that bound the process of a model.
        started: when the run began.
        interrupted: whether it ended before its time; what has no result by then is "skipped".
    """

    models: list[ModelResult]
    options: Options
    seconds: float = 0.0
    tools: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    limits: dict[str, str] = field(default_factory=dict)
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    interrupted: bool = False

    def counts(self) -> dict[Status, int]:
        """Models by status."""
        found = [m.status for m in self.models]
        return {status: found.count(status) for status in get_args(Status)}

    def failed(self) -> Sequence[ModelResult]:
        """The models for which the run fails: with strict those that are unverified, too."""
        return [m for m in self.models if m.fails(self.options)]

    @property
    def passed(self) -> bool:
        """Whether all were looked at that had to be, and nothing failed."""
        return not self.interrupted and not self.failed()

    @property
    def status(self) -> Literal["passed", "failed", "interrupted"]:
        """What became of the run."""
        if self.interrupted:
            return "interrupted"
        return "passed" if self.passed else "failed"

    @property
    def exit_code(self) -> int:
        """0, 1 if something failed, or 130 if the run was interrupted."""
        return {"passed": 0, "failed": 1, "interrupted": 130}[self.status]

    @property
    def message(self) -> str:
        """The result in one line."""
        total, counts = len(self.models), self.counts()
        parts = [f"{n} {status}" for status, n in counts.items() if n]
        cached = sum(m.cached for m in self.models)
        text = f"{total} model{'' if total == 1 else 's'}: {', '.join(parts) or 'nothing to do'}"
        return f"{text} ({cached} from the cache)" if cached else text

    def reproduce(self, result: ModelResult) -> str:
        """The command that looks at one model again."""
        return self.command([result])

    def command(self, results: Sequence[ModelResult]) -> str:
        """The command that looks at some models again, with the bounds where they were met."""
        words = self.options.command([result.model for result in results])
        xpassed = [glob.escape(r.model) for r in results if r.kind == "xpassed"]
        words += "".join(f" --expect-failure {shlex.quote(pattern)}" for pattern in xpassed)
        met = {result.kind for result in results}.intersection(("timeout", "memory"))
        limits = self.limits.items() if met else ()
        return words + "".join(f" {option} {value}" for option, value in limits)

    def to_dict(self) -> dict[str, Any]:
        """The report as validation-report-1.schema.json has it."""
        counts = {str(status): n for status, n in self.counts().items()}
        return {
            "version": VERSION,
            "tool": {"name": "onnx-spatial", **self.tools},
            "status": self.status,
            "started": self.started.isoformat(timespec="seconds"),
            "message": self.message,
            "exit_code": self.exit_code,
            "options": self.options.to_dict(),
            "summary": {
                "models": len(self.models),
                **counts,
                "cached": sum(m.cached for m in self.models),
                "seconds": self.seconds,
            },
            "notes": list(self.notes),
            "models": [{**m.to_dict(), "reproduce": self.reproduce(m)} for m in self.models],
        }
