"""The rejection-sampling bench: two laws to drag, a rule to choose, and draws that settle on the
law it really emits.
"""

import traitlets

from specdec_lite.viz.interactive import Interactive

RULES = (
    "exact",
    "match",
    "once",
    "lenient",
    "from_q",
    "from_p",
    "bonus_argmax",
    "soft_argmax",
    "before_temperature",
    "accept_zero",
    "dropped",
)


class Bench(Interactive):
    """Bars of p and q over 3–8 tokens, what a rule accepts and recovers, and the law of the tokens
    it emits.

    p, q: probabilities ≥ 0 over one vocabulary of 3 to 8 tokens, each summing to 1. rule: one of
    RULES: three exact ones, one lossy on purpose, and seven published mistakes. seed: of the draws,
    ≥ 0; the same seed repeats them. siblings: offer several draws from q at one place, tested one
    after another; refused: how many were refused so far, 0 … 3, so that p is what is still owed.
    Raises TraitError for anything else.
    """

    module = "bench"
    label = "Rejection-sampling bench: what an acceptance rule emits for any p and q"

    p = traitlets.List(traitlets.Float(min=0, max=1), [0.5, 0.3, 0.2], minlen=3, maxlen=8).tag(
        sync=True
    )
    q = traitlets.List(traitlets.Float(min=0, max=1), [0.3, 0.5, 0.2], minlen=3, maxlen=8).tag(
        sync=True
    )
    rule = traitlets.Enum(RULES, "exact").tag(sync=True)
    seed = traitlets.Int(0, min=0).tag(sync=True)
    siblings = traitlets.Bool(False).tag(sync=True)
    refused = traitlets.Int(0, min=0, max=3).tag(sync=True)

    def __init__(self, **traits):
        super().__init__(**traits)
        if len(self.p) != len(self.q):
            raise traitlets.TraitError(
                f"p has {len(self.p)} tokens and q has {len(self.q)}: both must be over one"
                " vocabulary"
            )

    @traitlets.validate("p", "q")
    def _sums_to_one(self, proposal):
        if abs(sum(proposal.value) - 1) > 1e-6:
            raise traitlets.TraitError(f"{proposal.trait.name}={proposal.value}: must sum to 1")
        return proposal.value
