"""Medusa: extra heads on the target guess several tokens ahead, and a tree of their guesses is
verified in one pass.

What lives here: the drafter. What does not: the heads (`drafters.heads`), their training
(`training.medusa`) and the choice of a tree's shape (`TokenTree.best`). Source: Cai et al. 2024,
arXiv 2401.10774.

**Which head guesses which token.** When a draft is made, the last committed token, at position m −
1, has not been scored yet; the newest hidden state is that of position t = m − 2, which produced
it. The target's own head reads token t + 1 = m − 1 off that state, so the k-th extra head, k = 1 …
K, reads token t + k + 1 = m − 1 + k. Level i of the tree, the root's children being level 0,
therefore holds the guesses of the extra head i + 1.
"""

import json
from pathlib import Path

import torch
from torch import Tensor

from specdec_lite.checks import instance
from specdec_lite.drafters.heads import Heads, check_heads, check_target, stored_heads
from specdec_lite.drafters.words import speaker
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import SHIPPED as WEIGHTS, load, where
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context, Drafter, Session, Shape
from specdec_lite.tree import TokenTree

SHIPPED = WEIGHTS / "medusa" / "pair"


def load_report(folder: str | Path = SHIPPED) -> dict:
    """What was measured of the heads in a folder: {"accuracies": {text: [levels][ranks]}, "tree":
    the shape chosen from them, …}.
    """
    path = Path(folder) / "report.json"
    if not path.is_file():
        raise ValueError(
            f"folder={str(folder)!r}: must be a folder that holds report.json beside the heads"
        )
    return json.loads(path.read_text(encoding="utf-8"))


class MedusaDrafter(Drafter):
    """Draft a tree of the heads' likeliest tokens, of the same shape in every round.

    target: the model that decodes; its vocabulary projection is shared by all heads. heads: trained
    on it. tree: a shape, that is a `TokenTree` of ranks: a node with rank r on level i is guess r
    (0 the likeliest) of extra head i + 1, and a chain is `TokenTree.chain([0] * K)`. The tokens are
    *chosen*, not drawn, so a lossless rule stays lossless at every temperature. Raises ValueError
    for a shape deeper than there are heads, or with a rank outside the vocabulary.
    """

    def __init__(self, target: CausalLM, heads: Heads, tree: TokenTree):
        check_heads(heads, target)
        allowed = "a TokenTree of ranks, such as TokenTree.chain([0, 0, 0])"
        self.tree = instance("tree", tree, TokenTree, allowed)
        depth = tree.depth.tolist()
        self.target = target
        self.heads = heads
        self.speaker = speaker(target, heads.words)
        self.levels = max(depth, default=-1) + 1
        self.ranks = max(tree.tokens.tolist(), default=-1) + 1
        if self.levels > heads.count:
            raise ValueError(
                f"tree has {self.levels} levels: there are {heads.count} heads, one for each level"
            )
        said = self.speaker.vocab_size
        if len(tree) and (int(tree.tokens.min()) < 0 or self.ranks > said):
            raise ValueError(
                f"tree holds ranks {int(tree.tokens.min())} … {self.ranks - 1}: they must be in 0 …"
                f" {said - 1}"
            )
        self.hidden_layers = ("final",) if len(tree) else ()

    @classmethod
    def from_pretrained(
        cls, target: CausalLM, path: str | Path | None = None, tree: TokenTree | None = None
    ) -> "MedusaDrafter":
        """The heads in the folder `path`; None: those shipped for this target.

        tree: a shape; None: the sparse one that was chosen from the heads' measured accuracies and
        lies beside them, or a chain where none does.
        """
        folder = where("medusa", target, path)
        heads = load(folder, target, stored_heads)
        if tree is None:
            stored = load_report(folder).get("tree")
            tree = TokenTree(**stored) if stored else TokenTree.chain([0] * heads.count)
        return cls(target, heads, tree)

    @torch.inference_mode()
    def logits(self, hidden: Tensor, levels: int | None = None) -> Tensor:
        """Hidden states "final" [..., d] → logits [..., levels, V] of the first `levels` heads
        (None: of all), or over the tokens that they say.
        """
        return self.speaker.head(self.heads(hidden, slice(levels)))

    def start(self, context: Context) -> "MedusaSession":
        return MedusaSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        check_target(self.target, target)

    def shape(self) -> Shape:
        return Shape(self.levels, len(self.tree))


class MedusaSession(Session):
    """Holds nothing but a count: what the heads read is the last row of the scores that the
    target's last pass left.
    """

    def __init__(self, drafter: MedusaDrafter):
        self.drafter = drafter

    def propose(self, context: Context) -> Proposal:
        """Nothing after a prompt of one token: no token has been scored then, so there is no hidden
        state to read.
        """
        drafter = self.drafter
        if drafter.levels < 1 or context.wanted < 2 or context.scores is None:
            return NOTHING
        self.passes += 1
        logits = drafter.logits(context.scores.hidden["final"][0, -1], drafter.levels)
        best = logits.topk(drafter.ranks).indices
        words = drafter.heads.words
        return Proposal(drafter.tree.fill(best if words is None else words.ids[best]))
