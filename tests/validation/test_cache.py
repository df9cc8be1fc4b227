"""A result is taken from an earlier run only if nothing that it depends on has changed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from validating import FOREIGN, PLAIN, REFUSED, image, record, save, space_to_batch

from onnx_spatial.validation import ModelResult, Options, cache
from onnx_spatial.validation.workers import job
from onnx_spatial.validation.workers.job import Job

OPTIONS = Options()


def look(path, folder, options=OPTIONS) -> ModelResult:
    """What the process of a model does, without the process."""
    asked = Job(str(path), str(path.parent), options.to_dict(), cache=str(folder))
    return job._validate(asked, lambda source, text: None)


def test_the_second_look_is_a_short_one(tmp_path):
    path = save(tmp_path / "m.onnx")
    first, second = look(path, tmp_path / "cache"), look(path, tmp_path / "cache")
    assert (first.cached, second.cached) == (False, True)
    assert {**second.to_dict(), "cached": False} == first.to_dict()


def test_a_result_without_graphs_is_not_enough_for_a_page(tmp_path):
    path, folder = save(tmp_path / "m.onnx"), tmp_path / "cache"
    look(path, folder)
    words = {"options": OPTIONS.to_dict(), "cache": str(folder), "graphs": 10**6}
    asked = Job(str(path), str(path.parent), **words)
    found = [job._validate(asked, lambda source, text: None) for _ in range(2)]
    assert [each.cached for each in found] == [False, True]
    assert found[0].graphs is not None
    assert json.loads(json.dumps(found[0].graphs)) == json.loads(json.dumps(found[1].graphs))


def test_the_same_bytes_under_another_name_are_known(tmp_path):
    look(save(tmp_path / "m.onnx", PLAIN), tmp_path / "cache")
    found = look(save(tmp_path / "other.onnx", PLAIN), tmp_path / "cache")
    assert found.cached
    assert found.model.endswith("other.onnx")


def test_what_was_not_verified_is_kept_and_what_failed_is_not(tmp_path):
    for text, kept in ((FOREIGN, True), (REFUSED, False)):
        path = save(tmp_path / "m.onnx", text)
        look(path, tmp_path / "cache")
        assert look(path, tmp_path / "cache").cached is kept


@pytest.fixture
def model(tmp_path):
    """A model with recorded data of both kinds."""
    record(tmp_path, [image()], [space_to_batch(image())])
    np.savez(tmp_path / "m.npz", x=image())
    return save(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    "changed", ["m.onnx", "m.npz", "test_data_set_0/input_0.pb", "test_data_set_0/output_0.pb"]
)
def test_the_key_covers_every_file(tmp_path, model, changed):
    before = cache.key_of(model, OPTIONS)
    assert cache.key_of(model, OPTIONS) == before
    (tmp_path / changed).write_bytes((tmp_path / changed).read_bytes() + b"\0")
    assert cache.key_of(model, OPTIONS) != before


def test_the_key_covers_new_and_renamed_data(tmp_path, model):
    keys = {cache.key_of(model, OPTIONS)}
    record(tmp_path, [image()], [], 1)
    keys.add(cache.key_of(model, OPTIONS))
    (tmp_path / "test_data_set_1").rename(tmp_path / "test_data_set_2")
    keys.add(cache.key_of(model, OPTIONS))
    assert len(keys) == 3


def test_the_key_covers_external_data(tmp_path):
    import onnx

    model = onnx.load(save(tmp_path / "m.onnx"))
    model.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.array([2, 3], np.int32), "block")
    )
    path = tmp_path / "heavy.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    before = cache.key_of(path, OPTIONS)
    data = bytearray((tmp_path / "w.bin").read_bytes())
    data[-1] ^= 1
    (tmp_path / "w.bin").write_bytes(data)
    assert cache.key_of(path, OPTIONS) != before
    (tmp_path / "w.bin").unlink()
    assert cache.key_of(path, OPTIONS) is None


def test_the_key_covers_options_and_versions(model, monkeypatch):
    others = (Options(seed=1), Options(strict=True), Options(strict_proof=True))
    keys = {cache.key_of(model, o) for o in (OPTIONS, *others)}
    monkeypatch.setattr(cache, "tools", lambda: {"onnxruntime": "0"})
    keys.add(cache.key_of(model, OPTIONS))
    monkeypatch.setattr(cache, "_own_source", lambda: "other")
    keys.add(cache.key_of(model, OPTIONS))
    assert len(keys) == 6


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"onnx_spatial_validation": 1}', None])
def test_a_damaged_entry_counts_for_nothing(tmp_path, damage):
    path, folder = save(tmp_path / "m.onnx", PLAIN), tmp_path / "cache"
    look(path, folder)
    (entry,) = folder.iterdir()
    if damage is None:  # a whole entry, for something else
        document = json.loads(entry.read_text())
        damage = json.dumps({**document, "key": "0"})
    entry.write_text(damage)
    assert not look(path, folder).cached
    assert look(path, folder).cached


def test_an_entry_that_says_failed_is_not_believed(tmp_path):
    path, folder = save(tmp_path / "m.onnx", PLAIN), tmp_path / "cache"
    look(path, folder)
    (entry,) = folder.iterdir()
    entry.write_text(entry.read_text().replace('"status": "passed"', '"status": "failed"', 1))
    assert not look(path, folder).cached


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path):
    (tmp_path / "cache").write_text("a file")
    path = save(tmp_path / "m.onnx", PLAIN)
    assert look(path, tmp_path / "cache").status == "passed"
    assert (tmp_path / "cache").read_text() == "a file"


def test_a_model_that_was_replaced_meanwhile_is_not_kept(tmp_path, monkeypatch):
    """It is not known of which of the two files it is the result."""
    path = save(tmp_path / "m.onnx", PLAIN)

    def replacing(*arguments, **others):
        save(path, FOREIGN)
        return ModelResult(str(path), "passed", "passed")

    monkeypatch.setattr(job, "examine", replacing)
    look(path, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_the_key_covers_the_data_that_the_options_name(tmp_path, model):
    data = tmp_path / "data.npz"
    data.write_bytes(b"1")
    options = replace(OPTIONS, inputs=str(data))
    before = cache.key_of(model, options)
    assert before != cache.key_of(model, OPTIONS)
    data.write_bytes(b"2")
    assert cache.key_of(model, options) != before
