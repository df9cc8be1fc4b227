"""The options of a conversion, and the names that they choose from."""

from __future__ import annotations

import inspect
from dataclasses import fields

import onnx.parser
import pytest

import onnx_spatial
from onnx_spatial.conversion import options
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.lowering import STRATEGIES


def test_names_are_those_of_what_they_choose():
    names = dict.fromkeys(strategy.name for strategy in STRATEGIES)
    assert tuple(names) == options.STRATEGY_NAMES


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


def test_domains_may_be_an_iterator():
    """They are read more than once, the last time by verification."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "elsewhere" : 1]>
        g (float[1,4,6,3] x) => (float[4,2,3,3] y)
        <int64[2] block = {2, 2}, int64[2,2] pads = {0, 0, 0, 0}> {
            y = elsewhere.SpaceToBatchND(x, block, pads)
        }""")
    found = onnx_spatial.convert(model, domains=iter(["elsewhere"]))
    assert [site.action for site in found.operators] == ["lower"]
    assert found.verification
