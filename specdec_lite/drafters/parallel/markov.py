"""Extra heads on the target, with each row corrected by the token before it.

Source: Cheng et al. 2026 (DSpark), the Markov head, and DFlash 2's selector of pairs
(vllm-project/vllm#52816); here on heads such as Medusa's.
"""

from pathlib import Path

from torch import Tensor

from specdec_lite.checks import whole
from specdec_lite.drafters.heads.heads import Heads, check_heads, check_target, stored_heads
from specdec_lite.drafters.heads.vocabulary import output_head
from specdec_lite.drafters.parallel.parallel import (
    Correction,
    ParallelSession,
    check_correction,
    stored_correction,
)
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import find_weights, load
from specdec_lite.speculation import Context, Drafter, Limits


class MarkovDrafter(Drafter):
    """Draft a chain with extra heads on the target whose rows are corrected from left to right.

    Args:
        target: the model that decodes; its state "final" and vocabulary projection are used.
        heads: Medusa or blockwise heads.
        correction: correction trained for these heads; a `Selector` leaves the k likeliest tokens
            of each row and walks one path through them.
        gamma: draft length, 1 … number of heads; None: the number of heads.
    """

    hidden_layers = ("final",)

    def __init__(
        self, target: CausalLM, heads: Heads, correction: Correction, gamma: int | None = None
    ):
        check_heads(heads, target)
        self.output_head = output_head(target, heads.words)
        check_correction(correction, self.output_head)
        self.target = target
        self.heads = heads
        self.correction = correction
        self.gamma = heads.count if gamma is None else whole("gamma", gamma, 1, heads.count)

    @classmethod
    def from_pretrained(
        cls, target: CausalLM, path: str | Path | None = None, gamma: int | None = None
    ) -> "MarkovDrafter":
        """Load the shipped Medusa heads and a trained correction.

        Args:
            target: the model that decodes.
            path: file or folder of the correction; None for the one shipped for this target.
            gamma: as for the class.
        """
        correction = load(find_weights("markov", target, path), target, stored_correction)
        heads = load(find_weights("medusa", target), target, stored_heads)
        return cls(target, heads, correction, gamma)

    def start(self, context: Context) -> "MarkovSession":
        return MarkovSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        check_target(self.target, target)

    def limits(self) -> Limits:
        return Limits.chain(self.gamma)


class MarkovSession(ParallelSession):
    """The drafting of one generation. The heads read the last row that the target has scored."""

    def __init__(self, drafter: MarkovDrafter):
        super().__init__(drafter.gamma)
        self.drafter = drafter
        self.correction = drafter.correction
        self.words = drafter.heads.words

    def rows(self, context: Context, count: int) -> Tensor:
        hidden = context.scores.hidden["final"][0, -1]  # pyright: ignore[reportOptionalMemberAccess]
        self.states = self.drafter.heads(hidden, slice(count))
        return self.drafter.output_head.head(self.states)
