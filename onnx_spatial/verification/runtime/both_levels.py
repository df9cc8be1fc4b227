"""Run parts of the converted model with onnxruntime's optimisations and without them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import onnx

from onnx_spatial.verification.runtime.sessions import CONVERTED, RunFailure, Session


def load_part(model: bytes, optimise: bool, folder: Path | None) -> Session:
    """Load a part of the converted model.

    Raises:
        RunFailure: it does not load.
    """
    return Session(model, optimise=optimise, folder=folder, threads=1, of=CONVERTED)


class BothLevels:
    """One output of a model, without onnxruntime's optimisations and with all of them."""

    def __init__(self, model: onnx.ModelProto, output: str, folder: Path | None) -> None:
        self._output, self._folder = output, folder
        self._session = cache(lambda level: load_part(model.SerializeToString(), level, folder))

    def run(self, feeds: Mapping[str, Any]) -> Iterator[tuple[bool, Any, RunFailure | None]]:
        """Yield for each level whether it optimises, and the output, or in words why there is none.

        Data that the model does not read is left out.
        """
        for optimised in (False, True):
            failure = None
            try:
                output = self._run(feeds, optimised)
            except RunFailure as error:
                output, failure = f"it does not {error.stage}: {error}", error
            yield optimised, output, failure

    def _run(self, feeds: Mapping[str, Any], optimised: bool) -> Any:
        session = self._session(optimised)
        names = {*session.inputs, *session.overridable}
        return session.run({n: a for n, a in feeds.items() if n in names})[self._output]

    def close(self) -> None:
        """Release the sessions."""
        self._session.cache_clear()
