"""The corpus as token streams: the tokenizer, the streams cut with it, and their mixture."""

import hashlib
from pathlib import Path

import numpy as np

from specdec_lite.texts.corpus import training_text

VOCABULARY = 2048
MAX_POSITIONS = 2048
MIXTURE = {"library": 0.62, "tests": 0.32, "docs": 0.06}
"""Name of a stream → its weight when windows are drawn."""


def train_tokenizer(texts: list[str], vocabulary: int = VOCABULARY):
    """Return a byte-level BPE tokenizer with one special token, `<|endoftext|>` (id 0).

    Args:
        texts: what the merges are learned from.
        vocabulary: number of entries, at most.

    Returns:
        A Hugging Face fast tokenizer.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_POSITIONS,
    )


def tokenize(tokenizer, texts: list[str]) -> np.ndarray:
    """Return all documents as one row of uint16 ids, each followed by the end-of-text token.

    Args:
        tokenizer: a Hugging Face fast tokenizer of at most 65,536 entries.
        texts: the documents.
    """
    encoded = tokenizer.backend_tokenizer.encode_batch(texts)
    return np.concatenate(
        [np.array([*e.ids, tokenizer.eos_token_id], dtype=np.uint16) for e in encoded]
    )


def prepare(work: Path, start: Path | None = None):
    """Return the tokenizer and the token streams, computed once and stored in a folder.

    The corpus is read only if a stream is missing or was cut with another tokenizer: a file with
    the tokenizer's hash is written once all streams are complete.

    Args:
        work: folder of the tokenizer and the streams.
        start: folder of a saved pair whose tokenizer to use; None trains a tokenizer.

    Returns:
        (tokenizer, {name: uint16 ids [n]}).
    """
    from transformers import PreTrainedTokenizerFast

    work.mkdir(parents=True, exist_ok=True)
    tokenizer_file = work / "tokenizer" / "tokenizer.json"
    paths = {name: work / f"{name}.npy" for name in MIXTURE}
    if start:
        PreTrainedTokenizerFast.from_pretrained(start / "target").save_pretrained(
            work / "tokenizer"
        )
    if not tokenizer_file.exists():
        texts = training_text()
        train_tokenizer([*texts["library"], *texts["docs"] * 4]).save_pretrained(work / "tokenizer")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(work / "tokenizer")
    tokenizer_hash = hashlib.sha256(tokenizer_file.read_bytes()).hexdigest()
    hash_file = work / "streams.cut-with"
    complete = all(path.exists() for path in paths.values()) and hash_file.exists()
    if not complete or hash_file.read_text() != tokenizer_hash:
        hash_file.unlink(missing_ok=True)
        for name, documents in training_text().items():
            np.save(paths[name], tokenize(tokenizer, documents))
        hash_file.write_text(tokenizer_hash)
    return tokenizer, {name: np.load(path) for name, path in paths.items()}
