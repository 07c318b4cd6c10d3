"""Extra heads on the target whose rows are corrected from left to right by the token before each.

Source: Cheng et al. 2026 (DSpark), the Markov head; here on heads such as Medusa's.
"""

from pathlib import Path

from torch import Tensor

from specdec_lite.checks import whole
from specdec_lite.drafters.heads import Heads, check_heads, check_target, stored_heads
from specdec_lite.drafters.parallel import Correction, ParallelSession, check_correction
from specdec_lite.drafters.words import speaker
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import load, where
from specdec_lite.speculation import Context, Drafter, Shape


class MarkovDrafter(Drafter):
    """Draft a chain with extra heads on the target whose rows are corrected from left to right.

    Args:
        target: whose state "final" is read and whose vocabulary projection is shared.
        heads: Medusa's or blockwise ones.
        correction: trained for them.
        gamma: draft length, 1 … the number of heads; None: all of them.
    """

    hidden_layers = ("final",)

    def __init__(
        self, target: CausalLM, heads: Heads, correction: Correction, gamma: int | None = None
    ):
        check_heads(heads, target)
        self.speaker = speaker(target, heads.words)
        check_correction(correction, self.speaker)
        self.target = target
        self.heads = heads
        self.correction = correction
        self.gamma = heads.count if gamma is None else whole("gamma", gamma, 1, heads.count)

    @classmethod
    def from_pretrained(
        cls, target: CausalLM, path: str | Path | None = None, gamma: int | None = None
    ) -> "MarkovDrafter":
        """Medusa's shipped heads with the correction in the file or folder `path`; None: the one
        shipped for this target.
        """
        correction = load(where("markov", target, path), target, Correction)
        heads = load(where("medusa", target), target, stored_heads)
        return cls(target, heads, correction, gamma)

    def start(self, context: Context) -> "MarkovSession":
        return MarkovSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        check_target(self.target, target)

    def shape(self) -> Shape:
        return Shape.chain(self.gamma)


class MarkovSession(ParallelSession):
    """Holds nothing but a count: the heads read the last row that the target has scored."""

    def __init__(self, drafter: MarkovDrafter):
        super().__init__(drafter.gamma)
        self.drafter = drafter
        self.correction = drafter.correction
        self.words = drafter.heads.words

    def rows(self, context: Context, count: int) -> Tensor:
        hidden = context.scores.hidden["final"][0, -1]
        return self.drafter.speaker.head(self.drafter.heads(hidden, slice(count)))
