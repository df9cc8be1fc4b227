"""What a model costs on this machine: as it came, converted, and with each site lowered otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from onnx_spatial.analysis import dtype_name
from onnx_spatial.api import Inspection, inspection_of, read_source
from onnx_spatial.conversion.pipeline import EditResult, Site, convert_operators, refusals
from onnx_spatial.custom_ops import available, prepared
from onnx_spatial.errors import ConversionError, UsageError
from onnx_spatial.model.io import reader
from onnx_spatial.tuning import Effort, HarnessData, Sizes, Tuner, machine, models
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.arrays import dtype_name as array_dtype_name

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ModelTime:
    """What one run of the whole model takes.

    Attributes:
        form: "original" (its operators run in Python, as mode "custom-op" has it, unless it has
            functions that say what they mean), "converted" (mode "lower") or "tuned" (lowered by what
            was measured, where that is something else).
        threads: that one node may use; 0: as many as onnxruntime takes by itself.
        time_us: microseconds in the median; None if it could not be run.
        reason: why it could not.
    """

    form: str
    threads: int
    time_us: float | None
    reason: str | None = None


@dataclass(frozen=True)
class LoweringTime:
    """One lowering of a site.

    Attributes:
        strategy: its name.
        estimated_us: microseconds that it should take.
        measured_us: microseconds that it took, by number of threads; None where it was not measured.
    """

    strategy: str
    estimated_us: float
    measured_us: dict[int, float | None]


@dataclass(frozen=True)
class SiteTime:
    """What one site takes, lowered in each way.

    Attributes:
        site: as converted; its `strategy` is the lowering that the estimates chose.
        given: the data that it was measured with; None if no legal sizes were found.
        ways: every lowering, cheapest estimate first.
    """

    site: Site
    given: HarnessData | None
    ways: list[LoweringTime]

    def to_dict(self) -> dict[str, object]:
        """node, graph, op_type, strategy, element_type, shape (null: not measured), candidates."""
        given = self.given
        return {
            "node": self.site.node,
            "graph": self.site.graph,
            "op_type": self.site.op_type,
            "strategy": self.site.strategy,
            "element_type": None if given is None else dtype_name(given.element_type),
            "shape": None if given is None else list(given.shape),
            "candidates": [
                {
                    "strategy": way.strategy,
                    "estimated_us": way.estimated_us,
                    "measured_us": {str(t): us for t, us in way.measured_us.items()},
                }
                for way in self.ways
            ],
        }


@dataclass
class Benchmark:
    """The figures of one model.

    Attributes:
        inspection: its sites as they are converted.
        machine: processor, cores, system, onnxruntime.
        threads: numbers of threads that were measured with.
        inputs: the data that the whole model ran on.
        models: the whole model in its forms; empty if there is nothing to convert in it.
        sites: its spatial operators that are converted.
    """

    inspection: Inspection
    machine: dict[str, str | int]
    threads: tuple[int, ...]
    inputs: dict[str, Array] = field(default_factory=dict)
    models: list[ModelTime] = field(default_factory=list)
    sites: list[SiteTime] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        """version 1: model, machine, threads, inputs (name: dtype, shape), models, sites."""
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
    """Time a model and every lowering of every one of its spatial operators.

    Args:
        model: path, bytes, onnx.ModelProto or onnx_ir.Model; it is not changed.
        threads: numbers of threads to measure with; 0 leaves that to onnxruntime.
        seconds: to spend on each lowering and each form of the model.
        runs: how many runs of each instead.
        static: sizes for symbolic dims, by name.
        domains: operator domains to accept beside the ones that converters are known to use.
        inputs: data to run on, by input name, instead of made-up data.
        shapes: sizes of inputs, by input name, where the model leaves them open.
        max_rank: largest rank that new tensors may have.
        seed: of made-up data.
        progress: called with a line of text now and then.

    Raises:
        UsageError: the data or shapes do not fit the model.
        ModelFileError: the model cannot be read.
        ConversionError: an operator breaks its rules or cannot be converted.
    """
    if not threads or min(threads) < 0 or len(set(threads)) < len(threads):
        raise UsageError("threads must be numbers of 0 or more, each of them once")
    if seconds < 0 or (runs is not None and runs < 1):
        raise UsageError("seconds must be 0 or more, and runs 1 or more")
    domains = tuple(domains)
    source = read_source(model, static)
    plan = convert_operators(source.proto, domains=domains, max_rank=max_rank, folder=source.folder)
    result = Benchmark(inspection_of(source, plan), machine(), tuple(threads))
    if refused := plan.refused():
        error = ConversionError(f"{source.name}: {refusals(refused)}")
        error.inspection = result.inspection
        raise error
    if plan.model is None:
        return result
    sizes = Sizes(
        source, domains=domains, inputs=inputs, shapes=shapes, seed=seed, progress=progress
    )
    tuned: list[tuple[Tuner, EditResult]] = []
    efforts = [Effort(count, seconds, runs) for count in threads]
    for effort in efforts:
        tuner = Tuner(sizes, max_rank=max_rank, effort=effort, progress=progress)
        measured = convert_operators(
            source.proto, domains=domains, choose=tuner.choose, folder=source.folder
        )
        tuned.append((tuner, measured))
    result.sites = _sites(plan, threads, tuned)
    feeds = sizes.feeds()
    result.inputs = feeds or {}
    original = convert_operators(
        source.proto,
        mode="custom-op",
        write=prepared.write,
        domains=domains,
        folder=source.folder,
    )
    for effort, (_, measured) in zip(efforts, tuned, strict=True):
        forms = {"original": original, "converted": plan}
        if [s.strategy for s in measured.sites] != [s.strategy for s in plan.sites]:
            forms["tuned"] = measured
        if progress is not None:
            progress(f"running the whole model, threads: {effort.threads or 'all'}")
        result.models += _whole(source, forms, feeds, sizes.obstacle, effort)
    return result


def _sites(
    plan: EditResult, threads: Sequence[int], tuned: Sequence[tuple[Tuner, EditResult]]
) -> list[SiteTime]:
    """The figures of each converted site, from one plan per number of threads."""
    found = []
    for number, site in enumerate(plan.sites):
        if not site.candidates:
            continue
        each = [measured.sites[number] for _, measured in tuned]
        figures = {
            count: {c.strategy: c.measured_us for c in other.candidates}
            for count, other in zip(threads, each, strict=True)
        }
        ways = [
            LoweringTime(
                c.strategy, c.estimated_us, {t: f.get(c.strategy) for t, f in figures.items()}
            )
            for c in site.candidates
        ]
        found.append(SiteTime(site, tuned[0][0].given.get((site.graph, site.output)), ways))
    return found


def _whole(
    source: reader.Source,
    forms: Mapping[str, EditResult],
    feeds: Mapping[str, Array] | None,
    obstacle: str | None,
    effort: Effort,
) -> list[ModelTime]:
    """The times of the forms of a model with one number of threads."""
    reasons: dict[str, str | None] = {}
    there: dict[str, reader.Source] = {}
    for form, plan in forms.items():
        refused = plan.refused()
        reasons[form] = refusals(refused) if refused else obstacle
        if feeds is not None and not refused:
            there[form] = source if plan.model is None else source.holding(plan.model)
    if feeds is not None and _has_functions(forms["converted"]):
        there["original"] = source
    elif "original" in there and not available():
        del there["original"]
        reasons["original"] = "Python operators need onnxruntime-extensions, which is not installed"
    times = dict(zip(there, models(list(there.values()), feeds or {}, effort), strict=True))
    return [
        ModelTime(form, effort.threads, time, None)
        if isinstance(time := times.get(form, reasons[form]), float)
        else ModelTime(form, effort.threads, None, time)
        for form in forms
    ]


def _has_functions(plan: EditResult) -> bool:
    """Whether every operator called a local function of ours before it was converted."""
    operators = [site for site in plan.sites if site.converted and site.spatial]
    return bool(operators) and all(site.function is not None for site in operators)
