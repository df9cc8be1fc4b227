"""Show original and converted models in Google's Model Explorer.

    $ model-explorer original.onnx --extensions onnx_spatial.hosts.model_explorer

Model Explorer imports the module `main` of each extension.
"""
