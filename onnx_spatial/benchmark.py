"""Time a model on this machine: original, converted, and with every lowering of each operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx_spatial.analysis import dtype_name
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.pipeline import EditResult, Site, convert_operators, refusal, refusals
from onnx_spatial.custom_ops import available
from onnx_spatial.edit import inspection_of, read_source
from onnx_spatial.errors import UsageError, of_model
from onnx_spatial.model.io import reader
from onnx_spatial.report.results import Inspection
from onnx_spatial.tuning import Effort, HarnessData, Sizes, Tuner, machine, models
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.arrays import dtype_name as array_dtype_name

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ModelTime:
    """Time of a run of the whole model.

    Attributes:
        form: "original" (operators run in Python as in mode "custom-op", unless the model has
            functions for them), "converted" (mode "lower") or "tuned" (with the fastest measured
            lowerings, if these are others).
        threads: number of threads of a node; 0: onnxruntime's choice.
        time_us: microseconds in the median; None if the model could not be run.
        reason: why it could not be run.
    """

    form: str
    threads: int
    time_us: float | None
    reason: str | None = None


@dataclass(frozen=True)
class LoweringTime:
    """Times of one lowering of an operator.

    Attributes:
        strategy: name of the lowering.
        estimated_us: estimated microseconds.
        measured_us: measured microseconds by number of threads; None if not measured.
    """

    strategy: str
    estimated_us: float
    measured_us: dict[int, float | None]


@dataclass(frozen=True)
class SiteTime:
    """Times of every lowering of an operator.

    Attributes:
        site: the operator as converted; its `strategy` is the lowering with the least estimate.
        given: the data that it was measured with; None if no legal sizes were found.
        ways: every lowering, least estimate first.
    """

    site: Site
    given: HarnessData | None
    ways: list[LoweringTime]

    def to_dict(self) -> dict[str, object]:
        """Return node, graph, op_type, strategy, element_type, shape (or null), candidates."""
        data = self.given
        return {
            "node": self.site.node,
            "graph": self.site.graph,
            "op_type": self.site.op_type,
            "strategy": self.site.strategy,
            "element_type": None if data is None else dtype_name(data.element_type),
            "shape": None if data is None else list(data.shape),
            "candidates": [
                {**vars(way), "measured_us": {str(t): us for t, us in way.measured_us.items()}}
                for way in self.ways
            ],
        }


@dataclass
class Benchmark:
    """Times of one model.

    Attributes:
        inspection: its operators and how they are converted.
        machine: processor, cores, system, onnxruntime.
        threads: numbers of threads that were measured with.
        inputs: the data that the whole model ran on.
        models: times of the whole model; empty if there is nothing to convert.
        sites: times of the operators that are converted.
    """

    inspection: Inspection
    machine: dict[str, str | int]
    threads: tuple[int, ...]
    inputs: dict[str, Array] = field(default_factory=dict)
    models: list[ModelTime] = field(default_factory=list)
    sites: list[SiteTime] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        """Return version 1: model, machine, threads, inputs (name: dtype, shape), models, sites."""
        return {
            "version": 1,
            "model": self.inspection.model,
            "machine": dict(self.machine),
            "threads": list(self.threads),
            "inputs": {
                name: {"dtype": array_dtype_name(a), "shape": list(a.shape)}
                for name, a in self.inputs.items()
            },
            "models": [dict(vars(whole)) for whole in self.models],
            "sites": [site.to_dict() for site in self.sites],
        }


def bench(
    model: reader.Model,
    *,
    threads: Sequence[int] = (1, 0),
    seconds: float = 0.3,
    runs: int | None = None,
    static: Mapping[str, int] | None = None,
    domains: Iterable[str] = (),
    inputs: Mapping[str, Array] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    max_rank: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Benchmark:
    """Time a model and every lowering of each of its spatial operators.

    Args:
        model: path, bytes, onnx.ModelProto or onnx_ir.Model; it is not changed.
        threads: numbers of threads to measure with; 0: onnxruntime's choice.
        seconds: time to spend on each lowering and each form of the model.
        runs: number of runs of each, in place of `seconds`.
        static: sizes of symbolic dims, by name.
        domains: operator domains to accept beside the ones that converters are known to use.
        inputs: data to run on, by input name, in place of generated data.
        shapes: shapes of inputs, by input name, that the model does not fix.
        max_rank: largest rank of new tensors.
        seed: seed of generated data.
        progress: called with lines of text.

    Raises:
        UsageError: the data or shapes do not fit the model.
        ModelFileError: the model cannot be read.
        ConversionError: an operator breaks its rules or cannot be converted.
    """
    if not threads or min(threads) < 0 or len(set(threads)) < len(threads):
        raise UsageError("threads must be different numbers, each 0 or more")
    if seconds < 0 or (runs is not None and runs < 1):
        raise UsageError("seconds must be 0 or more, and runs 1 or more")
    options = ConvertOptions(max_rank=max_rank, domains=tuple(domains))
    source = read_source(model, static)
    with of_model(source.name):
        converted = convert_operators(source.proto, options, folder=source.folder)
    result = Benchmark(inspection_of(source, converted), machine(), tuple(threads))
    if refused := converted.refused():
        error = refusal(source.name, refused)
        error.inspection = result.inspection
        raise error
    if converted.model is None:
        return result
    sizes = Sizes(
        source, domains=options.domains, inputs=inputs, shapes=shapes, seed=seed, progress=progress
    )
    tuned: list[tuple[Tuner, EditResult]] = []
    efforts = [Effort(count, seconds, runs) for count in threads]
    for effort in efforts:
        tuner = Tuner(sizes, max_rank=max_rank, effort=effort, progress=progress)
        measured = convert_operators(
            source.proto, options, choose=tuner.choose, folder=source.folder
        )
        tuned.append((tuner, measured))
    result.sites = _site_times(converted, threads, tuned)
    feeds = sizes.feeds()
    result.inputs = feeds or {}
    original = convert_operators(
        source.proto, replace(options, mode="custom-op"), folder=source.folder
    )
    for effort, (_, measured) in zip(efforts, tuned, strict=True):
        forms = {"original": original, "converted": converted}
        if [s.strategy for s in measured.sites] != [s.strategy for s in converted.sites]:
            forms["tuned"] = measured
        if progress is not None:
            progress(f"running the whole model, threads: {effort.threads or 'all'}")
        result.models += _model_times(source, forms, feeds, sizes.obstacle, effort)
    return result


def _site_times(
    converted: EditResult, threads: Sequence[int], tuned: Sequence[tuple[Tuner, EditResult]]
) -> list[SiteTime]:
    """Collect the times of each converted operator from one tuned conversion per number of threads."""
    result = []
    for number, site in enumerate(converted.sites):
        if not site.candidates:
            continue
        times = {
            count: {c.strategy: c.measured_us for c in measured.sites[number].candidates}
            for count, (_, measured) in zip(threads, tuned, strict=True)
        }
        lowerings = [
            LoweringTime(
                c.strategy, c.estimated_us, {n: t.get(c.strategy) for n, t in times.items()}
            )
            for c in site.candidates
        ]
        data = tuned[0][0].data.get((site.graph, site.output))
        result.append(SiteTime(site, data, lowerings))
    return result


def _model_times(
    source: reader.Source,
    forms: Mapping[str, EditResult],
    feeds: Mapping[str, Array] | None,
    obstacle: str | None,
    effort: Effort,
) -> list[ModelTime]:
    """Time the forms of a model with one number of threads."""
    reasons: dict[str, str | None] = {}
    sources: dict[str, reader.Source] = {}
    for form, result in forms.items():
        refused = result.refused()
        reasons[form] = refusals(refused) if refused else obstacle
        if feeds is not None and not refused:
            sources[form] = source if result.model is None else source.holding(result.model)
    if feeds is not None and _has_functions(forms["converted"]):
        sources["original"] = source
    elif "original" in sources and not available():
        del sources["original"]
        reasons["original"] = "Python operators need onnxruntime-extensions, which is not installed"
    times = dict(zip(sources, models(list(sources.values()), feeds or {}, effort), strict=True))
    return [
        ModelTime(form, effort.threads, time, None)
        if isinstance(time := times.get(form, reasons[form]), float)
        else ModelTime(form, effort.threads, None, time)
        for form in forms
    ]


def _has_functions(result: EditResult) -> bool:
    """Return whether every operator called a local function written by an earlier conversion."""
    operators = [site for site in result.sites if site.converted and site.spatial]
    return bool(operators) and all(site.function is not None for site in operators)
