"""Run an original model in onnx's reference evaluator, with the operators of `onnx_spatial.reference`.

That is for systems without onnxruntime-extensions, and for types that onnxruntime does not move. The
evaluator is wrong about some operators, so a difference from it proves no mistake: scan outputs of a
Loop, BatchNormalization before opset 14; it lacks QuantizeLinear before opset 19.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from onnx_spatial.errors import OperatorError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import external_data
from onnx_spatial.reference import OPS, operators
from onnx_spatial.verification import process
from onnx_spatial.verification.process import ORIGINAL
from onnx_spatial.verification.run.run_error import RunError, first_line

_DOING = f"{ORIGINAL} runs in onnx's reference evaluator"


class Evaluator:
    """A model without local functions in the evaluator, like a `sessions.Session`.

    Args:
        model: the model, which is changed.
        domains: domains of spatial operators, beside those that converters use.
        folder: folder of its external data.

    Raises:
        RunError: it does not load.
    """

    #: What runs the model.
    kind = "evaluator"

    def __init__(self, model: onnx.ModelProto, domains: Iterable[str], folder: Path | None) -> None:
        imported = {entry.domain for entry in model.opset_import}
        used = {node.domain for _, _, node in traversal.nodes(model)}
        model.opset_import.extend(helper.make_opsetid(d, 1) for d in sorted(used - imported))
        external_data.embed_all(model, folder)
        found: list[type[OpRun]] = [*OPS, *(op for domain in domains for op in operators(domain))]
        try:
            self._evaluator = _Evaluator(model, new_ops=found)
        except NotImplementedError as error:
            raise RunError(first_line(error), "load", lacks_kernel=True) from None
        except Exception as error:  # of onnx and numpy, of any type
            raise RunError(first_line(error), "load") from None

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Run the model and return its outputs by name; sequences are lists.

        Raises:
            RunError: it does not run on this data.
        """
        names = self._evaluator.output_names
        process.report(_DOING, ORIGINAL)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                return dict(zip(names, self._evaluator.run(names, dict(feeds)), strict=True))
        except OperatorError as error:
            raise RunError.broken_rule(error) from None
        except Exception as error:  # of onnx and numpy, of any type
            raise RunError.of(error, "run") from None


class _Evaluator(ReferenceEvaluator):
    """An evaluator that ends when the time is over: it logs a line before each node."""

    def _log(self, *arguments: Any) -> None:
        process.check_time(_DOING)
