"""The next word: temperature, top-k and top-p on a real model's distribution of the next token."""

from collections import Counter

import traitlets
from torch import Tensor

from specdec_book import recordings
from specdec_book.viz.interactive import Interactive

WORDS = 40  # number of the likeliest tokens that are recorded with their text
STEP = 0.25  # all other logits are rounded to a multiple of this and counted


class NextWord(Interactive):
    """Sliders over a recorded distribution of the next token, and the uniform u that selects it.

    Attributes:
        contexts: Distributions as `record_distribution` returns them.
        context: Number of the distribution on display, from 0.
        temperature: 0 … 2; 0 is greedy.
        top_k: 1 … 50; 0 keeps every token.
        top_p: 0.05 … 1; 1 keeps every token.
        u: The uniform, 0 … 0.99.
    """

    module = "next_word"
    label = "The next word: what temperature, top-k and top-p do to a real model's choice"

    contexts = traitlets.List(traitlets.Dict()).tag(sync=True)
    context = traitlets.Int(0, min=0).tag(sync=True)
    temperature = traitlets.Float(1.0, min=0, max=2).tag(sync=True)
    top_k = traitlets.Int(0, min=0, max=50).tag(sync=True)
    top_p = traitlets.Float(1.0, min=0.05, max=1).tag(sync=True)
    u = traitlets.Float(0.42, min=0, max=0.99).tag(sync=True)

    @classmethod
    def load(cls) -> "NextWord":
        """Return the interactive with the contexts of the recording "next-words"."""
        return cls(contexts=recordings.load("next-words").data["contexts"])

    @traitlets.validate("context")
    def _exists(self, proposal):
        if proposal.value and proposal.value >= len(self.contexts):
            raise traitlets.TraitError(
                f"context={proposal.value}: must be less than {len(self.contexts)}, the number of"
                " contexts"
            )
        return proposal.value


def record_distribution(prompt: str, logits: Tensor, tokenizer) -> dict:
    """Return one distribution for the interactive, in a few kilobytes of JSON types.

    Shapes: logits [V].
    """
    ordered, ids = logits.double().sort(descending=True)
    words = [
        [tokenizer.decode([token]), round(logit, 4)]
        for token, logit in zip(ids[:WORDS].tolist(), ordered[:WORDS].tolist())
    ]
    least = words[-1][1]
    steps = Counter(min(least, round(x / STEP) * STEP) for x in ordered[WORDS:].tolist())
    return {
        "prompt": prompt,
        "words": words,
        "tail": [list(x) for x in sorted(steps.items())[::-1]],
    }
