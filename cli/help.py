"""Define the help of a command: its options in groups, and examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

#: Title of a group -> names of its options, in the order in which they are shown.
GROUPS = {
    "Which models": "exclude expect_failure",
    "What to write": "path in_place dry_run check external mode",
    "Conversion": "modes optimize no_fuse checked prefer max_rank domains static",
    "Verification": "no_verify shapes inputs seed rtol atol outputs_only strict strict_proof",
    "Failures and limits": "reproducer memory time_limit timeout",
    "Processes": "jobs executor scheduler",
    "Reports": "html junit_xml",
    "Output": "as_json quiet verbose version help",
}
_OTHERS = "Options"


class Command(click.Command):
    """A command whose help has its options in groups, and examples at the end.

    Args:
        examples: command lines without the name of the program.
        others: arguments of `click.Command`.
    """

    def __init__(self, *others: Any, examples: Sequence[str] = (), **named: Any) -> None:
        super().__init__(*others, **named)
        self.examples = tuple(examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group."""
        titles = {name: title for title, names in GROUPS.items() for name in names.split()}
        order = list(titles)
        rows: dict[str, list[tuple[int, tuple[str, str]]]] = {t: [] for t in (_OTHERS, *GROUPS)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if isinstance(parameter, click.Option) and record is not None:
                name = "help" if "--help" in parameter.opts else parameter.name or ""
                place = order.index(name) if name in titles else len(order)
                rows[titles.get(name, _OTHERS)].append((place, record))
        for title, records in rows.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl([record for _, record in sorted(records)])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, which are not wrapped: they can be pasted."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            formatter.write_paragraph()
            formatter.write("Examples:\n")
            for example in self.examples:
                formatter.write(f"  onnx-spatial {example}\n")
