"""A smaller language model as drafter. Source: Leviathan et al. 2023; Chen et al. 2023."""

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lite.checks import is_whole
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.speculation import Context
from specdec_lite.tree import TokenTree


class ModelDrafter:
    """Draft γ tokens one after another with a model of the same vocabulary.

    model: a `CausalLM`. gamma: draft length ≥ 1 (vLLM's `num_speculative_tokens`, Hugging Face's
    `num_assistant_tokens`). At temperature 0 the tokens are chosen (argmax); above, they are drawn
    from q adjusted as the target's p is.
    """

    hidden_layers = ()

    def __init__(self, model: CausalLM, gamma: int = 4):
        if not isinstance(model, CausalLM):
            raise TypeError(f"model is a {type(model).__name__}: must be a CausalLM")
        if not is_whole(gamma) or gamma < 1:
            raise ValueError(f"gamma={gamma!r}: must be a whole number ≥ 1")
        self.model, self.gamma = model, gamma

    def start(self, context: Context) -> "ModelSession":
        return ModelSession(self.model, self.gamma, context)


class ModelSession:
    """The draft's cache holds every committed token but the last, or but the last two after a fully
    accepted block: the last drafted token has then never been fed. The next `propose` feeds both; a
    cache left short would only cost acceptance.
    """

    def __init__(self, model: CausalLM, gamma: int, context: Context):
        self.model = model
        self.gamma = gamma
        self.passes = 0
        self.cache = model.new_cache(capacity=len(context.tokens) + context.wanted + gamma)
        self.root = len(context.tokens)
        if self.root > 1:
            self._score(context.tokens[:-1])
            self.passes += 1

    def _score(self, tokens: Tensor) -> Scores:
        """Padded vocabularies: a target's token that the draft has no row for is fed as the draft's
        last one.
        """
        return self.model.score(
            torch.as_tensor(tokens).clamp(max=self.model.vocab_size - 1), self.cache, last=True
        )

    def propose(self, context: Context) -> Proposal:
        self.root = len(context.tokens)
        gamma = min(self.gamma, context.wanted - 1)
        if gamma < 1:
            return NOTHING
        fed = context.tokens[self.cache.length :]
        tokens = []
        rows = []
        for _ in range(gamma):
            logits = fit(self._score(fed).logits[0, -1], context.vocab_size)
            self.passes += 1
            if context.sampling.greedy:
                tokens.append(int(logits.argmax()))
            else:
                rows.append(context.sampling(logits))
                tokens.append(context.rng.draw(rows[-1]))
            fed = tokens[-1:]
        return Proposal(TokenTree.chain(tokens), torch.stack(rows) if rows else None)

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        self.cache.crop(min(self.cache.length, self.root + len(verdict.path)))


def fit(logits: Tensor, vocab_size: int) -> Tensor:
    """logits [V'] over the target's vocabulary: padded entries are cut off, or filled with −∞,
    before any temperature.

    Some model families pad their embedding to different sizes (151 936 and 152 064) for one and the
    same tokenizer.
    """
    missing = vocab_size - len(logits)
    return logits[:vocab_size] if missing <= 0 else F.pad(logits, (0, missing), value=float("-inf"))
