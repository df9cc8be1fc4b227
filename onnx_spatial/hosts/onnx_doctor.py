"""Report spatial operators in onnx-doctor, and convert them as its fix.

    >>> messages = onnx_doctor.diagnose(onnx_ir.load("original.onnx"), [SpatialProvider()])

onnx-doctor's command takes no providers; a program passes them to `onnx_doctor.diagnose`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import onnx_ir as ir

from onnx_spatial.api import convert, inspect
from onnx_spatial.conversion.report import Site
from onnx_spatial.errors import Code
from onnx_spatial.errors.messages import MESSAGES
from onnx_spatial.model import traversal
from onnx_spatial.optimization import optimize

try:
    import onnx_doctor
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}; install it with: pip install onnx-doctor") from None

#: Why an operator has no strategy, by `Site.action`.
_LEFT = {"refuse": "which cannot be converted", "leave": "which is left"}

__all__ = ["SpatialProvider"]

#: A fix of onnx-doctor; it changes the model.
Fix = Callable[[], None]


class SpatialProvider(onnx_doctor.DiagnosticsProvider):  # type: ignore[misc]
    """Report each spatial operator, which no runtime has, as an error, with its code as rule.

    The fix of those that can be converted is what `onnx_spatial.convert` does, verified. Chains of
    standard nodes that `onnx_spatial.optimize` rewrites are reported as `info`, with that as fix. A
    fix replaces the graph of the model; it raises a SpatialError if it fails.

    Args:
        domains: operator domains to accept beside the ones that converters use.
    """

    PRODUCER = "onnx-spatial"

    def __init__(self, *, domains: Iterable[str] = ()) -> None:
        self._domains = tuple(domains)

    def diagnose(self, model: ir.Model) -> Iterator[Any]:
        """Yield a message for each operator and each chain."""
        inspection = inspect(model, domains=self._domains)
        assert inspection.original is not None
        protos = traversal.nodes(inspection.original.proto)
        nodes = {
            (str(place), next(filter(None, proto.output), "")): node
            for (place, _, proto), node in zip(protos, traversal.ir_nodes(model), strict=True)
        }

        def convert_all() -> None:
            _replace(model, convert(model, domains=self._domains).ir_model)

        def optimize_all() -> None:
            _replace(model, optimize(model, domains=self._domains).ir_model)

        for site in inspection.sites:
            node = nodes[site.graph, site.output]
            if site.strategy is not None:
                what = "which onnxruntime does not run; onnx-spatial convert"
                yield self._message(node, "error", site, what, convert_all)
            else:
                severity = "error" if site.action == "refuse" else "warning"
                yield self._message(node, severity, site, _LEFT[site.action], None)
        for chain in inspection.chains:
            if chain.strategy is not None:
                what = "as standard nodes; onnx-spatial optimize"
                node = nodes[chain.graph, chain.output]
                yield self._message(node, "info", chain, what, optimize_all)

    def _message(self, node: ir.Node, severity: Any, site: Site, what: str, fix: Fix | None) -> Any:
        code = (site.code if fix is None else Code.WOULD_CHANGE) or Code.NOT_CONVERTED
        text = MESSAGES[code]
        rule = onnx_doctor.Rule(
            code=str(code),
            name=code.name.lower().replace("_", "-"),
            message=text.title,
            default_severity=severity,
            category="spec",
            target_type="node",
            explanation=text.cause,
            suggestion=text.remedy if fix is None else "Apply the fix.",
            fixable=fix is not None,
        )
        return onnx_doctor.DiagnosticsMessage(
            target_type="node",
            target=node,
            message=f"{site.op_type}, {what}: {site.strategy or site.reason}",
            severity=severity,
            producer=self.PRODUCER,
            error_code=str(code),
            rule=rule,
            fix=fix,
        )


def _replace(model: ir.Model, result: ir.Model) -> None:
    """Give a model the graph, functions and metadata of another."""
    model.graph = result.graph
    model.functions.clear()
    model.functions.update(result.functions)
    model.ir_version = result.ir_version
    model.metadata_props.clear()
    model.metadata_props.update(result.metadata_props)
