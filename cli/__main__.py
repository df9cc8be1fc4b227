"""Run `python -m onnx_spatial.cli`, the same as `python -m onnx_spatial`."""

from onnx_spatial.cli.main import main

if __name__ == "__main__":
    main()
