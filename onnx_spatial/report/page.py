"""Render the HTML report: one file that needs no network, made of jinja2 templates.

The tables are plain HTML. The graphs are drawn by the script in the page, with the
layout of dagre, a few hundred nodes at a time.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_spatial.report.report_file import require
from onnx_spatial.report.section import Section, index_rows

if TYPE_CHECKING:
    from markupsafe import Markup

_TEMPLATES = Path(__file__).with_name("templates")


def render(title: str, sections: Sequence[Section], notes: Sequence[str] = ()) -> str:
    """Render a page with a section for each model, and an index if there are several.

    Args:
        title: what was done: "convert".
        sections: of the models.
        notes: remarks on all of them.

    Raises:
        UsageError: jinja2 is missing.
    """
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
    drawn = any(section.graphs for section in sections)
    scripts = ("dagre.min.js", "drawing.js", "graphs.js") if drawn else ()
    environment.filters["breakable"] = _breakable
    page: str = environment.get_template("page.html.jinja").render(
        title=title,
        sections=sections,
        index=index_rows(sections),
        notes=notes,
        version=_version(),
        style=_read("style.css"),
        scripts=[_read(name) for name in ("page.js", *scripts)],
        licence=_read("dagre.LICENSE.txt") if drawn else "",
    )
    # Names in a file may hold what UTF-8 cannot encode.
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def _version() -> str:
    try:
        return importlib.metadata.version("onnx-spatial")
    except importlib.metadata.PackageNotFoundError:  # a checkout that is not installed
        return ""


def _breakable(name: str) -> Markup:
    """Escape a name, and let it break behind its separators."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([/_.:])(?=[^/_.:])", r"\1<wbr>", str(escape(name))))


def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text("utf-8")
