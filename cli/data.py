"""Input data on disk: .npz files, folders of input_N.pb as in the ONNX model zoo."""

from __future__ import annotations

import os
import struct
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from google.protobuf.message import DecodeError

from onnx_spatial.cli.options import Output
from onnx_spatial.errors import ModelFileError, UsageError
from onnx_spatial.graph import files
from onnx_spatial.plan import freeze
from onnx_spatial.verify import Verification

Arrays = dict[str, npt.NDArray[np.generic]]


def frozen(model: str, sizes: dict[str, int]) -> str | files.Source:
    """The model, with the named dims fixed where any are.

    Raises:
        UsageError: it has no dim of that name.
    """
    if not sizes:
        return model
    source = files.read(model)
    return source.holding(freeze(source.proto, sizes))


def inputs(model: str, given: str | None) -> Arrays | None:
    """The arrays in `given`, by input name; None if nothing was given.

    Raises:
        UsageError: it holds no data, or data that fits no input.
        ModelFileError: it cannot be read.
    """
    if given is None:
        return None
    path = Path(given)
    proto = files.read(model).proto
    constants = {t.name for t in proto.graph.initializer}
    names = [v.name for v in proto.graph.input if v.name not in constants]
    if path.is_dir():
        return _from_folder(path, names)
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError) as error:
        raise ModelFileError(f"{path}: is not an .npz file ({error})") from None
    # TensorFlow calls an input "x:0" and numpy users "x".
    found = {n: arrays[k] for n in names for k in (n, n.removesuffix(":0")) if k in arrays}
    if len(found) < len(names):
        missing = ", ".join(n for n in names if n not in found)
        raise UsageError(f"{path}: holds {', '.join(arrays) or 'nothing'}; missing: {missing}")
    return found


def _from_folder(folder: Path, names: list[str]) -> Arrays:
    found: Arrays = {}
    for index, name in enumerate(names):
        path = folder / f"input_{index}.pb"
        try:
            tensor = onnx.TensorProto.FromString(path.read_bytes())
            found[tensor.name if tensor.name in names else name] = onnx.numpy_helper.to_array(
                tensor
            )
        except FileNotFoundError:
            raise UsageError(f"{path}: there is no such file, for input {name!r}") from None
        except (DecodeError, ValueError, TypeError, OSError) as error:
            raise ModelFileError(f"{path}: is not a serialized TensorProto ({error})") from None
    return found


def keep(output: Output, verification: object) -> None:
    """Save the inputs of the first difference where the user can look at them."""
    if not isinstance(verification, Verification) or verification.first_difference is None:
        return
    handle, name = tempfile.mkstemp(prefix="onnx-spatial-difference-", suffix=".npz")
    os.close(handle)
    arrays = {
        # numpy has no bfloat16 on disk: its bits are kept.
        key: value.view(np.uint16) if value.dtype.name == "bfloat16" else value
        for key, value in verification.first_difference.inputs.items()
    }
    plain = {k: v.astype(np.str_) if v.dtype == object else v for k, v in arrays.items()}
    try:
        np.savez(name, allow_pickle=False, **plain)
    except (OSError, ValueError, TypeError, struct.error):  # no room; a name that no archive takes
        Path(name).unlink()
        return
    if not output.quiet:
        output.err.print(f"the inputs of the first difference are kept in {name}", soft_wrap=True)
