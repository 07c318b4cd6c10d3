"""Draft with a smaller language model of the target's vocabulary.

Source: Leviathan et al. 2023; Chen et al. 2023.
"""

import warnings

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.contract import Context, Drafter
from specdec_lite.drafters.chain import ChainDrafter, ChainSession, Followed, draft_chain
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.tree import TokenTree

ROUNDS_BEFORE_WARNING = 2


class DraftsWithModel(Drafter):
    """A drafter with a model of the target's vocabulary."""

    model: CausalLM

    def check(self, target: CausalLM, positions: int) -> None:
        checks.same_device("drafter", self.model, target)
        checks.positions(self.model, positions)

    def draft_model(self) -> CausalLM:
        return self.model


class FollowingSession(ChainSession):
    """The drafting of one generation, by a model whose cache follows the text.

    Between rounds the cache holds every committed token but the last, or but the last two if all
    drafts were accepted. The next `propose` feeds the missing ones.

    Args:
        room: cache entries that one round may need.
    """

    def __init__(self, model: CausalLM, gamma: int | Length, room: int, context: Context):
        super().__init__(gamma)
        self.model = model
        self.cache = model.new_cache(capacity=len(context.tokens) + context.wanted + room)
        self.followed = Followed(self.cache)
        if len(context.tokens) > 1:
            self._score(self.followed.behind(context.tokens[:-1]))

    def _score(
        self, tokens: Tensor, tree: TokenTree | None = None, last: bool = True, **more: int
    ) -> Scores:
        """Feed tokens [n] and return their scores, or those of the last one."""
        self.passes += 1
        # A padded target may have a token that the draft lacks: its last token is fed instead.
        tokens = torch.as_tensor(tokens).clamp(max=self.model.vocab_size - 1)
        return self.model.score(tokens, self.cache, tree, last=last, **more)  # pyright: ignore[reportArgumentType]


class ModelDrafter(DraftsWithModel, ChainDrafter):
    """Draft γ tokens one after another with a model of the same vocabulary.

    At temperature 0 the tokens are chosen (argmax). Above 0 they are drawn from q, adjusted by
    temperature, top-k and top-p like the target's p.

    Args:
        model: a `CausalLM`.
        gamma: draft length ≥ 1 (vLLM's `num_speculative_tokens`, Hugging Face's
            `num_assistant_tokens`), or a policy of `drafters.lengths`.
    """

    def __init__(self, model: CausalLM, gamma: int | Length = 4):
        super().__init__(gamma)
        self.model = checks.model("model", model)
        self.gamma = self.length.gamma

    def start(self, context: Context) -> "ModelSession":
        return ModelSession(self.model, self.length, context)


class ModelSession(FollowingSession):
    def __init__(self, model: CausalLM, gamma: int | Length, context: Context):
        super().__init__(model, gamma, Length.of(gamma).gamma, context)
        self.vocab_size = context.vocab_size
        self.rejections = 0

    def propose(self, context: Context) -> Proposal:
        def follow(token: Tensor | None) -> Tensor:
            # The first pass of a round also feeds what the cache lacks: the token that the target
            # added and, if all drafts were accepted, the last draft, which was never fed.
            fed = self.followed.behind(context.tokens) if token is None else token
            return self._score(fed).logits[0, -1]

        return draft_chain(context, follow, self.length)

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        super().observe(verdict, scores)
        self.followed.observe(verdict)
        self._warn_of_another_vocabulary(verdict)

    def _warn_of_another_vocabulary(self, verdict: Verdict) -> None:
        """Warn once if nothing was accepted in the first rounds and the vocabularies differ in size.

        Padding explains a difference of a few hundred entries, and so no more than a hundredth.
        """
        self.rejections = -1 if verdict.path or self.rejections < 0 else self.rejections + 1
        sizes = sorted((self.model.vocab_size, self.vocab_size))
        if self.rejections == ROUNDS_BEFORE_WARNING and sizes[0] < 0.99 * sizes[1]:
            self.rejections = -1
            warnings.warn(
                f"the draft has {self.model.vocab_size} tokens, the target {self.vocab_size}, and no"
                f" draft of the first {ROUNDS_BEFORE_WARNING} rounds was accepted: do they share a"
                " tokenizer? TextMatchDrafter drafts with another one",
                stacklevel=2,
            )
