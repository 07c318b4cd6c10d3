"""Recordings state their origin; pages quote them."""

import json
import re

import pytest

from specdec_book import recordings
from specdec_book.recordings import models
from specdec_lite.drafters.model_trees import RATES
from specdec_lite.measure import stamps

STAMPED = {
    "what": "a thing",
    "date": "2026-01-31",
    "command": "python -m benchmarks",
    "machine": "a machine",
    "versions": {"torch": "2"},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "FOLDER", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", recordings.names())
def test_every_recording_in_the_repository_is_valid(name):
    recording = recordings.load(name)
    assert recording.data
    assert recording.machine in recording.source
    assert recording.command in recording.source


@pytest.mark.parametrize("name", recordings.names())
def test_no_recording_was_made_under_load(name):
    assert not recordings.load(name).is_disturbed


@pytest.mark.parametrize(
    "loads, threads, disturbed",
    [
        ([0.2, 2.3], 2, False),
        ([1.6, 1.0], 1, True),
        ([0.2, 2.6], 1, True),
        ([0.2, 1.0, 3.9, 1.0], 2, True),
        ([], 1, False),
    ],
)
def test_load_of_other_programs_disturbs(loads, threads, disturbed):
    process = {"threads": threads, "load_average": [[load, 0, 0] for load in loads]}
    recording = recordings.Recording("a/b", **STAMPED, data={"rows": []}, process=process)
    assert recording.loads == loads and recording.is_disturbed == disturbed
    assert ("under load: other programs ran" in recording.source) == disturbed


@pytest.mark.parametrize("own", ["programs", "browser"])
def test_processes_that_a_measurement_starts_itself_do_not_disturb_it(own):
    for first, disturbed in ((0.2, False), (1.6, True)):
        process = {"threads": 1, "load_average": [[first, 0, 0], [6.0, 0, 0]]}
        recording = recordings.Recording("a/b", **STAMPED, data={own: "its own"}, process=process)
        assert recording.is_disturbed == disturbed


@pytest.mark.parametrize("name", recordings.names("live-page"))
def test_live_recordings_cover_every_format_and_temperature(name):
    combinations = {
        (row["format"], row["domain"], row["temperature"])
        for row in recordings.load(name).data["rows"]
    }
    assert combinations == {
        (form, domain, t)
        for form in ("float32", "int8")
        for domain in ("code", "data", "prose")
        for t in (0.0, 1.0)
    }


def test_a_saved_recording_loads_unchanged(folder):
    stamps.save(folder / "speed.json", STAMPED, {"rows": [1, 2]})
    recording = recordings.load("speed")
    assert recording.data == {"rows": [1, 2]} and recording.versions == {"torch": "2"}
    assert recordings.names() == ["speed"] and recordings.names("live-page") == []


@pytest.mark.parametrize(
    "change, message",
    [
        ({"what": ""}, "'what'"),
        ({"machine": {"device": "x"}}, "'machine'"),
        ({"versions": {}}, "'versions'"),
        ({"versions": {"torch": 2}}, "versions="),
        ({"date": "yesterday"}, "must be a date"),
        ({"date": None}, "'date'"),
        ({"command": None}, "'command'"),
    ],
)
def test_a_recording_with_a_malformed_stamp_is_rejected(folder, change, message):
    with pytest.raises(ValueError, match=message):
        stamps.save(folder / "speed.json", STAMPED | change, {"rows": []})
    assert not list(folder.iterdir())
    (folder / "speed.json").write_text(json.dumps(STAMPED | change | {"rows": []}))
    with pytest.raises(ValueError, match=message):
        recordings.load("speed")


def test_missing_data_and_clashing_names_are_rejected(folder):
    with pytest.raises(ValueError, match="no data"):
        stamps.save(folder / "speed.json", STAMPED, {})
    with pytest.raises(ValueError, match=r"\['date'\]"):
        stamps.save(folder / "speed.json", STAMPED, {"date": "2026-01-31"})
    with pytest.raises(ValueError, match="not JSON compliant|Out of range"):
        stamps.save(folder / "speed.json", STAMPED, {"x": float("nan")})


def test_an_unknown_name_is_rejected_with_the_known_names(folder):
    stamps.save(folder / "speed.json", STAMPED, {"rows": [1]})
    for name in ("sped", "published", "../speed"):
        with pytest.raises(ValueError, match="speed"):
            recordings.load(name)


def test_an_experiments_name_means_its_newest_recording(folder):
    for machine, date in (("b", "2026-01-31"), ("c", "2026-02-01"), ("a", "2026-02-01")):
        stamps.save(folder / "speed" / f"{machine}.json", STAMPED | {"date": date}, {"rows": [1]})
    path = stamps.recording_path("speed", "c, limited to AVX2", folder)
    stamps.save(path, STAMPED | {"date": "2026-03-01"}, {"rows": [1]})
    assert {"speed/a", "speed/b", "speed/c"} < {*recordings.names("speed")}
    assert recordings.load("speed").name == "speed/a"
    assert recordings.load("speed/b").name == "speed/b"


def test_an_incomplete_file_is_rejected_by_name(folder):
    stamps.save(folder / "speed" / "a.json", STAMPED, {"rows": [1]})
    whole = (folder / "speed" / "a.json").read_text()
    (folder / "speed" / "a.json").write_text(whole[:-9])
    with pytest.raises(ValueError, match="a.json: "):
        recordings.load("speed")


def test_a_new_stamp_is_valid():
    stamp = stamps.stamp("a thing", "python -m benchmarks")
    stamps.validate("now", stamp | {"rows": [1]})
    assert re.fullmatch(r"[0-9a-f]{7,}\+?|\d+\.\d+.*", stamp["commit"])


def test_published_numbers_name_their_source():
    published = json.loads((recordings.FOLDER / "published.json").read_text(encoding="utf-8"))
    for key in published.keys() - {"about"}:
        assert recordings.published(key)["status"] in ("primary", "secondary")
        assert recordings.published(key)["source"]


def entry(speedup, ceiling, *flags):
    """Return a row of a speed recording."""
    spread = lambda x: {"value": x, "interval": [x - 0.1, x + 0.1]}
    return {
        "speedup": spread(speedup),
        "ceiling": spread(ceiling),
        "tau": spread(2.0),
        "prediction": {"verify": 1.25},
        "flags": list(flags),
    }


def test_sequoia_drafts_with_the_recorded_sibling_rates():
    assert list(RATES) == pytest.approx(recordings.load("token-trees").data["rates"]["1"], abs=5e-4)


def test_plain_cost_is_a_median_over_drafters():
    others = {"b": entry(1.0, 1.70), "disturbed": entry(1.0, 9.0)}
    row = entry(1.0, 1.76) | {"drafter": "a", "drafters": others}
    assert recordings.plain_cost(row) == pytest.approx(1.76 * 1.25 / 2.0)


def test_speed_recordings_contain_flags_and_ceilings():
    for recording in recordings.speeds():
        for row in recording.data["rows"]:
            assert recordings.drafters(row)[row["drafter"]] is row
            assert recordings.plain_cost(row) > 1
            for each in recordings.drafters(row).values():
                assert isinstance(each["flags"], list) and each["ceiling"]["value"] > 0
    assert recordings.speeds()


def test_pages_quote_the_recorded_passes_of_the_books_models():
    recording = recordings.load("book-models").data
    for row in recording["passes"]:
        assert all(low <= middle <= high for low, middle, high in row["seconds"].values())
        if row["dtype"] == "float32":
            quote = models.passes(row["model"])
            assert quote.seconds == {int(k): t[1] for k, t in row["seconds"].items()}
            read = row["weight_bytes"] + row["cache_bytes"]
            whole = recording["profile"]["bandwidth"] * quote.seconds[1]
            assert quote.reading == pytest.approx(read / whole) and quote.growth(1) == 1
