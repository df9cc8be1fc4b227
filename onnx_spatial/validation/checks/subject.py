"""One model on its way through the checks: what is known of it, what it became, what was found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnx_spatial.api import Inspection
from onnx_spatial.model.io import reader
from onnx_spatial.validation.data_sets import DataSet
from onnx_spatial.validation.options import Options
from onnx_spatial.validation.result import Entry, Kind, Level
from onnx_spatial.verification import Verification
from onnx_spatial.verification.sizes.reference_runs import GIVE_DATA

#: Is called with what is being done now: the source of entries, and a line of text.
Stage = Callable[[str, str], None]

_OUT_OF_MEMORY = re.compile(
    r"(Failed to|Cannot) allocate memory|Arena alloc failed|bad_alloc|more memory than there is"
    r"|can't start new thread"
)

#: Instead of `GIVE_DATA`: here data is what is recorded beside the model.
_RECORD_DATA = "record data that it runs on, as test_data_set_0/input_0.pb beside it"


@dataclass
class ModelForm:
    """The model in one form that is run.

    Attributes:
        mode: that it was converted in; None for the model as it came.
        source: to run.
        changed: whether it differs from the model as it came.
        verification: original against this form, on made-up data.
        message: what is said of it, where that is not the verification's.
        matched: whether some recorded output agreed; one that does not is an error.
    """

    mode: str | None
    source: reader.Source
    changed: bool
    verification: Verification | None = None
    message: str | None = None
    matched: bool = False

    @property
    def name(self) -> str:
        """The form in sources of entries."""
        return self.mode or "as it is"


@dataclass
class ExaminedModel:
    """A model, and what the checks say of it.

    Attributes:
        path: its file.
        options: what it goes through.
        source: the model as it was read, with dims fixed as the options say.
        static, shapes: those of the options that this model has.
        stage: see `Stage`.
        reproduce_to: folder for what shows a difference; None for none.
        inspection: its spatial operators; None until it was converted.
        sets: its recorded data.
        forms: what it became.
        entries, recorded: see `ModelResult`.
    """

    path: Path
    options: Options
    source: reader.Source
    static: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    stage: Stage
    reproduce_to: Path | None = None
    inspection: Inspection | None = None
    sets: list[DataSet] = field(default_factory=list)
    forms: list[ModelForm] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    recorded: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        level: Level,
        source: str,
        message: str,
        kind: Kind | None = None,
        nodes: tuple[str, ...] = (),
    ) -> None:
        """Note something; where memory ran out, that is what is wrong, whatever came of it."""
        message = message.removeprefix(f"{self.path}: ").replace(GIVE_DATA, _RECORD_DATA)
        if kind is not None and _OUT_OF_MEMORY.search(message):
            message = message.removesuffix(f"; {_RECORD_DATA}")
            level, kind, message = "error", "memory", f"it ran out of memory: {message}"
        self.entries.append(Entry(level, source, message, nodes, kind))

    def has_failed(self) -> bool:
        """Whether something is wrong with it."""
        return any(entry.level == "error" for entry in self.entries)
