"""Processors of logits: penalties, min-p, forbidden words and grammars, on every path of a tree.

A processor changes the target's next-token logits, and may look at the text before them. A round
scores many texts in one pass, the committed one and one for every drafted node, so a processor is
called once for each of them, with that path as its prefix. Verification then sees the processed
distribution only: the text is distributed as plain decoding with the same processor writes it.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.contract import PathProcessor

__all__ = ["ForbiddenWords", "MinP", "PathProcessor", "PresencePenalty", "RepetitionPenalty"]


class RepetitionPenalty:
    """Divide positive logits of tokens that the text contains by a penalty; multiply negative ones.

    Source: Keskar et al. 2019 (CTRL), section 4.1; transformers' `repetition_penalty`, which counts
    the prompt too.

    Args:
        penalty: > 0; 1 changes nothing.

    Raises:
        ValueError: the penalty is not a number above 0.
    """

    def __init__(self, penalty: float):
        if not checks.is_number(penalty) or not 0 < penalty < math.inf:
            raise ValueError(f"penalty={penalty!r}: must be a number > 0")
        self.penalty = float(penalty)

    def __call__(self, prefix_ids: Tensor, logits: Tensor) -> Tensor:
        """Return the processed logits [V]; see `PathProcessor`."""
        ids = prefix_ids.unique().to(logits.device)
        chosen = logits[ids]
        divided = torch.where(chosen < 0, chosen * self.penalty, chosen / self.penalty)
        return logits.scatter(0, ids, divided)


class PresencePenalty:
    """Subtract from the logits of tokens that were generated: once, and once more per occurrence.

    Source: the `presence_penalty` and `frequency_penalty` of OpenAI's interface and vLLM, which
    count generated tokens only.

    Args:
        presence: subtracted once from every token that occurs.
        prompt_length: number of first ids that are the prompt, and do not count.
        frequency: subtracted for every occurrence.

    Raises:
        ValueError: a penalty is not a finite number, or the length is not a whole number ≥ 0.
    """

    def __init__(self, presence: float, prompt_length: int, frequency: float = 0.0):
        for name, value in (("presence", presence), ("frequency", frequency)):
            if not checks.is_number(value) or not math.isfinite(value):
                raise ValueError(f"{name}={value!r}: must be a finite number")
        self.presence, self.frequency = float(presence), float(frequency)
        self.prompt_length = checks.whole("prompt_length", prompt_length)

    def __call__(self, prefix_ids: Tensor, logits: Tensor) -> Tensor:
        """Return the processed logits [V]; see `PathProcessor`."""
        generated = prefix_ids[self.prompt_length :].to(logits.device)
        counts = torch.bincount(generated, minlength=len(logits)).to(logits.dtype)
        return logits - self.presence * (counts > 0) - self.frequency * counts


class MinP:
    """Forbid tokens whose probability is below a share of the largest one.

    Source: Nguyen et al. 2024, arXiv 2407.01082.

    Args:
        share: in (0, 1].
        temperature: at which probabilities are compared; that of the generation, as in vLLM.

    Raises:
        ValueError: an argument is outside its range.
    """

    def __init__(self, share: float, temperature: float = 1.0):
        self.share = checks.unit("share", share)
        self.temperature = checks.number("temperature", temperature)

    def __call__(self, prefix_ids: Tensor, logits: Tensor) -> Tensor:
        """Return the processed logits [V]; see `PathProcessor`."""
        # p ≥ share · p_max, in logits: a quotient of probabilities is a difference of logits.
        least = logits.max() + self.temperature * math.log(self.share)
        return logits.where(logits >= least, -math.inf)


class ForbiddenWords:
    """Forbid the last token of every given word once the tokens before it are there.

    Args:
        words: each a row of one or more token ids.

    Raises:
        ValueError: a word is empty.
    """

    def __init__(self, words: Sequence[Sequence[int]]):
        self.words = [[int(token) for token in word] for word in words]
        if not all(self.words):
            raise ValueError("words holds an empty word: must hold rows of at least one token id")

    def __call__(self, prefix_ids: Tensor, logits: Tensor) -> Tensor:
        """Return the processed logits [V]; see `PathProcessor`."""
        longest = max((len(word) for word in self.words), default=1)
        end = prefix_ids[-longest:].tolist()
        banned = [
            word[-1]
            for word in self.words
            if len(word) == 1 or end[len(end) - len(word) + 1 :] == word[:-1]
        ]
        return logits.index_fill(0, torch.tensor(banned, device=logits.device).long(), -math.inf)
