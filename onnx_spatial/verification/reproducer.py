"""Find the first value that differs in a run, and save two small models that show it.

Converted models keep the names of the original's values. So both run once more with every value that
both compute as an output, and these are compared in the order in which the original computes them:

    a, b, c agree,  d differs     the nodes between a, b, c and d are wrong

    DIR/original.onnx     the part of the original that leads to the first value that differs
    DIR/converted.onnx    the part of the converted model that leads there
    DIR/inputs.npz        data on which they differ, by input name
    DIR/reproduce.py      compares both on this data, and exits with 1 while they differ

Each pair of parts runs before it is saved, and differs; where no part does, the whole models are saved.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from onnx_spatial.errors import Code, ModelFileError, SpatialError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import external_data, reader
from onnx_spatial.model.traversal import Place
from onnx_spatial.verification.arrays import Array, dtype_name, is_native, type_of
from onnx_spatial.verification.comparison import find_mismatch
from onnx_spatial.verification.evidence import Difference, FirstValue, Verification
from onnx_spatial.verification.kinds import Kind
from onnx_spatial.verification.match.definitions import Definitions
from onnx_spatial.verification.match.graphs import (
    MAIN,
    Graphs,
    GrowingPart,
    NoPartError,
    Producer,
    is_computed,
)
from onnx_spatial.verification.options import Tolerance, VerifyOptions
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.run.original import Original
from onnx_spatial.verification.run.sessions import (
    RunError,
    open_converted,
)

#: Bytes of a model that is copied to give it more outputs.
_MOST_BYTES = 2**28


@dataclass(frozen=True)
class Divergence:
    """Where the values of two models part in a run.

    Attributes:
        first: the first value that differs; None if those that both compute agree.
        agreed: tensors that agree and come before it, the inputs included, by name.
        grows: whether both models compute it by the same node from the same values: then that node
            amplifies a difference that rounding makes.
    """

    first: FirstValue | None
    agreed: Mapping[str, Array]
    grows: bool = False


def find_first_value(
    models: ModelPair,
    definitions: Definitions,
    feeds: Mapping[str, Array],
    *,
    optimised: bool,
    tolerance: Tolerance | None = None,
) -> Divergence | None:
    """Find the first value of the main graph that differs; None if the models cannot be run so.

    Args:
        models: the original and the converted model.
        definitions: of their values.
        feeds: data of the original's inputs.
        optimised: whether the converted model runs with onnxruntime's optimisations.
        tolerance: that the caller sets for the output that differs.
    """
    original, converted = models.original, models.converted
    if max(original.proto.ByteSize(), converted.proto.ByteSize()) > _MOST_BYTES:
        return None
    makers = {
        name: node
        for node in traversal.in_order(original.proto.graph)
        for name in node.output
        if name and definitions.converted.computes(name)
    }
    try:
        runner = Original(original, models.domains, values=list(makers)).open()
        expected = runner.run(feeds)
        session = open_converted(converted, makers, optimise=optimised)
        actual = session.run(models.as_fed(feeds))
    except (RunError, SpatialError):
        return None
    kinds, agreed = models.kinds.of_values(), dict(feeds)
    for name, node in makers.items():
        value, kind = expected[name], kinds.get(name, Kind())
        mismatch = None if kind.random else find_mismatch(value, actual[name], kind, tolerance)
        if mismatch is not None:
            dtype = dtype_name(value) if isinstance(value, np.ndarray) else type(value).__name__
            first = FirstValue(
                name,
                traversal.label(node),
                node.op_type,
                str(MAIN),
                dtype,
                np.shape(value),
                optimised,
                str(mismatch.reason),
            )
            return Divergence(first, agreed, definitions.defined_alike(name, MAIN))
        if isinstance(value, np.ndarray):
            agreed[name] = value
    return Divergence(None, agreed)


# The two small models

_SCRIPT = '''"""{message}

Compares converted.onnx with original.onnx on inputs.npz, and exits with 1 while they differ.
"""

import sys
from pathlib import Path

import numpy as np

import onnx_spatial

here = Path(__file__).parent
with np.load(here / "inputs.npz") as inputs:
    options = onnx_spatial.VerifyOptions(inputs=dict(inputs), outputs_only=True{tolerance})
result = onnx_spatial.verify(here / "original.onnx", here / "converted.onnx", options{domains})
print(result.message)
for output in result.outputs:
    for worst in output.worst_elements:
        element = f"{{output.name}}{{list(worst.index)}}"
        print(f"{{element}} is {{worst.converted}} instead of {{worst.original}}")
sys.exit(not result)
'''


#: An original, its conversion, and data of their inputs.
_SmallPair = tuple[onnx.ModelProto, onnx.ModelProto, Mapping[str, Array]]


def save_reproducer(
    folder: Path,
    models: ModelPair,
    difference: Difference,
    divergence: Divergence | None,
    verify: Callable[..., Verification],
    tolerance: Tolerance | None = None,
) -> Path:
    """Write a reproducer of the first difference and return the path of its script.

    Args:
        folder: where it is written.
        models: the original and the converted model.
        difference: the first one that was found.
        divergence: the first value that differs in a run of both models, if that is known.
        verify: compares two models, as the script will.
        tolerance: that the caller sets for the output that differs.

    Raises:
        ModelFileError: nothing that can be saved shows the difference, or it cannot be written.
    """
    rtol, atol = (None, None) if tolerance is None else (tolerance.rtol, tolerance.atol)
    for pair in _candidate_pairs(models, difference, divergence):
        options = VerifyOptions(inputs=pair[2], outputs_only=True, rtol=rtol, atol=atol)
        with suppress(OSError, ValueError, SpatialError):  # a larger one can stand alone
            for proto, outer in zip(pair[:2], models.folders, strict=True):
                external_data.embed_all(proto, outer)
            result = verify(*pair[:2], options, domains=models.domains)
            files = [reader.serialize(proto) for proto in pair[:2]]
            if result.status == "failed":
                break
    else:
        raise ModelFileError(
            "not saved: no part of the models shows the difference on its own",
            code=Code.NO_REPRODUCER,
        )
    script = _SCRIPT.format(
        message=difference.message.replace("\\", "/").replace('"""', "'''"),
        tolerance="" if tolerance is None else f", rtol={rtol!r}, atol={atol!r}",
        domains=f", domains={sorted(models.domains)!r}" if models.domains else "",
    )
    path = folder / "reproduce.py"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in zip(("original", "converted"), files, strict=True):
            (folder / f"{name}.onnx").write_bytes(content)
        with zipfile.ZipFile(folder / "inputs.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in pair[2].items():  # np.savez takes no array called "file"
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, _plain_array(array), allow_pickle=False)
        path.write_text(script, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise ModelFileError(
            f"{os.fspath(folder)}: cannot be written: {reason}", code=Code.UNWRITABLE
        ) from None
    return path


def _candidate_pairs(
    models: ModelPair, difference: Difference, divergence: Divergence | None
) -> Iterator[_SmallPair]:
    """Yield pairs of models that may show the difference, the smallest first."""
    cuts = []
    if difference.value is not None and difference.place is not None:
        cuts.append((difference.place, difference.value, difference.inputs))
    if divergence is not None and divergence.first is not None:
        cuts.append((MAIN, divergence.first.name, divergence.agreed))
    for cut in cuts:
        with suppress(NoPartError):
            if (pair := _cut_out(models, *cut)) is not None:
                yield pair
    if difference.kind in ("output", "model"):
        original, converted = onnx.ModelProto(), onnx.ModelProto()
        original.CopyFrom(models.original.proto)
        converted.CopyFrom(models.converted.proto)
        yield original, converted, difference.inputs


def _cut_out(
    models: ModelPair, place: Place, output: str, known: Mapping[str, Array]
) -> _SmallPair | None:
    """Cut out what leads from known values to an output; None if it needs other values.

    Raises:
        NoPartError: nothing computes the output, or its nodes cannot be taken out of a function.
    """

    def stops_at(name: str, producer: Producer | None) -> bool:
        return name in known and (producer is None or is_computed(producer))

    parts = []
    for source in (models.original, models.converted):
        growing = GrowingPart(Graphs(source.proto), place, stops_at)
        growing.include(output)
        parts.append(growing.part())
    read = sorted(parts[0].read | parts[1].read)
    if not known.keys() >= set(read):
        return None
    types = {name: type_of(known[name]) for name in read}
    original, converted = (part.model(types, output) for part in parts)
    return original, converted, {name: known[name] for name in read}


def _plain_array(array: Array) -> Array:
    """Return an array without Python objects; of a type that numpy lacks, its bits."""
    if array.dtype.kind == "O":
        return array.astype(np.str_)
    return array if is_native(array.dtype) else array.view(f"V{array.dtype.itemsize}")
