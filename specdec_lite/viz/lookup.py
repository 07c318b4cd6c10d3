"""The lookup explorer: a recorded text, and what prompt lookup would have copied from where.

What lives here: the widget that carries the text. What does not: the lookup itself and its drawing
(`static/lookup.js`), which a test holds against `PromptLookupDrafter`.
"""

from collections.abc import Mapping, Sequence

import traitlets

from specdec_lite.checks import whole
from specdec_lite.viz.interactive import Interactive


class Lookup(Interactive):
    """Texts that a target wrote, with an arc from every proposal to its source.

    texts: {"name", "tokens": the text of every token, "ids", "start": where the answer begins} for
    each, as `of` makes them. text: which of them is shown, from 0. n, gamma: the longest run that
    is looked up, 1 … 5, and the draft length, 1 … 16. latest: of several places the latest, else
    the earliest. round: the one that is explained, from 0.
    """

    module = "lookup"
    label = "Lookup explorer: every proposal of prompt lookup, and where it was copied from"

    texts = traitlets.List(traitlets.Dict()).tag(sync=True)
    text = traitlets.Int(0, min=0).tag(sync=True)
    n = traitlets.Int(3, min=1, max=5).tag(sync=True)
    gamma = traitlets.Int(8, min=1, max=16).tag(sync=True)
    latest = traitlets.Bool(True).tag(sync=True)
    round = traitlets.Int(0, min=0).tag(sync=True)

    @classmethod
    def of(
        cls, answers: Mapping[str, tuple[Sequence[int], Sequence[int]]], tokenizer, **settings
    ) -> "Lookup":
        """Show answers.

        answers: {name: (prompt ids, answer ids)}, both at least one token. tokenizer: anything with
        `decode(ids)`. settings: of the traits. ValueError for an empty prompt or answer.
        """
        texts = []
        for name, (prompt, answer) in answers.items():
            whole(f"tokens of the prompt of {name!r}", len(prompt), 1)
            whole(f"tokens of the answer of {name!r}", len(answer), 1)
            ids = [int(token) for token in (*prompt, *answer)]
            tokens = [tokenizer.decode([token]) for token in ids]
            texts.append({"name": name, "tokens": tokens, "ids": ids, "start": len(prompt)})
        return cls(texts=texts, **settings)
