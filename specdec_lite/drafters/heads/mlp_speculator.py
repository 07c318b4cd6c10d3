"""The MLP speculator: a small recurrent network on the target's last state drafts a chain.

Source: Wertheimer et al. 2024, arXiv 2404.19124.
"""

from pathlib import Path

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.drafters.chain import ChainSession, draft_chain
from specdec_lite.drafters.heads.heads import check_target
from specdec_lite.drafters.heads.mlp_state import MlpSpeculator
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import find_weights, load
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context, Drafter, Limits
from specdec_lite.transfer import upload


class MlpSpeculatorDrafter(Drafter):
    """Draft a chain from the target's last state and the tokens since, without attention or cache.

    Args:
        target: the model that decodes; its state "final" is read.
        speculator: network trained on this target.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`; None: the trained depth.
    """

    hidden_layers = ("final",)

    def __init__(
        self, target: CausalLM, speculator: MlpSpeculator, gamma: int | Length | None = None
    ):
        self.target = checks.model("target", target)
        self.speculator = checks.instance("speculator", speculator, MlpSpeculator)
        sizes = speculator.config["hidden_size"], speculator.config["vocab_size"]
        if sizes != (wanted := (target.hidden_size, target.vocab_size)):
            raise ValueError(f"speculator is for sizes d, V = {sizes}: the target's are {wanted}")
        self.length = Length.of(speculator.config["depth"] if gamma is None else gamma)

    @classmethod
    def from_pretrained(
        cls, target: CausalLM, path: str | Path | None = None, gamma: int | Length | None = None
    ) -> "MlpSpeculatorDrafter":
        """Load a trained speculator.

        Args:
            target: the model that decodes.
            path: file or folder of the weights; None for those shipped for this target.
            gamma: as for the class.
        """
        speculator = load(find_weights("mlp_speculator", target, path), target, MlpSpeculator)
        return cls(target, speculator, gamma)

    def start(self, context: Context) -> "MlpSession":
        return MlpSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        check_target(self.target, target)

    def limits(self) -> Limits:
        return Limits.chain(self.length.gamma)


class MlpSession(ChainSession):
    """The drafting of one generation. Every round starts at the last row the target has scored."""

    def __init__(self, drafter: MlpSpeculatorDrafter):
        super().__init__(drafter.length)
        self.speculator = drafter.speculator

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        # After a prompt of one token no token has been scored yet.
        if context.scores is None:
            return NOTHING
        state = self.speculator.begin(context.scores.hidden["final"][0, -1])
        last = upload(context.tokens[-1:], state.device)

        def follow(token: Tensor | None) -> Tensor:
            nonlocal state
            known = state if token is None else self.speculator.again(state)
            state = self.speculator(known, (last if token is None else token)[0])
            self.passes += 1
            return self.speculator.head(state)

        return draft_chain(context, follow, self.length)
