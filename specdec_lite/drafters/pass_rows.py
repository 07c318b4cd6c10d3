"""Rows behind the text that ask the target itself for tokens ahead: PaSS.

Source: Monea et al. 2023. A look-ahead token has an embedding and no id: it can be fed, and can be
neither drafted nor accepted.
"""

from pathlib import Path

import torch
from torch import nn

from specdec_lite import checks
from specdec_lite.drafters.chain import draft_rows
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import load, where
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context, Drafter, Session, Shape


class LookaheadRows(nn.Module):
    """Embeddings [L, d] of L look-ahead tokens: all that is trained."""

    def __init__(self, hidden_size: int, count: int):
        super().__init__()
        self.rows = nn.Parameter(torch.zeros(count, hidden_size))

    @property
    def config(self) -> dict[str, int]:
        return {"hidden_size": self.rows.shape[1], "count": len(self.rows)}


class PassDrafter(Drafter):
    """Draft L + 1 tokens in one pass of the target over the last token and L look-ahead tokens.

    Args:
        target: a native model; the one that decodes.
        lookahead: trained for it.

    The first token is drawn from p itself, so it is always accepted; the others do not see one
    another, nor it. A round makes two passes of the target and emits two tokens at least.
    """

    def __init__(self, target: CausalLM, lookahead: LookaheadRows):
        self.target = checks.native("target", target)
        rows = lookahead.rows
        if rows.shape[1] != target.hidden_size:
            raise ValueError(
                f"lookahead has rows of size {rows.shape[1]}: target's have {target.hidden_size}"
            )
        self.rows = rows.detach().to(target.device, target.dtype)

    @classmethod
    def from_pretrained(cls, target: CausalLM, path: str | Path | None = None) -> "PassDrafter":
        """With the rows in the file or folder `path`; None: those that ship for this target."""
        checks.native("target", target)
        return cls(target, load(where("pass_rows", target, path), target, LookaheadRows))

    def start(self, context: Context) -> "PassSession":
        return PassSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.own_target(self.target, target)

    def shape(self) -> Shape:
        return Shape.chain(len(self.rows) + 1)


class PassSession(Session):
    """Holds a count alone: what a round feeds lies in a view of the target's cache, and verification
    overwrites it.
    """

    def __init__(self, drafter: PassDrafter):
        self.drafter = drafter

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        target, rows = self.drafter.target, self.drafter.rows
        count = min(len(rows) + 1, context.wanted - 1)
        if count < 1:
            return NOTHING
        last = context.tokens[-1:]
        fed = torch.cat((target.embed(last), rows[: count - 1]))[None]
        self.passes += 1
        # Ids are asked for their number alone: the embeddings are given.
        logits = target.score(last.expand(count), context.cache.view(), states=(0, fed)).logits[0]
        return draft_rows(context, logits, context.sampling)
