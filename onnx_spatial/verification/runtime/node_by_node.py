"""Run the nodes of a model one by one, to find the node that ends the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from onnx_spatial.model import traversal
from onnx_spatial.verification.arrays import type_of
from onnx_spatial.verification.match.graphs import Imports, model_of
from onnx_spatial.verification.run.ort_values import from_ort, to_ort

_SILENT = 4


def run(
    model: bytes,
    feeds: Mapping[str, Any],
    folder: Path | None,
    begin: Callable[[str], None],
    is_fatal: Callable[[Exception], bool],
) -> str:
    """Run each node as a model of its own, as far as its inputs are arrays that can be computed.

    Args:
        model: the serialized model.
        feeds: its inputs.
        folder: folder of its external data.
        begin: called with "Div node 'd'" before that node runs.
        is_fatal: whether an exception is of the kind that is looked for.

    Returns:
        The node with such an exception; "" if there is none.
    """
    proto = onnx.load_from_string(model)
    imports = Imports.of(proto)
    stored = {tensor.name: tensor for tensor in proto.graph.initializer}
    values = {n: a for n, a in feeds.items() if isinstance(a, np.ndarray)}
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = _SILENT, 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if folder is not None:
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(folder)
        )
    for node in traversal.in_order(proto.graph):
        needed = traversal.needs(node)
        if not needed <= values.keys() | stored.keys():
            continue
        inputs = {n: type_of(values[n]) for n in sorted(needed & values.keys())}
        constants = [stored[n] for n in sorted(needed - values.keys())]
        outputs = [name for name in node.output if name]
        part = model_of(imports, [node], inputs, outputs, constants)
        label = f"{node.op_type} node {traversal.label(node)!r}"
        begin(label)
        try:
            session = ort.InferenceSession(
                part.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            fed = {n: to_ort(values[n]) for n in inputs}
            results = session.run_with_ort_values(outputs, fed)
            arrays = zip(outputs, map(from_ort, results), strict=True)
            values.update((n, a) for n, a in arrays if isinstance(a, np.ndarray))
        except Exception as error:  # of onnxruntime, of any type: the next nodes may run
            if is_fatal(error):
                return label
    return ""
