"""Which data each site of a model is measured with: the model's own, as far as it says.

What the model leaves open is seen in a run of the original, on the data given or on sizes that
verification finds legal. A site that does not take part in that run gets legal sizes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from onnx import TensorProto

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion.local_functions import without_earlier_form
from onnx_spatial.errors import UsageError
from onnx_spatial.lowering import Request
from onnx_spatial.model.io import reader
from onnx_spatial.tuning.harness_model import HarnessData
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.runtime.context import SiteInput
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes import operator_shapes, reference_runs
from onnx_spatial.verification.sizes.model_inputs import graph_inputs, named_dims


class Sizes:
    """Data for the sites of one model; the model is run at most once, and only if that is needed.

    Args:
        source: the model.
        domains: operator domains of the user's own.
        inputs: data to run it on, by input name.
        shapes: sizes of inputs, by input name.
        seed: of made-up data.
        progress: called with a line of text now and then.
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
            raise UsageError("give either inputs or shapes; the data has its own shapes")
        if seed < 0:
            raise UsageError(f"seed must be 0 or more, not {seed}")
        self._source = source
        self._domains = frozenset(domains)
        self._given = inputs is not None or bool(shapes)
        self._request = reference_runs.RunRequest(
            inputs, shapes or {}, seed, progress or (lambda _: None)
        )
        self._ran = False
        self._met: dict[int, SiteInput] = {}
        self._feeds: dict[str, Array] = {}
        #: Why the original was not run, if it was tried.
        self.obstacle: str | None = None

    def feeds(self) -> dict[str, Array] | None:
        """Data for the whole model, by input name; None if none was found (`obstacle` says why).

        Raises:
            UsageError: the data or shapes that the user gave do not fit the model.
        """
        self._run()
        return None if self.obstacle is not None else self._feeds

    def of(self, info: OperatorInfo, request: Request) -> HarnessData | None:
        """Data for one site; None if no legal sizes were found.

        Args:
            info: the site.
            request: its operator.

        Raises:
            UsageError: the data or shapes that the user gave do not fit the model.
        """
        known = tuple(f.value if f is not None else None for f in info.facts.inputs[1:])
        static = tuple(d for d in request.shape or () if isinstance(d, int))
        kind = min(request.element_types, default=TensorProto.FLOAT)
        if (
            request.shape is not None
            and len(static) == len(request.shape)
            and (request.call.operator is not None)
            and not self._given
        ):
            return HarnessData(static, kind, known)
        self._run()
        met = self._met.get(info.index)
        if met is not None:
            seen = met.element_type in request.element_types
            return HarnessData(met.shape, met.element_type if seen else kind, met.parameters)
        draw = operator_shapes.draw_sample(info.facts, np.random.default_rng(self._request.seed), 0)
        if draw is None:
            return None
        return HarnessData(
            draw.shape, kind, tuple(draw.parameters.get(i, v) for i, v in enumerate(known, start=1))
        )

    def _run(self) -> None:
        if self._ran:
            return
        self._ran = True
        before = without_earlier_form(self._source.proto)
        source = reader.resolved(self._source.holding(before.model))
        inputs = graph_inputs(source.proto)
        domains = before.domains.union(self._domains)
        infos = analysis.find(named_dims(source.proto, inputs), domains, source.folder)
        known = [f for f in infos if f.known_domain]
        try:
            program = reference_runs.program_of(source, known, inputs)
            found = reference_runs.find(
                program, source, inputs, known, self._request, only_first=True
            )
        except RunFailure as failure:
            self.obstacle = str(failure)
            return
        except MemoryError:
            self.obstacle = "running the model takes more memory than there is; give smaller sizes"
            return
        program.close()
        if not found.trials:
            self.obstacle = found.gaps[0]
            return
        self._feeds, self._met = found.trials[0].feeds, program.site_inputs
