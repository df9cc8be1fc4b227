"""What `verify` says of a few pairs of each corpus of benchmarks/verdicts.py; gates can be broken."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest

TOP = Path(__file__).parents[1]
MODELS = TOP / "models"


@pytest.fixture(scope="module")
def verdicts():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOP))
        yield importlib.import_module("benchmarks.verdicts")


#: Corpus, function of tests/mutation/corpora.py that makes pairs, and what it is given.
SAMPLE = (
    ("own", "converted_file", MODELS / "openvino_style" / "model.onnx"),
    ("own", "converted_file", MODELS / "chains" / "keras_patches" / "model.onnx"),
    ("own", "converted_cell", "openvino_space_to_batch/computed"),
    ("right", "rewritten", "onnxruntime, all", 9),
    ("right", "rewritten", "onnxslim", 8),
    ("mutants", "mutant", "tf_space_to_batch_nd/dynamic", 0, 0),
    ("wrong", "mutant", "dilated2d Relu float", 0, 0),
    ("wrong", "written", 0),
    ("wrong", "rare", 0),
)


@pytest.mark.parametrize(("corpus", "make", "given"), [(c, m, g) for c, m, *g in SAMPLE])
def test_the_gates_hold(verdicts, corpus, make, given) -> None:
    if given[0] in verdicts.corpora.missing():
        pytest.skip(f"{given[0]} is not installed")
    pairs = [*verdicts.corpora.fitting(corpus, getattr(verdicts.corpora, make)(*given))]
    assert pairs
    found = [verdicts.ask(corpus, pair, seed=0) for pair in pairs]
    assert not [(g.words, a) for g in verdicts.GATES[corpus] for a in g.against(found)]


@pytest.fixture(scope="module")
def pair(verdicts):
    return next(verdicts.corpora.mutant("tf_space_to_batch_nd/dynamic", 0, 0))


@pytest.mark.parametrize(
    ("corpus", "verdict", "broken"),
    [
        ("own", {"status": "failed"}, ["98 % are proven", "none is FAILED"]),
        ("own", {"status": "unverified", "message": "give --shape"}, ["98 % are proven"]),
        ("right", {"status": "passed", "evidence": "sampled"}, []),
        ("right", {"status": "failed"}, ["none is FAILED"]),
        ("mutants", {"status": "failed"}, []),
        (
            "mutants",
            {"status": "passed", "evidence": "sampled", "unproven": ["Relu(x)"]},
            ["97 % are FAILED"],
        ),
        ("wrong", {"status": "passed", "evidence": "proven"}, ["none is proven"]),
        ("wrong", {"status": "passed", "evidence": "sampled"}, []),
    ],
)
def test_a_verdict_breaks_gates(verdicts, monkeypatch, pair, corpus, verdict, broken) -> None:
    known = {"message": "", "unproven": [], "outputs_only": False} | verdict
    monkeypatch.setattr("onnx_spatial.verify", lambda *_: SimpleNamespace(**known))
    found = [verdicts.ask(corpus, pair, seed=0)]
    assert [gate.words for gate in verdicts.GATES[corpus] if not gate.holds(found)] == broken
    assert verdicts.hold(found) == (not broken)
    assert any(pair.name in line for line in verdicts.table(found)) == bool(broken)


def test_a_crash_counts_against_every_gate(verdicts, monkeypatch, pair) -> None:
    monkeypatch.setattr("onnx_spatial.verify", lambda *_: 1 / 0)
    found = verdicts.ask("mutants", pair, seed=0)
    assert found.answer == "crashed"
    assert not verdicts.hold([found])
