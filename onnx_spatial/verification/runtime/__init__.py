"""Run models: onnxruntime sessions, numpy kernels, control flow; `program` runs a whole model."""
