"""The executable cases of data/cases.json and the one-node models that are made of them.

136 valid and 40 invalid calls of the operators with the bits that TensorFlow, TFLite or OpenVINO
returned for them (`verified_with`), in each runtime's own spelling.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from building import OPENVINO, TF, one_node, quantised

DATA = Path(__file__).parent / "data" / "cases.json"

DOMAINS = {"tf4d": TF, "tfnd": TF, "tf_nhwc": TF, "tflite": TF, "openvino": OPENVINO}


def tensor(spec: dict[str, Any]) -> np.ndarray:
    """An array as cases.json writes it."""
    dtype = np.dtype(
        {"bfloat16": ml_dtypes.bfloat16, "string": object}.get(spec["dtype"], spec["dtype"])
    )
    if "bits_hex" in spec:
        return np.frombuffer(bytes.fromhex(spec["bits_hex"]), dtype).reshape(spec["shape"])
    if "gen" in spec:
        count = int(np.prod(spec["shape"]))
        return (np.arange(count) + spec["gen"].get("start", 0)).astype(dtype).reshape(spec["shape"])
    values = spec["values"]
    if dtype.kind == "c":
        values = [complex(float(re), float(im)) for re, im in values]
    elif dtype.kind in "fV":
        values = [float(v) for v in values]
    return np.array(values, dtype).reshape(spec["shape"])


@dataclass(frozen=True)
class Case:
    """One call of an operator: its inputs, attributes, and what comes out or goes wrong."""

    id: str
    op_type: str
    dialect: str
    attributes: dict[str, Any]
    inputs: tuple[np.ndarray, ...]
    expected: np.ndarray | None
    error: str | None

    @property
    def may_accept(self) -> bool:
        """The case is a limit of one runtime, not a rule of the operator."""
        return self.error is not None and "MAY accept" in self.error

    @property
    def quantised(self) -> bool:
        """TFLite pads quantised tensors with the zero point; ONNX has no such operator."""
        return "quant" in self.attributes

    @property
    def is_complex(self) -> bool:
        """onnxruntime has no complex tensors."""
        return self.inputs[0].dtype.kind == "c"

    def model(
        self, *, symbolic: bool = False, run_time_parameters: bool = False, opset: int = 17
    ) -> onnx.ModelProto:
        """A model of this one node, between DequantizeLinear and QuantizeLinear if it is quantised.

        Args:
            symbolic: every dim of the data is a symbol.
            run_time_parameters: block shapes, pads and crops are inputs, else initializers.
            opset: version of the default domain.
        """
        attributes = dict(self.attributes)
        quant = attributes.pop("quant", None)
        model = one_node(
            self.op_type,
            self.inputs,
            domain=DOMAINS[self.dialect],
            shape=[f"d{i}" for i in range(self.inputs[0].ndim)] if symbolic else "static",
            run_time=range(1, len(self.inputs)) if run_time_parameters else (),
            opset=opset,
            **attributes,
        )
        return model if quant is None else quantised(model, quant["scale"], quant["zero_point"])

    def feeds(self, *, run_time_parameters: bool = False) -> dict[str, np.ndarray]:
        """Inputs of a run of `model`."""
        data, *parameters = self.inputs
        feeds = {"x": data}
        if run_time_parameters:
            feeds.update((f"p{i}", v) for i, v in enumerate(parameters, start=1))
        return feeds


def load() -> list[Case]:
    """All 176 cases."""
    cases = []
    for spec in json.loads(DATA.read_text())["cases"]:
        error = spec["expected"].get("error")
        cases.append(
            Case(
                spec["id"],
                spec["op"],
                spec["dialect"],
                spec["attrs"],
                tuple(tensor(t) for t in spec["inputs"]),
                None if error else tensor(spec["expected"]),
                error,
            )
        )
    return cases
