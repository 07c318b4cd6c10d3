"""Medusa: extra heads on the target guess several tokens ahead, verified as a tree in one pass.

Source: Cai et al. 2024, arXiv 2401.10774. The newest state is that of position m − 2, at which the
target predicted the last committed token, m − 1. Extra head k = 1 … K predicts token m − 1 + k.
"""

import json
from pathlib import Path

import torch
from torch import Tensor

from specdec_lite.contract import Context, Limits
from specdec_lite.drafters.chain import ChainSession, RoundDrafter
from specdec_lite.drafters.heads import Heads, OnHeads, check_heads, output_head, stored_heads
from specdec_lite.drafters.published import is_published, read_medusa
from specdec_lite.drafters.trees import check_ranks
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import SHIPPED as WEIGHTS, find_weights, load
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.tree import TokenTree

# Stored heads and the measurements beside them --------------------------------------------------

SHIPPED = WEIGHTS / "medusa" / "pair"
"""Folder of the Medusa heads of the shipped pair."""


def load_report(folder: str | Path = SHIPPED) -> dict:
    """Return the measurements of the heads in a folder."""
    path = Path(folder) / "report.json"
    if not path.is_file():
        raise ValueError(
            f"folder={str(folder)!r}: must be a folder that holds report.json beside the heads"
        )
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: cannot be read ({error})") from None
    if not isinstance(report, dict):
        raise ValueError(f"{path}: must hold a JSON object, and holds a {type(report).__name__}")
    return report


# The drafter ------------------------------------------------------------------------------------


class MedusaDrafter(OnHeads, RoundDrafter):
    """Draft a tree of the heads' likeliest tokens, with the same shape in every round.

    The tokens are chosen, so a lossless rule stays lossless at every temperature.

    Args:
        target: the model that decodes; heads without a vocabulary projection share its own.
        heads: heads trained on this target.
        tree: tree of ranks: a node of rank r on level i is guess r (0: likeliest) of head i + 1.
    """

    def __init__(self, target: CausalLM, heads: Heads, tree: TokenTree):
        check_heads(heads, target)
        self.target = target
        self.heads = heads
        self.output_head = output_head(target, heads.words)
        self.tree = check_ranks(tree, heads.count, self.output_head.vocab_size)
        self.ranks = max(tree.tokens.tolist(), default=-1) + 1
        self.hidden_layers = ("final",) if len(tree) else ()

    @classmethod
    def from_pretrained(
        cls, target: CausalLM, path: str | Path | None = None, tree: TokenTree | None = None
    ) -> "MedusaDrafter":
        """Load trained heads.

        Args:
            target: the model that decodes.
            path: folder of the heads, ours, the authors' or vLLM's; None for the shipped ones.
            tree: None for the stored tree, or else a chain.
        """
        folder = find_weights("medusa", target, path)
        if is_published(folder):
            heads, stored = read_medusa(folder, target), None
        else:
            heads, stored = load(folder, target, stored_heads), load_report(folder).get("tree")
        if tree is None:
            tree = TokenTree(**stored) if stored else TokenTree.chain([0] * heads.count)
        return cls(target, heads, tree)

    @torch.inference_mode()
    def logits(self, hidden: Tensor, levels: int | None = None) -> Tensor:
        """Return logits [..., levels, V] of the first heads (None: all) on states [..., d]."""
        return self.heads.logits(hidden, slice(levels), self.output_head.head)

    def limits(self) -> Limits:
        return Limits(self.tree.levels, len(self.tree))

    def draft(self, context: Context, session: ChainSession) -> Proposal:
        if not self.ranks or context.wanted < 2 or context.scores is None:
            return NOTHING
        session.passes += 1
        # The heads read the last row of the target's last pass.
        logits = self.logits(context.scores.hidden["final"][0, -1], self.tree.levels)
        best = logits.topk(self.ranks).indices
        words = self.heads.words
        return Proposal(self.tree.fill(best if words is None else words.ids[best]))
