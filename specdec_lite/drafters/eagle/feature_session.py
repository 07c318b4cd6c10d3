"""The session that EAGLE and multi-token prediction share: draft with a block on target features."""

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.drafters.chain import ChainSession, draft_chain
from specdec_lite.drafters.eagle.feature_head import FeatureHead
from specdec_lite.drafters.followed import Followed
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.trees.expansion import (
    ConfidenceTree,
    expand_confidence_tree,
    expand_ranked_tree,
)
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.speculation import Context
from specdec_lite.transfer import upload
from specdec_lite.tree import TokenTree


class FedTree(TokenTree):
    """The nodes that were fed in a round, whose parents stay on the device.

    A pass needs only their depths and their attention mask.

    Args:
        mask: bool [n, n], as `TokenTree.mask`.
        depths: of every node.
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

    Args:
        target: the model whose embeddings are read.
        head: the block that drafts.
        body: the same block as a language model of one layer.
        draft: γ policy, a tree of ranks, or a `ConfidenceTree`.
        context: context at the start of the generation.

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
        newest, features = self.fresh(context)
        first, states = self._score(newest, self.head.begin(features))
        self.states = states[-1:]
        self.fed = FedTree.empty(states.device)
        return self._draft(context, first)

    def fresh(self, context: Context) -> tuple[Tensor, list[Tensor]]:
        """Return the tokens [n] of the pairs that the cache lacks, and the states before them."""
        newest = upload(self.followed.behind(context.tokens[1:]), self.target.device)
        hidden = context.scores.hidden  # pyright: ignore[reportOptionalMemberAccess]
        return newest, [hidden[layer][0, -len(newest) :] for layer in self.head.layers]

    def _draft(self, context: Context, first: Tensor) -> Proposal:
        """Draft from the logits `first` [1, V] of the first drafted token."""

        def follow(token: Tensor | None) -> Tensor:
            if token is None:
                return first[0]
            logits, self.states = self._score(token, self.states)
            return logits[0]

        if isinstance(self.draft, ConfidenceTree):
            return expand_confidence_tree(context, first, self._score_level, self.draft, self.ids)[
                0
            ]
        if isinstance(self.draft, TokenTree):
            return expand_ranked_tree(context, first, self._score_level, self.draft, self.ids)
        return draft_chain(context, follow, self.length, self.ids)

    def _score_level(self, tokens: Tensor, above: Tensor) -> Tensor:
        """Feed new nodes [n] and return the logits [n, V] after them; see `ScoreLevel`."""
        cached = len(self.fed)
        self.fed = self.fed.extended(above)
        logits, self.states = self._score(tokens, self.states[above], self.fed, cached)
        return logits
