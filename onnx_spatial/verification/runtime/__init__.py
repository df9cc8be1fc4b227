"""Run models: onnxruntime sessions, numpy kernels of the spatial operators, control flow."""
