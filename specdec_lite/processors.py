"""Processors of logits: penalties, min-p, forbidden words and grammars, on every path of a tree.

A processor changes the target's next-token logits, and may look at the text before them. A round
scores many texts in one pass, the committed one and one for every drafted node, so a processor is
called once for each of them, with that path as its prefix. Verification then sees the processed
distribution only: the text is distributed as plain decoding with the same processor writes it.
"""

import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.engine.cache import Scores
from specdec_lite.tree import TokenTree

__all__ = [
    "ForbiddenWords",
    "MinP",
    "PathProcessor",
    "PresencePenalty",
    "RepetitionPenalty",
    "process_scores",
]


@runtime_checkable
class PathProcessor(Protocol):
    """A function of a prefix and of the logits after it.

    It is a function: the same prefix gives the same result, since a rejected path is asked for once
    and never again, and another path may come first. State that a grammar needs is kept by prefix.
    It is called only for prefixes that it allowed itself, beginning with the prompt.
    """

    def __call__(self, prefix_ids: Tensor, logits: Tensor) -> Tensor:
        """Return the processed logits [V]; −inf forbids a token.

        Args:
            prefix_ids: ids [n] of the text before, prompt included, on the host.
            logits: [V] of any float dtype; not to be changed in place.
        """
        ...


def checked(processors: PathProcessor | Sequence[PathProcessor] | None) -> tuple:
    """Return processors as a tuple, in the order in which they are applied."""
    if processors is None:
        return ()
    several = processors if isinstance(processors, (list, tuple)) else [processors]
    for processor in several:
        if isinstance(processor, type) or not callable(processor):
            raise TypeError(
                f"processors holds {processor!r}: must be functions (prefix_ids, logits) → logits,"
                " such as MinP(0.1)"
            )
    return tuple(several)


def process_scores(
    processors: Sequence[PathProcessor], prefix: Tensor, tree: TokenTree, scores: Scores
) -> Scores:
    """Return the scores of [root] + tree with the logits [1, n+1, V] of every path processed.

    A node that its parent's processed logits forbid is left as it is, with all below it: no rule
    accepts it, and a grammar has no state after a text that it does not allow.

    Shapes: prefix [m], the root last.
    """
    if not processors:
        return scores
    tokens = tree.tokens.tolist()
    rows = list(scores.logits[0].unbind())
    # One read of the device per level would wait as often; nodes are few, so the host walks them.
    allowed = {-1}
    for node in range(-1, len(tree)):
        if node >= 0:
            parent = tree.parents[node]
            if parent not in allowed or rows[parent + 1][tokens[node]] == -math.inf:
                continue
            allowed.add(node)
        path = torch.tensor([tokens[i] for i in tree.path(node)], dtype=torch.long)
        text, row = torch.cat((prefix, path)), rows[node + 1]
        for processor in processors:
            row = _row_of(processor, text, row)
        rows[node + 1] = row
    return Scores(torch.stack(rows)[None], scores.hidden)


def _row_of(processor: PathProcessor, text: Tensor, row: Tensor) -> Tensor:
    """Return what a processor makes of one row [V], after checking its kind and its width."""
    after = processor(text, row)
    name = getattr(processor, "__name__", type(processor).__name__)
    if not isinstance(after, Tensor) or after.shape != row.shape:
        kind = tuple(after.shape) if isinstance(after, Tensor) else type(after).__name__
        raise ValueError(
            f"processor {name} returned {kind}: must be logits of shape {(*row.shape,)}"
        )
    if not bool((after > -math.inf).any()):
        raise ValueError(f"processor {name} forbids every token after {len(text)} tokens")
    return after


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
