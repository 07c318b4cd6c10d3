"""Extra heads on the target itself as drafter: blockwise parallel decoding. Source: Stern, Shazeer
and Uszkoreit 2018.
"""

import math
from pathlib import Path

import torch

from specdec_lite.checks import is_number, model, whole
from specdec_lite.drafters.chain import draft_rows
from specdec_lite.drafters.heads import Heads, check_heads, check_target
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import SHIPPED as WEIGHTS, load
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.sampling import Sampling
from specdec_lite.speculation import Context, Drafter, Session, Shape

SHIPPED = WEIGHTS / "blockwise"


class BlockwiseDrafter(Drafter):
    """Predict a block of k tokens at once: the first by the target's own head, which is the round's
    last token, the others by k−1 extra heads.

    target: whose hidden states are read and whose vocabulary projection is shared. heads: at least
    k−1. k: block size; 1 is plain decoding. draft_temperature: None draws each token at the
    generation's own sampling settings (argmax when greedy); 0 always takes the argmax of every
    head, a *chosen* token; any other number draws at that temperature. The tokens of a block do not
    see one another, so q of each is the law of one head; the result is lossless all the same.
    """

    def __init__(
        self, target: CausalLM, heads: Heads, k: int = 4, draft_temperature: float | None = None
    ):
        check_heads(heads, target)
        note = f" (the target's own head and up to {heads.count} extra ones)"
        whole("k", k, 1, heads.count + 1, note)
        if draft_temperature is not None and not (
            is_number(draft_temperature) and 0 <= draft_temperature < math.inf
        ):
            raise ValueError(
                f"draft_temperature={draft_temperature!r}: must be None or a number ≥ 0 (0 takes"
                " the argmax of every head)"
            )
        self.target = target
        self.heads = heads
        self.k = k
        self.sampling = None if draft_temperature is None else Sampling(draft_temperature)
        self.hidden_layers = ("final",) if k > 1 else ()

    @classmethod
    def from_pretrained(
        cls,
        target: CausalLM,
        path: str | Path | None = None,
        k: int = 4,
        draft_temperature: float | None = None,
    ) -> "BlockwiseDrafter":
        """The heads in the file or folder `path`; None: the shipped ones, which belong to the
        shipped pair's target.
        """
        model("target", target)
        heads = load(SHIPPED if path is None else path, target, Heads)
        return cls(target, heads, k, draft_temperature)

    def start(self, context: Context) -> "BlockwiseSession":
        return BlockwiseSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        check_target(self.target, target)

    def shape(self) -> Shape:
        return Shape.chain(self.k - 1)


class BlockwiseSession(Session):
    """Has no state but a count: all it needs is in the scores of the last round.

    Tokens t_0 … t_{n−1} are committed and t_{n−1} has not been fed, so the last row of
    `context.scores` is that of t_{n−2}: the one whose own head said t_{n−1}. Head i, read there,
    says t_{n+i}: the draft's token at depth i.
    """

    def __init__(self, drafter: BlockwiseDrafter):
        self.drafter = drafter

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        drafter = self.drafter
        count = min(drafter.k, context.wanted) - 1
        if count < 1 or context.scores is None:
            return NOTHING
        states = context.scores.hidden["final"][0, -1]
        logits = drafter.target.head(drafter.heads(states, slice(count)))
        self.passes += 1
        return draft_rows(context, logits, drafter.sampling or context.sampling)
