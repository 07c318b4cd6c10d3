"""No prompt of the scoreboard shares 50 tokens in a row with text that a draft was trained on, or
that a table was counted from: the pair's corpus, which is the stores' too, and SmolLM2's own
prompts. What the models themselves wrote is not rebuilt here; it goes on from these texts.
"""

import random
from itertools import islice

import pytest

from specdec_lite import load_pair
from specdec_lite.loading import pair_tasks
from specdec_lite.loading.corpus import evaluation_prompts, training_text
from specdec_lite.loading.pair_tasks import SHARES
from specdec_lite.loading.pairs import _tokenizer
from specdec_lite.loading.smollm2 import smollm2_folder
from specdec_lite.loading.smollm2_tasks import TASKS
from specdec_lite.training import smollm2_prompts
from specdec_lite.training.smollm2_prompts import GRAM, KINDS

DRAWS = 8000
"""Texts of a kind, more than its 6,000 training prompts are."""

pytestmark = pytest.mark.slow  # tens of megabytes are read and searched


def shared(tokenizer, prompt: str, text: str) -> str | None:
    """The first GRAM tokens in a row of a prompt that a text contains; None where it has none.

    Such a run holds half as many tokens that begin at a multiple of GRAM // 2, so these are looked
    for first. What stands in the text cut otherwise into tokens counts too. A prompt shorter than
    that is looked for whole.
    """
    ids = tokenizer.encode(prompt)
    half = GRAM // 2
    said = lambda start, count: tokenizer.decode(ids[start : start + count])
    near = [at for at in range(0, max(1, len(ids) - half + 1), half) if said(at, half) in text]
    starts = {start for at in near for start in range(max(0, at - half), at + 1)}
    for start in sorted(starts):
        if start <= max(0, len(ids) - GRAM) and said(start, GRAM) in text:
            return said(start, GRAM)
    return None


@pytest.fixture(scope="module")
def corpus() -> str:
    return "\0".join(text for texts in training_text(packages=True).values() for text in texts)


@pytest.fixture(scope="module")
def asked() -> str:
    """What SmolLM2 was asked when it wrote what its heads are trained on."""
    draws = {kind: random.Random(f"0 {kind} False") for kind in KINDS}
    texts = (islice(smollm2_prompts.texts(kind, False, draws[kind]), DRAWS) for kind in KINDS)
    return "\0".join(dict.fromkeys(text for rows in texts for text in rows))


@pytest.fixture(scope="module")
def prompts() -> list[tuple]:
    """(tokenizer, prompt) of both targets."""
    pair, smollm2 = load_pair(device="cpu").tokenizer, _tokenizer(smollm2_folder())
    ours = [(pair, text) for texts in pair_tasks.tasks().values() for text in texts]
    theirs = [(smollm2, task.text) for tasks in TASKS.values() for task in tasks]
    return [*ours, *theirs]


def test_no_prompt_shares_fifty_tokens_with_the_corpus(prompts, corpus):
    assert len(prompts) > 70 and len(corpus) > 20e6
    assert [prompt for each in prompts if (prompt := shared(*each, corpus))] == []


def test_no_prompt_shares_fifty_tokens_with_what_smollm2_was_asked(prompts, asked):
    assert asked.count("\0") > 4000 * len(KINDS)
    assert [prompt for each in prompts if (prompt := shared(*each, asked))] == []


def test_a_prompt_taken_from_the_corpus_is_caught(prompts, corpus, asked):
    for tokenizer in {id(each): each for each, _ in prompts}.values():
        for text in (corpus, asked):
            place = len(text) // 3
            copied = text[place : place + 1200]
            assert shared(tokenizer, f"Something of my own. {copied}", text)
    tokenizer = prompts[0][0]
    repeated = [row["text"] for row in evaluation_prompts()["code"] if row["source"] == SHARES]
    assert any(shared(tokenizer, text, corpus) for text in repeated)
    own = "".join(f" {number:x} tide" for number in range(2000, 2400))
    ids = tokenizer.encode(own)
    for start in (0, 7, 25, 61):
        few, many = (tokenizer.decode(ids[start : start + n]) for n in (GRAM - 1, GRAM))
        assert shared(tokenizer, own, f"Before it. {many}\nAfter.")
        assert shared(tokenizer, own, f"Before it. {few}\nAfter.") is None
