"""Decode to text: whole characters as soon as they are decided, and stop strings."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import torch

from specdec_lite.contract import Drafter
from specdec_lite.decoding import stream
from specdec_lite.engine.models import CausalLM
from specdec_lite.grammar import special_ids
from specdec_lite.options import stop_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CONTEXT = 8
"""Tokens of the prompt with which the first new tokens are decoded."""
INCOMPLETE = "\ufffd"
"""What a tokenizer prints for bytes that are not yet a whole character."""


def stream_text(
    target: CausalLM,
    tokenizer: "PreTrainedTokenizerBase",
    prompt,
    drafter: Drafter | None = None,
    max_new_tokens: int = 256,
    *,
    stop_strings: str | Collection[str] | None = (),
    stop_token_ids: int | Collection[int] | None = None,
    **settings: Any,
) -> Iterator[str]:
    """Decode, and yield the text piece by piece as it is decided.

    The pieces contain whole characters only, and no special tokens. Joined, they are the text.

    Args:
        target: the model that decodes.
        tokenizer: of the target.
        prompt: a text, token ids, or a tokenizer's encoding.
        drafter: None for plain decoding.
        max_new_tokens: the largest number of tokens to decode.
        stop_strings: the text ends before the one of these that is complete first; a piece that may
            be the beginning of one is held back until that is decided. One that is a special token
            of the tokenizer ends the text as a stop token does. None for none.
        stop_token_ids: ids that end the text; None for the target's own (`target.end_of_text`), ()
            for none.
        **settings: the other arguments of `generate`.

    Raises:
        TypeError: a stop string is not a string, or as `generate` does.
        ValueError: a stop string is empty, or as `generate` does.
    """
    stops = (stop_strings,) if isinstance(stop_strings, str) else tuple(stop_strings or ())
    for stop in stops:
        if not isinstance(stop, str):
            raise TypeError(f"stop_strings holds {stop!r}: must be strings")
        if not stop:
            raise ValueError("stop_strings holds an empty string: every text would end immediately")
    ids: Any = tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    ends = stop_ids(stop_token_ids, target)
    # Pieces are decoded without special tokens, so such a string could never be seen in them.
    special = {stop: i for stop in stops if (i := _special_id(tokenizer, stop)) is not None}
    ends |= {token for token in special.values() if token < target.vocab_size}
    stops = tuple(stop for stop in stops if stop not in special)
    steps = stream(target, ids, drafter, max_new_tokens, stop_token_ids=ends, **settings)
    row = ids["input_ids"] if hasattr(ids, "keys") else ids
    pieces = TextPieces(tokenizer, torch.as_tensor(row).flatten().tolist())
    return _until_stop(_pieces(pieces, steps), stops)


class TextPieces:
    """Turns tokens into text piece by piece.

    Tokens are decoded together with those before them, because some tokenizers drop the space in
    front of a first token.
    """

    def __init__(self, tokenizer, prompt: list[int]):
        self.tokenizer = tokenizer
        self.ids = prompt[-CONTEXT:]
        self.printed = len(self.ids)

    def add(self, tokens: Collection[int], final: bool = False) -> str:
        """Return the text that these tokens complete."""
        self.ids += tokens
        before, text = self._decode(self.ids[: self.printed]), self._decode(self.ids)
        if not text.startswith(before):  # the new tokens complete a character of those before
            before = before.rstrip(INCOMPLETE)
        if text.endswith(INCOMPLETE) and not final:
            return ""
        self.ids = self.ids[-max(CONTEXT, len(self.ids) - self.printed) :]
        self.printed = len(self.ids)
        return text[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)


def _special_id(tokenizer: "PreTrainedTokenizerBase", text: str) -> int | None:
    """Return the id of a special token that is written like a text, or None."""
    ids = [token for token in special_ids(tokenizer) if tokenizer.decode([token]) == text]
    return min(ids, default=None)


def _pieces(pieces: TextPieces, steps: Iterator) -> Iterator[str]:
    """Yield the text of every token, then the rest; no reader sees how long a round was."""
    for step in steps:
        for token in step.tokens:
            yield pieces.add((token,))
    yield pieces.add((), final=True)


def _until_stop(pieces: Iterator[str], stops: tuple[str, ...]) -> Iterator[str]:
    """Yield pieces up to the stop string that ends first, and of these the one that begins first."""
    waiting = ""
    for piece in pieces:
        waiting += piece
        found = [(at + len(stop), at) for stop in stops if (at := waiting.find(stop)) >= 0]
        if found:
            _, end = min(found)
            if text := waiting[:end]:
                yield text
            return
        held = max((_overlap(waiting, stop) for stop in stops), default=0)
        ready = waiting[: len(waiting) - held]
        waiting = waiting[len(ready) :]
        if ready:
            yield ready
    if waiting:
        yield waiting


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of a text with which a stop string begins."""
    sizes = range(min(len(text), len(stop) - 1), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)
