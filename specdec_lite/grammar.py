"""A grammar as a processor: text that matches a regular expression or a JSON schema.

The automaton is that of the package `outlines_core`, from the extra `grammar`. Source: Willard and
Louf 2023, arXiv 2307.09702.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from specdec_lite import _extras, checks

__all__ = ["Grammar"]


class Grammar:
    """Allow only tokens with which the generated text can still match a regular expression.

    A text that matches may end: the end-of-text token is allowed there, and where nothing else can
    follow it is the only one. It must be among `stop_token_ids`, as the target's own is by default.
    Tokens that are part of a character only are never allowed, since an expression is over
    characters.

    Args:
        expression: a regular expression, matched by the whole generated text.
        tokenizer: of the target.
        prompt_length: number of first ids that are the prompt; the grammar begins after them.
        end_of_text: the id that ends a text; None for the tokenizer's own.

    Raises:
        ImportError: the extra `grammar` is not installed.
        ValueError: the expression cannot be matched with this vocabulary, or end_of_text is missing.
    """

    def __init__(
        self, expression: str, tokenizer: Any, prompt_length: int, end_of_text: int | None = None
    ):
        core = _extras.load("outlines_core", "outlines-core")
        end = tokenizer.eos_token_id if end_of_text is None else end_of_text
        if end is None:
            raise ValueError("end_of_text: must be given, since the tokenizer has no eos_token_id")
        self.end = checks.whole("end_of_text", end)
        self.prompt_length = checks.whole("prompt_length", prompt_length)
        texts: dict[str, list[int]] = {}
        for token, text in enumerate(token_texts(tokenizer)):
            if text and token != self.end:
                texts.setdefault(text, []).append(token)
        try:
            self.index = core.Index(expression, core.Vocabulary(self.end, texts))
        except Exception as error:  # of the package's own kind, without a public name
            raise ValueError(f"expression={expression[:80]!r}: {error}") from None
        self._path: tuple[list[int], list[int]] = ([], [self.index.get_initial_state()])
        self._allowed: dict[int, Tensor] = {}

    @classmethod
    def json(
        cls,
        schema: str | dict[str, Any],
        tokenizer: Any,
        prompt_length: int,
        end_of_text: int | None = None,
    ) -> "Grammar":
        """Return the grammar of the JSON values of a schema.

        Bounds of numbers, and other conditions that are no regular expression, are not enforced.

        Args:
            schema: a JSON schema, as text or as a dict.
            tokenizer, prompt_length, end_of_text: as in the class.

        Raises:
            ImportError: as the class does.
            ValueError: likewise, or the schema is not supported.
        """
        core = _extras.load("outlines_core.json_schema", "outlines-core")
        text = schema if isinstance(schema, str) else json.dumps(schema)
        try:
            expression = core.build_regex_from_schema(text)
        except Exception as error:
            raise ValueError(f"schema={text[:80]!r}: {error}") from None
        return cls(expression, tokenizer, prompt_length, end_of_text)

    def __call__(self, prefix_ids: Tensor, logits: Tensor) -> Tensor:
        """Return the logits [V] with −inf for every token that the grammar does not allow."""
        allowed = self._ids_after(prefix_ids[self.prompt_length :].tolist()).to(logits.device)
        allowed = allowed[allowed < len(logits)]  # a tokenizer may have more tokens than the model
        return torch.full_like(logits, -math.inf).scatter(0, allowed, logits[allowed])

    def _ids_after(self, ids: Sequence[int]) -> Tensor:
        """Return the tokens that are allowed after generated ids."""
        if self.end in ids:
            return torch.tensor([self.end])
        # Paths of one tree share their beginning with the path asked for last, so the automaton
        # runs over a few tokens only, and nothing grows with the number of rejected paths.
        known, states = self._path
        same = next(
            (i for i, (a, b) in enumerate(zip(known, ids)) if a != b), min(len(known), len(ids))
        )
        states = states[: same + 1]
        for token in ids[same:]:
            state = self.index.get_next_state(states[-1], token)
            if state is None:
                raise ValueError(
                    f"the grammar does not allow token {token} after {len(states) - 1}"
                )
            states.append(state)
        self._path = (list(ids), states)
        state = states[-1]
        if state not in self._allowed:
            ids_here = sorted(self.index.get_allowed_tokens(state))
            self._allowed[state] = torch.tensor(ids_here, dtype=torch.long)
        return self._allowed[state]


def special_ids(tokenizer: Any) -> set[int]:
    """Return the special tokens of a tokenizer, those of a chat template among them."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return {*tokenizer.all_special_ids, *(token for token in added if added[token].special)}


def token_texts(tokenizer: Any) -> list[str]:
    """Return the text of every token as it continues a text; "" for special and partial ones."""
    size = len(tokenizer)
    special = special_ids(tokenizer)
    # Some tokenizers drop the space in front of a first token, so each is decoded after another.
    first = next(i for i in range(size) if i not in special and tokenizer.decode([i]).strip())
    before = tokenizer.decode([first])
    texts = []
    for text in tokenizer.batch_decode([[first, token] for token in range(size)]):
        text = text[len(before) :] if text.startswith(before) else ""
        texts.append("" if "\ufffd" in text else text)
    return ["" if token in special else text for token, text in enumerate(texts)]
