"""Put nodes in the place of spatial operators: standard ones, a function's body, a Python operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx
import onnx_ir as ir

from onnx_spatial import site
from onnx_spatial.errors import ConversionError, ModelFileError
from onnx_spatial.facts import Finding
from onnx_spatial.graph import edit, patch, walk
from onnx_spatial.graph.names import Names
from onnx_spatial.graph.outline import outline
from onnx_spatial.lowering import Lowered, Request
from onnx_spatial.site import Site

#: Writes an operator in nodes. Raises ConversionError where that cannot be done.
Writer = Callable[[Request, Finding], Lowered]


def splice(
    proto: onnx.ModelProto,
    findings: Sequence[Finding],
    write: Writer,
    *,
    action: str,
    opset: int,
    progress: Callable[[str], None],
) -> tuple[list[Site], onnx.ModelProto | None]:
    """Replace every operator that can be; `proto` stays as it is.

    Args:
        proto: the model.
        findings: its spatial operators.
        write: writes one in nodes.
        action: what that is called.
        opset: version of the default domain where it is not imported.
        progress: called with a line of text now and then.

    Returns:
        What was done with each, and the edited model, None if nothing was. Its opset imports are
        still those of `proto`.

    Raises:
        ModelFileError: the graph contradicts itself.
    """
    model = _deserialize(proto)
    paired = list(walk.ir_nodes(model))
    changes = patch.Patch(proto, model)
    names = Names(proto)
    sites = []
    for count, finding in enumerate(findings, start=1):
        progress(f"lowering {count}/{len(findings)}: {walk.label(finding.node)}")
        node = paired[finding.index]
        # Files older than IR 4 list every initializer as an input too; functions have none at all.
        initializers = proto.ir_version >= 4 and finding.place.function is None
        sites.append(_replace(finding, node, write, action, opset, names, initializers))
    if not any(s.converted for s in sites):
        return sites, None
    try:
        return sites, changes.apply()
    except ir.serde.SerdeError as error:
        raise ModelFileError(f"the graph cannot be written: {_cause(error)}") from None


def _replace(
    finding: Finding,
    node: ir.Node,
    write: Writer,
    action: str,
    opset: int,
    names: Names,
    initializers: bool,
) -> Site:
    if finding.call is None:
        return site.left(finding)
    request = Request.of(
        finding.call, finding.facts, node.inputs, finding.element_types, finding.opset or opset
    )
    try:
        lowered = write(request, finding)
    except ConversionError as error:
        finding.error = str(error)
        return site.left(finding)
    emitted = lowered.emitted
    edit.splice(
        node, emitted.nodes, lowered.output, emitted.constants, names, initializers=initializers
    )
    count = len(emitted.nodes) + (0 if initializers else len(emitted.constants))
    return site.converted(finding, action, lowered.strategy, count)


def _deserialize(proto: onnx.ModelProto) -> ir.Model:
    try:
        return ir.from_proto(outline(proto))
    except UnicodeDecodeError:
        raise  # said in the words of `make_plan`
    except Exception as error:  # onnx_ir raises many types for graphs that contradict themselves
        raise ModelFileError(f"the graph cannot be read: {_cause(error)}") from None


def _cause(error: BaseException) -> str:
    """The first line of the innermost message; the outer ones quote whole graphs."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).splitlines() or [type(error).__name__])[0]
