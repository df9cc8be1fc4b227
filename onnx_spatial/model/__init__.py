"""Read, edit and analyse ONNX models: files, graphs, inference, symbolic sizes.

No module here depends on the spatial operators.
"""
