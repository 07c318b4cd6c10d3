"""Two timelines, features and tokens, and the draft's distribution when one of them is shifted."""

import traitlets

from specdec_book.viz.interactive import Interactive

SAMPLE = {
    "words": ["It", " was", " a", " dark", " and"],
    "laws": [
        {"agrees": 0.3, "law": [[" and", 0.3], [" night", 0.25], [",", 0.2], [" room", 0.1]]},
        {"agrees": 0.6, "law": [[" and", 0.85], [" night", 0.08], [",", 0.03], [" room", 0.01]]},
    ],
}


class Timelines(Interactive):
    """The row of features above the row of tokens; the reader drags one along the other.

    At a shift of one, each feature is paired with the token that was drawn from it.

    Attributes:
        words: At least three tokens; the last is the target's next token.
        laws: For shift 0 and 1, the names of the recording: "law" has (word, q) pairs, the likeliest
            first; "agrees" is the fraction of positions at which the head trained with that shift
            agrees with the target.
        shift: 0 or 1.
    """

    module = "timelines"
    label = "Features and tokens on two timelines, and the drafter's q for either shift"

    words = traitlets.List(traitlets.Unicode(), SAMPLE["words"], minlen=3)
    laws = traitlets.List(traitlets.Dict(), SAMPLE["laws"], minlen=2, maxlen=2)
    shift = traitlets.Int(0, min=0, max=1)

    @traitlets.validate("laws")
    def _are_distributions(self, proposal):
        for shift, entry in enumerate(proposal.value):
            q = [probability for _, probability in entry.get("law", ())]
            if not q or min(q) < 0 or sum(q) > 1 + 1e-6:
                raise traitlets.TraitError(
                    f"laws[{shift}] has probabilities {q}: must be at least one, none negative,"
                    " with a sum of at most 1"
                )
        return proposal.value
