"""Render the HTML report: one file that needs no network, made of jinja2 templates.

The tables are plain HTML. The graphs are drawn by the script in the page, with the
layout of dagre, a few hundred nodes at a time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_spatial
from onnx_spatial.report.outcome import LEVELS, NUMBERS, Outcome
from onnx_spatial.report.report_file import require

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
