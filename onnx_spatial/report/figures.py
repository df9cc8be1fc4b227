"""Say in words and rows what a conversion did: on the screen and in the HTML report alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from onnx_spatial.errors import count

if TYPE_CHECKING:
    import onnx

    from onnx_spatial.conversion.summary import Estimate, Summary

#: Operator types in the table of figures, unless all are asked for.
_MAX_SHOWN_TYPES = 8


def headline(summary: Summary) -> str:
    """Say in one line what became of the operators, the nodes, the file and the estimated time."""
    before, after = summary.before, summary.after
    nodes = f"{_total_nodes(before.nodes)} -> {count(sum(after.nodes.values()), 'node')}"
    parts = [nodes, _size_change(file_size(before.bytes), file_size(after.bytes))]
    if summary.estimate is not None:
        parts.append(_compare_times(summary.estimate, before.chains))
    return f"{summary.text}; {', '.join(parts)}"


def figure_rows(summary: Summary, *, verbose: bool = False) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a table: what, before, after. Operator types are indented by two spaces.

    Without `verbose` only the types whose number changes most are named.
    """
    before, after = summary.before, summary.after
    if before.operators:
        yield "operators to convert", f"{before.operators:,}", f"{after.operators:,}"
    if before.chains:
        yield "chains to rewrite", f"{before.chains:,}", f"{after.chains:,}"
    yield "nodes", _total_nodes(before.nodes), _total_nodes(after.nodes)
    changes = {
        name: (before.nodes.get(name, 0), after.nodes.get(name, 0))
        for name in sorted({*before.nodes, *after.nodes})
    }
    changed = [name for name, (old, new) in changes.items() if verbose or old != new]
    changed.sort(key=lambda name: -abs(changes[name][0] - changes[name][1]))
    for name in changed if verbose else changed[:_MAX_SHOWN_TYPES]:
        old, new = changes[name]
        yield f"  {name}", f"{old:,}", f"{new:,}"
    if not verbose and (rest := changed[_MAX_SHOWN_TYPES:]):
        old, new = (sum(changes[name][i] for name in rest) for i in (0, 1))
        yield f"  {count(len(rest), 'other type')}", f"{old:,}", f"{new:,}"
    if not verbose and (same := sum(n for n, new in changes.values() if n == new)):
        yield "  unchanged types", f"{same:,}", f"{same:,}"
    yield "model file", file_size(before.bytes), file_size(after.bytes)
    if verbose or before.rank != after.rank:
        yield "largest rank", str(before.rank), str(after.rank)
    if (times := summary.estimate) is not None:
        chains = _priced_chains(times, before.chains)
        yield f"estimated time of {chains}", duration(times.before_us), duration(times.after_us)


def interface(model: onnx.ModelProto) -> dict[str, list[str]]:
    """Describe the inputs and outputs of a model: "x float32 [N, 4, 6, 3]"."""
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in stored]
    return {
        "inputs": [f"{value.name} {type_text(value.type)}" for value in inputs],
        "outputs": [f"{value.name} {type_text(value.type)}" for value in model.graph.output],
    }


def type_text(declared: onnx.TypeProto) -> str:
    """Describe a declared type: "float32 [1, N, ?]"; what is no tensor by its kind."""
    tensor = declared.tensor_type
    if not declared.HasField("tensor_type"):
        return (declared.WhichOneof("value") or "?").removesuffix("_type")
    from onnx_spatial.analysis import dtype_name  # help does without onnx

    name = dtype_name(tensor.elem_type)
    if not tensor.HasField("shape"):
        return name
    dims = [
        d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?")
        for d in tensor.shape.dim
    ]
    return f"{name} [{', '.join(dims)}]"


def names_by_sentence(said: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Collect the names of which the same is said, from pairs of a name and a sentence."""
    names: dict[str, list[str]] = {}
    for name, sentence in said:
        names.setdefault(sentence, []).append(name)
    return names


def file_size(size: int) -> str:
    """Format a number of bytes: "80 kB", "1.2 MB"."""
    unit, scale = next(((u, s) for u, s in _UNITS if size >= s), ("bytes", 1))
    number = size / scale
    return f"{number:.1f} {unit}" if scale > 1 and number < 9.95 else f"{number:,.0f} {unit}"


def duration(us: float | None) -> str:
    """Format microseconds with three digits; None is empty."""
    if us is None:
        return ""
    unit, size = ("s", 1e6) if us >= 1e6 else ("ms", 1e3) if us >= 1e3 else ("us", 1.0)
    number = us / size
    return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f} {unit}"


def _priced_chains(times: Estimate, chains: int) -> str:
    """Name the chains that have a price before and after."""
    every = count(chains, "chain")
    return every if times.chains == chains else f"{times.chains:,} of {every}"


def _compare_times(times: Estimate, chains: int) -> str:
    """Compare the times of the chains that have both: "2 of 3 chains 3.0x faster by estimate"."""
    before, after = times.before_us, times.after_us
    if not after:
        change = f"{duration(before)} faster"  # they vanish: a ratio says nothing
    elif before >= after:
        change = f"{before / after:.1f}x faster"
    else:
        change = f"{after / before:.1f}x slower"
    if change.startswith("1.0x"):
        change = "as fast as before"
    return f"{_priced_chains(times, chains)} {change} by estimate"


def _total_nodes(nodes: dict[str, int]) -> str:
    return f"{sum(nodes.values()):,}"


def _size_change(before: str, after: str) -> str:
    """Write "80 -> 41 kB" for "80 kB" and "41 kB"."""
    number, _, unit = before.partition(" ")
    return f"{number if after.endswith(f' {unit}') else before} -> {after}"


_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
