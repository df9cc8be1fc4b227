"""Hold the model that the checks examine, its converted forms, and what the checks report."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnx_spatial.errors import Code
from onnx_spatial.model.io import reader
from onnx_spatial.report.results import Conversion, Inspection
from onnx_spatial.validation.data_sets import DataSet
from onnx_spatial.validation.options import Options
from onnx_spatial.validation.result import Entry, Kind, Level
from onnx_spatial.verification import Tolerances, Verification
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.sizes.reference_runs import GIVE_DATA

#: Called with the current step: the source of its entries, and a line of text.
Stage = Callable[[str, str], None]

_OUT_OF_MEMORY = re.compile(
    r"(Failed to|Cannot) allocate memory|Arena alloc failed|bad_alloc|[Nn]ot enough memory"
    r"|can't start new thread"
)

#: Replaces `GIVE_DATA` in messages: `validate` takes data only from files beside the model.
_RECORD_DATA = "record data that it runs on as test_data_set_0/input_0.pb beside the model"


@dataclass
class ModelForm:
    """A form of the model to run: converted in one mode, or unconverted.

    Attributes:
        mode: mode of the conversion; None: unconverted.
        source: the model in this form.
        conversion: how it was made.
        verification: comparison with the original on generated data.
        message: result in place of the verification's message.
        matched: whether a recorded output agreed; one that does not is an error.
    """

    mode: str | None
    source: reader.Source
    conversion: Conversion
    verification: Verification | None = None
    message: str | None = None
    matched: bool = False

    @property
    def changed(self) -> bool:
        """Whether it differs from the original."""
        return self.conversion.changed

    @property
    def name(self) -> str:
        """Name of the form in sources of entries."""
        return self.mode or "as it is"


@dataclass
class ExaminedModel:
    """A model that is validated, and the findings of the checks.

    Attributes:
        path: path of its file.
        options: options of the run.
        source: the model, with symbolic dims fixed as the options say.
        inputs: data of the options to verify with; None: it is generated.
        static, shapes, tolerances: those of the options that apply to this model.
        stage: see `Stage`.
        reproduce_to: folder for reproducers of differences; None: none are saved.
        inspection: its spatial operators; None until it is converted.
        sets: its recorded data.
        forms: its forms.
        entries, recorded: see `ModelResult`.
    """

    path: Path
    options: Options
    source: reader.Source
    static: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    tolerances: Tolerances
    stage: Stage
    inputs: dict[str, Array] | None = None
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
        code: Code | None = None,
    ) -> None:
        """Add an entry; its kind becomes "memory" if the message says that memory ran out."""
        message = message.removeprefix(f"{self.path}: ").replace(GIVE_DATA, _RECORD_DATA)
        if kind is not None and _OUT_OF_MEMORY.search(message):
            message = message.removesuffix(f"; {_RECORD_DATA}")
            level, kind, message = "error", "memory", f"it ran out of memory: {message}"
            code = Code.MEMORY_LIMIT
        self.entries.append(Entry(level, source, message, nodes, kind, code))

    def has_failed(self) -> bool:
        """Return whether there is an error."""
        return any(entry.level == "error" for entry in self.entries)
