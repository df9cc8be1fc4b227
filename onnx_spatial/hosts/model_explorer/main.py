"""Adapt models with spatial operators for Model Explorer: the original beside its conversion."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx

from onnx_spatial import schemas
from onnx_spatial.api import convert
from onnx_spatial.errors import SpatialError
from onnx_spatial.report.model_explorer import Overlay

try:
    import model_explorer
    from model_explorer.graph_builder import Graph, GraphCollection, GraphNodeStyle, KeyValue
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error}; install it with: pip install ai-edge-model-explorer"
    ) from None
if find_spec("model_explorer_onnx") is None:
    raise ModuleNotFoundError(
        "No module named 'model_explorer_onnx', which draws the graphs; "
        "install it with: pip install model-explorer-onnx"
    )

__all__ = ["SpatialAdapter"]


class SpatialAdapter(model_explorer.Adapter):  # type: ignore[misc]
    """Draw a model as model-explorer-onnx does, and its conversion as a second graph collection.

    What the overlays of `Conversion.model_explorer` tell of a node becomes an attribute of it and the
    colour of what changed. The conversion is not verified. If it fails, the original has the reason.
    """

    metadata = model_explorer.AdapterMetadata(
        id="onnx_spatial",
        name="ONNX with spatial operators",
        description="Original and converted model of onnx-spatial",
        fileExts=["onnx"],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the graphs of the original, or the collections of both models."""
        # It registers itself; at the top of this module it would become a part of this extension.
        from model_explorer_onnx.main import ONNXAdapter

        schemas.register()  # names of inputs, and shapes behind the operators
        draw = ONNXAdapter()
        graphs: list[Graph] = draw.convert(model_path, settings)["graphs"]
        try:
            conversion = convert(model_path, verify=False)
        except SpatialError as error:
            graphs[0].groupNodeAttributes.setdefault("", {})["onnx-spatial"] = str(error)
            return {"graphs": graphs}
        if not conversion.changed:
            return {"graphs": graphs}
        with tempfile.TemporaryDirectory(prefix="onnx-spatial-") as folder:
            path = Path(folder, Path(model_path).name)
            onnx.save(conversion.model, path)  # external data stays where it is
            converted = draw.convert(str(path), settings)["graphs"]
        for name, overlay in conversion.model_explorer().items():
            _mark(graphs if name.startswith("original.") else converted, overlay)
        sides = {"original": graphs, "converted": converted}
        return {"graphCollections": [GraphCollection(*side) for side in sides.items()]}


def _mark(graphs: list[Graph], overlay: Overlay) -> None:
    """Give the nodes of an overlay its values as attributes; those that changed also its colours."""
    for graph in graphs:
        data = overlay.get(graph.id, {"name": "", "results": {}})
        kind = data["name"].partition(": ")[2]
        for node in graph.nodes:
            if node.id in data["results"]:
                result = data["results"][node.id]
                node.attrs.append(KeyValue(f"onnx-spatial: {kind}", str(result["value"])))
                if kind == "changes":
                    node.style = GraphNodeStyle(backgroundColor=result["bgColor"])
