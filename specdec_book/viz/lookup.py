"""The lookup explorer: a recorded text and the copies that prompt lookup would have proposed.

The lookup itself is in `static/lookup.js`; a test compares it with `PromptLookupDrafter`.
"""

from collections.abc import Mapping, Sequence

import traitlets

from specdec_book.viz.interactive import Interactive
from specdec_lite.checks import whole


class Lookup(Interactive):
    """Texts that a target wrote, with an arc from every proposal to its source.

    Attributes:
        texts: {"name", "tokens": text of every token, "ids", "start": position of the answer}
            each, as `of` builds them.
        text: Number of the text on display, from 0.
        n: Length of the longest n-gram that is looked up, 1 … 5.
        gamma: Draft length, 1 … 16.
        latest: Whether to copy from the latest occurrence; else from the earliest.
        round: Number of the round that is explained, from 0.
    """

    module = "lookup"
    label = "Lookup explorer: every proposal of prompt lookup, and where it was copied from"

    texts = traitlets.List(traitlets.Dict())
    text = traitlets.Int(0, min=0)
    n = traitlets.Int(3, min=1, max=5)
    gamma = traitlets.Int(8, min=1, max=16)
    latest = traitlets.Bool(True)
    round = traitlets.Int(0, min=0)

    @classmethod
    def of(
        cls, answers: Mapping[str, tuple[Sequence[int], Sequence[int]]], tokenizer, **settings
    ) -> "Lookup":
        """Return the explorer of some answers."""
        texts = []
        for name, (prompt, answer) in answers.items():
            whole(f"tokens of the prompt of {name!r}", len(prompt), 1)
            whole(f"tokens of the answer of {name!r}", len(answer), 1)
            ids = [int(token) for token in (*prompt, *answer)]
            tokens = [tokenizer.decode([token]) for token in ids]
            texts.append({"name": name, "tokens": tokens, "ids": ids, "start": len(prompt)})
        return cls(texts=texts, **settings)
