"""Convert models in Olive workflows: a pass, and a surgeon for Olive's GraphSurgeries.

    $ python -m onnx_spatial.hosts.olive > package.json
    $ olive run --config workflow.json --package-config package.json

The package config is Olive's own with the pass `SpatialOperators` added, and with `GraphSurgeries` taken
from this module, so that the surgeon `LowerSpatialOperators` is registered.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnx_spatial.api import convert
from onnx_spatial.optimization import optimize

try:
    from olive.model import ONNXModelHandler
    from olive.model.utils import resolve_onnx_path
    from olive.package_config import OlivePackageConfig
    from olive.passes import Pass
    from olive.passes.onnx.common import get_external_data_config, ir_model_to_olive_model
    from olive.passes.onnx.graph_surgeries import GraphSurgeries, Surgeon
    from olive.passes.pass_config import PassConfigParam
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}; install Olive with: pip install olive-ai") from None

__all__ = ["GraphSurgeries", "LowerSpatialOperators", "SpatialOperators", "package_config"]

#: Options of the pass: type, default, description.
_OPTIONS: dict[str, tuple[Any, Any, str]] = {
    "optimize": (bool, False, "Also rewrite chains of standard nodes that are spatial operators."),
    "max_rank": (int, None, "Largest rank of new tensors."),
    "static": (dict[str, int], None, "Sizes of symbolic dims, by name."),
    "domains": (list[str], [], "Operator domains to accept beside those that converters use."),
    "strategy": (str, None, "Lower with this strategy wherever it applies."),
    "verify": (bool, True, "Run the model before and after the pass, and compare."),
    "strict": (bool, False, "Also fail if the verification cannot decide."),
}


class SpatialOperators(Pass):  # type: ignore[misc]
    """Rewrite the spatial operators of an ONNX model, as `onnx_spatial.convert` does."""

    @classmethod
    def _default_config(cls, accelerator_spec: Any) -> dict[str, Any]:
        parameters = {
            name: PassConfigParam(type_=kind, default_value=default, description=description)
            for name, (kind, default, description) in _OPTIONS.items()
        }
        return {**parameters, **get_external_data_config()}

    def _run_for_config(self, model: Any, config: Any, output_model_path: str) -> ONNXModelHandler:
        output = resolve_onnx_path(output_model_path, Path(model.model_path).name)
        options = {name: getattr(config, name) for name in _OPTIONS if name != "optimize"}
        run = optimize if config.optimize else convert
        converted = run(model.load_ir_model(), **options).ir_model
        if not config.save_as_external_data:
            ir.external_data.load_to_model(converted)  # its files are not beside the output
        return ir_model_to_olive_model(converted, output, config)


class LowerSpatialOperators(Surgeon):  # type: ignore[misc]
    """Rewrite the spatial operators of a model as standard operators.

    Args:
        fuse, max_rank, static, domains, verify: as in `onnx_spatial.convert`.
    """

    def __init__(
        self,
        fuse: bool = True,
        max_rank: int | None = None,
        static: Mapping[str, int] | None = None,
        domains: Sequence[str] = (),
        verify: bool = True,
    ) -> None:
        super().__init__()
        options = {"fuse": fuse, "max_rank": max_rank, "static": static}
        self._options: dict[str, Any] = {**options, "domains": domains, "verify": verify}

    def call_ir(self, model: ir.Model) -> ir.Model:
        """Return the converted model."""
        return convert(model, **self._options).ir_model


def package_config() -> dict[str, Any]:
    """Return Olive's package config with this module's pass and surgeon."""
    text = Path(OlivePackageConfig.get_default_config_path()).read_text("utf-8")
    config: dict[str, Any] = json.loads(text)
    passes = config["passes"]
    every = {f"supported_{kind}": ["*"] for kind in ("providers", "accelerators", "precisions")}
    passes["SpatialOperators"] = {
        "module_path": "onnx_spatial.hosts.olive.SpatialOperators",
        **every,
    }
    passes["GraphSurgeries"]["module_path"] = "onnx_spatial.hosts.olive.GraphSurgeries"
    return config


if __name__ == "__main__":
    json.dump(package_config(), sys.stdout, indent=2)
