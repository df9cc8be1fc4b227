"""`python -m onnx_spatial`, where the script is not on the PATH."""

from onnx_spatial.cli.main import main

if __name__ == "__main__":
    main()
