"""Hold the model that is examined, its converted forms, and what is found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnx_spatial.errors import Code
from onnx_spatial.model.io import reader
from onnx_spatial.report.results import Conversion, Inspection
from onnx_spatial.validation.data_sets import DataSet
from onnx_spatial.validation.options import Options
from onnx_spatial.validation.result import Entry, Kind, Level
from onnx_spatial.verification import Verification
from onnx_spatial.verification.process import Progress
from onnx_spatial.verification.run.data import GIVE_DATA
from onnx_spatial.verification.run.sessions import CONVERTED, ORIGINAL, Session

#: Number of problems of a verification that get an entry of their own.
_MAX_PROBLEM_ENTRIES = 20

#: Replaces `GIVE_DATA` in messages: `validate` takes data only from files beside the model.
_RECORD_DATA = "record data that it runs on as test_data_set_0/input_0.pb beside the model"


@dataclass
class ModelForm:
    """A form of the model to run: converted in one mode, or unconverted.

    Attributes:
        mode: mode of the conversion; None: unconverted.
        conversion: how it was made.
        verification: comparison with the original on generated data.
        message: result in place of the verification's message.
        matched: whether a recorded output agreed; one that does not is an error.
    """

    mode: str | None
    conversion: Conversion
    verification: Verification | None = None
    message: str | None = None
    matched: bool = False

    @property
    def changed(self) -> bool:
        """Whether it differs from the original."""
        return self.conversion.changed

    def session(self, *, optimise: bool) -> Session:
        """Open a session of the form.

        Raises:
            RunError: it does not load.
        """
        source = self.conversion.result
        data = source.data or reader.serialize(source.proto, source.name)
        of = CONVERTED if self.changed else ORIGINAL
        return Session(data, of=of, optimise=optimise, folder=source.folder)

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
        shapes: those of the options that apply to this model.
        note: takes the current step, a line of text.
        inspection: its spatial operators; None until it is converted.
        sets: its recorded data.
        forms: its forms.
        entries, recorded: see `ModelResult`.
    """

    path: Path
    options: Options
    source: reader.Source
    shapes: dict[str, tuple[int, ...]]
    note: Progress
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
        """Add an entry."""
        message = message.removeprefix(f"{self.path}: ").replace(GIVE_DATA, _RECORD_DATA)
        self.entries.append(Entry(level, source, message, nodes, kind, code))

    def level_of_unverified(self, form: ModelForm) -> Level:
        """Return the level of what could not be shown of a form."""
        return "error" if form.changed and self.options.strict_proof else "warning"

    def has_failed(self) -> bool:
        """Return whether there is an error."""
        return any(entry.level == "error" for entry in self.entries)

    def progress(self, source: str) -> Progress:
        """Return a function that notes the steps of a source of entries."""
        return lambda text: self.note(f"{source}: {text}")

    def add_differences(self, source: str, result: Verification) -> None:
        """Add an error for each problem of a verification; the first one names its node."""
        first = result.first_difference
        node = () if first is None else nodes_by_label(result).get(first.name, ())
        messages = result.problems[:_MAX_PROBLEM_ENTRIES]
        if len(result.problems) > _MAX_PROBLEM_ENTRIES:
            messages.append(f"and {len(result.problems) - _MAX_PROBLEM_ENTRIES} more problems")
        for number, message in enumerate(messages):
            self.add("error", source, message, "difference", () if number else node)


def nodes_by_label(result: Verification) -> dict[str, tuple[str, ...]]:
    """Return the node of each operator by its label in messages."""
    return {operator.label: (operator.node,) for operator in result.operators}
