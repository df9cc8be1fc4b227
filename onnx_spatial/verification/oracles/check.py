"""Compare the numpy kernel of a site with an oracle, on data of a few legal sizes."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion.options import ORACLE_PACKAGES
from onnx_spatial.errors import Code, OperatorError, UsageError
from onnx_spatial.operators import Operator
from onnx_spatial.operators.shapes import is_countable
from onnx_spatial.verification.arrays import Array, dtype_of, patterns
from onnx_spatial.verification.checks.findings import OperatorCheck
from onnx_spatial.verification.compare.bitwise import bitwise
from onnx_spatial.verification.oracles.silent import Silent
from onnx_spatial.verification.report import Check
from onnx_spatial.verification.runtime.spatial_kernels import MAX_RANK, run_facts
from onnx_spatial.verification.sizes import operator_shapes

Oracle = Callable[[Operator, Array], Array]

#: Samples at which a site is compared, and the most elements of its data.
_SAMPLES = 4
_MOST_ELEMENTS = 2**21


def check_installed(names: Iterable[str]) -> None:
    """Refuse names of oracles that do not exist or are not installed, without loading them.

    Raises:
        UsageError: there is no such oracle, or it is not installed.
    """
    for name in names:
        if name not in ORACLE_PACKAGES:
            raise UsageError(f"oracle must be {' or '.join(ORACLE_PACKAGES)}, not {name!r}")
        if importlib.util.find_spec(name) is None:
            raise UsageError(
                f"the oracle {name} is not installed: pip install {ORACLE_PACKAGES[name]}",
                code=Code.PACKAGE_MISSING,
            )


def get(names: Iterable[str]) -> dict[str, Oracle]:
    """Load the oracles of these names.

    Raises:
        UsageError: there is no such oracle, or it is not installed.
    """
    names = tuple(names)
    check_installed(names)
    return {n: importlib.import_module(f"onnx_spatial.verification.oracles.{n}").run for n in names}


def check(site: OperatorCheck, oracles: dict[str, Oracle], seed: int) -> None:
    """Compare the kernel of a site with each oracle, and record the results in its checks."""
    if site.info.call is None:
        return
    for name, oracle in oracles.items():
        compared = False
        skipped = None
        for arrays, operator in _data(site.info, seed):
            x = arrays[0]
            assert x is not None
            expected = run_facts(site.info.facts, arrays)
            try:
                result: Array | str = oracle(operator, x)
            except Silent as reason:
                skipped = skipped or _skipped(name, x, expected, str(reason))
                continue
            except Exception as error:  # each runtime has exceptions of its own
                result = f"it does not run: {str(error).splitlines()[0] if str(error) else error!r}"
            compared = True
            if isinstance(result, str):
                outcome = bitwise("isolated", False, x, expected, result)
            else:
                outcome = bitwise("isolated", False, x, result, expected)
            inputs = {
                n: a for n, a in zip(site.info.node.input, arrays, strict=False) if a is not None
            }
            site.record(replace(outcome, how=name), inputs, site.output)  # type: ignore[arg-type]
        if not compared and skipped is not None:
            site.result.checks.append(skipped)


def _skipped(name: str, x: Array, expected: Array, reason: str) -> Check:
    what = (name, False, str(x.dtype.name), tuple(x.shape), 0)
    return Check(*what, skipped=reason)  # type: ignore[arg-type]


def _data(info: OperatorInfo, seed: int) -> Iterator[tuple[list[Array | None], Operator]]:
    """Yield inputs of a node at legal sizes, of all its element types, with the operator of the run."""
    call = info.call
    assert call is not None
    rng = np.random.default_rng([seed, info.index])
    types = sorted(info.element_types) or [onnx.TensorProto.FLOAT]
    samples = (operator_shapes.draw_sample(info.facts, rng, n) for n in range(_SAMPLES))
    for sample in samples:
        if sample is None or not is_countable(sample.shape) or sample.elements > _MOST_ELEMENTS:
            continue
        if len(sample.shape) > MAX_RANK // 2:
            continue
        for element_type in types:
            arrays = [f.value if f is not None else None for f in info.facts.inputs]
            for index, value in sample.parameters.items():
                arrays[index] = value
            if element_type != onnx.TensorProto.STRING and dtype_of(element_type).kind == "c":
                continue
            arrays[0] = patterns(element_type, sample.shape, rng)
            try:
                yield arrays, call.bind(arrays)
            except OperatorError:
                continue
