"""Two timelines, features and tokens, and what the draft knows when one is shifted along the other."""

import traitlets

from specdec_lite.viz.interactive import Interactive

SAMPLE = {
    "words": ["It", " was", " a", " dark", " and"],
    "laws": [
        {"agrees": 0.3, "law": [[" and", 0.3], [" night", 0.25], [",", 0.2], [" room", 0.1]]},
        {"agrees": 0.6, "law": [[" and", 0.85], [" night", 0.08], [",", 0.03], [" room", 0.01]]},
    ],
}


class Timelines(Interactive):
    """The row of features over the row of tokens, to be dragged: with the shift of one, each feature
    is paired with the token that was drawn from it.

    words: at least three, the last of which is what the target says next. laws: for shift 0 and 1,
    {"law": pairs of a word and its q, the likeliest first, "agrees": share of places where the head
    trained that way agrees with the target}. shift: 0 or 1. Raises TraitError for anything else.
    """

    module = "timelines"
    label = "Features and tokens on two timelines, and the draft's q for either shift"

    words = traitlets.List(traitlets.Unicode(), SAMPLE["words"], minlen=3).tag(sync=True)
    laws = traitlets.List(traitlets.Dict(), SAMPLE["laws"], minlen=2, maxlen=2).tag(sync=True)
    shift = traitlets.Int(0, min=0, max=1).tag(sync=True)

    @traitlets.validate("laws")
    def _are_laws(self, proposal):
        for shift, entry in enumerate(proposal.value):
            chances = [q for _, q in entry.get("law", ())]
            if not chances or min(chances) < 0 or sum(chances) > 1 + 1e-6:
                raise traitlets.TraitError(
                    f"laws[{shift}]: must hold words with probabilities whose sum is at most 1"
                )
        return proposal.value
