"""Choose the shapes and parameters that each operator of a model is measured with.

They are the ones that the model declares. Unknown ones are observed in a run of the original, on the
user's data or on legal sizes that verification finds. An operator that is not reached in that run gets
legal sizes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from onnx import TensorProto

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import UsageError
from onnx_spatial.lowering import Request
from onnx_spatial.model.io import reader
from onnx_spatial.tuning.harness_model import HarnessData
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.evaluate import ReferenceModel
from onnx_spatial.verification.runtime.context import SiteInput
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes import operator_shapes, reference_runs


class Sizes:
    """Shapes and parameters of the operators of one model, which is run at most once, and if needed.

    Args:
        source: the model.
        domains: further operator domains.
        inputs: data to run it on, by input name.
        shapes: shapes of inputs, by input name.
        seed: seed of generated data.
        progress: called with lines of text.
    """

    def __init__(
        self,
        source: reader.Source,
        *,
        domains: Iterable[str] = (),
        inputs: Mapping[str, Array] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        seed: int = 0,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        if inputs is not None and shapes:
            raise UsageError("inputs and shapes cannot be combined: the data has its own shapes")
        if seed < 0:
            raise UsageError(f"seed must be 0 or more, not {seed}")
        self._source = source
        self._domains = frozenset(domains)
        self._has_user_sizes = inputs is not None or bool(shapes)
        self._request = reference_runs.RunRequest(
            inputs, shapes or {}, seed, progress or (lambda _: None)
        )
        self._ran = False
        self._observed: dict[int, SiteInput] = {}
        self._feeds: dict[str, Array] = {}
        #: Why the original could not be run, after it was tried.
        self.obstacle: str | None = None

    def feeds(self) -> dict[str, Array] | None:
        """Return data for the whole model, by input name; None if there is none (see `obstacle`).

        Raises:
            UsageError: the user's data or shapes do not fit the model.
        """
        self._run()
        return None if self.obstacle is not None else self._feeds

    def of(self, info: OperatorInfo, request: Request) -> HarnessData | None:
        """Return the data for one operator; None if no legal sizes were found.

        Raises:
            UsageError: the user's data or shapes do not fit the model.
        """
        known = tuple(f.value if f is not None else None for f in info.facts.inputs[1:])
        element_type = min(request.element_types, default=TensorProto.FLOAT)
        if not self._has_user_sizes and request.call.operator is not None:
            static = tuple(d for d in request.shape or () if isinstance(d, int))
            if request.shape is not None and len(static) == len(request.shape):
                return HarnessData(static, element_type, known)
        self._run()
        observed = self._observed.get(info.index)
        if observed is not None:
            if observed.element_type in request.element_types:
                element_type = observed.element_type
            return HarnessData(observed.shape, element_type, observed.parameters)
        rng = np.random.default_rng(self._request.seed)
        sample = operator_shapes.draw_sample(info.facts, rng, 0)
        if sample is None:
            return None
        parameters = (sample.parameters.get(i, v) for i, v in enumerate(known, start=1))
        return HarnessData(sample.shape, element_type, tuple(parameters))

    def _run(self) -> None:
        """Run the original, once, and observe the inputs of its operators."""
        if self._ran:
            return
        self._ran = True
        reference = ReferenceModel.before_conversion(self._source, self._domains)
        try:
            self._feeds = reference.first_run(self._request).feeds
            self._observed = reference.program.site_inputs
        except RunFailure as failure:
            self.obstacle = str(failure)
        except MemoryError:
            self.obstacle = "not enough memory to run the model; use smaller sizes"
        finally:
            reference.close()
