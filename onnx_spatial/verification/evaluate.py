"""Run a model that no runtime loads: spatial operators by numpy kernels, the rest in onnxruntime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion.local_functions.marked import without_earlier_form
from onnx_spatial.errors import Code, UsageError
from onnx_spatial.model.io import reader
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.run.data import (
    GraphInput,
    check_given,
    graph_inputs,
    named_dims,
)
from onnx_spatial.verification.runtime.context import Sessions
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes import reference_runs


@dataclass
class ReferenceModel:
    """A model and what has to be known of it to run it by definition.

    `analysed` are its spatial operators if they are known from a larger model, `sessions` those that it
    shares with other parts of that.
    """

    source: reader.Source
    domains: Iterable[str]
    analysed: list[OperatorInfo] | None = None
    sessions: Sessions | None = None

    @classmethod
    def before_conversion(cls, source: reader.Source, domains: Iterable[str]) -> ReferenceModel:
        """Return the model with the operators that an earlier conversion turned into calls."""
        before = without_earlier_form(source.proto, folder=source.folder)
        if before.model is not source.proto:
            source = source.holding(before.model)
        return cls(reader.resolved(source), before.domains.union(domains))

    @cached_property
    def inputs(self) -> list[GraphInput]:
        """Inputs of the model."""
        return graph_inputs(self.source.proto)

    @cached_property
    def named(self) -> onnx.ModelProto:
        """The model without weights; every unknown input dim has a name."""
        return named_dims(self.source.proto, self.inputs)

    @cached_property
    def infos(self) -> list[OperatorInfo]:
        """Analysis of its spatial operators."""
        if self.analysed is not None:
            return self.analysed
        return analysis.find(self.named, self.domains, self.source.folder)

    @cached_property
    def known_infos(self) -> list[OperatorInfo]:
        """The operators whose domain is known to hold spatial operators."""
        return [info for info in self.infos if info.known_domain]

    @cached_property
    def program(self) -> Program:
        """The model ready to run.

        Raises:
            RunFailure: something in it cannot be run at all.
        """
        return reference_runs.program_of(self.source, self.known_infos, self.inputs, self.sessions)

    def close(self) -> None:
        """Release the sessions of the program."""
        if "program" in self.__dict__:
            self.program.close()


def evaluate(
    model: reader.Model | reader.Source,
    inputs: Mapping[str, Array],
    *,
    domains: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the outputs of a model by name; no runtime has to know its spatial operators.

    Args:
        model: path, bytes, onnx.ModelProto, onnx_ir.Model, or a model read before. Not changed.
        inputs: data by input name.
        domains: operator domains of the user's own that hold spatial operators.

    Raises:
        UsageError: the inputs do not fit the model, or it does not run on them.
        ModelFileError: the model cannot be read.
    """
    source = model if isinstance(model, reader.Source) else reader.read(model)
    reference = ReferenceModel.before_conversion(source, domains)
    feeds = check_given(reference.inputs, inputs)
    try:
        return reference.program.run(feeds)
    except RunFailure as failure:
        raise UsageError(
            f"{source.name}: cannot be run on this data: {failure}", code=Code.INPUT_DATA
        ) from None
