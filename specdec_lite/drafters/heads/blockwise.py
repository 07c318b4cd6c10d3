"""Blockwise parallel decoding: extra heads on the target draft. Source: Stern et al. 2018."""

from pathlib import Path

import torch

from specdec_lite.checks import model, whole
from specdec_lite.drafters.chain import draft_rows, draft_sampling
from specdec_lite.drafters.heads.heads import Heads, check_heads, check_target
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import SHIPPED as WEIGHTS, load
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context, Drafter, Limits, Session

SHIPPED = WEIGHTS / "blockwise"


class BlockwiseDrafter(Drafter):
    """Predict a block of k tokens in one pass: one with the target's own head, k − 1 with extra heads.

    The tokens of a block do not depend on each other: q of each is the distribution of one head.

    Args:
        target: the model that decodes; its vocabulary projection is shared.
        heads: at least k − 1 heads trained on it.
        k: block size ≥ 1; 1 is plain decoding.
        draft_temperature: None: draw with the generation's own sampling settings (argmax if
            greedy); 0: choose the argmax of every head; > 0: draw at this temperature.
    """

    def __init__(
        self, target: CausalLM, heads: Heads, k: int = 4, draft_temperature: float | None = None
    ):
        check_heads(heads, target)
        whole("k", k, 1, heads.count + 1, f" (1 + the {heads.count} extra heads)")
        self.target = target
        self.heads = heads
        self.k = k
        self.sampling = draft_sampling(draft_temperature)
        self.hidden_layers = ("final",) if k > 1 else ()

    @classmethod
    def from_pretrained(
        cls,
        target: CausalLM,
        path: str | Path | None = None,
        k: int = 4,
        draft_temperature: float | None = None,
    ) -> "BlockwiseDrafter":
        """Load trained heads; `k` and `draft_temperature` are as for the class.

        Args:
            target: the model that decodes.
            path: file or folder of the heads; None for those of the shipped pair's target.
        """
        model("target", target)
        heads = load(SHIPPED if path is None else path, target, Heads)
        return cls(target, heads, k, draft_temperature)

    def start(self, context: Context) -> "BlockwiseSession":
        return BlockwiseSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        check_target(self.target, target)

    def limits(self) -> Limits:
        return Limits.chain(self.k - 1)


class BlockwiseSession(Session):
    """The drafting of one generation. It needs only the scores of the last round.

    The last committed token t_{n−1} has not been fed, so the last row of `context.scores` belongs
    to t_{n−2}. There head i predicts t_{n+i}, the drafted token at depth i.
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
