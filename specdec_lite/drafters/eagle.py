"""EAGLE and multi-token prediction: one block on the target's features drafts a chain or a tree.

Source: Li et al. 2024a, 2024b and 2025 (versions 1, 2 and 3); of P-EAGLE, Hui et al. 2026; of MTP,
DeepSeek-AI 2024. The block is in `eagle_head`, and published heads are read by `published`.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite import checks
from specdec_lite.contract import Context, Drafter, Limits
from specdec_lite.drafters.chain import ChainSession, Followed, draft_chain, draft_rows
from specdec_lite.drafters.eagle_head import (
    Eagle1Head,
    Eagle3Head,
    FeatureHead,
    MtpHead,
    ParallelEagleHead,
)
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.published import is_published, read_eagle
from specdec_lite.drafters.trees import (
    ConfidenceTree,
    check_ranks,
    expand_confidence_tree,
    expand_ranked_tree,
)
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.model_config import read_config
from specdec_lite.loading.weights import Pretrained, find_weights, load
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.transfer import upload
from specdec_lite.tree import TokenTree

# The session that EAGLE and multi-token prediction share ----------------------------------------


class FedTree(TokenTree):
    """The nodes that were fed in a round, whose parents stay on the device.

    A pass needs only their depths and their attention mask.
    """

    def __init__(self, mask: Tensor, depths: list[int]):
        self.allowed = mask
        self._depths = depths

    @classmethod
    def empty(cls, device: torch.device | None = None) -> "FedTree":
        """Return the tree without nodes."""
        return cls(torch.empty(0, 0, dtype=torch.bool, device=device), [])

    def __len__(self) -> int:
        return len(self._depths)

    @property
    def mask(self) -> Tensor:
        return self.allowed

    @property
    def is_chain(self) -> bool:
        return False

    def extended(self, above: Tensor) -> "FedTree":
        """Return the tree with a further level."""
        # A new node sees what its parent sees, and itself. Parents are always in the newest level.
        count = len(above)
        newest = self.allowed[len(self) - self._depths.count(self.levels - 1) :]
        if not len(self):
            newest = self.allowed.new_zeros(1, 0)
        alone = torch.eye(count, dtype=torch.bool, device=newest.device)
        rows = torch.cat((newest[above], alone), 1)
        mask = torch.cat((F.pad(self.allowed, (0, count)), rows))
        return FedTree(mask, self._depths + [self.levels] * count)


class FeatureSession(ChainSession):
    """Draft a chain or a tree, starting from the target's newest hidden state.

    Entry i of the cache pairs the state of token i with token i + 1, so the cache follows the text
    from its second token on. Its entries were made with the target's own states; those added while
    drafting were made with drafted states, and are made again even for accepted tokens.

    Attributes:
        states: states [n, d] of the tokens fed last, from which the next pairs are made.
        fed: the nodes fed in this round.
    """

    def __init__(
        self,
        target: CausalLM,
        head: FeatureHead,
        body: CausalLM,
        draft: Length | TokenTree | ConfidenceTree,
        context: Context,
    ):
        super().__init__(draft if isinstance(draft, Length) else 1)
        self.target = target
        self.head = head
        self.body = body
        self.draft = draft
        self.cache = body.new_cache(capacity=len(context.tokens) + context.wanted + 64)
        self.followed = Followed(self.cache)
        self.states = torch.empty(0)
        self.fed = FedTree.empty()
        chooses = isinstance(draft, ConfidenceTree) or context.sampling.greedy
        # Chosen tokens need no rows over the target's vocabulary.
        self.ids = head.ids if chooses else None

    def _score(
        self, tokens: Tensor, states: Tensor, tree: TokenTree | None = None, cached: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Feed pairs of a token and the state before it.

        Shapes: states [n, d].
        """
        # The pair replaces the embedding: the block starts "after block 0" with these rows.
        rows = self.head.enter(self.target.embed(tokens), states)[None]
        self.passes += 1
        scores = self.body.score(
            tokens, self.cache, tree, (1,), tree is None, cached=cached, states=(0, rows)
        )
        logits = scores.logits[0]
        if self.ids is None:
            logits = self.head.spread(logits, self.target.vocab_size)
        return logits, self.head.leave(scores.hidden[1][0])

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        # After a prompt of one token no token has been scored yet, so there is no state to read.
        if context.scores is None:
            return NOTHING
        newest = upload(self.followed.behind(context.tokens[1:]), self.target.device)
        hidden = context.scores.hidden
        features = [hidden[layer][0, -len(newest) :] for layer in self.head.layers]
        return self._draft(context, newest, self.head.begin(features))

    def _draft(self, context: Context, newest: Tensor, states: Tensor) -> Proposal:
        """Draft after the pairs that the cache lacks.

        Shapes: newest [n], states [n, d] before these tokens.
        """
        first, states = self._score(newest, states)
        self.states = states[-1:]
        self.fed = FedTree.empty(states.device)

        def follow(token: Tensor | None) -> Tensor:
            if token is None:
                return first[0]
            logits, self.states = self._score(token, self.states)
            return logits[0]

        if isinstance(self.draft, ConfidenceTree):
            return expand_confidence_tree(context, first, self._score_level, self.draft, self.ids)
        if isinstance(self.draft, TokenTree):
            return expand_ranked_tree(context, first, self._score_level, self.draft, self.ids)
        return draft_chain(context, follow, self.length, self.ids)

    def _score_level(self, tokens: Tensor, above: Tensor) -> Tensor:
        """Feed new nodes [n] and return the logits [n, V] after them; see `ScoreLevel`."""
        cached = len(self.fed)
        self.fed = self.fed.extended(above)
        logits, self.states = self._score(tokens, self.states[above], self.fed, cached)
        return logits


# P-EAGLE: all drafted tokens from one pass, at masks --------------------------------------------
# Source: Hui et al. 2026, arXiv 2602.01469.


class ParallelEagleSession(FeatureSession):
    """Draft a chain in one pass over the pairs of new tokens and the masks after them."""

    head: ParallelEagleHead

    def _draft(self, context: Context, newest: Tensor, states: Tensor) -> Proposal:
        count = max(1, min(self.length.most(context), context.wanted - 1))
        head = self.head
        masks = newest.new_full((count - 1,), head.mask_id)
        tokens = torch.cat((newest, masks))
        states = torch.cat((states, head.mask_state().expand(count - 1, -1)))
        pairs = head.enter(head.embed(tokens, self.target), states)[None]
        self.passes += 1
        scores = self.body.score(
            tokens, self.cache, None, ("final",), states=(0, pairs), logits=False
        )
        rows = self.body.head(scores.hidden["final"][0, -count:])
        if self.ids is None:
            rows = head.spread(rows, self.target.vocab_size)
        return draft_rows(context, rows, self.length, self.ids)


# EAGLE ------------------------------------------------------------------------------------------

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
        super().check(target, positions)
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


# Multi-token prediction -------------------------------------------------------------------------
# A block trained on the text itself drafts, fed with its own output. Source: DeepSeek-AI 2024
# (DeepSeek-V3), section 2.2. Their one module drafts one token; engines apply it repeatedly.


class MtpDrafter(Pretrained, EagleDrafter):
    """Draft as EAGLE does, with a block that norms both inputs and its output.

    In DeepSeek-V3 the block is trained together with the target and is a part of the model. The
    shipped block was trained later, on a frozen target.

    Args:
        target: the model that decodes.
        head: block trained on this target.
        draft: as for `EagleDrafter`.
    """

    folder, build = "mtp", MtpHead

    @classmethod
    def read(cls, target: CausalLM, path: str | Path | None) -> nn.Module:
        """Return a block of ours."""
        if is_published(path):
            kind = read_config(Path(path or "")).get("architectures")
            raise ValueError(f"{path}: {kind}: published MTP heads are not read, only own blocks")
        return super().read(target, path)
