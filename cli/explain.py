"""Define the command `onnx-spatial explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from onnx_spatial.cli import help, options
from onnx_spatial.cli.text import say
from onnx_spatial.errors import Code, UsageError

if TYPE_CHECKING:
    from onnx_spatial.cli.output import Output


def _complete(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete a code, with its title."""
    from onnx_spatial.errors.messages import MESSAGES

    start = incomplete.upper()
    return [CompletionItem(c, help=m.title) for c, m in MESSAGES.items() if c.startswith(start)]


@click.command(
    cls=help.Command,
    short_help="Say what the code of an error or warning means and what to do.",
    examples=("explain OS205", "explain"),
)
@click.argument("codes", nargs=-1, metavar="[CODE]...", shell_complete=_complete)
@options.output_options
def explain(codes: tuple[str, ...], output: Output) -> int:
    """Say what each CODE at the end of a message means and what to do; without CODE, list all."""
    from onnx_spatial.errors.messages import GROUPS, MESSAGES, explanation

    known = {str(code) for code in Code}
    names = [f"OS{code}" if code.isdecimal() else code.upper() for code in codes]
    if wrong := next((name for name in names if name not in known), None):
        raise UsageError(f"there is no code {wrong}; 'onnx-spatial explain' lists all codes")
    chosen = [Code(name) for name in names]
    if output.json:
        document = [vars(MESSAGES[code]) for code in chosen or Code]
        output.document({"version": 1, "codes": document})
        return 0
    lines = ["\n\n".join(map(explanation, chosen))] if chosen else []
    for start, group in GROUPS.items() if not chosen else ():
        lines.append(f"{group}:")
        lines += (f"  {c}  {m.title}" for c, m in MESSAGES.items() if c.startswith(start))
    say(output.out, "\n".join(lines))
    return 0
