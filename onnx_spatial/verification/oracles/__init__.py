"""Other runtimes that know the spatial operators, as references for the numpy kernels themselves.

Verification compares a converted model with the numpy kernels. That these are right is what TensorFlow's
and OpenVINO's own kernels say, where they are installed and known to be right:

    data of a site -> numpy kernel -> y
                   -> oracle       -> y'     the same bits, or the site has failed
"""

from onnx_spatial.verification.oracles.check import Oracle, check, check_installed, get
from onnx_spatial.verification.oracles.silent import NAMES, Silent

__all__ = ["NAMES", "Oracle", "Silent", "check", "check_installed", "get"]
