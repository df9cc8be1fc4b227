"""Write overlays for Google's Model Explorer to a folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnx_spatial.cli.options import DASH
from onnx_spatial.report.report_file import write

if TYPE_CHECKING:
    from onnx_spatial.report.results import Conversion

model_explorer_option = click.option(
    "--model-explorer",
    type=click.Path(),
    metavar="DIR",
    help="Write node data for Google's Model Explorer to DIR: changes, strategies, prices, proofs.",
)


def check_folder(folder: str | None, models: Sequence[str]) -> None:
    """Check that overlays of these models can be written to a folder.

    Raises:
        click.UsageError: it is a file, or two models would have the same overlays.
    """
    if folder is None:
        return
    path = Path(folder)
    if any(each.exists() and not each.is_dir() for each in (path, *path.parents)):
        raise click.UsageError(f"--model-explorer {folder}: it is not a folder")
    names = [_stem(model) for model in models]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise click.UsageError(
            f"--model-explorer {folder}: several models are called {twice[0]}; convert them apart"
        )


def write_overlays(folder: str | None, model: str, conversion: Conversion) -> None:
    """Write the overlays of a conversion as MODEL.SIDE.KIND.json, if there is a folder.

    Raises:
        OSError: the folder cannot be made.
        ModelFileError: a file cannot be written.
    """
    if folder is None:
        return
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    for name, overlay in conversion.model_explorer().items():
        content = json.dumps(overlay, indent=1).encode()
        write(path / f"{_stem(model)}.{name}.json", content)


def _stem(model: str) -> str:
    return "model" if model == DASH else Path(model).stem
