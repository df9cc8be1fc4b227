"""Define a check, and the context it runs in: both models, their analysis, the findings so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.model.graph import layout_marks
from onnx_spatial.verification.checks import replacement
from onnx_spatial.verification.checks.findings import Findings, OperatorCheck, Proof, Recorder
from onnx_spatial.verification.checks.region import RegionComparison
from onnx_spatial.verification.checks.region_results import RegionResults
from onnx_spatial.verification.checks.replacement import Replacement
from onnx_spatial.verification.compare.tolerance import Tolerances
from onnx_spatial.verification.evaluate import ReferenceModel
from onnx_spatial.verification.match.definitions import Definitions
from onnx_spatial.verification.match.graphs import Graphs, is_computed, scopes
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.report import Check
from onnx_spatial.verification.runtime.shared_sessions import SharedSessions
from onnx_spatial.verification.sizes.reference_runs import RunRequest
from onnx_spatial.verification.subgraphs.matched_parts import RegionKey
from onnx_spatial.verification.subgraphs.matching_region import MatchingRegions
from onnx_spatial.verification.subgraphs.transpose_chain import Original, TransposeChain


@dataclass
class Context:
    """Everything that a check may need.

    Attributes:
        models: the original, without the local functions of an earlier conversion, and the converted
            model.
        request: seed and sizes of the data, and where to report progress.
        tolerances: that the caller sets for outputs.
        findings: what the checks found so far; they add to it.
        proofs: what is proven of replacements, by their `Replacement.key`.
        region_proofs: what is proven of regions, by their `MatchingRegion.key`.
        shared_proofs: proofs of regions that are proofs of others, by their `region_keys.digest`; None
            where a first one was tried for its own weights.
        sessions: of the nodes that replace operators, for all operators with equal ones.
        passed: the checks of replacements that passed, by `Replacement.key` and opset.
        proof_seconds: time left for proofs.
        watched: nodes that could not be compared apart from the whole model, each with the region to
            compare in its runs.
    """

    models: ModelPair
    request: RunRequest
    tolerances: Tolerances = field(default_factory=Tolerances)
    findings: Findings = field(init=False)
    proofs: dict[bytes, Proof] = field(default_factory=dict)
    region_proofs: dict[RegionKey, Proof] = field(default_factory=dict)
    shared_proofs: dict[bytes, Proof | None] = field(default_factory=dict)
    sessions: SharedSessions = field(default_factory=SharedSessions)
    passed: dict[tuple[bytes, int | None], list[Check]] = field(default_factory=dict)
    proof_seconds: float = 5.0
    watched: list[tuple[Recorder, RegionComparison]] = field(default_factory=list)
    _replacements: dict[int, list[Replacement] | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.findings = Findings([OperatorCheck.of(info) for info in self.reference.infos])

    @property
    def seed(self) -> int:
        """Seed of the generated data."""
        return self.request.seed

    @cached_property
    def reference(self) -> ReferenceModel:
        """The original, its analysis, and the program that runs it."""
        return ReferenceModel(self.models.original, self.models.domains)

    @cached_property
    def chains(self) -> Original:
        """The chains of Transposes around each operator of the original."""
        return Original(self.reference.named, self.reference.infos)

    @cached_property
    def converted(self) -> Graphs:
        """The graphs of the converted model, with marked values in their old layouts, too."""
        return Graphs(layout_marks.with_original_values(self.models.converted.proto))

    def replacements(self, info: OperatorInfo) -> list[Replacement] | str:
        """Return the nodes that replace an operator, or why they cannot be cut out."""
        if info.index not in self._replacements:
            self._replacements[info.index] = replacement.cut(info, self.chains, self.converted)
        return self._replacements[info.index]

    def parameters_are_free(self, chain: TransposeChain) -> bool:
        """Tell whether a caller chooses the unknown parameters of a chain.

        Those that nodes of the model compute, or pass to a subgraph, may not take every value.
        """
        place = chain.head.place
        bodies = [scope for scope in scopes(place) if scope.steps]
        return not any(
            is_computed(self.original.find(name, place))
            or any(self.original.is_fed(name, body) for body in bodies)
            for name, value in chain.parameters.items()
            if value is None
        )

    @cached_property
    def original(self) -> Graphs:
        """The graphs of the original."""
        return Graphs(self.models.original.proto)

    @cached_property
    def definitions(self) -> Definitions:
        """The definitions of the values of both models."""
        return Definitions(self.original, self.converted, self.models.folders)

    @cached_property
    def regions(self) -> MatchingRegions:
        """Regions that both models compute."""
        original, reference = self.models.original.proto, self.reference
        converted, source = self.converted, self.models.converted
        if source.proto.functions:
            facts = analysis.graph_facts(source.proto, (), source.folder)
            converted = Graphs(source.proto, facts)
        return MatchingRegions(original, converted, reference.named, reference.infos)

    @cached_property
    def region_results(self) -> RegionResults:
        """Comparisons of these regions, made once for each."""
        return RegionResults(self.regions, self.models, self.seed, self.region_proofs)


@dataclass(frozen=True)
class ModelCheck:
    """A check of a converted model.

    Attributes:
        name: of the check.
        run: compares the models of a context and adds to its findings.
        needs: names of earlier checks whose findings it uses.
        when: whether there is anything to check, by the findings so far.
        of_outputs: whether it is about inputs and outputs, not about the nodes between them.
    """

    name: str
    run: Callable[[Context], None]
    needs: tuple[str, ...] = ()
    when: Callable[[Findings], bool] = lambda findings: True
    of_outputs: bool = False
