"""Name the packages: those in onnx_spatial/, and two that stand beside it and install inside it."""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["onnx_spatial", "onnx_spatial.*"]),
        "onnx_spatial.cli",
        "onnx_spatial.custom_ops",
    ]
)
