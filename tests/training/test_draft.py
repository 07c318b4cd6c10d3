"""A draft of one's own: the law it learns, that it learns it, that it resumes, and what is refused."""

import argparse

import pytest
import torch
from models_zoo import VOCABULARY, logits_of, native

from specdec_lite import load_pair, theory
from specdec_lite.training import Plan, draft
from specdec_lite.training.losses import forward_kl, hybrid

TARGET = native(dtype=torch.float32, max_positions=64)
TEXTS = torch.randint(0, VOCABULARY, (16, 12), generator=torch.Generator().manual_seed(3))
PLAN = Plan(60, 1e-2, 8, warmup=5)


class Letters:
    """A tokenizer whose tokens are letters."""

    def encode(self, text):
        return [ord(letter) for letter in text]


def trained(law, folder, plan=PLAN):
    model = draft.small_model(TARGET, 64)
    draft.distil(model, law, TEXTS, 4, hybrid, plan, folder / "run.pt")
    return model


def alpha(model, law):
    return draft.apart(model, law, TEXTS, 4)["alpha"].mean().item()


def test_the_law_is_the_targets_and_what_is_measured_is_what_theory_says(tmp_path):
    law = draft.target_law(TARGET, tmp_path)
    expected = logits_of(TARGET, TEXTS[0].tolist()).log_softmax(-1)
    for _ in range(2):  # computed, then read
        assert (law(TEXTS[:4])[0] - expected).abs().max() < 1e-4
    model = draft.small_model(TARGET, 64)
    found = draft.apart(model, law, TEXTS[:2], 4, batch=1)
    q = model(TEXTS[:1, :-1])[0].softmax(-1)
    rates = [theory.acceptance_rate(expected[i].exp(), q[i].detach()) for i in range(3, 11)]
    assert found["alpha"][0].item() == pytest.approx(sum(rates) / 8, abs=1e-4)
    assert set(map(len, found.values())) == {2}


def test_a_draft_learns_the_law_and_a_law_one_place_late_teaches_another(tmp_path):
    law = draft.target_law(TARGET, tmp_path)
    late = lambda tokens: law(tokens).roll(1, 1)
    fresh = alpha(draft.small_model(TARGET, 64), law)
    right = alpha(trained(law, tmp_path / "right"), law)
    wrong = alpha(trained(late, tmp_path / "wrong"), law)
    assert right > fresh + 0.2 and right > wrong + 0.1


def test_an_interrupted_run_ends_as_a_whole_one(tmp_path, monkeypatch):
    law = draft.target_law(TARGET, tmp_path)
    plan = Plan(6, 1e-2, 8, warmup=2)
    whole = trained(law, tmp_path / "whole", plan)
    from specdec_lite.training import loop

    clock = iter(range(0, 10**6, 1000))  # every step is saved
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(clock))
    passes = iter(range(10))

    def interrupted(tokens):
        if next(passes) == 3:
            raise KeyboardInterrupt
        return law(tokens)

    with pytest.raises(KeyboardInterrupt):
        trained(interrupted, tmp_path / "broken", plan)
    resumed = trained(law, tmp_path / "broken", plan)
    for ours, theirs in zip(whole.parameters(), resumed.parameters()):
        assert torch.equal(ours, theirs)


def test_without_a_law_the_text_is_the_law(tmp_path):
    model = draft.small_model(TARGET, 64)
    law = draft.target_law(TARGET, tmp_path)
    before = draft.apart(model, law, TEXTS, 4)["nats"].mean()
    draft.distil(model, None, TEXTS, 4, forward_kl, PLAN, tmp_path / "text.pt")
    assert draft.apart(model, law, TEXTS, 4)["nats"].mean() < before - 0.5


def test_pieces_begin_with_a_line_and_short_texts_are_refused():
    text = "\n".join(f"{number:03d} and so on, and so on" for number in range(200))
    rows = draft.pieces([text], Letters(), 20, 15)
    assert rows.shape == (20, 15) and all(chr(row[0]).isdigit() for row in rows)
    assert draft.pieces([text], Letters(), 20, 15).equal(rows)
    with pytest.raises(ValueError, match=r"texts: .*15 tokens"):
        draft.pieces(["short"], Letters(), 2, 15)
    for width in (32, 100):
        with pytest.raises(ValueError, match=f"hidden_size={width}"):
            draft.small_model(TARGET, width)


def test_the_command_stores_a_draft_that_loads_beside_its_target(tmp_path):
    parser = argparse.ArgumentParser()
    draft.add_arguments(parser)
    notes = tmp_path / "notes.txt"
    notes.write_text("def f(x):\n    return x + 1\n" * 200)
    words = f"--text {notes} --out {tmp_path / 'draft'} --work {tmp_path / 'work'}"
    chosen = parser.parse_args(
        [*words.split(), *"--count 8 --new 4 --epochs 1 --hidden 64".split()]
    )
    draft.run(chosen)
    from specdec_lite.loading.pairs import SHIPPED

    pair = load_pair(SHIPPED / "target", tmp_path / "draft")
    assert pair.draft.hidden_size == 64 and pair.draft.vocab_size == pair.target.vocab_size
