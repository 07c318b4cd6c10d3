"""Medusa's heads in sequence: each reads the words drafted before its own. Source: Ankner et al.
2024, arXiv 2402.05109 (Hydra).
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite import checks
from specdec_lite.drafters.chain import ChainSession, draft_chain
from specdec_lite.drafters.heads import check_target
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import load, where
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context, Drafter, Shape


class HydraHeads(nn.Module):
    """Head i of 0 … K−1: R·x + SiLU(A·x) of x = [f; e(t); e(x_1) … e(x_i)], with the target's last
    state f, its embeddings e, the last token t and the words drafted since.

    The target's vocabulary projection reads what they return; fresh heads return f. (In the paper
    each head has a projection of its own.)
    """

    def __init__(self, hidden_size: int, count: int):
        super().__init__()
        self.config = {"hidden_size": hidden_size, "count": count}
        widths = [(i + 2) * hidden_size for i in range(count)]
        self.direct = nn.ModuleList(nn.Linear(width, hidden_size, bias=False) for width in widths)
        self.bent = nn.ModuleList(nn.Linear(width, hidden_size, bias=False) for width in widths)
        for direct, bent in zip(self.direct, self.bent):
            nn.init.eye_(direct.weight)
            nn.init.zeros_(bent.weight)

    def forward(self, index: int, state: Tensor, embedded: Tensor) -> Tensor:
        """state [..., d], embedded [..., index + 1, d] → [..., d]."""
        x = torch.cat((state, embedded.flatten(-2)), -1)
        return self.direct[index](x) + F.silu(self.bent[index](x))


class HydraDrafter(Drafter):
    """Draft a chain with heads that see the words drafted before their own.

    Args:
        target: whose state "final" and embeddings are read, and whose projection is shared.
        heads: trained on it.
        gamma: draft length, 1 … the number of heads; None: all of them.
    """

    hidden_layers = ("final",)

    def __init__(self, target: CausalLM, heads: HydraHeads, gamma: int | None = None):
        self.target = checks.model("target", target)
        if not isinstance(heads, HydraHeads):
            raise TypeError(f"heads is a {type(heads).__name__}: must be HydraHeads")
        size, count = heads.config["hidden_size"], heads.config["count"]
        if size != target.hidden_size:
            raise ValueError(
                f"heads read states of size {size}, the target's have size {target.hidden_size}"
            )
        self.heads = heads
        self.gamma = count if gamma is None else checks.whole("gamma", gamma, 1, count)

    @classmethod
    def from_pretrained(
        cls, target: CausalLM, path: str | Path | None = None, gamma: int | None = None
    ) -> "HydraDrafter":
        """With the heads in the file or folder `path`; None: those shipped for this target."""
        return cls(target, load(where("hydra", target, path), target, HydraHeads), gamma)

    def start(self, context: Context) -> "HydraSession":
        return HydraSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        check_target(self.target, target)

    def shape(self) -> Shape:
        return Shape.chain(self.gamma)


class HydraSession(ChainSession):
    """Begins every round anew, at the last row that the target has scored."""

    def __init__(self, drafter: HydraDrafter):
        super().__init__(drafter.gamma)
        self.target = drafter.target
        self.heads = drafter.heads

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        """Nothing after a prompt of one token: no token has been scored then."""
        if context.scores is None:
            return NOTHING
        state = context.scores.hidden["final"][0, -1]
        known = [int(context.tokens[-1])]

        def follow(token: int | None) -> Tensor:
            known.extend([] if token is None else [token])
            self.passes += 1
            embedded = self.target.embed(context.tokens.new_tensor(known))
            return self.target.head(self.heads(len(known) - 1, state, embedded))

        return draft_chain(context, follow, self.length)
