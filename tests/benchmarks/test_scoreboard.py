"""Test the scoreboard: its rows are complete, and its columns are right for known models."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
import torch
import yaml
from boards import SMALL
from conftest import ROOT
from models_zoo import native, perturbed
from registry import RULES

from benchmarks import methods as listed, plain, scoreboard
from benchmarks.experiment import execute
from benchmarks.methods import METHODS, Method, bytes_beside
from benchmarks.named import NAMED
from benchmarks.schemas import SCHEMAS
from benchmarks.speed import Contender, ours
from specdec_lite import TokenTree, acceptance as a, drafters, theory
from specdec_lite.drafters import Drafter, ModelDrafter
from specdec_lite.loading.pairs import Pair
from specdec_lite.measure import stamps

TARGET = native(dtype=torch.float32)


def test_every_drafter_and_rule_has_a_row():
    shipped = {
        name
        for name in drafters.__all__
        if isinstance(kind := getattr(drafters, name), type) and issubclass(kind, Drafter)
    }
    assert len(shipped) > 25
    used = set(re.findall(r"\bd\.(\w+)", Path(listed.__file__).read_text("utf-8")))
    # Prompts of the scoreboard have no reference text; `benchmarks.lookup` measures this drafter.
    assert shipped - {"ReferenceLookupDrafter"} <= used
    stem = lambda rule: rule.name.partition("(")[0]
    covered = {stem(method.rule) for method in METHODS.values() if method.rule}
    default = {"speculative_sampling", "exact_match"}
    assert {stem(rule) for rule, _ in RULES.values()} - default <= covered
    assert set(scoreboard.SWEPT) <= {name for name, each in METHODS.items() if each.lengths}


def test_every_row_names_its_chapter():
    sources = yaml.safe_load((ROOT / "book" / "map.yml").read_text("utf-8"))["sources"]
    for name, method in METHODS.items():
        assert (ROOT / f"{method.chapter}.ipynb").is_file(), name
        assert method.source in sources, name
        assert method.rule is None or name.endswith(f"× {method.rule.name}") or "noise" in name


MAP = yaml.safe_load((ROOT / "book" / "map.yml").read_text("utf-8"))["methods"]
NAMES = {name for row in MAP for name in row[3]}


def unplaced(names: set[str], named: dict) -> list[str]:
    """Return the names on the map without a row on the scoreboard and without a sentence."""
    return sorted(
        name
        for name in names
        if not (where := named.get(name))
        or (len(where.split()) < 8 if isinstance(where, str) else not set(where) <= set(METHODS))
    )


def test_each_method_on_the_map_has_a_row_or_a_sentence():
    assert unplaced(NAMES, NAMED) == [] and set(NAMED) == NAMES
    assert unplaced(NAMES | {"a new one"}, NAMED) == ["a new one"]
    assert unplaced({"REST"}, {"REST": ("no such row",)}) == ["REST"]
    assert unplaced({"REST"}, {"REST": "Not here."}) == ["REST"]


def test_a_method_has_weights_for_a_target_or_a_reason(tmp_path, monkeypatch):
    for model in ("pair", "smollm2"):
        here = {name for name, method in METHODS.items() if not method.why_not(model)}
        assert {"prompt lookup", "EAGLE-1, a chain", "Jacobi"} <= here
        assert all(METHODS[n].why_not(model).endswith(".") for n in set(METHODS) - here)
    assert METHODS["draft model"].why_not("pair") == "" != METHODS["draft model"].why_not("smollm2")
    monkeypatch.setattr(listed, "WEIGHTS", tmp_path)
    (tmp_path / "new").mkdir()
    trained = Method(lambda pair, g: None, "heads", "notebooks/13_eagle", weights="new")
    assert trained.why_not("smollm2") == listed.NOT_TRAINED and trained.why_not("pair") == ""
    (tmp_path / "new" / "smollm2").mkdir()
    assert trained.why_not("smollm2") == listed.NOT_TRAINED, "a report alone"
    (tmp_path / "new" / "smollm2" / listed.FILE).touch()
    assert trained.why_not("smollm2") == ""


def flattened(row):
    """Recover from p instead of the residual, a published mistake."""
    return a.walk(a.ratio, lambda p, q: p)(*row)


@pytest.mark.parametrize(
    "rule",
    [
        a.speculative_sampling,
        a.rejection_sampling,
        a.lenient(0.6),
        a.lenient_scaled(0.6),
        a.lenient_argmax(0.6),
        a.typical(),
        a.top_k_match(2),
        a.distance_match(1),
    ],
    ids=lambda rule: rule.name,
)
def test_the_first_token_distribution_matches_enumeration(rule):
    dice = torch.Generator().manual_seed(0)
    row = lambda: torch.randn(5, generator=dice, dtype=torch.float64).mul(1.5).softmax(0)
    for _ in range(20):
        p, q = row(), row()
        probs = scoreboard.first_token_distribution(p, q, rule)
        assert probs == pytest.approx(a.output_distribution(p, q, rule), abs=1e-12)


def test_drift_is_zero_for_a_lossless_rule_and_not_for_a_broken_one():
    p, q = (torch.tensor(row, dtype=torch.float64) for row in ([0.5, 0.3, 0.2], [0.3, 0.5, 0.2]))
    broken = lambda *row: flattened(row)
    assert scoreboard.first_token_distribution(p, q, a.speculative_sampling) == pytest.approx(
        p, abs=1e-12
    )
    wrong = scoreboard.first_token_distribution(p, q, broken)
    assert (wrong - p).abs().sum() / 2 == pytest.approx(0.1)  # .2 of mass back on p, not on A
    pair = Pair(TARGET, perturbed(TARGET), None)
    ids = torch.arange(24) % TARGET.vocab_size
    result = scoreboard.drift(pair, a.speculative_sampling, [ids], 2, mass=1.0)
    assert result["places"] == 2 and result["most"] < 1e-6
    assert scoreboard.drift(pair, a.lenient_argmax(0.6), [ids], 2, mass=1.0)["mean"] > 0.05


def test_bytes_exclude_the_target():
    other = perturbed(TARGET)
    weights = sum(w.numel() * w.element_size() for w in other.model.parameters())
    assert bytes_beside(ModelDrafter(TARGET, 2), TARGET) < 2000
    assert weights < bytes_beside(ModelDrafter(other, 2), TARGET) < 1.5 * weights + 20_000


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Record a tiny pair whose draft is the target; return the path and the arguments."""
    monkeypatch.setattr(scoreboard, "METHODS", SMALL)
    monkeypatch.setattr(scoreboard, "load_models", lambda model: Pair(TARGET, TARGET, None))
    rows = [[3, 1, 4, 1, 5, 9] * 3, [2, 7, 1, 8, 2, 8] * 3]
    rows = [[token % TARGET.vocab_size for token in row] for row in rows]
    monkeypatch.setattr(scoreboard, "texts", lambda model, count: {"one": rows, "two": rows})
    twin = lambda model, *about, stops: {"twin": Contender(ours(TARGET, None, None, about[0], 0.0))}
    monkeypatch.setattr(plain, "others", twin)
    words = "--prompts 2 --turns 2 --new-tokens 10".split()
    arguments = [*words, "--work", str(tmp_path / "w"), "--out", str(tmp_path / "board.json")]
    return execute(scoreboard.Scoreboard, arguments), arguments


def test_a_whole_recording(recorded):
    path, _ = recorded
    result = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(result, SCHEMAS["scoreboard"])
    assert {row["domain"] for row in result["rows"]} == {"one", "two"}
    for row in result["rows"]:
        itself = row["methods"]["draft model"]
        assert itself["alpha"]["value"] == 1 and itself["tau"]["value"] > 2
        assert itself["positions"][0] == 1 and itself["empty"] == 0 and itself["levels"] == 4
        assert set(itself["conditional"]) == {1.0}
        rates = row["plain"]["tokens_per_second"]
        assert set(rates) == {"plain", "twin"} and rates[row["plain"]["best"]] == max(
            rates.values()
        )
        over = itself["over_best"]["value"] / itself["speedup"]["value"]
        assert over == pytest.approx(rates["plain"] / max(rates.values()), rel=2e-3)
        is_lossy_row = "draft model × lenient(0.6)" in row["methods"]
        assert is_lossy_row == (row["temperature"] > 0)
        if row["temperature"] == 0:
            assert {each["same"] for each in row["methods"].values()} == {1.0}
    gammas = {entry["gamma"] for row in result["lengths"] for entry in row["methods"].values()}
    assert gammas == set(scoreboard.LENGTHS)
    assert result["drift"]["draft model × lenient(0.6)"]["mean"] < 1e-3  # the draft is the target
    assert result["methods"]["prompt lookup"]["minutes"] is None


def test_a_finished_setting_is_not_measured_again(recorded, monkeypatch):
    path, arguments = recorded
    measured = []
    real = scoreboard.measure

    def counted(bench, setting, *rest, **named):
        measured.append(setting)
        if len(measured) == 3:
            raise KeyboardInterrupt
        return real(bench, setting, *rest, **named)

    monkeypatch.setattr(scoreboard, "measure", counted)
    with pytest.raises(KeyboardInterrupt):
        execute(scoreboard.Scoreboard, arguments)
    execute(scoreboard.Scoreboard, arguments)
    settings = 4 + 2  # two kinds at two temperatures; at several lengths, two kinds at one
    assert len(measured) == settings + 1


def test_a_disturbed_setting_is_measured_again(recorded, monkeypatch):
    path, arguments = recorded
    once = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert all(1 <= row["attempts"] <= scoreboard.ATTEMPTS for row in once)
    monkeypatch.setattr(scoreboard, "DISTURBED", 0.0)  # no setting passes this limit
    execute(scoreboard.Scoreboard, arguments)
    again = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert {row["attempts"] for row in again} == {scoreboard.ATTEMPTS}


def test_rows_are_added_to_a_recording_with_equal_settings(recorded, capsys):
    path, arguments = recorded
    before = json.loads(path.read_text(encoding="utf-8"))
    execute(scoreboard.Scoreboard, [*arguments, "--add", "--methods", "prompt lookup"])
    after = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(after, SCHEMAS["scoreboard"])
    assert after["command"] == before["command"] and after["lengths"] == before["lengths"]
    assert [each["methods"] for each in after["added"]] == [["prompt lookup"]]
    assert "--add" in after["added"][0]["command"]
    for old, new in zip(before["rows"], after["rows"]):
        assert list(old["methods"]) == list(new["methods"])
        assert old["methods"]["draft model"] == new["methods"]["draft model"]
        assert old["methods"]["prompt lookup"] != new["methods"]["prompt lookup"]  # another clock
    stamp = {name: after[name] for name in stamps.STAMP}
    for name, value in (("new_tokens", 11), ("clock", "cpu"), ("machine", "another")):
        with pytest.raises(ValueError, match=f"{name} is .*: must be"):
            scoreboard.merge_recordings({**before, name: value}, after, stamp)
    with pytest.raises(ValueError, match="setting"):
        scoreboard.merge_recordings({**before, "rows": before["rows"][1:]}, after, stamp)


def test_acceptance_by_level_counts_what_was_drafted():
    step = lambda accepted, drafted: SimpleNamespace(
        accepted=accepted, tree=TokenTree.chain([0] * drafted)
    )
    result = scoreboard.by_position([step(2, 2), step(1, 2), step(1, 1), step(0, 0)], 3)
    assert result["positions"] == [1.0, 1 / 3, 0.0]
    assert result["conditional"] == [1.0, 0.5, None]  # one of the two that drafted a second


def test_the_formula_takes_the_lengths_that_were_drafted():
    improvement = theory.walltime_improvement(0.8, 4, 0.1)
    assert scoreboard.predicted(0.8, [4, 4], 0.4) == pytest.approx(improvement)
    assert scoreboard.predicted(0.8, [0, 0], 0.0) == 1
    mixed = scoreboard.predicted(0.8, [4, 0], 0.2)
    assert mixed == pytest.approx((theory.expected_tokens(0.8, 4) + 1) / 2 / 1.2)


@pytest.mark.parametrize(
    "words, message",
    [
        ("--add", "--add: needs --methods"),
        ("--add --methods Jacobi --out nowhere.json", "does not exist yet"),
        ("--methods nothing", "must be among draft model"),
        ("--prompts 1", "--prompts"),
        ("--new-tokens 4", "--new-tokens"),
        ("--temperatures -1", "must be ≥ 0"),
        ("--lengths 0", "must be whole numbers ≥ 1"),
        ("--minutes 0", "must be above 0"),
    ],
)
def test_wrong_options_are_rejected(words, message, monkeypatch, capsys):
    monkeypatch.setattr(scoreboard, "METHODS", SMALL | {"Jacobi": METHODS["Jacobi"]})
    with pytest.raises(SystemExit):
        execute(scoreboard.Scoreboard, words.split())
    assert message in capsys.readouterr().err
