"""Test prompt lookup: its matches, two published bugs, and the pointer into a reference."""

from models_zoo import native

from specdec_lite import generate, stream
from specdec_lite.drafters import PromptLookupDrafter, ReferenceLookupDrafter
from specdec_lite.drafters.copying import NgramIndex
from specdec_lite.measure.replay import replay

TARGET = native()


def first_draft(drafter, text, vocab_size=48):
    return replay(drafter, text, [0] * 20, vocab_size)[0].tree.tokens.tolist()


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


def test_recent_text_is_proposed_and_both_published_bugs_are_detected(monkeypatch):
    text = [1, 2, 3, 1, 2, 3, 1, 2]
    assert first_draft(PromptLookupDrafter(), text) == [3, 1, 2]
    for bug in (OwnEnd, WholeOnly):
        monkeypatch.setattr("specdec_lite.drafters.copying.NgramIndex", bug)
        assert first_draft(PromptLookupDrafter(), text) == []


def test_the_longest_match_wins_then_the_latest_or_earliest():
    text = [7, 1, 2, 5, 7, 1, 9, 2, 4, 1, 2]
    assert first_draft(PromptLookupDrafter(2, 2), text) == [5, 7]
    assert first_draft(PromptLookupDrafter(2, 1), text) == [4, 1]
    assert first_draft(PromptLookupDrafter(2, 1, latest=False), text) == [5, 7]
    assert first_draft(PromptLookupDrafter(2, 3, 2), [1, 2, 3, 4, 3]) == []


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


class Unmoved(ReferenceLookupDrafter):
    """Broken: the pointer never moves, so the first of equal matches always wins."""

    def start(self, context):
        session = super().start(context)
        session.pointers = type("Zeros", (list,), {"__setitem__": lambda *_: None})([0])
        return session


def test_the_pointer_recovers_after_insertions():
    rounds = lambda kind, text: len(replay(kind([REFERENCE], 8), [45], text, 48))
    copied = rounds(ReferenceLookupDrafter, REFERENCE)
    assert rounds(ReferenceLookupDrafter, INSERTED) <= copied + 3 + 5
    moved, stuck = rounds(ReferenceLookupDrafter, EDITED), rounds(Unmoved, EDITED)
    assert stuck >= moved + len(LINES) - 2


def test_replay_equals_the_real_run():
    prompt = [5, 17, 3, 41, 9, 5, 17, 3]
    answer = generate(TARGET, prompt, max_new_tokens=100).tokens
    for drafter in (PromptLookupDrafter(4), PromptLookupDrafter(6, 1, latest=False)):
        real = list(stream(TARGET, prompt, drafter, 100))
        again = replay(drafter, prompt, answer, 48)
        part = lambda step: (
            step.tokens,
            step.tree,
            step.path,
            step.tests,
            step.kind,
            step.draw_counts,
        )
        assert [part(step) for step in real] == [part(step) for step in again]
    assert any(step.path for step in real)
