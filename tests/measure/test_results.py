"""Recordings say where they come from, or they are refused; and each kind holds what its readers
look for.
"""

import copy
import json
import statistics
from pathlib import Path

import jsonschema
import nbformat
import pytest
from schemas import SCHEMAS

from specdec_lite import results
from specdec_lite.loading.pairs import SHIPPED

STAMPED = {
    "what": "a thing",
    "date": "2026-01-31",
    "command": "python -m benchmarks",
    "machine": "a machine",
    "versions": {"torch": "2"},
}


def schema(name):
    return next(
        described
        for kind, described in SCHEMAS.items()
        if name == kind or name.startswith(f"{kind}-")
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", results.names())
def test_every_recording_in_the_repository_is_valid(name):
    recording = results.load(name)
    assert (
        recording.data
        and recording.machine in recording.source
        and recording.command in recording.source
    )


@pytest.mark.parametrize("name", sorted(set(results.names()) - set(results.names("gpu"))))
def test_every_recording_holds_what_its_readers_look_for(name):
    data, described = results.load(name).data, schema(name)
    jsonschema.validate(data, described)
    for field in described["required"]:
        less = copy.copy(data)
        del less[field]
        with pytest.raises(jsonschema.ValidationError, match=f"'{field}' is a required property"):
            jsonschema.validate(less, described)
    table = next(
        (
            field
            for field in ("rows", "runs", "models", "pages")
            if "items" in described["properties"].get(field, {})
        ),
        None,
    )
    if table:
        spoilt = copy.deepcopy(data)
        spoilt[table][-1].pop(described["properties"][table]["items"]["required"][-1])
        with pytest.raises(jsonschema.ValidationError, match="is a required property"):
            jsonschema.validate(spoilt, described)


@pytest.mark.parametrize("name", results.names("live"))
def test_the_live_page_is_recorded_in_every_format_at_every_temperature(name):
    found = {
        (row["format"], row["domain"], row["temperature"])
        for row in results.load(name).data["rows"]
    }
    assert found == {
        (form, domain, t)
        for form in ("float32", "int8")
        for domain in ("code", "data", "prose")
        for t in (0.0, 1.0)
    }


def test_what_is_saved_is_loaded(folder):
    results.save(folder / "speed.json", STAMPED, {"rows": [1, 2]})
    recording = results.load("speed")
    assert recording.data == {"rows": [1, 2]} and recording.versions == {"torch": "2"}
    assert results.names() == ["speed"] and results.names("live") == []


@pytest.mark.parametrize(
    "change, message",
    [
        ({"what": ""}, "'what' must be a non-empty str"),
        ({"machine": {"device": "x"}}, "'machine' must be a non-empty str"),
        ({"versions": {}}, "'versions' must be a non-empty dict"),
        ({"versions": {"torch": 2}}, "versions="),
        ({"date": "yesterday"}, "must be a date"),
        ({"date": None}, "'date'"),
        ({"command": None}, "'command'"),
    ],
)
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
        assert (
            results.published(key)["status"] in ("primary", "secondary")
            and results.published(key)["source"]
        )
    with pytest.raises(ValueError, match="key='table'.*leviathan2023_table1"):
        results.published("table")


def entry(speedup, ceiling, *flags):
    spread = lambda x: {"value": x, "interval": [x - 0.1, x + 0.1]}
    return {
        "speedup": spread(speedup),
        "ceiling": spread(ceiling),
        "tau": spread(2.0),
        "prediction": {"verify": 1.25},
        "flags": list(flags),
    }


def test_a_flagged_figure_is_not_printed():
    assert results.believed(entry(1.5, 2.0)) == "1.50 [1.40, 1.60]"
    flagged = results.believed(entry(1.5, 2.0, "T(1) moved by 25 %"))
    assert flagged == "flagged: T(1) moved by 25 %" and "1.5" not in flagged


def test_a_speedup_above_its_ceiling_has_the_ceiling_beside_it():
    said = results.believed(entry(1.5, 1.45))
    assert said == "1.50 [1.40, 1.60], above its ceiling of 1.45 within the noise"
    assert "ceiling" not in results.believed(entry(1.5, 1.45), "tau")


def test_the_ceiling_is_what_a_plain_token_costs_times_tau_over_v():
    others = {"b": entry(1.0, 1.70), "disturbed": entry(1.0, 9.0)}
    row = entry(1.0, 1.76) | {"drafter": "a", "drafters": others}
    assert results.plain_cost(row) == pytest.approx(1.76 * 1.25 / 2.0)


def test_recordings_of_speed_in_chapters_say_what_is_not_to_be_believed():
    for found in results.speeds():
        for row in found.data["rows"]:
            assert results.drafters(row)[row["drafter"]] is row and results.plain_cost(row) > 1
            for each in results.drafters(row).values():
                assert isinstance(each["flags"], list) and each["ceiling"]["value"] > 0
    assert results.speeds()


# Numbers that are typed in prose ------------------------------------------------------------------

ROOT = Path(__file__).parents[2]


def short(value, digits):
    """.785 for 0.785, as the prose writes it."""
    return f"{value:.{digits}f}".removeprefix("0")


def known_limits():
    return " ".join(
        (ROOT / "CHANGELOG.md")
        .read_text("utf-8")
        .split("Known limits:")[1]
        .split("\n\n")[0]
        .split()
    )


def test_the_changelog_quotes_the_pair_that_ships_and_its_recorded_speeds():
    held_out = json.loads((SHIPPED / "report.json").read_text())["all"]
    quoted = [
        f"{held_out['bits_per_byte']:.2f} bits per byte",
        f"α = {short(held_out['alpha'], 3)}",
    ]
    for recording in map(results.load, results.names("speed")):
        rows = [row for row in recording.data["rows"] if not row.get("flags")]
        among = lambda value, dtype, *temperatures: [
            row[value]["value"]
            for row in rows
            if row["dtype"] == dtype and row["temperature"] in temperatures
        ]
        spans = [
            among("speedup", "bfloat16", 0.0),
            among("speedup", "bfloat16", 1.0),
            among("speedup", "float32", 0.0, 1.0),
            among("over_hf_assisted", "float32", 0.0, 1.0),
            [row["speedup"]["value"] / row["prediction"]["corrected"] for row in rows],
            [
                other["speedup"]["value"] / row["speedup"]["value"]
                for row in rows
                for name, other in row["drafters"].items()
                if name == "block_verification" and not other.get("flags")
            ],
        ]
        quoted += [
            f"{short(min(found), 2)} to {short(max(found), 2)}" for found in spans if found
        ] + [recording.machine.split("(")[0]]
        passes = [
            1000 * row["prediction"]["target_seconds"] for row in rows if row["dtype"] == "float32"
        ]
        quoted.append(f"{min(passes):.1f} to {max(passes):.1f} ms")
    for live in (results.load(name).data["rows"] for name in results.names("live")):
        best = lambda domains, t: max(
            row["speedup"]
            for row in live
            if row["format"] == "float32" and row["domain"] in domains and row["temperature"] == t
        )
        quoted.append(
            f"{best(['code'], 0.0):.2f} (greedy code), {best(['prose'], 0.0):.2f} (greedy prose)"
            f" and {best(['code', 'data', 'prose'], 1.0):.2f} (temperature 1)"
        )
    assert [words for words in quoted if words not in known_limits()] == []


def test_the_changelog_quotes_what_packing_saves():
    seconds = {
        row["packed"]: row["seconds"]["4"][1]
        for row in results.load("memory-amd-epyc").data["models"]
        if (row["model"], row["dtype"]) == ("shipped target", "float32")
    }
    assert (
        f"over four tokens takes {1000 * seconds[True]:.1f} ms in place of"
        f" {1000 * seconds[False]:.1f}" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    )


def test_the_live_page_says_what_its_recordings_say():
    text = " ".join((ROOT / "book" / "live.md").read_text("utf-8").split())
    recorded = [results.load(name).data["rows"] for name in results.names("live")]
    below = [
        100
        - 100
        * statistics.median(
            row["speedup"] / row["predicted"] for row in rows if row["format"] == form
        )
        for rows in recorded
        for form in ("float32", "int8")
    ]
    assert f"{min(below):.0f} to {max(below):.0f} % in the median" in text
    steepness = lambda rows, form: statistics.median(
        row["target_ms"][4] / row["target_ms"][0] for row in rows if row["format"] == form
    )
    assert "On both recorded machines float32 has the flatter one" in text and len(recorded) == 2
    assert all(steepness(rows, "float32") < steepness(rows, "int8") for rows in recorded)
    assert (
        "on one of the recorded machines a pass over four tokens takes less time than one over"
        " three" in text
    )
    assert (
        sum(all(row["target_ms"][3] < row["target_ms"][2] for row in rows) for rows in recorded)
        == 1
    )


def test_chapter_7_quotes_the_pairs_history():
    limits = next(
        cell.source
        for cell in nbformat.read(ROOT / "notebooks" / "07_how_fast.ipynb", 4).cells
        if "**Limits.**" in cell.source
    )
    history = results.load("trained_on").data
    quoted = [
        short(history[run]["held_out"]["all"]["alpha"], digits)
        for run, digits in (
            ("before", 2),
            ("longer", 2),
            ("less_distilled", 2),
            ("distilled_on", 3),
        )
    ]
    quoted.append(short(json.loads((SHIPPED / "report.json").read_text())["all"]["alpha"], 3))
    assert [number for number in quoted if number not in limits] == []
