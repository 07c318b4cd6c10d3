"""EAGLE: one block on the target's features drafts a chain or a tree. Source: Li et al. 2024a, 2024b
and 2025 (versions 1, 2 and 3).
"""

from pathlib import Path

from specdec_lite import checks
from specdec_lite.drafters.feature_head import Eagle1Head, Eagle3Head, FeatureHead
from specdec_lite.drafters.feature_session import FeatureSession
from specdec_lite.drafters.grow import Growth
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import load, where
from specdec_lite.speculation import Context, Drafter, Shape
from specdec_lite.tree import TokenTree

Draft = int | Length | TokenTree | Growth


class EagleDrafter(Drafter):
    """Draft with a block that goes on from the target's features and sees which token was taken.

    Args:
        target: the model that decodes; its embeddings are read.
        head: trained on it.
        draft: γ or a policy for it, a chain; a `TokenTree` of ranks, a tree of that shape in every
            round; a `Growth`, a tree grown by confidence.

    Chains and trees of ranks are drawn above temperature 0, trees that are grown are chosen.
    """

    def __init__(self, target: CausalLM, head: FeatureHead, draft: Draft = 4):
        self.target = checks.model("target", target)
        self.head = checks.instance("head", head, FeatureHead)
        if head.size != target.hidden_size or int(head.ids[-1]) >= target.vocab_size:
            raise ValueError(
                f"head is for states of size {head.size} and tokens up to {int(head.ids[-1])}: the"
                f" target's are {target.hidden_size} and {target.vocab_size - 1}"
            )
        self.draft = draft if isinstance(draft, (TokenTree, Growth)) else Length.of(draft)
        self.hidden_layers = head.layers
        self.body = head.body(target)

    @classmethod
    def from_pretrained(
        cls,
        target: CausalLM,
        version: int = 1,
        path: str | Path | None = None,
        draft: Draft | None = None,
    ) -> "EagleDrafter":
        """Version 1 (a chain), 2 (the same head, a grown tree) or 3, from the file or folder `path`;
        None: the weights shipped for this target.
        """
        checks.whole("version", version, 1, 3)
        name, build = ("eagle3", Eagle3Head) if version == 3 else ("eagle1", Eagle1Head)
        head = load(where(name, target, path), target, build)
        usual = 4 if version == 1 else Growth()
        return cls(target, head, usual if draft is None else draft)

    def start(self, context: Context) -> FeatureSession:
        return FeatureSession(self.target, self.head, self.body, self.draft, context)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.own_target(self.target, target)
        checks.positions(self.body, positions)

    def shape(self) -> Shape:
        if isinstance(self.draft, Growth):
            return Shape(self.draft.levels, self.draft.nodes)
        if isinstance(self.draft, TokenTree):
            return Shape(self.draft.levels, len(self.draft))
        return Shape.chain(self.draft.gamma)

    def draft_model(self) -> CausalLM:
        return self.body
