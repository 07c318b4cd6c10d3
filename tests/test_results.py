"""Recordings say where they come from, or they are refused."""
import json

import pytest

from specdec_lite import results

STAMPED = {"what": "a thing", "date": "2026-01-31", "command": "python -m benchmarks", "machine": "a machine", "versions": {"torch": "2"}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", results.names())
def test_every_recording_in_the_repository_is_valid(name):
    recording = results.load(name)
    assert recording.data and recording.machine in recording.source and recording.command in recording.source


def test_what_is_saved_is_loaded(folder):
    results.save(folder / "speed.json", STAMPED, {"rows": [1, 2]})
    recording = results.load("speed")
    assert recording.data == {"rows": [1, 2]} and recording.versions == {"torch": "2"}
    assert results.names() == ["speed"] and results.names("live") == []


@pytest.mark.parametrize("change, message", [
    ({"what": ""}, "'what' must be a non-empty str"), ({"machine": {"device": "x"}}, "'machine' must be a non-empty str"),
    ({"versions": {}}, "'versions' must be a non-empty dict"), ({"versions": {"torch": 2}}, "versions="),
    ({"date": "yesterday"}, "must be a date"), ({"date": None}, "'date'"), ({"command": None}, "'command'")])
def test_a_recording_that_hides_its_origin_is_refused(folder, change, message):
    with pytest.raises(ValueError, match=message):
        results.save(folder / "speed.json", STAMPED | change, {"rows": []})
    assert not list(folder.iterdir())
    (folder / "speed.json").write_text(json.dumps(STAMPED | change | {"rows": []}))
    with pytest.raises(ValueError, match=message):
        results.load("speed")


def test_a_stamp_without_data_and_a_clash_of_names_are_refused(folder):
    with pytest.raises(ValueError, match="no data"):
        results.save(folder / "speed.json", STAMPED, {})
    with pytest.raises(ValueError, match=r"\['date'\]"):
        results.save(folder / "speed.json", STAMPED, {"date": "2026-01-31"})
    with pytest.raises(ValueError, match="not JSON compliant|Out of range"):
        results.save(folder / "speed.json", STAMPED, {"x": float("nan")})


def test_an_unknown_name_is_told_what_there_is(folder):
    results.save(folder / "speed.json", STAMPED, {"rows": [1]})
    for name in ("sped", "published", "../speed"):
        with pytest.raises(ValueError, match="no such recording; there are speed"):
            results.load(name)


def test_a_stamp_of_now_is_valid():
    results.validate("now", results.stamp("a thing", "python -m benchmarks") | {"rows": [1]})


def test_published_figures_name_their_source():
    found = json.loads((results.FOLDER / "published.json").read_text(encoding="utf-8"))
    for key in found.keys() - {"about"}:
        assert results.published(key)["status"] in ("primary", "secondary") and results.published(key)["source"]
    with pytest.raises(ValueError, match="key='table'.*leviathan2023_table1"):
        results.published("table")
