"""Convert models inside pipelines of onnx_ir passes.

    >>> passes = onnx_ir.passes.Sequential(SpatialPass(verify=False), RemoveUnusedNodesPass())
    >>> model = passes(model).model

Both passes are functional: they return a new model that shares the tensors of the old one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping

import onnx_ir as ir

from onnx_spatial.api import convert
from onnx_spatial.conversion.options import Mode
from onnx_spatial.optimization import optimize
from onnx_spatial.report.results import Conversion


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
        mode, fuse, max_rank, static, domains, strategy, checked, verify, seed,
            strict, strict_proof: as in `convert`. `verify` runs the model before and after the pass.

    Raises:
        SpatialError: as `convert`, when the pass is called. Sequential and PassManager of onnx_ir raise
            their own PassError from it.
    """

    def __init__(
        self,
        *,
        mode: Mode = "lower",
        fuse: bool = True,
        max_rank: int | None = None,
        static: Mapping[str, int] | None = None,
        domains: Iterable[str] = (),
        strategy: str | None = None,
        checked: bool = False,
        verify: bool = True,
        seed: int = 0,
        strict: bool = False,
        strict_proof: bool = False,
    ) -> None:
        self._convert = functools.partial(
            convert,
            mode=mode,
            fuse=fuse,
            max_rank=max_rank,
            static=static,
            domains=tuple(domains),
            strategy=strategy,
            checked=checked,
            verify=verify,
            seed=seed,
            strict=strict,
            strict_proof=strict_proof,
        )

    def call(self, model: ir.Model) -> SpatialPassResult:
        """Convert the model."""
        return _result(self._convert(model))


class OptimizePass(ir.passes.FunctionalPass):
    """Rewrite also chains of standard nodes that are spatial operators, as `onnx_spatial.optimize` does.

    Args:
        max_rank, static, domains, strategy, verify, seed, strict,
            strict_proof: as in `optimize`.

    Raises:
        SpatialError: as `SpatialPass`, when the pass is called.
    """

    def __init__(
        self,
        *,
        max_rank: int | None = None,
        static: Mapping[str, int] | None = None,
        domains: Iterable[str] = (),
        strategy: str | None = None,
        verify: bool = True,
        seed: int = 0,
        strict: bool = False,
        strict_proof: bool = False,
    ) -> None:
        self._optimize = functools.partial(
            optimize,
            max_rank=max_rank,
            static=static,
            domains=tuple(domains),
            strategy=strategy,
            verify=verify,
            seed=seed,
            strict=strict,
            strict_proof=strict_proof,
        )

    def call(self, model: ir.Model) -> SpatialPassResult:
        """Optimize the model."""
        return _result(self._optimize(model))


def _result(conversion: Conversion) -> SpatialPassResult:
    return SpatialPassResult(conversion.ir_model, conversion.changed, conversion)
