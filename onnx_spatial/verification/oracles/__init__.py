"""Compare the numpy kernels with other runtimes that have the operators.

Verification compares a converted model with the numpy kernels. The kernels of TensorFlow and OpenVINO
are references for these, where they are installed and known to be right:

    data of a site -> numpy kernel -> y
                   -> oracle       -> y'     other bits than y fail the site
"""

from onnx_spatial.verification.oracles.check import Oracle, check, check_installed, get
from onnx_spatial.verification.oracles.silent import Silent

__all__ = ["Oracle", "Silent", "check", "check_installed", "get"]
