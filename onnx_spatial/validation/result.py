"""Define the options of a validation run and its results as data: entries, models, the report.

Report  models -> ModelResult  entries -> Entry     the worst entry decides the status of a model
        options                                     the command line that repeats the run
"""

from __future__ import annotations

import glob
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from onnx_spatial.conversion.options import MODES, ConvertOptions, Mode
from onnx_spatial.documents import Document
from onnx_spatial.errors import Code, UsageError, one_line

if TYPE_CHECKING:
    from onnx_spatial.report.outcome import Outcome


@dataclass(frozen=True)
class Options:
    """Options that determine the result of a model.

    Attributes:
        modes: modes to convert each model in.
        optimize: whether chains of standard nodes are rewritten too, see `onnx_spatial.optimize`.
        fuse, checked, max_rank, prefer, domains: see `onnx_spatial.convert`.
        static: sizes of symbolic dims; ignored for models without a dim of that name.
        shapes: shapes of inputs to verify with; ignored for models without an input of that name.
        seed: seed of generated data.
        strict: whether a model that could not be verified counts as failed.
        strict_proof: whether a model fails if one of its operators is not proven.

    Raises:
        UsageError: a mode or lowering does not exist, or a number is out of range.
    """

    modes: tuple[Mode, ...] = ("lower",)
    optimize: bool = False
    fuse: bool = True
    checked: bool = False
    max_rank: int | None = None
    prefer: str | None = None
    domains: tuple[str, ...] = ()
    static: tuple[tuple[str, int], ...] = ()
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    seed: int = 0
    strict: bool = False
    strict_proof: bool = False

    def __post_init__(self) -> None:
        if not self.modes or not set(self.modes) <= set(MODES):
            raise UsageError(f"modes must be one or more of {', '.join(MODES)}, not {self.modes}")
        ConvertOptions(prefer=self.prefer)  # raises an error if there is no such lowering
        if self.seed < 0:
            raise UsageError(f"seed must be 0 or more, not {self.seed}")

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes by name, ready for JSON."""
        return {**asdict(self), "static": dict(self.static), "shapes": dict(self.shapes)}

    def command(self, paths: Sequence[str]) -> str:
        """Return the command line that validates models with these options."""
        words = ["onnx-spatial", "validate"]
        words += [p if not p.startswith("-") else f"./{p}" for p in paths]
        words += ["--seed", str(self.seed)]
        if self.modes != ("lower",):
            words += [w for mode in self.modes for w in ("--mode", mode)]
        words += ["--optimize"] if self.optimize else []
        words += [] if self.fuse else ["--no-fuse"]
        words += ["--checked"] if self.checked else []
        words += [] if self.max_rank is None else ["--max-rank", str(self.max_rank)]
        words += [] if self.prefer is None else ["--prefer", self.prefer]
        words += [w for name in self.domains for w in ("--domain", name)]
        words += [w for name, dim in self.static for w in ("--static", f"{name}={dim}")]
        for name, shape in self.shapes:
            words += ["--shape", f"{name}={','.join(map(str, shape))}"]
        words += ["--strict"] if self.strict else []
        words += ["--strict-proof"] if self.strict_proof else []
        return shlex.join(words)


Status = Literal["passed", "failed", "xfailed", "unverified", "skipped"]
Level = Literal["error", "warning", "info"]
#: Why a model did not pass.
Kind = Literal[
    "difference",
    "recorded-data",
    "unreadable",
    "conversion",
    "does-not-run",
    "unverified",
    "crash",
    "timeout",
    "memory",
    "lost",
    "not-run",
    "xpassed",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

#: Code of each kind, for messages that have no narrower one.
CODES: dict[Kind, Code] = {
    "difference": Code.DIFFERENT,
    "recorded-data": Code.RECORDED_DATA,
    "unreadable": Code.UNREADABLE,
    "conversion": Code.NOT_CONVERTED,
    "does-not-run": Code.DOES_NOT_RUN,
    "unverified": Code.UNVERIFIED,
    "crash": Code.CRASH,
    "timeout": Code.TIMEOUT,
    "memory": Code.MEMORY_LIMIT,
    "lost": Code.WORKER_LOST,
    "not-run": Code.NOT_VALIDATED,
    "xpassed": Code.PASSED_UNEXPECTEDLY,
}

#: Version of the JSON document.
VERSION = 2


@dataclass(frozen=True)
class Entry(Document):
    """A remark on a model.

    Attributes:
        level: "error": the model fails; "warning": it is unverified, or should be looked at.
        source: the step: "load", "inspect", "convert:MODE", "verify:MODE", "run", "recorded:SET",
            "process", "expectation".
        message: one line.
        nodes: names of the nodes concerned.
        kind: kind of failure; None for infos.
        code: its code; that of the kind if there is no narrower one.
    """

    level: Level
    source: str
    message: str
    nodes: tuple[str, ...] = ()
    kind: Kind | None = None
    code: Code | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", one_line(self.message))
        code = CODES.get(self.kind) if self.code is None and self.kind is not None else self.code
        object.__setattr__(self, "code", None if code is None else Code(code))

    @property
    def line(self) -> str:
        """The step, the message and the code in one line."""
        return f"{self.source}: {self.message}" + ("" if self.code is None else f" [{self.code}]")


@dataclass
class ModelResult(Document):
    """Result of validating one model.

    Attributes:
        model: path.
        status: "skipped": not validated; "xfailed": failed as expected.
        message: the result in one line.
        kind: kind of the first failure; None if the model passed.
        entries: errors, warnings and infos.
        operators: its spatial operators (`OperatorReport.to_dict`).
        modes: for each mode: mode, changed, status, message, verification (`Verification.to_dict`).
        recorded: for each set, mode (None: unconverted), optimisation and output: passed, and errors.
        page: what a page shows of it; None if none was asked for. The JSON report leaves it out.
        seconds: wall-clock time.
        peak_memory: of its process, in bytes; None if unknown.
        log: the end of the output of its process, if that crashed.
    """

    KEYS = "model status message kind entries operators modes recorded seconds peak_memory log"

    model: str
    status: Status
    message: str
    kind: Kind | None = None
    entries: list[Entry] = field(default_factory=list)
    operators: list[dict[str, Any]] = field(default_factory=list)
    modes: list[dict[str, Any]] = field(default_factory=list)
    recorded: list[dict[str, Any]] = field(default_factory=list)
    page: Outcome | None = None
    seconds: float = 0.0
    peak_memory: int | None = None
    log: str | None = None

    @classmethod
    def without(
        cls,
        model: str,
        status: Status,
        kind: Kind,
        message: str,
        source: str = "process",
        code: Code | None = None,
    ) -> ModelResult:
        """Return the result of a model with one entry and nothing else."""
        level: Level = "error" if status == "failed" else "warning"
        entry = Entry(level, source, message, kind=kind, code=code)
        return cls(model, status, f"{status}: {entry.message}", kind, [entry])

    @property
    def code(self) -> Code | None:
        """Code of the first failure."""
        return next((e.code for e in self.problems() if e.kind == self.kind), None)

    def fails(self, options: Options) -> bool:
        """Return whether the run fails because of this model; with strict also if it is unverified."""
        return self.status == "failed" or (options.strict and self.status == "unverified")

    def expected_to_fail(self, options: Options) -> ModelResult:
        """Return the result of a model that is expected to fail: "xfailed" if it does, else "failed"."""
        if self.status == "skipped":
            return self
        if self.fails(options):
            message = f"failed as expected: {self.message.partition(': ')[2]}"
            return replace(self, status="xfailed", message=message)
        message = "expected to fail (--expect-failure), but it does not"
        entry = Entry("error", "expectation", message, kind="xpassed")
        message = f"failed: {message}: {self.message}"
        entries = [entry, *self.entries]
        return replace(self, status="failed", message=message, kind="xpassed", entries=entries)

    def problems(self) -> list[Entry]:
        """Return the errors, then the warnings."""
        return [e for level in ("error", "warning") for e in self.entries if e.level == level]


@dataclass
class Report:
    """Report of a run.

    Attributes:
        models: the result of each model, in the order of the list.
        options: the options of the run.
        seconds: wall-clock time.
        tools: versions of this package and its dependencies.
        notes: remarks on the run as a whole.
        limits: command-line options that limit the process of a model.
        started: start of the run.
        interrupted: whether the run was interrupted; models without a result are then "skipped".
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
        """Count the models by status."""
        statuses = [m.status for m in self.models]
        return {status: statuses.count(status) for status in get_args(Status)}

    def failed(self) -> Sequence[ModelResult]:
        """Return the models that fail the run; with strict the unverified ones as well."""
        return [m for m in self.models if m.fails(self.options)]

    @property
    def passed(self) -> bool:
        """Whether the run was not interrupted and no model failed."""
        return not self.interrupted and not self.failed()

    @property
    def status(self) -> Literal["passed", "failed", "interrupted"]:
        """Status of the run."""
        if self.interrupted:
            return "interrupted"
        return "passed" if self.passed else "failed"

    @property
    def exit_code(self) -> int:
        """0, 1 if something failed, or 130 if the run was interrupted."""
        return {"passed": 0, "failed": 1, "interrupted": 130}[self.status]

    @property
    def message(self) -> str:
        """Result in one line."""
        total, counts = len(self.models), self.counts()
        parts = [f"{n} {status}" for status, n in counts.items() if n]
        if len(parts) == 1 and total > 1:
            parts = [parts[0].replace(str(total), "all")]
        return f"{total} model{'' if total == 1 else 's'}: {', '.join(parts) or 'nothing to do'}"

    def command(self, *results: ModelResult) -> str:
        """Return the command that validates models again, with the limits if one ran into them."""
        words = self.options.command([result.model for result in results])
        xpassed = [glob.escape(r.model) for r in results if r.kind == "xpassed"]
        words += "".join(f" --expect-failure {shlex.quote(pattern)}" for pattern in xpassed)
        limited = any(result.kind in ("timeout", "memory") for result in results)
        limits = self.limits.items() if limited else ()
        return words + "".join(f" {option} {value}" for option, value in limits)

    def to_dict(self) -> dict[str, Any]:
        """Return the report, ready for JSON."""
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
                "seconds": self.seconds,
            },
            "notes": list(self.notes),
            "models": [m.to_dict() | {"reproduce": self.command(m)} for m in self.models],
        }
