"""Run the changed parts of both models: operators on their own, and what the prover could not prove.

    x -> part of the original    (spatial operators in Python)   -> y   \
                                                                          equal bits, or within rtol
    x -> part of the converted   (optimisations off)             -> y   /

A proof leaves out a batch of zero and the bits of NaNs: so each operator runs once on them. Of a part
that is not proven, the prover names sizes at which the formulas differ: a run there decides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import onnx

from onnx_spatial import analysis
from onnx_spatial.errors import SpatialError
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.verification.arrays import Array, element_type_of, is_float
from onnx_spatial.verification.comparison import describe_element, find_mismatch
from onnx_spatial.verification.evidence import Counterexample, Difference, Unproven
from onnx_spatial.verification.kinds import Kind, Kinds
from onnx_spatial.verification.match.matches import ChangedPart
from onnx_spatial.verification.options import VerifyOptions
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.prove.proof import Proof, Trial
from onnx_spatial.verification.run import data
from onnx_spatial.verification.run.legal_sizes import SizeSearch
from onnx_spatial.verification.run.original import Original
from onnx_spatial.verification.run.sessions import CONVERTED, RunError, Session

#: Elements of the largest input of a part that runs on its own: 128 MiB of float32.
_MOST_ELEMENTS = 2**25
#: Type of values whose type is not known.
_FLOAT = onnx.TensorProto.FLOAT

#: onnxruntime refuses a -1 in the shape of a Reshape next to a 0: it could be any number.
_REQUESTED_SHAPE = re.compile(r"requested shape:\{([^}]*)\}")


@dataclass
class PartFinding:
    """What was found of one changed part.

    Attributes:
        part: the part.
        operators: labels of its operators.
        label: the node that computes its output.
        proof: what is proven of it.
        ran: whether it ran on its own, and agreed.
        reason: why it did not run on its own, or why a difference does not count; None otherwise.
        difference: how it differs, if that counts.
        counterexample: the data that shows it.
    """

    part: ChangedPart
    operators: Sequence[str]
    label: str
    proof: Proof
    ran: bool = False
    reason: str | None = None
    difference: Difference | None = None
    counterexample: Counterexample | None = None

    @property
    def labels(self) -> list[str]:
        """Labels of its operators; without any, of the node that computes its output."""
        return list(self.operators) or [self.label]

    @property
    def unproven(self) -> list[Unproven]:
        """What is not proven, a line for each label."""
        if self.proof.found is None:
            return []
        return [Unproven(label, self.proof.found, self.proof.reason) for label in self.labels]


@dataclass
class PartRuns:
    """Runs of the changed parts of two models.

    Attributes:
        models: the models.
        options: seed of the data.
        passed: digests of proven parts that ran: equal ones are one model to a runtime.
    """

    models: ModelPair
    options: VerifyOptions
    passed: set[bytes] = field(default_factory=set)

    def check_part(
        self, finding: PartFinding, reused_names: frozenset[str], *, usual: bool
    ) -> None:
        """Run a part on usual data, and where the prover names sizes.

        Args:
            finding: gets what is found.
            reused_names: names that may mean another value in the converted model.
            usual: whether it runs on usual data.
        """
        part, proof = finding.part, finding.proof
        if proof.scope is not None and proof.digest in self.passed:
            finding.ran = True
            return
        try:
            for compared, shown in self._find_differences(part, proof, usual):
                if not reused_names.isdisjoint({part.output, *part.inputs}):
                    finding.reason = "a name may mean another value there: no output differs"
                    continue
                occurs = compared.may_be_fed(values=bool(shown.parameters))
                if occurs or (finding.operators and shown.element is not None):
                    _add_difference(finding, shown)
                    return
                finding.reason = f"{shown.message}: these sizes may not occur in the model"
        except (RunError, SpatialError) as error:
            finding.reason = str(error)
            return
        finding.ran = usual and finding.reason is None
        if finding.ran and proof.digest is not None and proof.scope is not None:
            self.passed.add(proof.digest)

    def _find_differences(
        self, part: ChangedPart, proof: Proof, usual: bool
    ) -> Iterator[tuple[ChangedPart, Counterexample]]:
        """Yield the first difference on usual data, and the first where the prover names sizes.

        Raises:
            RunError: the original does not run on its own.
        """
        if usual:
            sides = _Sides(part, self.models, self.options)
            if (shown := sides.first_difference(sides.usual_data())) is not None:
                yield part, shown
        if proof.trials:
            part = proof.wider or part
            sides = _Sides(part, self.models, self.options)
            if (shown := sides.first_difference(sides.data_of(proof.trials))) is not None:
                yield part, shown


def _add_difference(finding: PartFinding, shown: Counterexample) -> None:
    label, part = finding.labels[0], finding.part
    is_operator = bool(finding.operators)
    finding.counterexample = shown
    finding.difference = Difference(
        "operator" if is_operator else "value",
        label if is_operator else part.output,
        str(part.place),
        f"{label}{'' if is_operator else ' was changed'}: {shown.message}",
        shown.inputs,
        part.output,
        part.place,
    )


class _Sides:
    """Both sides of a part, ready to run. What optimisations do is seen in the run of the whole.

    Args:
        part: the part.
        models: the models.
        options: seed of the data, and memory that it may take.
    """

    def __init__(self, part: ChangedPart, models: ModelPair, options: VerifyOptions) -> None:
        self._part, self._models, self._options = part, models, options
        source = models.original.holding(part.original())
        self._inputs = data.graph_inputs(source.proto)
        self._named = data.named_dims(source.proto, self._inputs)
        self._infos = analysis.find(self._named, models.domains, source.folder)
        self._original = Original(source, models.domains, infos=self._infos).open()
        kinds = Kinds(self._named, self._infos, self._infos.facts)
        self._kind = kinds.of_values()[part.output]
        self._rng = np.random.default_rng(options.seed)

    def usual_data(self) -> Iterator[Mapping[str, Array]]:
        """Yield data of a usual size for an operator: any bits where it is only moved; then no batch.

        Raises:
            RunError: there are no sizes at which the original runs.
        """
        search = SizeSearch(
            self._named,
            self._inputs,
            self._infos,
            self._original.run,
            seed=self._options.seed,
            memory=self._options.memory,
        )
        feeds = search.first().feeds
        yield {name: self._any_bits(array) for name, array in feeds.items()}
        if (empty := self._without_batch(feeds)) is not None:
            yield empty

    def data_of(self, trials: Sequence[Trial]) -> Iterator[Mapping[str, Array]]:
        """Yield data of the sizes at which the prover found a difference."""
        types = {name: shape_inference.element_type(t) for name, t in self._part.inputs.items()}
        for trial in trials:
            sizes = [math.prod(shape) for shape in trial.shapes.values()]
            if trial.shapes.keys() >= types.keys() and max(sizes, default=0) <= _MOST_ELEMENTS:
                yield {
                    name: trial.values[name]
                    if name in trial.values
                    else self._any_bits(
                        data.usual(element_type or _FLOAT, trial.shapes[name], self._rng)
                    )
                    for name, element_type in types.items()
                }

    def first_difference(self, samples: Iterable[Mapping[str, Array]]) -> Counterexample | None:
        """Run both sides on data until they differ, and return how; None if they do not."""
        return next(filter(None, map(self._compare_sides, samples)), None)

    def _compare_sides(self, feeds: Mapping[str, Array]) -> Counterexample | None:
        """Run both sides, and return how they differ; None if they agree, or the original fails."""
        name, read = self._part.output, self._part.after.read
        integers = {n: a.tolist() for n, a in feeds.items() if a.dtype.kind in "iu" and a.ndim <= 2}
        try:
            expected = self._original.run(feeds)[name]
        except RunError:
            return None
        try:
            actual = self._converted_session.run({n: a for n, a in feeds.items() if n in read})[
                name
            ]
        except RunError as error:
            if error.out_of_memory or _is_ambiguous(str(error)):
                return None
            return Counterexample(feeds, integers, None, f"cannot be computed: {error}", name)
        mismatch = find_mismatch(expected, actual, self._kind)
        if mismatch is None:
            return None
        element, reason = mismatch.element, str(mismatch.reason)
        if element is not None and not self._kind.rtol:
            reason = describe_element(expected, actual, element, feeds)
        return Counterexample(feeds, integers, element, reason, name)

    @cached_property
    def _converted_session(self) -> Session:
        return Session(
            self._part.converted().SerializeToString(),
            of=CONVERTED,
            folder=self._models.converted.folder,
        )

    def _any_bits(self, array: Array) -> Array:
        """Return any bits in the place of reals that the original only moves."""
        if self._kind != Kind() or not is_float(array.dtype):
            return array
        return data.patterns(element_type_of(array), array.shape, self._rng)

    def _without_batch(self, feeds: Mapping[str, Array]) -> dict[str, Array] | None:
        """Return the data without any element of the batch; None where the batch is fixed."""
        moved = (info.node.input[0] for info in self._infos)
        dims = {n: shape_inference.dims(known) for n, known in self._part.inputs.items()}
        batches = ((name, sizes[0]) for name in moved if (sizes := dims.get(name)))
        name, batch = next(batches, ("", 1))
        if isinstance(batch, int):
            return None
        return {
            n: array[:0] if n == name or (dims.get(n) or (None,))[0] == batch else array
            for n, array in feeds.items()
        }


def _is_ambiguous(message: str) -> bool:
    """Tell whether a Reshape refuses a -1 because another size is 0: it could be any number."""
    requested = _REQUESTED_SHAPE.search(message)
    return requested is not None and {"0", "-1"} <= set(requested[1].split(","))
