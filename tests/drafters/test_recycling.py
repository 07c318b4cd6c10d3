"""Test token recycling: the table has the target's successors, also of rejected tokens."""

import torch
from models_zoo import PROMPT, native

from specdec_lite import TokenTree, generate
from specdec_lite.drafters import TokenRecyclingDrafter
from specdec_lite.drafters.tables import SUCCESSORS, TokenRecyclingSession

TARGET = native()


def best_after(text):
    """Return the target's likeliest tokens after every token of a text; later rows win."""
    rows = TARGET.score(text, TARGET.new_cache()).logits[0]
    return dict(zip(text, rows.topk(SUCCESSORS).indices.tolist()))


def watched(monkeypatch, observe=TokenRecyclingSession.observe):
    """Return a run and the session that drafted it."""
    sessions = []

    def start(drafter, context):
        sessions.append(TokenRecyclingSession(drafter, context))
        return sessions[0]

    monkeypatch.setattr(TokenRecyclingDrafter, "start", start)
    monkeypatch.setattr(TokenRecyclingSession, "observe", observe)
    return generate(TARGET, PROMPT, TokenRecyclingDrafter(TARGET), 40), sessions[0]


def test_a_session_starts_with_the_prompts_successors(monkeypatch):
    _, session = watched(monkeypatch, lambda *_: None)
    assert session.table == best_after(PROMPT[:-1])


def test_rows_of_rejected_tokens_are_stored_too(monkeypatch):
    out, session = watched(monkeypatch)
    fed = {token for step in out.steps for token in step.tree.tokens.tolist()}
    emitted = {*PROMPT, *out.tokens.tolist()[:-1]}
    assert set(session.table) == fed | emitted and fed - emitted, "rejected ones among them"

    def deaf(session, verdict, scores):
        """Broken: store only accepted rows."""
        path = list(verdict.path)
        rows = scores.logits[0][[0, *(node + 1 for node in path)]]
        tokens = [session.root, *(verdict.tokens[node] for node in path)]
        session.table.update(zip(tokens, rows.topk(SUCCESSORS).indices.tolist()))

    monkeypatch.undo()
    _, poorer = watched(monkeypatch, deaf)
    assert set(poorer.table) < set(session.table)


def test_the_tree_follows_the_table_and_skips_unknown_tokens():
    session = TokenRecyclingSession.__new__(TokenRecyclingSession)
    shape = TokenTree([0, 1, 0, 7], [-1, -1, 0, 1])
    session.drafter = TokenRecyclingDrafter(TARGET, shape=shape)
    session.table = {4: [8, 9], 8: [4]}
    context = type("Context", (), dict(tokens=torch.tensor([3, 4]), wanted=9))
    assert session.propose(context).tree == TokenTree([8, 9, 4], [-1, -1, 0])


def test_learned_texts_are_kept_and_generations_are_forgotten():
    drafter = TokenRecyclingDrafter(TARGET)
    generate(TARGET, PROMPT, drafter, 20)
    assert drafter.table == {}
    drafter.learn(PROMPT)
    assert drafter.table == best_after(PROMPT)
    assert len(drafter.tree) == 16 and drafter.limits().nodes == 16
