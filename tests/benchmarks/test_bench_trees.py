"""Compare the closed forms of the tree recording with the rules, and run the command at toy
size."""

import json

import numpy as np
import pytest
import torch
from text_laws import random_law

from benchmarks import trees
from benchmarks.experiment import execute
from specdec_book import recordings
from specdec_lite.acceptance import (
    block_distribution,
    draw_tree,
    k_seq,
    sample_and_match,
    speculative_sampling,
)
from specdec_lite.drafters.trees.expansion import (
    drawn_then_chosen,
    likeliest,
    with_replacement,
    without_replacement,
)
from specdec_lite.drafters.trees.sequoia import RATES

chosen = lambda row, count, rng: likeliest(row, count)
chosen_first = lambda row, count, rng: drawn_then_chosen(row, count, rng)[::-1]
one = lambda row, count, rng: with_replacement(row, 1, rng)
RUN = {
    "walk, 1 draw": (speculative_sampling, one),
    "match, 3 independent draws": (sample_and_match, with_replacement),
    "walk, 3 independent draws": (speculative_sampling, with_replacement),
    "K-SEQ, 3 independent draws": (k_seq(3), with_replacement),
    "walk, 3 without replacement": (speculative_sampling, without_replacement),
    "walk, 3 chosen": (speculative_sampling, chosen),
    "walk, 2 chosen, then 1 drawn": (speculative_sampling, chosen_first),
    "walk, 1 drawn, then 2 chosen": (speculative_sampling, drawn_then_chosen),
}


@pytest.mark.parametrize("name", trees.RULES)
def test_a_closed_form_matches_its_rule(name):
    rule, siblings = RUN[name]
    pairs = [(random_law(s, 4)(()), random_law(s + 9, 4)(())) for s in range(2)]
    lengths = [
        block_distribution(
            lambda _, p=p: p, lambda _, q=q: q, rule, 1, draw_tree(siblings, 3)
        ).mean_length
        for p, q in pairs
    ]
    p, q = (torch.stack(rows).numpy() for rows in zip(*pairs))
    assert 1 + trees.RULES[name](p, q, 3) == pytest.approx(lengths, abs=1e-9)


def test_no_rule_exceeds_the_optimum():
    rows = trees.rule_acceptance(6)["rows"]
    for temperature in map("{:g}".format, trees.TEMPERATURES):
        best = [rows[name][temperature] for name in trees.BEST]
        for name in list(trees.RULES)[:4]:
            assert rows[name][temperature] <= best[0] + 1e-9
        assert rows["walk, 3 without replacement"][temperature] <= best[1] + 1e-9
    assert trees.random_acceptance(20)["k_seq_below_walk"] == 0


def test_sequoia_drafts_with_the_recorded_sibling_rates():
    assert list(RATES) == pytest.approx(recordings.load("token-trees").data["rates"]["1"], abs=5e-4)


def test_a_binary_tree_has_two_children_everywhere():
    assert trees.binary(6).parents == (-1, -1, 0, 0, 1, 1)
    assert np.array_equal(trees.binary(3).tokens, [0, 1, 0])


@pytest.mark.slow
def test_one_part_is_measured_again(tmp_path):
    out = ["--out", str(tmp_path / "trees.json"), "--work", str(tmp_path)]
    path = execute(trees.TokenTrees, [*trees.TokenTrees.quick, *out])
    before = json.loads(path.read_text(encoding="utf-8"))
    execute(trees.TokenTrees, [*trees.TokenTrees.quick, "--only", "rules", "--laws", "4", *out])
    after = json.loads(path.read_text(encoding="utf-8"))
    assert (before["rules"]["laws"], after["rules"]["laws"]) == (3, 4)
    assert after["growth"] == before["growth"]
