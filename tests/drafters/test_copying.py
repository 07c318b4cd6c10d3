"""Drafts that are copied or looked up: what each drafter finds in a text, what it learns, published bugs."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
import torch
from broken import drawn_again, draws_per_path
from drafted_rows import changed
from models_zoo import PROMPT, native

from specdec_lite import Proposal, TokenTree, corpus, drafters as d, generate, load_pair, stream
from specdec_lite.acceptance import sample_and_match, speculative_sampling
from specdec_lite.drafters.copying import NgramIndex, frequency_tree
from specdec_lite.drafters.ngrams import Counts, SuffixArray
from specdec_lite.drafters.tables import SUCCESSORS, TokenRecyclingSession
from specdec_lite.measure.replay import replay
from specdec_lite.sampling import outcomes

TARGET = native()
BRANCHES = [7, 1, 2, 5, 7, 1, 9, 2, 4, 1, 2]
RUN = [1, 2, 3, 4, 5, 6, 9, 1, 2]
MAJORITY = [1, 2, 3, 9, 8, 7, 9, 9, 5, 2, 3, 4, 6, 6, 6, 1, 2, 3]
STORED = [1, 2, 3, 9, 1, 2, 3, 8, 6, 2, 3, 5, 1, 2, 3, 8, 6]


def first_tree(drafter, text):
    return replay(drafter, text, [0] * 40, 48)[0].tree


def after(drafter, *texts):
    for text in texts:
        drafter.learn(text)
    return drafter


FOUND = [
    (d.PromptLookupDrafter(), [1, 2, 3, 1, 2, 3, 1, 2], [3, 1, 2]),
    # The longest match wins, then the latest or the earliest.
    (d.PromptLookupDrafter(2, 2), BRANCHES, [5, 7]),
    (d.PromptLookupDrafter(2, 1), BRANCHES, [4, 1]),
    (d.PromptLookupDrafter(2, 1, latest=False), BRANCHES, [5, 7]),
    (d.PromptLookupDrafter(2, 3, 2), [1, 2, 3, 4, 3], []),
    (d.PromptLookupDrafter(2, 2, 2), [7, 1, 5, 7, 1], [5, 7]),  # the text's first n-gram too
    # A draft continues until a slot is empty.
    (d.HashPoolDrafter(6, 2), RUN, [3, 4, 5, 6, 9, 1]),
    (d.HashPoolDrafter(6, 3), RUN, []),
    (d.HashPoolDrafter(1, 2), [1, 2, 3, 1, 2, 4, 1, 2], [4]),  # the newest
    (after(d.HashPoolDrafter(6, 2), [7, 8, 9]), [7, 8], [9]),
    (d.HashPoolDrafter(6, 2), [7, 8], []),
    # A draft is as long as its match, and follows the majority.
    (d.SuffixDrafter(), MAJORITY, [9, 8, 7]),
    (d.SuffixDrafter(2), MAJORITY, [9, 8]),
    (d.SuffixDrafter(factor=2.0), MAJORITY, [9, 8, 7, 9, 9, 5]),
    (d.SuffixDrafter(1, factor=9.0), [3, 5, 1, 3, 5, 2, 3, 4, 1, 3], [5]),
    (after(d.SuffixDrafter(factor=9.0), [1, 2, 3], [4, 5, 6]), [9, 1, 2], [3]),  # one text alone
    # The most frequent continuations: 8 twice, each time with 6, and 9 once.
    (d.RestDrafter(SuffixArray(STORED), 2, levels=2), [4, 1, 2, 3], [8, 6]),
    (d.RestDrafter(SuffixArray(STORED), 2, levels=1), [4, 1, 2, 3], [8, 9]),
    (d.RestDrafter(SuffixArray(STORED), 3, levels=2), [4, 4, 4], []),
]


@pytest.mark.parametrize("drafter, text, tokens", FOUND)
def test_what_a_drafter_finds_in_a_text(drafter, text, tokens):
    assert first_tree(drafter, text).tokens.tolist() == tokens


class OwnEnd(NgramIndex):
    """Broken: index the end of the text too, which then finds itself, with nothing after it."""

    def find(self, text, start=0):
        return (3, [len(text)]) if len(text) >= 3 else (0, [])


class WholeOnly(NgramIndex):
    """Broken: use only positions followed by all eight tokens, as the first version did."""

    def find(self, text, start=0):
        n, places = super().find(text, start)
        whole = [place for place in places if place + 8 <= len(self.text)]
        return (n, whole) if whole else (0, [])


@pytest.mark.parametrize("bug", [OwnEnd, WholeOnly])
def test_both_published_bugs_of_prompt_lookup_find_nothing(bug, monkeypatch):
    monkeypatch.setattr("specdec_lite.drafters.copying.NgramIndex", bug)
    assert not len(first_tree(*FOUND[0][:2]))


def test_a_cut_index_equals_a_new_one():
    fresh, cut = NgramIndex((1, 2, 3)), NgramIndex((1, 2, 3))
    fresh.extend([1, 2, 1, 2])
    cut.extend([1, 2, 1, 2, 2, 1, 2])
    cut.cut(4)
    assert cut.text == fresh.text
    assert {run: p for run, p in cut.positions.items() if p} == fresh.positions


LINES = [[40, 41, 42, value, 43] for value in range(8)]
REFERENCE = [token for line in LINES for token in line]
INSERTED = [*REFERENCE[:13], 30, 31, 32, 33, 34, *REFERENCE[13:]]
EDITED = [token for line in LINES for token in (30, *line)]


def unmoved(session):
    """Broken: the pointer never moves, so the first of equal matches always wins."""
    session.pointers = type("Zeros", (list,), {"__setitem__": lambda *_: None})([0])


def test_the_pointer_recovers_after_insertions():
    drafter = lambda: d.ReferenceLookupDrafter([REFERENCE], 8)
    rounds = lambda drafter, text: len(replay(drafter, [45], text, 48))
    assert rounds(drafter(), INSERTED) <= rounds(drafter(), REFERENCE) + 3 + 5
    moved, stuck = rounds(drafter(), EDITED), rounds(changed(drafter(), unmoved), EDITED)
    assert stuck >= moved + len(LINES) - 2


def test_replay_equals_the_real_run():
    prompt = [5, 17, 3, 41, 9, 5, 17, 3]
    answer = generate(TARGET, prompt, max_new_tokens=100).tokens
    parts = ("tokens", "tree", "path", "tests", "kind", "draw_counts")
    for drafter in (d.PromptLookupDrafter(4), d.PromptLookupDrafter(6, 1, latest=False)):
        real = list(stream(TARGET, prompt, drafter, 100))
        again = replay(drafter, prompt, answer, 48)
        for part in parts:
            assert [getattr(s, part) for s in real] == [getattr(s, part) for s in again]
    assert any(step.path for step in real)


def test_a_frequency_tree_is_the_tree_of_counts():
    rows = [[1, 2, 3], [1, 2, 4], [1, 5], [6]]
    tree, promised = frequency_tree(rows, 3)
    assert (tree.tokens.tolist(), tree.parents) == ([1, 2, 6], (-1, 0, -1))
    assert promised == (3 + 2 + 1) / 4
    assert frequency_tree(rows, 9, width=1)[0].is_chain
    assert frequency_tree(rows, 9, least=0.5)[0].tokens.tolist() == [1, 2]
    assert len(frequency_tree([], 5)[0]) == 0


def test_only_learn_fills_the_memory():
    """The benchmark's trap: a memory that holds the answer already. Nothing but `learn` fills it,
    texts are the same in any order and at any warmth, and only tokens a round differ."""
    prompts = [[5, 17, 3], [41, 9, 28], [33, 12, 7]]
    plain = [generate(TARGET, prompt, max_new_tokens=60).tokens for prompt in prompts]
    drafter = d.SuffixDrafter()
    cold = [generate(TARGET, prompt, drafter, 60) for prompt in prompts]
    again = [generate(TARGET, prompt, drafter, 60) for prompt in reversed(prompts)][::-1]
    assert [len(out.steps) for out in cold] == [len(out.steps) for out in again]
    after(drafter, *([*prompt, *out.tolist()] for prompt, out in zip(prompts, plain)))
    warm = [generate(TARGET, prompt, drafter, 60) for prompt in prompts]
    assert all(torch.equal(a, b.tokens) for a, b in zip(3 * plain, [*cold, *again, *warm]))
    tau = lambda outs: sum(len(o.tokens) for o in outs) / sum(len(o.steps) for o in outs)
    assert tau(warm) > 3 > tau(cold)


def test_a_hash_pool_has_constant_memory_and_collisions_only_waste_drafts():
    plain = generate(TARGET, PROMPT, max_new_tokens=80).tokens
    wide, narrow = d.HashPoolDrafter(4, 1, 4096), d.HashPoolDrafter(4, 1, 2)
    outs = [generate(TARGET, PROMPT, drafter, 80) for drafter in (wide, narrow)]
    assert all(torch.equal(out.tokens, plain) for out in outs)
    assert outs[0].stats.acceptance_rate > outs[1].stats.acceptance_rate
    size = narrow.pool.nbytes
    narrow.learn(range(48))
    assert narrow.pool.nbytes == size == 8


# REST ---------------------------------------------------------------------------------------------

P = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


@pytest.mark.parametrize(
    "rule, children, law",
    [
        (draws_per_path, [0], [0.75, 0.15, 0.10]),
        (draws_per_path, [0, 1], [0.675, 0.255, 0.07]),
        (drawn_again, [0, 1], [0.6, 0.36, 0.04]),
        (sample_and_match, [0, 1], [0.5, 0.3, 0.2]),
        (speculative_sampling, [0, 1], [0.5, 0.3, 0.2]),
    ],
)
def test_the_published_code_samples_with_a_bias(rule, children, law):
    """The distribution of the first token, with chosen children of the root."""
    proposal = Proposal(TokenTree(children, [-1] * len(children)))
    rows, found = P.expand(len(children) + 1, 3), [0.0] * 3
    for verdict, weight in outcomes(lambda rng: rule(proposal, rows, rng)):
        found[children[verdict.path[0]] if verdict.path else verdict.token] += weight
    assert found == pytest.approx(law, abs=1e-12)


def test_the_suffix_array_finds_every_ngram_in_order():
    text = np.random.default_rng(0).integers(0, 4, 300).tolist()
    index = SuffixArray(text, 8)
    for n in (1, 2, 5, 8):
        for start in range(0, 290, 17):
            run = text[start : start + n]
            places = index.find(run).tolist()
            assert sorted(places) == [i for i in range(301 - n) if text[i : i + n] == run]
            following = [text[place : place + 8] for place in places]
            assert following == sorted(following)
    assert len(index.find([9, 9])) == 0 and len(SuffixArray([], 4).find([1])) == 0


def test_held_out_text_is_absent_from_the_datastore():
    """No 50 consecutive tokens of the prompts are in the text of the book's datastore."""
    encode = load_pair().tokenizer.encode
    held_out = [
        encode(row["text"]) for rows in corpus.evaluation_prompts().values() for row in rows
    ]
    text = [t for part in corpus.training_text()["docs"] for t in encode(part)]
    index = SuffixArray([*text, *held_out[0]], 64)
    grams = [ids[i : i + 50] for ids in held_out for i in range(len(ids) - 49)]
    seen = [gram for gram in grams if len(index.find(gram))]
    assert len(seen) == max(0, len(held_out[0]) - 49) > 0, "only the one that was put there"


# Token recycling: the table has the target's successors, also of rejected tokens ------------------


def best_after(text):
    """Return the target's likeliest tokens after every token of a text; later rows win."""
    rows = TARGET.score(text, TARGET.new_cache()).logits[0]
    return dict(zip(text, rows.topk(SUCCESSORS).indices.tolist()))


def recycled(observe=None):
    """Return a run and the session that drafted it."""
    sessions = []

    def heard(session):
        sessions.append(session)
        if observe is not None:
            session.observe = partial(observe, session)

    return generate(TARGET, PROMPT, changed(d.TokenRecyclingDrafter(TARGET), heard), 40), sessions[
        0
    ]


def deaf(session, verdict, scores):
    """Broken: store only accepted rows."""
    path = list(verdict.path)
    rows = scores.logits[0][[0, *(node + 1 for node in path)]]
    tokens = [session.root, *(verdict.tokens[node] for node in path)]
    session.table.update(zip(tokens, rows.topk(SUCCESSORS).indices.tolist()))


def test_the_table_begins_with_the_prompt_and_stores_rows_of_rejected_tokens_too():
    assert recycled(lambda *_: None)[1].table == best_after(PROMPT[:-1])
    out, session = recycled()
    fed = {token for step in out.steps for token in step.tree.tokens.tolist()}
    emitted = {*PROMPT, *out.tokens.tolist()[:-1]}
    assert set(session.table) == fed | emitted and fed - emitted, "rejected ones among them"
    assert set(recycled(deaf)[1].table) < set(session.table)


def test_the_tree_follows_the_table_and_skips_unknown_tokens():
    session = TokenRecyclingSession.__new__(TokenRecyclingSession)
    shape = TokenTree([0, 1, 0, 7], [-1, -1, 0, 1])
    session.drafter = d.TokenRecyclingDrafter(TARGET, shape=shape)
    session.table = {4: [8, 9], 8: [4]}
    context = type("Context", (), dict(tokens=torch.tensor([3, 4]), wanted=9))
    assert session.propose(context).tree == TokenTree([8, 9, 4], [-1, -1, 0])


def test_learned_texts_are_kept_and_generations_are_forgotten():
    drafter = d.TokenRecyclingDrafter(TARGET)
    generate(TARGET, PROMPT, drafter, 20)
    assert drafter.table == {}
    assert after(drafter, PROMPT).table == best_after(PROMPT)
    assert len(drafter.tree) == 16 and drafter.limits().nodes == 16


# N-gram models ------------------------------------------------------------------------------------

TEXT = [0, 1, 2, 0, 1, 1, 0, 1, 2]
COUNTS = Counts(TEXT, 3, 3)


def test_counts_are_those_of_the_text():
    for run in ([], [0], [1], [0, 1], [1, 2], [2, 2]):
        ends = [i for i in range(len(run), len(TEXT)) if TEXT[i - len(run) : i] == run]
        tokens, times = COUNTS.followers(run)
        assert dict(zip(tokens.tolist(), times.tolist())) == Counter(TEXT[end] for end in ends)


def test_a_row_by_hand():
    """After 0 1: counts {1: 1, 2: 2}, two different ones; after 1: {0: 1, 1: 1, 2: 2}, three."""
    unigram = (torch.tensor([3.0, 4.0, 2.0]).double() + 3 / 3) / 12
    bigram = (torch.tensor([1.0, 1.0, 2.0]).double() + 3 * unigram) / 7
    trigram = (torch.tensor([0.0, 1.0, 2.0]).double() + 2 * bigram) / 5
    row = COUNTS.row([0, 1])
    assert torch.allclose(row, trigram, atol=1e-12) and row.sum() == pytest.approx(1)
    assert (Counts([1, 1], 5, 2).row([4]) > 0).all(), "q > 0 everywhere, even for the unseen"


def test_the_ngram_model_scores_every_token_of_a_chain_and_of_a_tree():
    model = d.NgramModel(COUNTS)
    expected = lambda text: COUNTS.row(text[-2:]).log()
    cache = model.new_cache()
    rows = model.score([0, 1, 2], cache).logits[0]
    assert all(map(torch.equal, rows, map(expected, ([0], [0, 1], [0, 1, 2]))))
    tree = TokenTree([1, 2, 0], [-1, -1, 1])
    rows = model.score([0, *tree.tokens.tolist()], cache, tree).logits[0]
    paths = ([2, 0], [2, 0, 1], [2, 0, 2], [0, 2, 0])
    assert len(rows) == 4 and all(map(torch.equal, rows, map(expected, paths)))
    cache.keep((0, 2, 3))
    assert cache.tokens == [0, 1, 2, 0, 2, 0] and cache.length == 6
    cache.crop(4)
    assert torch.equal(model.score([1], cache).logits[0, 0], expected([0, 1]))
    alone = d.NgramModel(Counts(TEXT, 3, 1))
    assert torch.equal(alone.score([1], alone.new_cache()).logits[0, 0], alone.counts.row([]).log())
    with pytest.raises(ValueError, match="no states"):
        model.check_layers(("final",))
