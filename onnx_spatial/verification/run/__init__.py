"""Run models on data: sessions of onnxruntime, and the original with its spatial operators."""
