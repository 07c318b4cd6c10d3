"""Ranks of the right tokens, tokens kept, and paths through the likeliest tokens."""

import itertools

import pytest
import torch

from benchmarks import recall
from specdec_book import recordings
from specdec_lite.drafters.parallel.parallel import Correction, Selector


def test_ranks_count_the_likelier_tokens_and_an_absent_one_comes_last():
    logits = torch.tensor([[[0.1, 3.0, 2.0], [5.0, 1.0, 0.0]]])
    assert recall.ranks(logits, torch.tensor([[1, 2]])).tolist() == [[0, 2]]
    assert recall.ranks(logits, torch.tensor([[2, 3]])).tolist() == [[1, 3]]


def test_kept_tokens_end_at_the_first_miss():
    right = [torch.tensor([[True, False, True], [True, True, True]]), torch.tensor([[False] * 3])]
    assert recall.kept(right)["mean"] == pytest.approx((1 + 3 + 0) / 3)


def a_selector(gated=True):
    selector = Selector(6, 4, candidates=3, width=5 if gated else 0)
    torch.nn.init.normal_(selector.after.weight, std=0.5)
    return selector


@torch.inference_mode()
@pytest.mark.parametrize("selects", [False, True])
def test_the_best_path_is_the_likeliest_of_all_paths(selects, monkeypatch):
    monkeypatch.setattr(recall, "RANKS", (1, 3))
    torch.manual_seed(0)
    logits, states, before = torch.randn(5, 3, 6), torch.randn(5, 3, 5), torch.arange(5)
    correction = Correction(6, 4)
    torch.nn.init.normal_(correction.after.weight, std=0.5)
    correction = a_selector() if selects else correction
    best = recall.best_path(logits, states, before, correction)
    greedy = recall.left_to_right(logits, states, before, correction)
    for anchor in range(5):
        top = logits[anchor].topk(3).indices.tolist()
        last = before[anchor]
        for depth in range(3):
            row = correction.correct(logits[anchor, depth], last, states[anchor, depth])
            last = row.argmax()
            assert greedy[anchor, depth] == last

        def score(path, anchor=anchor, top=top):
            total, last = 0.0, before[anchor]
            for depth, token in enumerate(path):
                row = correction.correct(logits[anchor, depth], last, states[anchor, depth])
                row = row[top[depth]].log_softmax(-1)
                total += float(row[top[depth].index(token)])
                last = torch.tensor(token)
            return total

        assert best[anchor].tolist() == list(max(itertools.product(*top), key=score))


def test_the_recording_supports_chapter_12b():
    for model in recordings.load("draft-recall").data["models"].values():
        for ks in model["heads"].values():
            for first, sixteen in zip(ks["1"]["mean"], ks["16"]["mean"]):
                assert sixteen > first
        ways = model["paths"]
        assert ways["left to right"]["mean"] > ways["likeliest"]["mean"]
        if "selector of 16" in ways:
            assert ways["selector of 16"]["mean"] > ways["left to right"]["mean"]
        assert model["heads"]["Medusa"]["16"]["kept"]["mean"] > ways["best path of 16"]["mean"]
