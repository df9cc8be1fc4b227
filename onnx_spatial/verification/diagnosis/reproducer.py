"""Save a difference as two small models, their data, and a script that shows it.

    DIR/original.onnx     the part of the original that leads to the first value that differs
    DIR/converted.onnx    the part of the converted model that leads there
    DIR/inputs.npz        data on which they differ, by input name
    DIR/expected.npz      what the part of the original computes, by output name
    DIR/reproduce.py      runs the converted part, prints the first element that differs and exits
                          with 1 while there is one; it needs numpy and onnxruntime only

Each part is run before it is saved, and differs; where no part does, the models are saved whole.
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

from onnx_spatial.errors import Code, ModelFileError, SpatialError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.io import external_data, reader
from onnx_spatial.verification.arrays import Array, dtype_name, is_float, same_bits, type_of
from onnx_spatial.verification.compare.outputs import RTOL
from onnx_spatial.verification.diagnosis import script
from onnx_spatial.verification.diagnosis.bisect import Bisection
from onnx_spatial.verification.match.graphs import Graphs, Part, Producer, is_computed
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.report import Difference
from onnx_spatial.verification.run.original import evaluate
from onnx_spatial.verification.runtime.sessions import CONVERTED, RunFailure, Session

#: Arithmetic that is on sizes in a converted part which moves data.
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Range"})


@dataclass(frozen=True)
class _Pair:
    """Two models whose outputs differ on the same data."""

    original: onnx.ModelProto
    converted: onnx.ModelProto
    feeds: Mapping[str, Array]
    optimised: bool


def save(
    folder: Path, models: ModelPair, difference: Difference, bisection: Bisection | None
) -> Path:
    """Write a reproducer of the first difference and return the path of its script.

    Raises:
        ModelFileError: nothing that can be saved shows the difference, or it cannot be written.
    """
    for make in _candidates(models, difference, bisection):
        try:
            pair = make()
            if pair is None or (expected := _expected(pair, models.domains)) is None:
                continue
            if (tolerance := _tolerance(pair, expected)) is not None:
                text = script.text(
                    difference.message,
                    pair.feeds,
                    expected,
                    optimised=pair.optimised,
                    tolerance=tolerance,
                )
                return _write(folder, pair, expected, text)
        except (RunFailure, SpatialError, ValueError, OSError):
            continue  # a part that cannot stand alone: a larger one will
    raise ModelFileError(
        "not saved: no part of the models shows the difference on its own", code=Code.NO_REPRODUCER
    )


def _candidates(
    models: ModelPair, difference: Difference, bisection: Bisection | None
) -> Iterator[Callable[[], _Pair | None]]:
    """Yield parts that may show the difference, the smallest ones first."""
    value, place, inputs = difference.value, difference.place, difference.inputs
    if value is not None and place is not None:
        yield lambda: _cut(models, place, value, set(inputs), inputs, difference.optimised)
    if bisection is not None and bisection.first is not None:
        first, values = bisection.first, bisection.values
        agreed = first.before & values.keys()
        yield lambda: _cut(models, traversal.Place(), first.name, agreed, values, first.optimised)
    if difference.kind in ("output", "model"):
        for optimised in (difference.optimised, not difference.optimised):
            yield lambda o=optimised: _Pair(  # type: ignore[misc]
                _whole(models.original), _whole(models.converted), inputs, o
            )


def _cut(
    models: ModelPair,
    place: traversal.Place,
    output: str,
    known: Collection[str],
    values: Mapping[str, Array],
    optimised: bool,
) -> _Pair | None:
    """Cut out the nodes between known values and an output; each model keeps its own constants."""

    def stops(name: str, producer: Producer | None) -> bool:
        return name in known and (producer is None or is_computed(producer))

    read: set[str] = set()
    cut: list[onnx.ModelProto] = []
    for source in (models.original, models.converted):
        part = Graphs(source.proto).part(place, output, stops)
        if not isinstance(part, Part) or not part.read <= set(values):
            return None
        read |= part.read
        model = part.model({n: type_of(values[n]) for n in sorted(part.read)}, output)
        external_data.embed_all(model, source.folder)
        cut.append(model)
    original, converted = cut
    return _Pair(original, converted, {n: values[n] for n in sorted(read)}, optimised)


def _whole(source: reader.Source) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(source.proto)
    external_data.embed_all(copy, source.folder)
    return copy


def _expected(pair: _Pair, domains: Iterable[str]) -> dict[str, Array] | None:
    """Return the outputs of the original; None if they are not all tensors."""
    names = [v.name for v in pair.original.graph.input]
    feeds = {n: pair.feeds[n] for n in names if n in pair.feeds}
    expected = evaluate(pair.original, feeds, domains=domains)
    return expected if all(isinstance(a, np.ndarray) for a in expected.values()) else None


def _tolerance(pair: _Pair, expected: Mapping[str, Array]) -> float | None:
    """Return the tolerance that the difference exceeds, 0 for bits; None if there is none."""
    try:
        session = Session(reader.serialize(pair.converted), optimise=pair.optimised, of=CONVERTED)
        inputs = {*session.inputs, *session.overridable}
        actual = session.run({n: a for n, a in pair.feeds.items() if n in inputs})
    except RunFailure:
        return 0.0  # that it does not run is the difference
    nodes = [n for _, _, n in traversal.nodes(pair.converted)]
    moves = all(op_traits.is_bitwise(n) or n.op_type in _ARITHMETIC for n in nodes)
    for name, value in expected.items():
        other = actual.get(name)
        if other is None or (dtype_name(other), other.shape) != (dtype_name(value), value.shape):
            return 0.0
        if same_bits(value, other):
            continue
        if moves or not is_float(value.dtype):
            return 0.0
        errors = np.abs(value.astype(np.float64) - other.astype(np.float64))
        largest = np.abs(value.astype(np.float64)).max()
        for tolerance in (RTOL.get(dtype_name(value), 0.0), 1e-6):
            if not (errors <= tolerance * largest).all():
                return tolerance
    return None


def _write(folder: Path, pair: _Pair, expected: Mapping[str, Array], text: str) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "original.onnx").write_bytes(reader.serialize(pair.original))
        (folder / "converted.onnx").write_bytes(reader.serialize(pair.converted))
        (folder / "inputs.npz").write_bytes(_archive(pair.feeds))
        (folder / "expected.npz").write_bytes(_archive(expected))
        path = folder / "reproduce.py"
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise ModelFileError(
            f"{os.fspath(folder)}: cannot be written: {reason}", code=Code.UNWRITABLE
        ) from None
    return path


def _archive(arrays: Mapping[str, Array]) -> bytes:
    """Return the bytes of an .npz file; np.savez takes no array called "file"."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            data = io.BytesIO()
            np.lib.format.write_array(data, script.plain(array), allow_pickle=False)
            archive.writestr(f"{name}.npy", data.getvalue())
    return buffer.getvalue()
