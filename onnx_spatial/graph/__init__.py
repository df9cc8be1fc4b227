"""Small helpers over onnx and onnx_ir: files, walking, constants, shapes, names, splicing, patching.

Nothing here knows of the operators that this project is about.
"""
