"""Say in one clear line why a model does not load or run.

[ONNXRuntimeError] : 1 : FAIL : Load model from m.onnx failed:Fatal error: Foo(-1) is not a
registered function/op                                       ->   a `RunError` that lacks a kernel
"""

from __future__ import annotations

import re
from typing import Literal

from onnx_spatial.errors import OperatorError

Stage = Literal["load", "run", "rule", "sizes"]

#: Messages of onnxruntime for operators, types and attributes that it has no kernel for.
_LACKS_KERNEL = (
    "NOT_IMPLEMENTED",
    "No Op registered",
    "is not a registered function/op",
    "not supported",
    "not currently registered or supported",
)

#: Messages of onnxruntime, numpy and the C++ library where memory runs out.
_NO_MEMORY = ("bad_alloc", "bad allocation", "Failed to allocate memory", "Unable to allocate")

#: What to do about an error of onnxruntime, by words of its message.
_ADVICE = {
    "two nodes with same node name": "rename one of them",
    "Cannot parse data from external tensors": (
        "onnx.save(onnx.load(MODEL), OUT, save_as_external_data=True) keeps shapes in the model"
    ),
}

#: The name of a node in a message of onnxruntime; the last one is that in the innermost body.
_NODE_NAME = re.compile(r"[Nn]ame:? ?'([^']*)'|Node \(([^)]*)\) Op \(")

#: The name of a spatial operator in its error.
_OPERATOR = re.compile(r"\S+ '([^']*)'")

#: A C++ function of onnxruntime, at times with file and line, in front of a message.
_SIGNATURE = re.compile(
    r"(?:/\S+:\d+ )?(?:[a-z][\w:<>]*[*&]? )?onnxruntime::[^()]*\((?:[^()]|\([^()]*\))*\)(?: const)?"
    r"(?:::<lambda\([^()]*\)>)?(?: \[with [^\]]*\])? "
)


class RunError(Exception):
    """A model does not load or run.

    Attributes:
        stage: "load": it fails on any data; "run": on this data; "rule": this data breaks a rule of a
            spatial operator; "sizes": no data is known on which it runs.
        node: name of the node that failed, where it is known.
        lacks_kernel: onnxruntime does not know the operator, or not with this type or attribute.
        out_of_memory: it needs more memory than there is, or than is allowed.
    """

    def __init__(
        self,
        message: str,
        stage: Stage,
        node: str = "",
        *,
        lacks_kernel: bool = False,
        out_of_memory: bool = False,
    ) -> None:
        super().__init__(message)
        self.stage: Stage = stage
        self.node = node
        self.lacks_kernel = lacks_kernel
        self.out_of_memory = out_of_memory

    @classmethod
    def of(cls, error: Exception, stage: Stage) -> RunError:
        """Describe an exception of onnxruntime, which has a dozen types."""
        text = str(error)
        names = ["".join(each) for each in _NODE_NAME.findall(text)]
        advice = [what for words, what in _ADVICE.items() if words in text]
        message = first_line(error)
        return cls(
            "; ".join([message.removesuffix("."), *advice]) if advice else message,
            stage,
            names[-1] if names else "",
            lacks_kernel=any(words in text for words in _LACKS_KERNEL),
            out_of_memory=isinstance(error, MemoryError) or any(w in text for w in _NO_MEMORY),
        )

    @classmethod
    def broken_rule(cls, error: OperatorError) -> RunError:
        """Describe an error of a spatial operator, which begins with the operator and its name."""
        name = _OPERATOR.match(str(error))
        return cls(str(error), "rule", name.group(1) if name else "")


def first_line(error: Exception) -> str:
    """Return the first line of an error message, without onnxruntime's codes and source locations."""
    text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text.strip())
    text = re.sub(r"Status Message: /\S+:\d+ .*? was false\. ", "", text)
    text = re.sub(r"Status Message: /\S+:\d+ ", "", text)
    text = _SIGNATURE.sub("", text)
    return text.removeprefix("Non-zero status code returned while ").strip()
