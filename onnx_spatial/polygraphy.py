"""Compare runtimes with the original model in Polygraphy: an extension of `polygraphy run`.

    $ polygraphy run original.onnx --spatial --onnxrt

`--spatial` runs the original: its spatial operators in numpy, all other nodes in onnxruntime.
The other runners, which cannot load the original, get the converted model. Polygraphy finds this module
by the entry point `polygraphy.run.plugins`.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

from polygraphy.backend.base import BaseRunner
from polygraphy.backend.onnx import util as onnx_util
from polygraphy.logger import G_LOGGER
from polygraphy.tools.args import ModelArgs, RunnerSelectArgs
from polygraphy.tools.args.base import BaseArgs, BaseRunnerArgs
from polygraphy.tools.script import make_invocable

from onnx_spatial.errors import SpatialError

__all__ = ["SpatialRunner", "SpatialRunnerArgs", "arg_groups"]


class SpatialRunner(BaseRunner):  # type: ignore[misc]
    """A Polygraphy runner that executes an original model, which no runtime loads.

    Args:
        path: path of the model.
        name: prefix of the runner's name.
    """

    def __init__(self, path: str, name: str | None = None) -> None:
        super().__init__(name=name, prefix="spatial-runner")
        self._path = path

    def activate_impl(self) -> None:
        """Read the model."""
        from onnx_spatial.model.io import reader  # each `polygraphy run` imports this module

        self._source = reader.read(self._path)

    def get_input_metadata_impl(self) -> Any:
        """Return names, types and shapes of the inputs."""
        return onnx_util.get_input_metadata(self._source.proto.graph)

    def infer_impl(self, feed_dict: Any) -> OrderedDict[str, Any]:
        """Return the outputs by name, in the order of the model."""
        from onnx_spatial.verification import evaluate

        start = time.perf_counter()
        outputs = evaluate(self._source, feed_dict)
        self.inference_time = time.perf_counter() - start
        return OrderedDict((v.name, outputs[v.name]) for v in self._source.proto.graph.output)

    def deactivate_impl(self) -> None:
        """Forget the model."""
        del self._source


class SpatialRunnerArgs(BaseRunnerArgs):  # type: ignore[misc]
    """
    onnx-spatial: running the original of a model with SpaceToBatch or similar operators.

    Depends on:

        - ModelArgs
        - RunnerSelectArgs
    """

    def get_name_opt_impl(self) -> tuple[str, str]:
        """Return the name of the runner and its option."""
        return "onnx-spatial", "spatial"

    def get_extra_help_text_impl(self) -> str:
        """Return what the option does to other runners."""
        return "The model is the original; all other runners get the converted model."

    def add_parser_args_impl(self) -> None:
        """Add the options."""
        self.group.add_argument(
            "--spatial-converted",
            metavar="FILE",
            help="With --spatial, write the converted model to FILE. The default is a temporary file.",
        )

    def parse_impl(self, args: Any) -> None:
        """Convert the model if this runner is selected, and give the result to the others."""
        model: BaseArgs = self.arg_groups[ModelArgs]
        self._original = model.path
        if "spatial" not in self.arg_groups[RunnerSelectArgs].runners.keys():  # noqa: SIM118
            return
        output = args.spatial_converted
        if output is None:
            if getattr(args, "gen_script", None):
                G_LOGGER.critical("--gen-script with --spatial requires --spatial-converted FILE")
            folder = tempfile.mkdtemp(prefix="onnx-spatial-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            output = str(Path(folder, Path(model.path).name))
        from onnx_spatial.api import convert

        try:
            convert(model.path, output, verify=False)
        except SpatialError as error:
            G_LOGGER.critical(str(error))
        model.path = output

    def add_to_script_impl(self, script: Any) -> None:
        """Add the runner."""
        script.add_import(imports=["SpatialRunner"], frm="onnx_spatial.polygraphy")
        script.add_runner(make_invocable("SpatialRunner", self._original))


def arg_groups() -> list[BaseArgs]:
    """Return what the extension adds to `polygraphy run`, for its entry point."""
    return [SpatialRunnerArgs()]
