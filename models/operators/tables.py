"""Write the tables of the grid's README."""

from __future__ import annotations

from collections import Counter

from operators import grid

_SHORT = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
}
_MARK = "<!-- {} of the table {} -->"


def filled(readme: str) -> str:
    """Return the README with the tables of the grid.

    Raises:
        ValueError: it has no place for one of them.
    """
    made = {"rows": rows(), "cells": cells(), "forms": forms(), "domains": domains()}
    for name, table in made.items():
        begin, end = (_MARK.format(place, name) for place in ("begin", "end"))
        before, opened, rest = readme.partition(begin)
        _, closed, after = rest.partition(end)
        if not opened or not closed:
            raise ValueError(f"the README has no place for the table {name!r}")
        readme = f"{before}{begin}\n{table}\n{end}{after}"
    return readme


def rows() -> str:
    """Return the table of the rows."""
    lines = ["| row | node | spelling |", "|---|---|---|"]
    return "\n".join(
        [*lines, *(f"| `{row.name}` | `{row.op_type}` | {row.about} |" for row in grid.ROWS)]
    )


def cells() -> str:
    """Return the table of the cells, or why there is none."""
    reasons = sorted(set(grid.MISSING.values()))
    there = {(cell.row.name, cell.form): cell for cell in grid.CELLS}
    lines = [f"| row | {' | '.join(grid.FORMS)} |", "|---|" + "---|" * len(grid.FORMS)]
    for row in grid.ROWS:
        found = []
        for form in grid.FORMS:
            cell = there.get((row.name, form))
            if cell is None:
                found.append(f"({reasons.index(grid.MISSING[row.name, form]) + 1})")
            else:
                dtype = _SHORT.get(cell.dtype, cell.dtype)
                found.append(f"{dtype} {grid.recorder(cell)}")
        lines.append(f"| `{row.name}` | {' | '.join(found)} |")
    who = Counter(map(grid.recorder, grid.CELLS))
    lines += ["", f"{len(grid.CELLS)} cells. Recorded by", ""]
    lines += [f"- {key}: {name} ({who[key]} cells)" for key, name in grid.RECORDERS.items()]
    lines += ["", f"{len(grid.MISSING)} cells cannot exist:", ""]
    return "\n".join([*lines, *(f"{n}. {reason}" for n, reason in enumerate(reasons, start=1))])


def forms() -> str:
    """Return the table of the columns."""
    lines = ["| form | the model |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{form}` | {about} |" for form, about in grid.FORMS.items())])


def domains() -> str:
    """Return the table of domains and opsets and how often each occurs."""
    lines = [
        "| domain of the spatial nodes | cells | of these without an opset_import |",
        "|---|---|---|",
    ]
    found = Counter(cell.domain for cell in grid.CELLS)
    lost = Counter(cell.domain for cell in grid.CELLS if not grid.imported(cell))
    for domain, count in sorted(found.items()):
        lines.append(
            f"| {f'`{domain}`' if domain else 'the empty one'} | {count} | {lost[domain]} |"
        )
    versions = Counter((cell.opset, cell.ir_version) for cell in grid.CELLS)
    lines += ["", "| opset | IR version | cells |", "|---|---|---|"]
    lines += [f"| {o} | {ir} | {count} |" for (o, ir), count in sorted(versions.items())]
    return "\n".join(lines)
