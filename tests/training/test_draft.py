"""A draft of your own: what it learns, that training resumes, and what is rejected."""

import pytest
import torch
from letters import Letters
from models_zoo import VOCABULARY, logits_of, native

from specdec_lite import load_pair, theory
from specdec_lite.training import Plan, draft
from specdec_lite.training.__main__ import main
from specdec_lite.training.losses import forward_kl, hybrid

TARGET = native(dtype=torch.float32, max_positions=64)
TEXTS = torch.randint(0, VOCABULARY, (16, 12), generator=torch.Generator().manual_seed(3))
PLAN = Plan(60, 1e-2, 8, warmup=5)


def train_draft(log_probs, folder, plan=PLAN):
    model = draft.small_model(TARGET, 64)
    draft.distill(model, log_probs, TEXTS, 4, hybrid, plan, folder / "run.pt")
    return model


def alpha(model, log_probs):
    return draft.compare(model, log_probs, TEXTS, 4)["alpha"].mean().item()


def test_log_probs_and_measures_equal_those_of_target_and_theory(tmp_path):
    log_probs = draft.target_log_probs(TARGET, tmp_path)
    expected = logits_of(TARGET, TEXTS[0].tolist()).log_softmax(-1)
    for _ in range(2):  # computed first, then read from the file
        assert (log_probs(TEXTS[:4])[0] - expected).abs().max() < 1e-4
    model = draft.small_model(TARGET, 64)
    measures = draft.compare(model, log_probs, TEXTS[:2], 4, batch=1)
    q = model(TEXTS[:1, :-1])[0].softmax(-1)
    rates = [theory.acceptance_rate(expected[i].exp(), q[i].detach()) for i in range(3, 11)]
    assert measures["alpha"][0].item() == pytest.approx(sum(rates) / 8, abs=1e-4)
    assert set(map(len, measures.values())) == {2}


def test_a_draft_learns_the_distribution_and_not_a_shifted_one(tmp_path):
    log_probs = draft.target_log_probs(TARGET, tmp_path)
    late = lambda tokens: log_probs(tokens).roll(1, 1)
    fresh = alpha(draft.small_model(TARGET, 64), log_probs)
    right = alpha(train_draft(log_probs, tmp_path / "right"), log_probs)
    wrong = alpha(train_draft(late, tmp_path / "wrong"), log_probs)
    assert right > fresh + 0.2 and right > wrong + 0.1


def test_without_a_target_the_draft_learns_the_text(tmp_path):
    model = draft.small_model(TARGET, 64)
    log_probs = draft.target_log_probs(TARGET, tmp_path)
    before = draft.compare(model, log_probs, TEXTS, 4)["nats"].mean()
    draft.distill(model, None, TEXTS, 4, forward_kl, PLAN, tmp_path / "text.pt")
    assert draft.compare(model, log_probs, TEXTS, 4)["nats"].mean() < before - 0.5


def test_windows_start_at_lines():
    text = "\n".join(f"{number:03d} and so on, and so on" for number in range(200))
    rows = draft.text_windows([text], Letters(128), 20, 15)
    assert rows.shape == (20, 15) and all(chr(row[0]).isdigit() for row in rows)
    assert draft.text_windows([text], Letters(128), 20, 15).equal(rows)


def test_the_command_saves_a_draft_that_loads_with_its_target(tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("def f(x):\n    return x + 1\n" * 200)
    arguments = f"--text {notes} --out {tmp_path / 'draft'} --work {tmp_path / 'work'}"
    main(["draft", *f"{arguments} --count 8 --new 4 --epochs 1 --hidden 64".split()])
    from specdec_lite.loading.pairs import SHIPPED

    pair = load_pair(SHIPPED / "target", tmp_path / "draft")
    assert pair.draft.hidden_size == 64 and pair.draft.vocab_size == pair.target.vocab_size
