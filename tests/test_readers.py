"""What a reader of the text sees does not depend on how many tokens a round accepts.

Every reader of a text (pieces of characters, stop strings and tokens, caps, processors with a
state, log-probabilities, a streamer of transformers) sees with every drafter what it sees without.
"""

from functools import cache
from types import SimpleNamespace

import models_zoo
import pytest
import torch
from chosen import one_in
from models_zoo import PROMPT, native
from registry import COMPOSITES, DRAFTERS, NATIVE_ONLY, SEEDED_DRAFTERS

from specdec_lite import CausalLM, generate, stream_text
from specdec_lite.loading.custom_generate import SpeculativeGenerate
from specdec_lite.texts import streaming

SOME = ["None", "draft model", "Medusa heads, a sparse tree", "suffix decoding", "merged"]
"""A chain, a tree, a draft without a model, and a composite: they run in every commit."""
MAKERS = {None: lambda target: None} | DRAFTERS | SEEDED_DRAFTERS
MAKERS |= {
    name: lambda target, wrap=wrap: wrap(DRAFTERS["draft model"], target)
    for name, wrap in COMPOSITES.items()
}
TARGET = native()
LONG = 24


class Bytes:
    """A tokenizer whose tokens are bytes: letters, and in every third token a part of 🙂 or of é."""

    all_special_ids = ()
    parts = "🙂é".encode()

    def decode(self, ids, skip_special_tokens=True):
        parts, count = self.parts, len(self.parts)
        text = bytes(65 + i if i % 3 else parts[i // 3 % count] for i in ids)
        return text.decode(errors="replace")


class Automaton:
    """Forbids a third of the tokens, by a state that each token changes and that it remembers."""

    def __init__(self):
        self.states = {tuple(PROMPT): 0}

    def __call__(self, prefix_ids, logits):
        *before, last = prefix = tuple(prefix_ids.tolist())
        if prefix not in self.states:
            self.states[prefix] = (2 * self.states[tuple(before)] + last) % 3
        forbidden = torch.arange(len(logits)) % 3 == self.states[prefix]
        return logits.masked_fill(forbidden, -torch.inf)


def text_of(drafter, stops=()):
    return "".join(pieces(drafter, stop_strings=stops))


def pieces(drafter, **settings):
    return list(stream_text(TARGET, Bytes(), PROMPT, drafter, LONG, **settings))


def tokens_of(drafter, count=LONG, **settings):
    return generate(TARGET, PROMPT, drafter, count, **settings).tokens.tolist()


TOKENS, TEXT = tokens_of(None), text_of(None)
OVERLAPPING = [(TEXT[i + 1 : i + 3], TEXT[i : i + 4 + i % 3]) for i in range(2, 14, 3)]
OVERLAPPING += [(TEXT[3:6], TEXT[2:6])]
"""Pairs of strings of the text: it depends on which of them ends first, or begins first."""
READERS = {
    "pieces": pieces,
    "stop strings": lambda drafter: [text_of(drafter, stops) for stops in OVERLAPPING],
    "stop tokens": lambda drafter: [
        tokens_of(drafter, stop_token_ids=token) for token in sorted({*TOKENS})[::4]
    ],
    "caps": lambda drafter: [tokens_of(drafter, count) for count in (1, 2, 7)],
    "a state": lambda drafter: tokens_of(drafter, processors=Automaton()),
    "log-probabilities": lambda drafter: generate(
        TARGET, PROMPT, drafter, LONG, logprobs=True
    ).logprobs.tolist(),
}


@cache
def expected(reader):
    read = READERS[reader](None)
    return pytest.approx(read, abs=1e-5) if reader == "log-probabilities" else read


@cache
def model():
    return models_zoo.build("Llama", {}).double()


def streamer(got):
    """Return a streamer of transformers that appends what it is given to a list."""
    put = lambda value: got.append(value.flatten().tolist())
    return SimpleNamespace(put=put, end=lambda: got.append("end"))


@pytest.mark.parametrize("name", one_in(8, MAKERS, SOME, pytest.mark.weekly))
def test_every_reader_sees_what_it_sees_without_a_draft(name):
    for reader, read in READERS.items():
        assert read(MAKERS[name](TARGET)) == expected(reader), reader
    if name in NATIVE_ONLY | {None, *SEEDED_DRAFTERS}:
        return
    ours, theirs, ids = [], [], torch.tensor([PROMPT])
    settings = dict(max_new_tokens=LONG, do_sample=False)
    hook = SpeculativeGenerate(MAKERS[name](CausalLM(model())), streamer=streamer(ours))
    text = model().generate(ids, custom_generate=hook, **settings)
    whole = model().generate(ids, streamer=streamer(theirs), **settings)
    assert text.tolist() == whole.tolist() and ours == theirs


def test_what_is_read_without_a_draft_is_right():
    tokens, text = TOKENS, TEXT
    assert text == Bytes().decode(tokens) and len(set(map(len, pieces(None)))) > 1
    for stops, read in zip(OVERLAPPING, expected("stop strings"), strict=True):
        end, begin = min((text.index(stop) + len(stop), text.index(stop)) for stop in stops)
        assert read == text[:begin] and end < len(text)
    rows = TARGET.model(torch.tensor([PROMPT + tokens]))[0, len(PROMPT) - 1 : -1].log_softmax(-1)
    assert rows.gather(-1, torch.tensor(tokens)[:, None])[:, 0].tolist() == expected(
        "log-probabilities"
    )
    assert expected("a state") != tokens and len({*map(len, expected("stop tokens"))}) > 2


def test_a_reader_that_is_fed_round_by_round_is_noticed(monkeypatch):
    right = expected("pieces")
    by_round = lambda pieces, steps: (pieces.add(step.tokens) for step in steps)
    monkeypatch.setattr(streaming, "_pieces", by_round)
    assert pieces(MAKERS["the target as its own draft"](TARGET)) != right
