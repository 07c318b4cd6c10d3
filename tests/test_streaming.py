"""`stream_text` yields whole characters that join to the text, and ends before a stop string."""

from functools import cache
from types import SimpleNamespace

import pytest
import torch
from models_zoo import native, shipped

from specdec_lite import generate, stream_text
from specdec_lite.drafters import ModelDrafter
from specdec_lite.texts import streaming
from specdec_lite.texts.streaming import TextPieces

PROMPT = "def main():\n    "
TEXT = "Grüße 東京 🙂👩‍💻 naïve"


@cache
def whole():
    ids = shipped().tokenizer.encode(PROMPT)
    tokens = generate(shipped().target, ids, max_new_tokens=60).tokens.tolist()
    return shipped().tokenizer.decode([*ids, *tokens])[len(shipped().tokenizer.decode(ids)) :]


@pytest.mark.parametrize("stops", [None, "…"])
def test_the_pieces_join_to_the_text(stops):
    """Without stop strings, and with one that does not come; `test_readers` has all drafters."""
    settings = dict(stop_strings=stops and whole()[-3:] + stops, stop_token_ids=())
    both = shipped().target, shipped().tokenizer
    pieces = list(stream_text(*both, PROMPT, ModelDrafter(shipped().draft, 4), 60, **settings))
    assert "".join(pieces) == whole() and len(pieces) > 5 and all(pieces)


@pytest.mark.parametrize(
    "pieces, stops, text",
    [
        ("abcd", "cd bc", "a"),  # the one that ends first
        ("abcd", "cd bcd", "a"),  # of two that end together, the one that begins first
        ("ab cd", "bc", "a"),
        ("xab c", "abc", "x"),
        ("xa b x", "abc", "xabx"),
        ("aa b", "ab", "a"),
        ("abc", "abc", ""),
    ],
)
def test_a_text_ends_before_its_stop_string_in_whatever_pieces_it_comes(pieces, stops, text):
    ended = list(streaming._until_stop(iter(pieces.split()), tuple(stops.split())))
    assert "".join(ended) == text and all(ended)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_characters_stay_whole(size):
    ids = shipped().tokenizer.encode(TEXT)
    assert len(ids) > len(TEXT), "characters of several tokens"
    decoder = TextPieces(shipped().tokenizer, [5, 9])
    pieces = [decoder.add(ids[i : i + size]) for i in range(0, len(ids), size)]
    pieces.append(decoder.add((), final=True))
    assert "".join(pieces) == TEXT and "\ufffd" not in "".join(pieces)


def test_bytes_that_never_become_a_character_are_replaced_at_the_end():
    ids = shipped().tokenizer.encode("🙂")[:-1]
    decoder = TextPieces(shipped().tokenizer, [5])
    assert decoder.add(ids) == "" and "\ufffd" in decoder.add((), final=True)
    steps = [SimpleNamespace(tokens=ids)]
    whole = "".join(streaming._pieces(TextPieces(shipped().tokenizer, [5]), steps))
    assert whole.endswith("\ufffd"), "the last token of a text may be part of a character"


def test_the_targets_own_end_of_text_is_the_default():
    assert shipped().stop_token_ids == shipped().target.end_of_text == (0,)
    assert native().end_of_text == ()
    ids = shipped().tokenizer.encode(PROMPT)
    tokens = generate(shipped().target, ids, max_new_tokens=60).tokens.tolist()
    first = tokens.index(tokens[20])
    own, shipped().target.end_of_text = shipped().target.end_of_text, (tokens[20], 10**6)
    try:
        text = "".join(
            stream_text(shipped().target, shipped().tokenizer, torch.tensor([ids]), None, 60)
        )
    finally:
        shipped().target.end_of_text = own
    assert text == shipped().tokenizer.decode(tokens[: first + 1])


@pytest.mark.parametrize("cut", range(1, 6))
def test_a_prompt_that_ends_inside_a_character_loses_nothing(cut):
    ids = shipped().tokenizer.encode("The 🙂 and the 🙂")
    decoder = TextPieces(shipped().tokenizer, ids[:-cut])
    pieces = [decoder.add([token]) for token in ids[-cut:]] + [decoder.add((), final=True)]
    whole_text = shipped().tokenizer.decode(ids)
    known = shipped().tokenizer.decode(ids[:-cut]).rstrip("\ufffd")
    assert known + "".join(pieces) == whole_text


def test_a_replacement_character_of_the_prompt_is_not_repeated():
    ids = shipped().tokenizer.encode("one \ufffd")
    decoder = TextPieces(shipped().tokenizer, ids)
    assert decoder.add(shipped().tokenizer.encode(" two")) == " two"


def test_a_stop_string_that_is_a_special_token_ends_the_text():
    """The special token is made of an ordinary one that the greedy text holds."""
    ids = shipped().tokenizer.encode(PROMPT)
    tokens = generate(shipped().target, ids, max_new_tokens=40).tokens.tolist()
    name, token = shipped().tokenizer.convert_ids_to_tokens(tokens[6]), tokens[6]

    class Special:
        all_special_ids = [token]
        added_tokens_decoder = {}
        encode = staticmethod(shipped().tokenizer.encode)

        def decode(self, ids, skip_special_tokens=False):
            kept = [x for x in ids if not (skip_special_tokens and x == token)]
            return name if list(ids) == [token] and kept else shipped().tokenizer.decode(kept)

    settings = dict(stop_strings=[name], stop_token_ids=())
    pieces = stream_text(shipped().target, Special(), ids, None, 40, **settings)
    assert "".join(pieces) == shipped().tokenizer.decode(tokens[: tokens.index(token)])
