"""Convert models inside pipelines of onnx_ir passes.

    >>> passes = onnx_ir.passes.Sequential(SpatialPass(), RemoveUnusedNodesPass())
    >>> model = passes(model).model

The pass is functional: it returns a new model that shares the tensors of the old one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import onnx_ir as ir

from onnx_spatial.api import edit_model
from onnx_spatial.conversion.options import ConvertOptions, Mode, domain_names
from onnx_spatial.report.results import Conversion
from onnx_spatial.verification.options import VerifyOptions


@dataclasses.dataclass
class SpatialPassResult(ir.passes.PassResult):
    """A pass result with the conversion that made it.

    Attributes:
        model: the converted model.
        modified: whether it differs from the original.
        conversion: what was done with each operator, and the verification.
    """

    conversion: Conversion


class SpatialPass(ir.passes.FunctionalPass):
    """Rewrite the spatial operators of a model as standard operators, as `onnx_spatial.convert` does.

    Args:
        mode, fuse, chains, prefer, max_rank, checked, domains, static: as in `convert`.
        verify: run the model before and after the pass, and compare; as in `convert`.

    Raises:
        UsageError: there is no such mode, lowering or rank.
        SpatialError: as `convert`, when the pass is called. Sequential and PassManager of onnx_ir raise
            their own PassError from it.
    """

    def __init__(
        self,
        *,
        mode: Mode = "lower",
        fuse: bool = True,
        chains: bool = False,
        prefer: str | None = None,
        max_rank: int | None = None,
        checked: bool = False,
        domains: Iterable[str] = (),
        static: Mapping[str, int] | None = None,
        verify: bool | VerifyOptions = False,
    ) -> None:
        # What is wrong fails here, not after the passes in front.
        self._options = ConvertOptions(
            mode, fuse, chains, prefer, max_rank, checked, domain_names(domains)
        )
        self._static, self._verify = static, verify

    def call(self, model: ir.Model) -> SpatialPassResult:
        """Convert the model."""
        conversion = edit_model(model, self._options, static=self._static, verify=self._verify)
        return SpatialPassResult(conversion.ir_model, conversion.changed, conversion)
