"""Convert through the public interface: the one place to change when its signature changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

import onnx_spatial

#: The lowerings that can be asked for by name, and the operators that they are for.
LOWERINGS = {
    "transpose": "blocks",
    "gather": "blocks",
    "space-to-depth": "square blocks of rows and columns",
    "row-gather": "blocks and patches",
    "element-gather": "blocks and patches",
    "slices": "blocks and patches",
    "planes": "patches",
}


def converted(
    model: onnx.ModelProto,
    *,
    chains: bool = False,
    prefer: str | None = None,
    mode: str = "lower",
    static: Mapping[str, int] | None = None,
    domains: Iterable[str] = (),
    max_rank: int | None = None,
    checked: bool = False,
) -> onnx.ModelProto:
    """The converted model, not verified.

    Args:
        model: what is converted; it must stay as it is.
        chains: also operators that are spelled in standard nodes.
        prefer: name of the lowering to use where it can be used.
        mode: "lower", "function" or "custom-op".
        static: sizes of symbolic dims.
        domains: more domains of the operators.
        max_rank: largest rank of new tensors.
        checked: the model fails where parameters of the run break a rule.
    """
    before = model.SerializeToString(deterministic=True)
    result = onnx_spatial.convert(
        model,
        mode=mode,
        chains=chains,
        prefer=prefer,
        max_rank=max_rank,
        checked=checked,
        domains=domains,
        static=static,
        verify=False,
    )
    assert model.SerializeToString(deterministic=True) == before
    return result.model
