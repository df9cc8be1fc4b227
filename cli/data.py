"""What commands read for a model beside it, and what they keep of a difference."""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onnx_spatial.cli.options import Output
from onnx_spatial.graph import files
from onnx_spatial.plan import freeze
from onnx_spatial.validation import recorded
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
    return recorded.inputs(Path(given), files.read(model).proto)


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
