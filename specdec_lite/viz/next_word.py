"""The next word: temperature, top-k and top-p over a real model's next token, on the line of
length 1.
"""

from collections import Counter

import traitlets
from torch import Tensor

from specdec_lite.measure import results
from specdec_lite.viz.interactive import Interactive

WORDS = 40  # tokens that are kept with their text
STEP = 0.25  # the others' logits are rounded to this, and counted


class NextWord(Interactive):
    """Sliders over a recorded distribution of the next token, and the point u that decides.

    contexts: dicts as `recorded` makes them. context: which of them is shown. temperature: 0 … 2,
    0 being greedy. top_k: 1 … 50, 0 cuts nothing. top_p: .05 … 1, 1 cuts nothing. u: 0 … .99.
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
        """With the contexts that are recorded in results/next_words.json."""
        return cls(contexts=results.load("next_words").data["contexts"])

    @traitlets.validate("context")
    def _exists(self, proposal):
        if proposal.value and proposal.value >= len(self.contexts):
            raise traitlets.TraitError(
                f"context={proposal.value}: there are {len(self.contexts)} contexts"
            )
        return proposal.value


def recorded(prompt: str, logits: Tensor, tokenizer) -> dict:
    """What the interactive needs of one distribution, in a few kilobytes.

    Args:
        prompt: The text so far.
        logits: [V], of the token behind it.
        tokenizer: Anything with `decode(ids)`.

    Returns:
        {"prompt", "words": [[text, logit], …] for the WORDS likeliest, "tail": [[logit, count], …]
        for all others, in steps of STEP}, both falling.
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
