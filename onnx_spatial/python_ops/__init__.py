"""Python operators in onnxruntime, through onnxruntime-extensions.

write          a spatial operator becomes a Python operator, with the nodes that it needs
kernels        what onnxruntime calls for it; no exception may leave it: errors are kept, signals wait
registration   all operators, once per process; `raising` around a run
"""
