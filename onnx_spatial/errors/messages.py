"""Define what each code of an error or a warning means: its cause, and what to do.

One table for `onnx-spatial explain` and docs/codes.md, which
`python -m onnx_spatial.errors.messages > docs/codes.md` writes.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass

from onnx_spatial.errors import Code


@dataclass(frozen=True)
class Message:
    """Explanation of a code.

    Attributes:
        code: the code.
        title: what happened, in a few words.
        cause: why it happens.
        remedy: what to do.
        example: a message with this code.
        page: page of docs/ with more.
    """

    code: Code
    title: str
    cause: str
    remedy: str
    example: str
    page: str


#: First digits of a code -> what its group is about.
GROUPS = {
    "OS1": "The call",
    "OS2": "Files",
    "OS3": "Operators that break their own rules",
    "OS4": "Operators that cannot be converted",
    "OS5": "Results",
    "OS6": "Validation of many models",
    "OS9": "The program",
}

_ALL = (
    Message(
        Code.USAGE,
        "Wrong option or argument",
        "An option does not exist, has a value that it does not take, or contradicts another one.",
        "See onnx-spatial COMMAND --help. Options may also come from [tool.onnx-spatial] of "
        "pyproject.toml.",
        "missing output: use -o OUT, --in-place, or --dry-run to write nothing",
        "guides/shell.md",
    ),
    Message(
        Code.INPUT_DATA,
        "The given data does not fit the model",
        "An array or shape given by --inputs, --shape or a recorded data set is missing, or has "
        "another shape or element type than the model's input, or the model does not run on it.",
        "Give one array for each input, by its name, with the declared type and shape; without "
        "--inputs the data is generated.",
        "input 'x' must be float, not double",
        "verification.md",
    ),
    Message(
        Code.NAME,
        "The model has no input, output or dim of that name",
        "--shape, --static, --rtol, --atol or --inputs names something that the model lacks.",
        "Use one of the names in the message. onnx-spatial inspect -v MODEL lists shapes.",
        "the model has no symbolic dim named height",
        "verification.md",
    ),
    Message(
        Code.SAME_FILE,
        "A file would be overwritten that must stay",
        "OUT is the model itself, its external data, a link to another file, or a file of another "
        "kind.",
        "Write to another path with -o OUT, or use --in-place, which keeps the original until the "
        "result is verified.",
        "model.onnx: the output must not be the input (unless --in-place says so)",
        "files.md",
    ),
    Message(
        Code.PACKAGE_MISSING,
        "An optional package or program is missing",
        "The option needs a package or program that is not installed or does not load.",
        "Install what the message names, or leave out the option.",
        "the oracle tensorflow is not installed: pip install tensorflow-cpu",
        "verification.md",
    ),
    Message(
        Code.NO_MODELS,
        "A path names no model",
        "The file or folder does not exist, the pattern matches nothing, or the folder has no .onnx "
        "file, or all of them are excluded.",
        "Check the path and --exclude. In CI, check that Git LFS or the step before has put the "
        "models there.",
        "models/: contains no .onnx file",
        "validation.md",
    ),
    Message(
        Code.REGISTRATION,
        "onnxruntime-extensions was registered by someone else",
        "Mode custom-op needs its own operators in onnxruntime-extensions, and the session options or "
        "the process already have it without them or with those of another version.",
        "Call onnx_spatial.custom_ops.register(options), which registers both, and use one version of "
        "onnx-spatial in a process.",
        "another version of onnx-spatial has registered its operators in this process; use one "
        "version per process",
        "sessions.md",
    ),
    Message(
        Code.UNREADABLE,
        "A file cannot be read",
        "The file does not exist, is a folder, or the system refuses to read it.",
        "Check the path and its permissions.",
        "model.onnx: cannot be read: No such file or directory",
        "files.md",
    ),
    Message(
        Code.NOT_ONNX,
        "The file is not an ONNX model",
        "Its bytes are not the protobuf message of a model: it is empty, was cut off while it was "
        "copied, or has another format.",
        "Copy or export the file again. A file of another framework must be exported to ONNX first "
        "(OS204).",
        "model.onnx: is not an ONNX model: it is empty",
        "files.md",
    ),
    Message(
        Code.GIT_LFS_POINTER,
        "The file is a Git LFS pointer",
        "The repository keeps the file in Git LFS, and the checkout holds only its name there.",
        "Run git lfs pull. In GitHub Actions, set lfs: true for actions/checkout.",
        "model.onnx: is a pointer of Git LFS, not the file itself; fetch the file with: git lfs pull",
        "validation.md",
    ),
    Message(
        Code.EXPORT_FIRST,
        "The model is of another framework",
        "A TensorFlow SavedModel, a frozen graph (.pb), a Keras file (.keras, .h5), a TFLite file, or a "
        "PyTorch checkpoint was given. onnx-spatial reads ONNX.",
        "Export it with the command in the message, then convert the ONNX file. tf2onnx refuses patches "
        "unless it may copy them: --custom-ops does that.",
        "deeplab: is a TensorFlow SavedModel, not an ONNX model; export it first with: python -m "
        "tf2onnx.convert --saved-model deeplab --output deeplab.onnx --opset 17 --custom-ops "
        "SpaceToBatchND,BatchToSpaceND,ExtractImagePatches,ExtractVolumePatches",
        "guides/shell.md",
    ),
    Message(
        Code.EXTERNAL_DATA,
        "External data is missing or does not fit",
        "Weights are in files beside the model, and one of them is missing, too short, outside of the "
        "model's folder, or differs from a file that is there already.",
        "Put all data files beside the model, unchanged, and give the model as a path. Write the "
        "result to another folder.",
        "model.onnx: external data file 'weights.bin' is missing (tensor 'w'); put it beside the model",
        "files.md",
    ),
    Message(
        Code.INVALID_GRAPH,
        "The model contradicts itself",
        "The graph breaks a rule of ONNX: a value is computed twice or not at all, nodes form a cycle, "
        "functions call each other without end, or the window of a convolution is larger than its "
        "input.",
        "Export the model again, or mend the tool that wrote it; onnx.checker.check_model says the "
        "same of many such files.",
        "model.onnx: Neg 'a' in main graph reads 'w', which no node, input or initializer produces",
        "files.md",
    ),
    Message(
        Code.DAMAGED,
        "The model or a tensor is damaged",
        "A name is not UTF-8 text, or a tensor does not hold as many bytes as its shape needs.",
        "Copy or export the file again.",
        "model.onnx: is damaged: a name in it is not UTF-8 text",
        "files.md",
    ),
    Message(
        Code.TOO_LARGE,
        "The model exceeds 2 GiB",
        "One protobuf file holds at most 2 GiB.",
        "Use --save-as-external-data, or move the weights to external data before.",
        "model.onnx: the model exceeds the 2 GiB that one protobuf file can hold; move its weights to "
        "external data first",
        "files.md",
    ),
    Message(
        Code.UNWRITABLE,
        "A file cannot be written",
        "Its folder does not exist or is read-only, the disk is full, or the path is a folder or "
        "device.",
        "Make the folder, or write to another path. Nothing was left behind.",
        "out/model.onnx: cannot be written: there is no folder 'out'",
        "files.md",
    ),
    Message(
        Code.FILE_CHANGED,
        "The model changed while it was converted",
        "Weights stay on disk until the result is written, and another program wrote to the file.",
        "Run the command again when no other program writes to the file.",
        "model.onnx: was changed while it was converted",
        "files.md",
    ),
    Message(
        Code.DATA_FILE,
        "Test data cannot be read",
        "An .npz file or a file of a test_data_set folder is damaged, is a link to nothing, or has "
        "another format.",
        "Write the data again: numpy.savez(file, **{input: array}), or TensorProto files as in ONNX's "
        "own tests.",
        "data.npz: is not an .npz file",
        "validation.md",
    ),
    Message(
        Code.NO_REPRODUCER,
        "No reproducer was saved",
        "The difference appears in the whole model only: no part of it shows it on its own.",
        "Report it with the two whole models and the command of the message.",
        "not saved: no part of the models shows the difference on its own",
        "verification.md",
    ),
    Message(
        Code.NO_MEMORY,
        "Not enough memory",
        "The sizes that the models are run at need more memory than there is.",
        "Verify with smaller sizes: --shape NAME=1,64,64,3; or limit the child process with --memory.",
        "not enough memory; smaller sizes may help (--shape)",
        "verification.md",
    ),
    Message(
        Code.OPERATOR_RULE,
        "An operator breaks one of its rules",
        "The node could not run in TensorFlow or OpenVINO either.",
        "The message names the node and the rule. Export the model again, or fix the node.",
        "ReorgYolo: 2 channels; there must be stride * stride = 4 or more",
        "operators.md",
    ),
    Message(
        Code.NOT_DIVISIBLE,
        "A size is not divisible by the block",
        "SpaceToBatch splits each padded size by its block, BatchToSpace the batch by the product of "
        "the blocks, ReorgYolo the image by its stride. The size is fixed in the model and leaves a "
        "rest.",
        "Often a size was fixed to a wrong value: export with the right input size, or with a dynamic "
        "one.",
        "SpaceToBatch: axis 2: size 7 + paddings 0 + 0 = 7 is not divisible by its block, 3",
        "operators.md",
    ),
    Message(
        Code.CROPS_EXCEED,
        "Crops exceed the size",
        "BatchToSpace would cut off more than there is.",
        "Check the crops in the exporting program.",
        "BatchToSpace: axis 3: crops 7 + 6 exceed the size 6 * 2 = 12",
        "operators.md",
    ),
    Message(
        Code.OUT_OF_RANGE,
        "A parameter is out of its range",
        "A block, kernel, stride or rate is below 1, or paddings or crops are negative, or the entry "
        "of an axis that must not change differs from its neutral value.",
        "Fix the parameter in the exporting program.",
        "SpaceToBatch: paddings[1][0] is -1; it must not be negative",
        "operators.md",
    ),
    Message(
        Code.RANK,
        "The rank of the data does not fit the operator",
        "The operator splits more axes than the data has, or takes data of one rank only.",
        "Check the input shape that was given to the exporter.",
        "SpaceToBatch: 2 blocked dims need an input of rank 3 or more, not [2, 6]",
        "operators.md",
    ),
    Message(
        Code.OVERFLOW,
        "A size overflows 64-bit integers",
        "The parameters multiply or pad the data beyond what ONNX can express.",
        "Check the parameters; such a node never ran.",
        "SpaceToBatch: a dim of the output [9223372036854775807, 2] overflows int64",
        "operators.md",
    ),
    Message(
        Code.WINDOW,
        "The window is larger than the image",
        "ExtractPatches without padding has no place for its window.",
        "Check the size of the image and the kernel and rates.",
        "ExtractPatches: spatial axis 0: a window of 9 elements on size 4 gives the negative output "
        "size -4",
        "operators.md",
    ),
    Message(
        Code.ATTRIBUTE,
        "An attribute is missing, of a wrong type or contradictory",
        "The node lacks an attribute of its spelling, has two that contradict each other, or a value "
        "that the operator does not know.",
        "docs/operators.md lists the spellings. Export the model again.",
        "attribute padding must be SAME or VALID, not 'same'",
        "operators.md",
    ),
    Message(
        Code.PARAMETER,
        "An input is missing, or has a wrong shape or type",
        "block_shape, paddings or crops have another shape or element type than the spelling takes, "
        "or their length is unknown before the run.",
        "Declare the shape of the parameter, or fix a named dim with --static NAME=N.",
        "paddings must have shape [2, 2], not [2, 3]",
        "operators.md",
    ),
    Message(
        Code.NOT_CONVERTED,
        "An operator cannot be converted",
        "Standard operators cannot express the node as it is.",
        "The message has the reason; onnx-spatial inspect -v MODEL shows all operators.",
        "a window of 16777217 samples needs an index of as many",
        "operators.md",
    ),
    Message(
        Code.OPSET_TOO_OLD,
        "The model's opset is too old",
        "The result needs operators of a newer opset than the model imports.",
        "Raise it while converting with --opset N, export the model again with a newer opset, or fix "
        "its sizes with --static.",
        "the model's opset is 9: slices of strings with computed bounds or with steps need opset 10",
        "operators.md",
    ),
    Message(
        Code.IR_VERSION,
        "The model's IR version is too old for local functions",
        "Local functions exist since IR version 8.",
        "Use --raise-ir-version, or mode lower, which needs no functions.",
        "the model's IR version is 7; local functions need 8 or newer",
        "functions.md",
    ),
    Message(
        Code.UNKNOWN_DOMAIN,
        "The operator's domain is not accepted",
        "The node has the name of a spatial operator in a domain that is not known to hold it, so its "
        "meaning is unknown.",
        "If it means TensorFlow's or OpenVINO's operator, accept its domain: --domain NAME (in Python "
        "domains=[NAME]).",
        "domain 'my.domain' is not accepted for this operator; use --domain my.domain",
        "operators.md",
    ),
    Message(
        Code.NO_LOWERING,
        "No lowering fits",
        "Every way to write the operator in standard nodes is refused by its shape, --max-rank or "
        "--prefer.",
        "Leave out --prefer, or raise --max-rank to the number in the message. In other cases the "
        "message has the reason of each lowering.",
        "no lowering fits: it needs tensors of rank 5, the limit is 4 (use --max-rank 5 or more)",
        "operators.md",
    ),
    Message(
        Code.ELEMENT_TYPE,
        "The mode does not support the element type",
        "Python operators of onnxruntime-extensions do not carry this type, or a function is called "
        "with several.",
        "Use mode lower, or inline the function first.",
        "Python operators do not support element type complex64",
        "sessions.md",
    ),
    Message(
        Code.OPSET_NOT_RAISED,
        "The opset cannot be raised",
        "onnx's version converter, which --opset uses, does not convert this model.",
        "Export the model with the opset, or convert without --opset.",
        "the opset cannot be raised from 17 to 18: the model has local functions",
        "operators.md",
    ),
    Message(
        Code.FUNCTION_BODY,
        "The body of a local function cannot be used",
        "The function that defines the operator reads unknown values, or is of another opset than its "
        "call.",
        "Use mode lower.",
        "the body of my:SpaceToBatchND reads a value that nothing in it computes",
        "functions.md",
    ),
    Message(
        Code.FOREIGN_OPERATOR,
        "onnxruntime lacks another operator of the model",
        "The model has operators that are not spatial and that neither ONNX, onnxruntime nor a function "
        "of the model defines. They stay as they are.",
        "The message says what helps: export without them, or register the library that has them.",
        "onnxruntime has no operator my.domain:Resample (node 'a'): ...",
        "guides/shell.md",
    ),
    Message(
        Code.BEYOND_LIMITS,
        "Nodes of the result are beyond the rank limit",
        "`optimize --max-rank` rewrote what it could. Each node that is listed still has a higher rank. "
        "The result is verified and written.",
        "The reason behind each node says what hinders. Often fixed sizes help (--static NAME=DIM), or "
        "a rank that the model's own inputs and outputs allow.",
        "error: model.onnx: 1 node does not fit rank 4",
        "optimize.md",
    ),
    Message(
        Code.DIFFERENT,
        "The two models differ",
        "Values, names, shapes or types of the converted model are not those of the original. "
        "No file was written.",
        "The message begins with the cause that explains it best. For your own edits, --rtol, --atol "
        "and --outputs-only state a tolerance; --reproducer DIR saves a small example. A difference "
        "right after convert is a bug of onnx-spatial: please report it.",
        "FAILED  input 'x' is missing in the converted model",
        "verification.md",
    ),
    Message(
        Code.UNVERIFIED,
        "The result is not fully verified",
        "The models could not be compared as a whole: they do not run here, need too much memory or "
        "time, or no legal sizes were found. What could be compared is equal.",
        "Read 'not compared' in the output. --shape and --inputs give sizes and data; --strict makes "
        "this an error.",
        "warning: the result is not fully verified; --strict makes this an error",
        "verification.md",
    ),
    Message(
        Code.NOT_PROVEN,
        "An operator is compared, not proven",
        "--strict-proof requires a proof for all sizes, and the prover does not follow a node.",
        "The message names the reason. Leave out --strict-proof to accept comparisons at sampled "
        "sizes.",
        "SpaceToBatchND 'a' in main graph is not proven, only compared at sampled sizes: ...",
        "verification.md",
    ),
    Message(
        Code.WOULD_CHANGE,
        "The model would change",
        "convert --check found an operator to convert. Nothing was written.",
        "Run the command without --check and commit the result.",
        "model.onnx would change; nothing was written",
        "guides/ci.md",
    ),
    Message(
        Code.RECORDED_DATA,
        "The recorded outputs differ",
        "The model computes other outputs than its recorded data, or the data does not fit the model.",
        "Check whether model and data belong together.",
        "output 'blocks' (mode lower, optimisations off) differs from the recorded data: 32 of 48 "
        "elements differ",
        "validation.md",
    ),
    Message(
        Code.DOES_NOT_RUN,
        "onnxruntime does not run the model",
        "The model is invalid for onnxruntime, or lacks a kernel for one of its operators.",
        "The message is that of onnxruntime.",
        "onnxruntime does not load it: Unsupported model IR version: 99, max supported IR version: 13",
        "validation.md",
    ),
    Message(
        Code.CRASH,
        "The process of a model crashed",
        "onnxruntime or another library ended the process. Other models are not affected.",
        "The report has the end of its output. Run that model alone with the command in the report.",
        "its process crashed with SIGFPE (looking for legal input sizes, try 1)",
        "validation.md",
    ),
    Message(
        Code.TIMEOUT,
        "A model took longer than --timeout",
        "The model is large, or a run does not end.",
        "Raise --timeout, or give smaller sizes with --shape.",
        "it took longer than 10 s (looking for legal input sizes, try 1: x 1x1x3000x3000)",
        "validation.md",
    ),
    Message(
        Code.MEMORY_LIMIT,
        "A model took more memory than --memory",
        "The process of the model reached the limit, or there is no more memory.",
        "Raise --memory, lower --jobs, or give smaller sizes with --shape.",
        "it ran out of memory: the original does not run on generated data",
        "validation.md",
    ),
    Message(
        Code.WORKER_LOST,
        "A worker did not answer",
        "The machine or the connection of a Dask worker was lost.",
        "Run the models of the report again.",
        "the worker was lost",
        "validation.md",
    ),
    Message(
        Code.NOT_VALIDATED,
        "A model was not validated",
        "The run was interrupted.",
        "Run it again with the command in the report.",
        "skipped: not validated: the run was interrupted",
        "validation.md",
    ),
    Message(
        Code.PASSED_UNEXPECTEDLY,
        "A model passed that was expected to fail",
        "--expect-failure names a model that does not fail any more.",
        "Take it off the list.",
        "expected to fail (--expect-failure), but it does not",
        "validation.md",
    ),
    Message(
        Code.BUG,
        "An unexpected error",
        "A bug of onnx-spatial, or a file of a kind that it does not know.",
        "Please report it with the output of -v.",
        "unexpected KeyError: 'x' (a bug: please report it with the output of -v)",
        "contributing.md",
    ),
    Message(
        Code.INTERRUPTED,
        "The run was interrupted",
        "Ctrl-C, or a signal that asks the process to end. No partial files are left.",
        "Run it again.",
        "interrupted",
        "guides/shell.md",
    ),
)

#: Every code -> its explanation.
MESSAGES = {message.code: message for message in _ALL}


@functools.cache
def documentation() -> str | None:
    """Return the address of the documentation that the installed package names; None if none."""
    try:
        urls = importlib.metadata.metadata("onnx-spatial").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    named = dict(url.split(", ", 1) for url in urls if ", " in url)
    address = named.get("Documentation")
    return None if address is None else address.rstrip("/")


def help_uri(code: Code) -> str | None:
    """Return the address of the section about a code; None if the address of the pages is unknown."""
    address = documentation()
    return None if address is None else f"{address}/codes.html#{code.lower()}"


def explanation(code: Code) -> str:
    """Explain a code in a few lines of text."""
    message = MESSAGES[code]
    return "\n".join(
        (
            f"{code}: {message.title}",
            "",
            f"Cause: {message.cause}",
            f"What to do: {message.remedy}",
            f"Example: {message.example}",
            f"Read more: {help_uri(code) or f'docs/{message.page}'}",
        )
    )


def markdown() -> str:
    """Return the page of all codes."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "# Codes of errors and warnings\n"
    yield "<!-- Written by: python -m onnx_spatial.errors.messages > docs/codes.md -->\n"
    yield (
        "Every message of onnx-spatial ends with a code, as in `[OS205]`. JSON documents and\n"
        "`SpatialError.code` have it too. A code never changes its meaning.\n"
        "`onnx-spatial explain CODE` prints what this page says.\n"
    )
    group = ""
    for code, message in MESSAGES.items():
        if GROUPS[code[:3]] != group:
            group = GROUPS[code[:3]]
            yield f"## {group}\n"
        yield f"### {code}\n"
        yield f"**{message.title}.** {message.cause}\n"
        yield f"{message.remedy}\n"
        yield f"```text\n{message.example}\n```\n"
        yield f"More: [{message.page.removesuffix('.md')}]({message.page})\n"


if __name__ == "__main__":
    print(markdown(), end="")
