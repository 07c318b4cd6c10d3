"""PaSS: trained look-ahead embeddings after the text let the target itself predict further tokens.

Source: Monea et al. 2023. A look-ahead token has an embedding but no id: it can be fed, but neither
drafted nor accepted.
"""

from pathlib import Path

import torch

from specdec_lite import checks
from specdec_lite.drafters.chain import draft_rows
from specdec_lite.drafters.self_drafts.lookahead_rows import LookaheadRows
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import find_weights, load
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context, Drafter, Limits, Session
from specdec_lite.transfer import upload


class PassDrafter(Drafter):
    """Draft L + 1 tokens in one pass of the target over the last token and L look-ahead tokens.

    The first token is drawn from p itself, so it is always accepted. The tokens do not depend on
    each other. A round takes two passes of the target and emits at least two tokens.

    Args:
        target: a native model; the one that decodes.
        lookahead: embeddings trained for this target.
    """

    makes_passes = True

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
        """Load trained embeddings.

        Args:
            target: the model that decodes.
            path: file or folder of the embeddings; None for those shipped for this target.
        """
        checks.native("target", target)
        return cls(target, load(find_weights("pass_rows", target, path), target, LookaheadRows))

    def start(self, context: Context) -> "PassSession":
        return PassSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.own_target(self.target, target)

    def limits(self) -> Limits:
        return Limits.chain(len(self.rows) + 1)


class PassSession(Session):
    """The drafting of one generation, in a view of the target's cache that verification overwrites."""

    def __init__(self, drafter: PassDrafter):
        self.drafter = drafter

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        target, rows = self.drafter.target, self.drafter.rows
        count = min(len(rows) + 1, context.wanted - 1)
        if count < 1:
            return NOTHING
        last = upload(context.tokens[-1:], target.device)
        fed = torch.cat((target.embed(last), rows[: count - 1]))[None]
        self.passes += 1
        # The embeddings are given, so only the number of ids matters.
        logits = target.score(last.expand(count), context.cache.view(), states=(0, fed)).logits[0]  # pyright: ignore[reportOptionalMemberAccess]
        return draft_rows(context, logits, context.sampling)
