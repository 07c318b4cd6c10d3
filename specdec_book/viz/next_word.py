"""The next word: temperature, top-k and top-p on a real model's distribution of the next token."""

import traitlets

from specdec_book import recordings
from specdec_book.viz.interactive import Interactive


class NextWord(Interactive):
    """Sliders over a recorded distribution of the next token, and the uniform u that selects it.

    Attributes:
        contexts: Distributions of the recording "next-words": the 40 likeliest tokens with their
            logits, and all other logits rounded to quarters and counted.
        context: Number of the distribution on display, from 0.
        temperature: 0 … 2; 0 is greedy.
        top_k: 1 … 50; 0 keeps every token.
        top_p: 0.05 … 1; 1 keeps every token.
        u: The uniform, 0 … 0.99.
    """

    module = "next_word"
    label = "The next word: what temperature, top-k and top-p do to a real model's choice"

    contexts = traitlets.List(traitlets.Dict())
    context = traitlets.Int(0, min=0)
    temperature = traitlets.Float(1.0, min=0, max=2)
    top_k = traitlets.Int(0, min=0, max=50)
    top_p = traitlets.Float(1.0, min=0.05, max=1)
    u = traitlets.Float(0.42, min=0, max=0.99)

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
