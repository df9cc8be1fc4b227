"""Steps of a run: a step runs some nodes of a graph together.

SpatialStep      a spatial operator, by its numpy kernel
NumpyStep        a standard operator, by a numpy kernel
PaddingStep      the padding of a convolution that onnxruntime refuses (`same_padding`)
Segment          standard nodes, as one model in onnxruntime (`segment`)
ControlFlowStep  If, Loop or Scan with spatial operators inside (`control_flow`)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import onnx

from onnx_spatial.errors import OperatorError
from onnx_spatial.model import traversal
from onnx_spatial.verification.runtime.context import RunContext
from onnx_spatial.verification.runtime.numpy_ops import Kernel
from onnx_spatial.verification.runtime.scope import RunScope
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.runtime.spatial_kernels import run_node


class Step(ABC):
    """Some nodes that run together."""

    nodes: list[onnx.NodeProto]

    @abstractmethod
    def run(self, scope: RunScope) -> None:
        """Run the nodes and put their outputs into the scope.

        Raises:
            RunFailure: a node does not run, or not on this data.
        """


@dataclass
class SpatialStep(Step):
    """A spatial operator, run by its numpy kernel; `site` is its position in the original."""

    context: RunContext
    nodes: list[onnx.NodeProto]
    site: int
    label: str

    def run(self, scope: RunScope) -> None:
        """Apply the kernel to the inputs of the node."""
        node = self.nodes[0]
        arrays = [scope.value(name) if name else None for name in node.input]
        try:
            result = run_node(node, arrays)
        except OperatorError as error:
            failure = RunFailure(f"{self.label}: {error}", "rule")
            if arrays and arrays[0] is not None:
                failure.refused = self.site, np.shape(arrays[0])
            raise failure from None
        except (MemoryError, ValueError, TypeError) as error:
            raise RunFailure(f"{self.label}: {error}", "run") from None
        scope.values[node.output[0]] = result
        self.context.record(self.site, arrays)


@dataclass
class NumpyStep(Step):
    """A standard operator, run by a numpy kernel."""

    kernel: Kernel
    nodes: list[onnx.NodeProto]

    def run(self, scope: RunScope) -> None:
        """Apply the kernel to the inputs of the node."""
        node = self.nodes[0]
        try:
            result = self.kernel(node, [scope.value(n) if n else None for n in node.input])
        except (OperatorError, MemoryError, ValueError, TypeError) as error:
            raise RunFailure(
                f"{node.op_type} node {traversal.label(node)!r}: {error}", "run"
            ) from None
        scope.values[node.output[0]] = result
