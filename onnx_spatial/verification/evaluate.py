"""A model that no runtime loads, ready to run in parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion.local_functions.marked import without_earlier_form
from onnx_spatial.model.io import reader
from onnx_spatial.verification.run.data import (
    GraphInput,
    graph_inputs,
    named_dims,
)
from onnx_spatial.verification.runtime.context import Sessions
from onnx_spatial.verification.runtime.program import Program
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
