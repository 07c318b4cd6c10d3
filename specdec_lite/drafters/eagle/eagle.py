"""EAGLE: one block on the target's features drafts a chain or a tree.

Source: Li et al. 2024a, 2024b and 2025 (versions 1, 2 and 3).
"""

from pathlib import Path

from specdec_lite import checks
from specdec_lite.drafters.eagle.feature_head import Eagle1Head, Eagle3Head, FeatureHead
from specdec_lite.drafters.eagle.feature_session import FeatureSession
from specdec_lite.drafters.eagle.parallel_eagle import ParallelEagleHead, ParallelEagleSession
from specdec_lite.drafters.eagle.published import is_published, read_eagle
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.trees.expansion import ConfidenceTree
from specdec_lite.drafters.trees.tree_shapes import check_ranks
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import find_weights, load
from specdec_lite.speculation import Context, Drafter, Limits
from specdec_lite.tree import TokenTree

Draft = int | Length | TokenTree | ConfidenceTree


class EagleDrafter(Drafter):
    """Draft with a block that continues from the target's features and the sampled token.

    Above temperature 0, the tokens of chains and of trees of ranks are drawn. Those of a
    `ConfidenceTree` are chosen.

    Args:
        target: the model that decodes; its embeddings are read.
        head: head trained on this target.
        draft: γ or a policy for it: a chain; a `TokenTree` of ranks: a tree of this shape in every
            round; a `ConfidenceTree`: a tree that follows the draft's confidence. A P-EAGLE head
            drafts chains only, each in one pass.
    """

    def __init__(self, target: CausalLM, head: FeatureHead, draft: Draft = 4):
        self.target = checks.model("target", target)
        self.head = checks.instance("head", head, FeatureHead)
        # A head of another target may fit by its sizes alone: the file's fingerprint tells them apart.
        if head.size != target.hidden_size or int(head.ids[-1]) >= target.vocab_size:
            raise ValueError(
                f"head is for states of size {head.size} and tokens up to {int(head.ids[-1])}: the"
                f" target's are {target.hidden_size} and {target.vocab_size - 1}"
            )
        if isinstance(draft, TokenTree):
            check_ranks(draft, draft.levels, len(head.ids))
        is_tree = isinstance(draft, (TokenTree, ConfidenceTree))
        if is_tree and isinstance(head, ParallelEagleHead):
            raise ValueError(
                f"draft={draft!r}: a P-EAGLE head drafts a chain in one pass: give γ, a whole number"
            )
        self.draft = draft if is_tree else Length.of(draft)
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
        """Load a trained head.

        Args:
            target: the model that decodes.
            version: 1 (a chain), 2 (the same head, a `ConfidenceTree`) or 3 (P-EAGLE as well).
            path: file or folder of the head, ours or one as its authors or `speculators` publish
                it; None for the one shipped for this target.
            draft: as for the class; None for the version's default.
        """
        checks.whole("version", version, 1, 3)
        name, build = ("eagle3", stored_eagle3) if version == 3 else ("eagle1", Eagle1Head)
        if is_published(path):
            head = read_eagle(str(path), target, version)
        else:
            head = load(find_weights(name, target, path), target, build)
        is_chain = version == 1 or isinstance(head, ParallelEagleHead)
        default = 4 if is_chain else ConfidenceTree()
        return cls(target, head, default if draft is None else draft)

    def start(self, context: Context) -> FeatureSession:
        is_parallel = isinstance(self.head, ParallelEagleHead)
        session = ParallelEagleSession if is_parallel else FeatureSession
        return session(self.target, self.head, self.body, self.draft, context)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.own_target(self.target, target)
        checks.positions(self.body, positions)

    def limits(self) -> Limits:
        if isinstance(self.draft, ConfidenceTree):
            return Limits(self.draft.levels, self.draft.nodes)
        if isinstance(self.draft, TokenTree):
            return Limits(self.draft.levels, len(self.draft))
        return Limits.chain(self.draft.gamma)

    def draft_model(self) -> CausalLM:
        return self.body


def stored_eagle3(**config) -> Eagle3Head:
    """Build an untrained EAGLE-3 head, or a P-EAGLE head if the config states its mask."""
    return ParallelEagleHead(**config) if "mask_id" in config else Eagle3Head(**config)
