"""The rejection-sampling bench: two distributions, a rule, and the distribution it emits."""

import traitlets

from specdec_book.viz.interactive import Interactive

RULES = tuple(
    "exact match once likeliest confidence at_least lenient from_q from_p bonus_argmax soft_argmax"
    " before_temperature accept_zero dropped".split()
)
TASKS = ("half", "from_p", "lenient", "second_draw")


class Bench(Interactive):
    """Bars of p and q over 3–8 tokens, and the distribution that an acceptance rule emits.

    Attributes:
        p: Target's probabilities over 3 to 8 tokens, summing to 1.
        q: Draft's probabilities over the same tokens, summing to 1.
        rule: One of RULES: three lossless ones, three that readers invent, one lossy on purpose,
            seven published mistakes.
        task: One of TASKS, what the reader is asked to find.
        names: Names of the tokens; those without one are called A, B, ….
        seed: Seed of the draws, at least 0.
        siblings: Whether several tokens are drawn from q at one position and verified in turn.
        rejected: Number of siblings rejected so far, 0 … 3; p then becomes the residual.
    """

    module = "bench"
    label = "Rejection-sampling bench: what an acceptance rule emits for any p and q"

    p = traitlets.List(traitlets.Float(min=0, max=1), [0.5, 0.3, 0.2], minlen=3, maxlen=8)
    q = traitlets.List(traitlets.Float(min=0, max=1), [0.3, 0.5, 0.2], minlen=3, maxlen=8)
    rule = traitlets.Enum(RULES, "exact")
    task = traitlets.Enum(TASKS)
    names = traitlets.List(traitlets.Unicode(), maxlen=8)
    seed = traitlets.Int(0, min=0)
    siblings = traitlets.Bool(False)
    rejected = traitlets.Int(0, min=0, max=3)

    def __init__(self, **traits):
        super().__init__(**traits)
        if len(self.p) != len(self.q):
            raise traitlets.TraitError(
                f"p has {len(self.p)} tokens and q has {len(self.q)}: must have the same number"
            )

    @traitlets.default("task")
    def _default_task(self):
        return "second_draw" if self.siblings else "from_p"

    @traitlets.validate("p", "q")
    def _sums_to_one(self, proposal):
        if abs(sum(proposal.value) - 1) > 1e-6:
            raise traitlets.TraitError(f"{proposal.trait.name}={proposal.value}: must sum to 1")
        return proposal.value
