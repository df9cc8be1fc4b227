"""The options of a conversion, and the names that they choose from."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

import onnx_spatial
from onnx_spatial.conversion.options import ConvertOptions


def test_the_keywords_of_convert_have_the_same_defaults():
    keywords = inspect.signature(onnx_spatial.convert).parameters
    assert {f.name: f.default for f in fields(ConvertOptions)} == {
        f.name: keywords[f.name].default for f in fields(ConvertOptions)
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": "magic"}, "mode must be one of lower, "),
        ({"prefer": "magic"}, "prefer must be"),
    ],
)
def test_an_unknown_choice_is_refused(given, message):
    with pytest.raises(onnx_spatial.UsageError, match=message):
        ConvertOptions(**given)
