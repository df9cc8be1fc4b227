"""Configure the documentation site: python -m sphinx -W --keep-going -b html docs build/site."""

import onnx_spatial

project = "onnx-spatial"
author = "onnx-spatial maintainers"
copyright = "onnx-spatial maintainers, Apache License 2.0"
version = release = onnx_spatial.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
smartquotes = False  # --help has two hyphens
default_role = "code"  # `name` in docstrings
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = f"onnx-spatial {release}"
html_theme_options = {"navigation_with_keys": True}

# `page.md#a-heading` is a link to a heading; a link to nothing fails the build.
myst_heading_anchors = 4

# The signatures name types by their short names; numpy's and onnx's types have no pages here.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_use_ivar = True
copybutton_prompt_text = "$ "
