"""Find the parts of two models that must compute the same."""

from onnx_spatial.verification.match.changed_part import ChangedPart, Unmatched, Upstream
from onnx_spatial.verification.match.matches import Matches, find

__all__ = ["ChangedPart", "Matches", "Unmatched", "Upstream", "find"]
