"""Convert a model, and rewrite its standard nodes where that is faster or a rank limit asks for it.

rewrite_chains   chains become part of convolutions, vanish, or are written as other nodes
graph_layouts    changes of layout between convolutions are removed
limits           what is still beyond the rank limit is listed
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx

from onnx_spatial.conversion.graph_layouts import number_of_changes, remove_layout_changes
from onnx_spatial.conversion.limits import check_limits
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.pipeline import Progress, convert_operators
from onnx_spatial.conversion.report import EditResult
from onnx_spatial.conversion.rewrite_chains import OptimizeResult, rewrite_chains
from onnx_spatial.model import traversal


def optimize_operators(
    proto: onnx.ModelProto,
    options: ConvertOptions | None = None,
    *,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> OptimizeResult:
    """Convert the operators of `proto`, and its chains where that pays; `proto` stays as it is.

    Args:
        proto: the model.
        options: how it is converted. In other modes than "lower" every chain becomes its operator, and
            what the mode makes of that.
        folder: where external data lies.
        progress: called with a line of text now and then.

    Raises:
        ModelFileError: the graph contradicts itself.
    """
    options = options or ConvertOptions(chains=True)
    plain = convert_operators(proto, options, folder=folder, progress=progress)
    number = traversal.number_of_nodes(plain.model or proto)
    alone = OptimizeResult(plain, plain, nodes=(number, number))
    if plain.refused():
        return alone
    result = rewrite_chains(proto, alone, options, folder, progress)
    if not options.fuses:
        return _compared(result, proto, options, folder)
    moved = remove_layout_changes(result.edit.model or proto, folder)
    return _compared(_joined(proto, result, moved), proto, options, folder)


def _compared(
    result: OptimizeResult, proto: onnx.ModelProto, options: ConvertOptions, folder: Path | None
) -> OptimizeResult:
    """List the nodes of a result that exceed the rank limit of the options, if there is one."""
    if options.max_rank is None:
        return result
    model = result.edit.model or proto
    left = [operator for operator in result.chains if not operator.converted]
    kept = {(s.graph, n): s.reason or "" for s in left for n in (s.node, *s.absorbed)}
    report = check_limits(model, options.max_rank, options.domains, folder, kept=kept)
    return replace(result, limits=report)


def _joined(proto: onnx.ModelProto, result: OptimizeResult, moved: EditResult) -> OptimizeResult:
    """Join a conversion of the original and the edit behind it to one edit."""
    if moved.model is None:
        return result
    return replace(
        result,
        edit=replace(result.edit, model=moved.model),
        nodes=(result.nodes[0], traversal.number_of_nodes(moved.model)),
        layouts=(number_of_changes(result.edit.model or proto), number_of_changes(moved.model)),
    )
