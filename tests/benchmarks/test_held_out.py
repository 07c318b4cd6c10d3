"""Check that no prompt of a measurement shares 50 tokens in a row with any training text.

The training texts are the pair's corpus, which is also the datastores' text, and SmolLM2's
requests. The models' generated texts are continuations of these texts and are not rebuilt here.
"""

import hashlib

import numpy as np
import pytest

from specdec_lite import load_pair
from specdec_lite.loading.checkpoints import load_tokenizer
from specdec_lite.loading.smollm2 import smollm2_folder
from specdec_lite.texts.benchmark_prompts import (
    EXTRA_KINDS,
    KINDS as KINDS_OF_PROMPTS,
    load_benchmark_prompts,
)
from specdec_lite.texts.corpus import HELD_OUT, evaluation_prompts, held_out_text, training_text
from specdec_lite.texts.smollm2_tasks import AGENT, HISTORY, TASKS

COMPARED = ("01918ac4", "e5a085ebb94ac986")
"""The last commit with SmolLM2's training requests, and the sum of the prompts compared there."""
GRAM = 50
"""Number of consecutive tokens that no prompt and no training text share."""
SHARES = "wave"
"""A held-out module whose documentation is repeated in another module of the corpus."""

BLOCK = 16
"""Characters of a block of an index."""
FACTORS = np.random.default_rng(0).integers(2**63, size=BLOCK, dtype=np.uint64)
"""Of the characters in the hash of a block."""

pytestmark = pytest.mark.slow  # tens of megabytes are indexed


class Indexed:
    """A text in which `in` looks only where its words can be, by an index of the text's blocks.

    Wherever words of 2 · BLOCK − 1 characters begin in the text, they contain one of its blocks.
    """

    def __init__(self, text: str):
        self.text = text
        step = 2**20 * BLOCK
        parts = [hashes(text[start : start + step]) for start in range(0, len(text), step)]
        unordered = np.concatenate(parts)
        self.order = unordered.argsort()
        self.hashes = unordered[self.order]

    def __contains__(self, words: str) -> bool:
        if len(words) < 2 * BLOCK - 1:
            return words in self.text
        for offset in range(BLOCK):  # of the first block in the words
            blocks = hashes(words[offset:])
            first, last = (np.searchsorted(self.hashes, blocks, side) for side in ("left", "right"))
            rarest = (last - first).argmin()
            starts = (self.order[first[rarest] : last[rarest]] - rarest) * BLOCK - offset
            if any(start >= 0 and self.text.startswith(words, start) for start in starts.tolist()):
                return True
        return False


def hashes(text: str) -> np.ndarray:
    """Return a hash of each whole block of a text."""
    characters = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    blocks = characters[: len(characters) // BLOCK * BLOCK].reshape(-1, BLOCK)
    return blocks.astype(np.uint64) @ FACTORS


def shared(tokenizer, prompt: str, text: Indexed | str) -> str | None:
    """Return the first GRAM consecutive tokens of a prompt that a text contains, or None.

    Such a run contains GRAM // 2 tokens that start at a multiple of GRAM // 2, so the search looks
    for these first. The comparison is of text, so another tokenization of the same text counts too.
    A shorter prompt is compared as a whole.
    """
    ids = tokenizer.encode(prompt)
    half = GRAM // 2
    decoded = lambda start, count: tokenizer.decode(ids[start : start + count])
    near = [at for at in range(0, max(1, len(ids) - half + 1), half) if decoded(at, half) in text]
    starts = {start for at in near for start in range(max(0, at - half), at + 1)}
    for start in sorted(starts):
        if start <= max(0, len(ids) - GRAM) and decoded(start, GRAM) in text:
            return decoded(start, GRAM)
    return None


@pytest.fixture(scope="module")
def corpus() -> Indexed:
    texts = training_text(packages=True).values()
    return Indexed("\0".join(text for each in texts for text in each))


@pytest.fixture(scope="module")
def prompts() -> list[tuple]:
    """Return (tokenizer, prompt) for both targets."""
    pair, smollm2 = load_pair(device="cpu").tokenizer, load_tokenizer(smollm2_folder())
    theirs = [(smollm2, task.text) for tasks in TASKS.values() for task in tasks]
    every = KINDS_OF_PROMPTS + EXTRA_KINDS
    shared = [prompt for rows in load_benchmark_prompts(every).values() for prompt in rows]
    ours = [(pair, prompt.document) for prompt in shared]
    ours += [(pair, row["text"]) for rows in evaluation_prompts().values() for row in rows]
    theirs += [(smollm2, message) for prompt in shared for message in prompt.messages]
    return [*ours, *theirs]


def test_no_prompt_shares_fifty_tokens_with_the_corpus(prompts, corpus):
    assert len(prompts) > 500 and len(corpus.text) > 20e6
    assert [prompt for each in prompts if (prompt := shared(*each, corpus))] == []


def test_the_prompts_are_those_that_were_compared_with_smollm2s_requests(prompts):
    """Training requests of SmolLM2 are drawn by code that left the repository after COMPARED.

    If a prompt changes, check out that commit, copy the prompts into it, run this file's tests,
    and write the new sum here.
    """
    tasks = {task.text for task in (*AGENT, *HISTORY)}
    texts = sorted(tasks | {text for _, text in prompts})
    assert hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16] == COMPARED[1]


@pytest.mark.parametrize("length", [BLOCK, 2 * BLOCK - 2, 2 * BLOCK - 1, 3 * BLOCK + 5])
def test_an_index_contains_what_its_text_contains(length):
    text = "".join(f"{number} " for number in range(300))
    index = Indexed(text)
    for start in range(len(text) - length):
        words = text[start : start + length]
        assert words in index and f"{words[:-1]}x" not in index


def test_a_prompt_from_the_corpus_is_detected(prompts, corpus):
    for tokenizer in {id(each): each for each, _ in prompts}.values():
        start = len(corpus.text) // 3
        copied = corpus.text[start : start + 1200]
        assert shared(tokenizer, f"Something of my own. {copied}", corpus)
    tokenizer = prompts[0][0]
    repeated = held_out_text()["code"][HELD_OUT["code"].index(SHARES)]
    assert shared(tokenizer, repeated, corpus)
    own = "".join(f" {number:x} tide" for number in range(2000, 2400))
    ids = tokenizer.encode(own)
    for start in (0, 7, 25, 61):
        few, many = (tokenizer.decode(ids[start : start + n]) for n in (GRAM - 1, GRAM))
        assert shared(tokenizer, own, f"Before it. {many}\nAfter.")
        assert shared(tokenizer, own, f"Before it. {few}\nAfter.") is None
