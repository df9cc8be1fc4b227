"""Render the HTML report, one file that needs no network, and write it in one step.

The tables are plain HTML, made of jinja2 templates. The graphs are drawn by the script in the page, with
the layout of dagre, a few hundred nodes at a time.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_spatial
from onnx_spatial.errors import Code, ModelFileError, UsageError
from onnx_spatial.model.io.atomic import atomic_write
from onnx_spatial.report.outcome import LEVELS, NUMBERS, Outcome

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

_TEMPLATES = Path(__file__).with_name("templates")


def render(
    title: str,
    outcomes: Sequence[Outcome],
    notes: Sequence[str] = (),
    *,
    verdict: tuple[str, str] = ("", ""),
    facts: Mapping[str, str] | None = None,
) -> str:
    """Render a page with a section for each model, and an index if there are several.

    In the index those that failed come first.

    Args:
        title: what was done: "convert".
        outcomes: of the models.
        notes: remarks on all of them.
        verdict: status of all of them, and its message.
        facts: of the run, by name: command line, date, versions.

    Raises:
        UsageError: jinja2 is missing.
    """
    environment = _jinja_environment()
    drawn = any(outcome.shown and outcome.shown.graphs for outcome in outcomes)
    order = ("failed", "unverified")
    index = sorted(
        enumerate(outcomes, 1),
        key=lambda each: order.index(each[1].status) if each[1].status in order else len(order),
    )
    scripts = ("dagre.min.js", "drawing.js", "graphs.js") if drawn else ()
    page: str = environment.get_template("page.html.jinja").render(
        title=title,
        index=index,
        notes=notes,
        status=verdict[0],
        message=verdict[1],
        facts=facts,
        version=onnx_spatial.__version__,
        style=_read_template("style.css"),
        scripts=[_read_template(name) for name in ("page.js", *scripts)],
        licence=_read_template("dagre.LICENSE.txt") if drawn else "",
    )
    # Names in a file may hold what UTF-8 cannot encode.
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def fragment(outcome: Outcome) -> str:
    """Render the headline, the verdict and the operators of a model for a notebook, without scripts.

    Raises:
        UsageError: jinja2 is missing.
    """
    template = _jinja_environment().get_template("notebook.html.jinja")
    shown: str = template.render(outcome=outcome)
    return shown


def _jinja_environment() -> jinja2.Environment:
    require("jinja2")
    import jinja2  # what prints tables on the screen does without

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["breakable"] = _with_breaks
    environment.globals.update(levels=LEVELS, numbers=NUMBERS, zip=zip)
    return environment


def _with_breaks(name: str) -> Markup:
    """Escape a name, and let it break behind its separators."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([/_.:])(?=[^/_.:])", r"\1<wbr>", str(escape(name))))


def _read_template(name: str) -> str:
    return (_TEMPLATES / name).read_text("utf-8")


_DEPENDENCIES = ("ml_dtypes", "numpy", "onnx", "onnx-ir", "onnxruntime", "onnxruntime-extensions")


def versions() -> dict[str, str]:
    """Return the versions of this package, its dependencies and Python, and the platform."""
    found = {"version": onnx_spatial.__version__, "python": platform.python_version()}
    found["platform"] = f"{platform.system()} {platform.machine()}"
    for name in _DEPENDENCIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def run_facts(command: str, started: datetime, tools: Mapping[str, str]) -> dict[str, str]:
    """Return what a page says of the run that made it: the command line, the date, the versions."""
    named = {"onnx-spatial" if name == "version" else name: tools[name] for name in tools}
    return {
        "command": command,
        "date": f"{started.astimezone():%Y-%m-%d %H:%M %Z}",
        "versions": ", ".join(f"{name} {version}" for name, version in named.items()),
    }


def check_file(path: Path) -> None:
    """Check, before any work is done, that a report can be written to a file.

    Only a report, or an empty file, is replaced: never a model, or weights, under a mistaken name.

    Raises:
        ModelFileError: its folder does not exist or is read-only, or it is a folder or no report.
    """
    if path.is_dir():
        raise ModelFileError(f"{path}: cannot be written: it is a folder", code=Code.UNWRITABLE)
    if path.is_file() and not _is_report(path):
        raise ModelFileError(
            f"{path}: cannot be written: it exists, and is no report", code=Code.UNWRITABLE
        )
    if not path.parent.is_dir():
        raise ModelFileError(
            f"{path}: cannot be written: there is no folder {str(path.parent)!r}",
            code=Code.UNWRITABLE,
        )
    if not path.exists() and not os.access(path.parent, os.W_OK | os.X_OK):
        raise ModelFileError(
            f"{path}: cannot be written: its folder is read-only", code=Code.UNWRITABLE
        )


def _is_report(path: Path) -> bool:
    """Tell whether a file begins as HTML or XML, or is empty."""
    try:
        with path.open("rb") as file:
            start = file.read(64).lstrip().lower()
    except OSError:
        return False
    return not start or start.startswith((b"<!doctype html", b"<?xml"))


def require(package: str) -> None:
    """Check that a package is installed that a report needs.

    Raises:
        UsageError: it is missing.
    """
    if importlib.util.find_spec(package) is None:
        raise UsageError(
            f"an HTML report needs the package {package}: python -m pip install {package}",
            code=Code.PACKAGE_MISSING,
        )


def write(path: Path, content: bytes) -> None:
    """Write a report in one step: the file has all of it or does not change.

    Raises:
        ModelFileError: it cannot be written.
    """
    check_file(path)
    try:
        if path.exists() and not path.is_file():  # a pipe, or /dev/stdout
            path.write_bytes(content)
            return
        atomic_write(path, content)
    except OSError as error:
        raise ModelFileError(
            f"{path}: cannot be written: {error.strerror or error}", code=Code.UNWRITABLE
        ) from None
