"""Define where the results of a command go: a file, a folder, the model itself, stdout, nowhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from onnx_spatial.cli import options


@dataclass(frozen=True)
class Destination:
    """Where the result goes.

    Raises:
        click.UsageError: the options contradict each other, or name no place.
    """

    path: str | None
    in_place: bool
    dry_run: bool

    def __post_init__(self) -> None:
        if not self.path and not self.dry_run and not self.in_place:
            raise click.UsageError(
                "missing output: use -o OUT, --in-place, or --dry-run to write nothing"
            )
        if self.in_place and self.path:
            raise click.UsageError("-o OUT and --in-place cannot be combined")

    @property
    def piped(self) -> bool:
        """Whether that is standard output."""
        return self.path == options.DASH

    @property
    def file(self) -> str | None:
        """The file of -o OUT; None if none is written by that name."""
        return None if self.dry_run or self.piped else self.path


@dataclass(frozen=True)
class Destinations:
    """Where the results of several models go, and in which form.

    Attributes:
        path, in_place, dry_run: as of `Destination`; with several models the path is a folder.
        check: write nothing, and fail if a model would change.
        external: write the weights to a file beside the model.

    Raises:
        click.UsageError: the options contradict each other, or name no place.
    """

    path: str | None
    in_place: bool
    dry_run: bool
    check: bool
    external: bool

    def __post_init__(self) -> None:
        if self.check and (self.path or self.in_place):
            raise click.UsageError("--check writes nothing: it takes no -o OUT and no --in-place")
        if self.external and (self.in_place or self.path == options.DASH):
            raise click.UsageError("--save-as-external-data requires -o OUT, a file or a folder")
        self._destination(self.path)

    def _destination(self, path: str | None) -> Destination:
        return Destination(path, self.in_place, self.dry_run or self.check)

    def of(self, models: Sequence[str]) -> list[Destination]:
        """Return the destination of each model; the folder for several is made if there is none.

        Raises:
            click.UsageError: several models would have one destination.
        """
        path = self.path
        if path is None or path == options.DASH:
            if path is not None and len(models) > 1:
                raise click.UsageError("-o - takes one model")
            return [self._destination(path) for _ in models]
        if len(models) == 1 and not _is_folder(path):
            return [self._destination(path)]
        if Path(path).exists() and not Path(path).is_dir():
            raise click.UsageError(f"several models need a folder, and -o {path} is a file")
        names = [Path(model).name for model in models]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise click.UsageError(
                f"several models are called {twice[0]}, and -o {path} can hold one: convert them one "
                "by one"
            )
        if options.DASH in names:
            raise click.UsageError(f"a model from standard input has no name for the folder {path}")
        if not self.dry_run:
            try:
                Path(path).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                reason = f"the folder cannot be made: {error.strerror or error}"
                raise click.UsageError(f"-o {path}: {reason}") from None
        return [self._destination(str(Path(path) / name)) for name in names]


def _is_folder(path: str) -> bool:
    return path.endswith(("/", os.sep)) or Path(path).is_dir()


#: -o, --in-place, --dry-run, --check, --save-as-external-data: the argument `destinations`.
destination_options = options.grouped(
    "destinations",
    click.option(
        "-o",
        "--output",
        "path",
        type=click.Path(),
        metavar="OUT",
        help="Write to OUT. For several models, OUT is a folder.",
    ),
    click.option("--in-place", is_flag=True, help="Replace MODEL by the result."),
    click.option("--dry-run", is_flag=True, help="Convert and verify, but write nothing."),
    click.option(
        "--check",
        is_flag=True,
        help="Write and verify nothing; exit with code 1 if a MODEL would change.",
    ),
    click.option(
        "--save-as-external-data",
        "external",
        is_flag=True,
        help="Write weights of 1 KiB and more to a file OUT.data.",
    ),
    make=Destinations,
)
