"""Test the scoreboard's rows: each drafter, rule and method on the map has one, or a reason."""

import re
from pathlib import Path

import pytest
import torch
import yaml
from conftest import ROOT
from models_zoo import native, perturbed
from registry import RULES

from benchmarks import methods as listed
from benchmarks.methods import METHODS, Method, bytes_beside, describe
from benchmarks.scoreboard_counts import NAMED, load_models
from specdec_book import recordings
from specdec_lite import drafters
from specdec_lite.drafters import Drafter, ModelDrafter
from specdec_lite.drafters.self_drafts import quantize

TARGET = native(dtype=torch.float32)


def test_every_drafter_and_rule_has_a_row():
    shipped = {
        name
        for name in drafters.__all__
        if isinstance(kind := getattr(drafters, name), type) and issubclass(kind, Drafter)
    }
    assert len(shipped) > 25
    used = set(re.findall(r"\bd\.(\w+)", Path(listed.__file__).read_text("utf-8")))
    # Prompts of the scoreboard have no reference text; `model-free-tokens` measured this drafter.
    # TextMatchDrafter is for a draft with another tokenizer, and every row here shares its target's.
    missing = shipped - {"ReferenceLookupDrafter", "TextMatchDrafter"} - used
    assert not missing, f"METHODS of benchmarks/methods.py lacks a row for {sorted(missing)}"
    stem = lambda rule: rule.name.partition("(")[0]
    covered = {stem(method.rule) for method in METHODS.values() if method.rule}
    default = {"speculative_sampling", "exact_match"}
    assert {stem(rule) for rule, _ in RULES.values()} - default <= covered


def test_every_row_names_its_chapter():
    sources = yaml.safe_load((ROOT / "book" / "map.yml").read_text("utf-8"))["sources"]
    for name, method in METHODS.items():
        assert (ROOT / f"{method.chapter}.ipynb").is_file(), name
        assert method.source in sources, name
        assert method.rule is None or name.endswith(f"× {method.rule.name}") or "noise" in name


def test_the_recorded_counts_name_todays_chapters():
    for name in ("scoreboard-counts", "scoreboard-counts-smollm2"):
        for row, about in recordings.load(name).data["about"].items():
            assert row not in METHODS or about["chapter"] == METHODS[row].chapter, (name, row)


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


def test_bytes_exclude_the_target():
    other = perturbed(TARGET)
    weights = sum(w.numel() * w.element_size() for w in other.model.parameters())
    assert bytes_beside(ModelDrafter(TARGET, 2), TARGET) < 2000
    assert weights < bytes_beside(ModelDrafter(other, 2), TARGET) < 1.5 * weights + 20_000


def test_bytes_do_not_depend_on_what_the_target_has_read():
    target = perturbed(TARGET)
    before = bytes_beside(ModelDrafter(quantize(target), 2), target)
    target.score(torch.arange(5), target.new_cache(capacity=5))
    assert target.model._tables
    assert bytes_beside(ModelDrafter(quantize(target), 2), target) == before


@pytest.mark.slow
def test_every_row_of_the_pair_can_be_described():
    """A recording states the bytes of each row at the end of its run."""
    pair = load_models("pair", "float32")
    rows = {name: describe(method, pair, "pair", 4) for name, method in METHODS.items()}
    assert all(row["bytes"] > 0 for row in rows.values())
    assert rows["draft model"]["bytes"] > 1e6 > rows["prompt lookup"]["bytes"]
