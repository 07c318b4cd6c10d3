"""Text to train on: the tokenizer, the token streams made once from the corpus, and their mixture.

What lives here: what becomes of the text. What does not: the text itself (`corpus`), batches and
steps (`loop`).
"""

import hashlib
from pathlib import Path

import numpy as np

from specdec_lite.loading.corpus import training_text

VOCABULARY = 2048
MAX_POSITIONS = 2048
MIXTURE = {"library": 0.62, "tests": 0.32, "docs": 0.06, "packages": 1.0}


def train_tokenizer(texts: list[str], vocabulary: int = VOCABULARY):
    """A byte-level BPE with one special token, `<|endoftext|>` (id 0), as a Hugging Face fast
    tokenizer.
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
    """All documents in one row of uint16 ids, each followed by the end-of-text token."""
    encoded = tokenizer.backend_tokenizer.encode_batch(texts)
    return np.concatenate(
        [np.array([*e.ids, tokenizer.eos_token_id], dtype=np.uint16) for e in encoded]
    )


def prepare(work: Path, start: Path | None = None, packages: bool = False):
    """Tokenizer and token streams, made once and kept in `work`; the tokenizer is that of `start`,
    a saved pair, if given.

    packages: with the installed packages' source as a stream of its own, drawn as often as all
    others together; it is never in what the tokenizer is made from. The corpus is read only where
    something is missing, or where the tokenizer is not the one the streams were cut with: its hash
    is written once all of them are there.
    """
    from transformers import PreTrainedTokenizerFast

    work.mkdir(parents=True, exist_ok=True)
    described = work / "tokenizer" / "tokenizer.json"
    paths = {name: work / f"{name}.npy" for name in MIXTURE if packages or name != "packages"}
    mark = work / "streams.cut-with"
    if start:
        PreTrainedTokenizerFast.from_pretrained(start / "target").save_pretrained(
            work / "tokenizer"
        )
    if not described.exists():
        texts = training_text()
        train_tokenizer([*texts["library"], *texts["docs"] * 4]).save_pretrained(work / "tokenizer")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(work / "tokenizer")
    own = hashlib.sha256(described.read_bytes()).hexdigest()
    if (
        not all(path.exists() for path in paths.values())
        or not mark.exists()
        or mark.read_text() != own
    ):
        mark.unlink(missing_ok=True)
        for name, documents in training_text(packages).items():
            np.save(paths[name], tokenize(tokenizer, documents))
        mark.write_text(own)
    return tokenizer, {name: np.load(path) for name, path in paths.items()}
