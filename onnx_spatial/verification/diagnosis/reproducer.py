"""Save a difference so that anybody can see it: two small models, their data, a script of ten lines.

    DIR/original.onnx     the part of the original that leads to the first value that differs
    DIR/converted.onnx    what leads there in the converted model
    DIR/inputs.npz        data on which they differ, by input name
    DIR/reproduce.py      runs both, prints the difference and exits with 1 while there is one

Each part that is saved was run, and differs; where no part does, the models are saved as a whole.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from onnx_spatial.errors import ModelFileError, SpatialError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.io import external_data, reader
from onnx_spatial.verification import extract
from onnx_spatial.verification.arrays import (
    Array,
    dtype_name,
    element_type_of,
    is_float,
    same_bits,
)
from onnx_spatial.verification.compare.outputs import RTOL
from onnx_spatial.verification.diagnosis import script
from onnx_spatial.verification.diagnosis.bisect import Bisection, arrays
from onnx_spatial.verification.evaluate import evaluate
from onnx_spatial.verification.report import Difference
from onnx_spatial.verification.runtime.sessions import RunFailure, Session
from onnx_spatial.verification.subgraphs.value_graph import Graphs, Part, Producer

#: Arithmetic that is on sizes in a converted part which moves data.
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Range"})


@dataclass(frozen=True)
class _Pair:
    """Two models that give something else on the same data."""

    original: onnx.ModelProto
    converted: onnx.ModelProto
    feeds: Mapping[str, Array]
    optimised: bool


def save(
    folder: Path,
    before: reader.Source,
    after: reader.Source,
    difference: Difference,
    bisection: Bisection | None,
    domains: Collection[str],
) -> Path:
    """Write a reproducer and return the path of its script.

    Args:
        folder: where to; it is made where there is none.
        before, after: the two models.
        difference: the first that was found.
        bisection: of the run that showed it, if there was one.
        domains: operator domains of the user's own that hold spatial operators.

    Raises:
        ModelFileError: nothing that can be saved shows the difference, or it cannot be written.
    """
    for make in _ways(before, after, difference, bisection):
        try:
            pair = make()
            if pair is not None and (tolerance := _shown(pair, domains)) is not None:
                text = script.text(
                    difference.message, domains, pair.optimised, tolerance, pair.feeds
                )
                return _write(folder, pair, text)
        except (RunFailure, SpatialError, ValueError, OSError):
            continue  # a part that cannot stand alone: a larger one will
    raise ModelFileError("no part of the models shows the difference on its own; none was saved")


def _ways(
    before: reader.Source, after: reader.Source, difference: Difference, found: Bisection | None
) -> Iterator[Callable[[], _Pair | None]]:
    """Parts that may show it, the smallest ones first."""
    value, place, inputs = difference.value, difference.place, difference.inputs
    if value is not None and place is not None:
        known = set(inputs)
        yield lambda: _cut(before, after, place, value, known, inputs, difference.optimised)
    if found is not None and found.first is not None:
        first, values = found.first, arrays(found.values)
        agreed = {n for n in first.before if n in values}
        yield lambda: _cut(
            before, after, traversal.Place(), first.name, agreed, values, first.optimised
        )
    if difference.kind in ("output", "model"):
        for optimised in (difference.optimised, not difference.optimised):
            yield lambda o=optimised: _Pair(  # type: ignore[misc]
                _whole(before, before.folder),
                _whole(after, after.folder or before.folder),
                inputs,
                o,
            )


def _cut(
    before: reader.Source,
    after: reader.Source,
    place: traversal.Place,
    output: str,
    known: Collection[str],
    values: Mapping[str, Array],
    optimised: bool,
) -> _Pair | None:
    """What leads to a value from those known; constants stay what they are in each model."""

    def stops(name: str, found: Producer | None) -> bool:
        stored = found is not None and not (isinstance(found, onnx.NodeProto) and found.input)
        return name in known and not stored

    parts = [Graphs(s.proto).part(place, output, stops) for s in (before, after)]
    models: list[onnx.ModelProto] = []
    for part, source in zip(parts, (before, after), strict=True):
        if not isinstance(part, Part) or not part.read <= set(values):
            return None
        types = {n: _type(values[n]) for n in sorted(part.read)}
        model = extract.model_of(
            part.imports, part.nodes, types, [output], part.stored, part.sparse
        )
        models.append(_embedded(source.holding(model), source.folder or before.folder))
    read = set().union(*(p.read for p in parts if isinstance(p, Part)))
    original, converted = models
    return _Pair(original, converted, {n: values[n] for n in sorted(read)}, optimised)


def _type(array: Array) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(element_type_of(array), [None] * array.ndim)


def _whole(source: reader.Source, folder: Path | None) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(source.proto)
    return _embedded(source.holding(copy), folder)


def _embedded(source: reader.Source, folder: Path | None) -> onnx.ModelProto:
    """The model with all its weights in it."""
    model = source.whole()
    external_data.embed_all(model, folder)
    return model


def _is_exact(node: onnx.NodeProto) -> bool:
    """Tell whether every bit must be the same behind a node, if its arithmetic is on sizes."""
    return op_traits.is_bitwise(node) or node.op_type in _ARITHMETIC


def _shown(pair: _Pair, domains: Iterable[str]) -> float | None:
    """The tolerance under which the difference shows, 0 for bits; None if it does not."""
    wanted = [v.name for v in pair.original.graph.input]
    expected = evaluate(
        pair.original, {n: pair.feeds[n] for n in wanted if n in pair.feeds}, domains=domains
    )
    if not all(isinstance(a, np.ndarray) for a in expected.values()):
        return None
    try:
        session = Session(reader.serialize(pair.converted), optimise=pair.optimised)
        names = {*session.inputs, *session.overridable}
        actual = session.run({n: a for n, a in pair.feeds.items() if n in names})
    except RunFailure:
        return 0.0  # that it does not run is the difference
    moves = all(_is_exact(n) for _, _, n in traversal.nodes(pair.converted))
    for name, value in expected.items():
        given = actual.get(name)
        if given is None or (dtype_name(given), given.shape) != (dtype_name(value), value.shape):
            return 0.0
        if same_bits(value, given):
            continue
        if moves or not is_float(value.dtype):
            return 0.0
        errors = np.abs(value.astype(np.float64) - given.astype(np.float64))
        largest = np.abs(value.astype(np.float64)).max()
        for tolerance in (RTOL.get(dtype_name(value), 0.0), 1e-6):
            if not (errors <= tolerance * largest).all():
                return tolerance
    return None


def _write(folder: Path, pair: _Pair, text: str) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "original.onnx").write_bytes(reader.serialize(pair.original))
        (folder / "converted.onnx").write_bytes(reader.serialize(pair.converted))
        (folder / "inputs.npz").write_bytes(_archive(pair.feeds))
        path = folder / "reproduce.py"
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise ModelFileError(f"{os.fspath(folder)}: cannot be written: {reason}") from None
    return path


def _archive(feeds: Mapping[str, Array]) -> bytes:
    """An .npz file; np.savez takes no array called "file"."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in feeds.items():
            plain = array.astype(np.str_) if array.dtype.kind == "O" else np.asarray(array)
            data = io.BytesIO()
            np.lib.format.write_array(data, plain, allow_pickle=False)
            archive.writestr(f"{name}.npy", data.getvalue())
    return buffer.getvalue()
