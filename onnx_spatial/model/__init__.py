"""Read, edit and understand ONNX models: files, graphs, inference, symbolic sizes.

Nothing here knows of the spatial operators.
"""
