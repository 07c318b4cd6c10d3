"""A tiny model of every causal language model type of transformers, and whether it can be decoded.

`examine` runs one type in float64 and returns a `Finding`. `python -m tests.matrix` records the
findings of all types. The tests compare the record with fresh findings, so they notice every new
version of transformers and every change here.
"""

from dataclasses import dataclass

import torch
from models_zoo import OPTIONS, PROMPT, logits_of, of_kind

from specdec_lite import CausalLM
from specdec_lite.engine.ragged import row_caches, score_rows
from specdec_lite.engine.self_test import PARTS, in_pieces
from specdec_lite.tree import TokenTree

# Their own code overflows in float64 or mixes it with float32, so they are examined in float32.
SINGLE = {"xglm", "inkling2_text"}
# Not tried: configs made of several others, most of them with images or sound. A text model with a
# type of its own is examined under that type.
COMPOSITE = (
    {
        kind: "text together with images or sound; its text model is examined under its own type"
        for kind in (
            "dots3_note",
            "gemma3",
            "gemma3n",
            "gemma4",
            "gemma4_unified",
            "llama4",
            "qwen3_5",
            "qwen3_5_moe",
            "qwen4_exp",
        )
    }
    | {
        kind: "text together with images or sound"
        for kind in (
            "emu3",
            "fuyu",
            "got_ocr2",
            "mllama",
            "moss_transcribe_diarize",
            "phi4_multimodal",
            "musicgen",
            "musicgen_melody",
        )
    }
    | {
        kind: "a drafter that reads its target's cache, no model of its own"
        for kind in ("gemma4_assistant", "gemma4_unified_assistant")
    }
    | {"blt": "bytes in patches: its decoder needs an encoder's states"}
)


@dataclass(frozen=True)
class Finding:
    """The result for one model type.

    Attributes:
        kind: the model type.
        outcome: "exact", "refused" or "not tried".
        trees: "one pass" or "path by path"; None unless exact.
        reason: why not; None if exact.
        varied: number of different argmax tokens in a short text.
    """

    kind: str
    outcome: str
    trees: str | None = None
    reason: str | None = None
    varied: int = 0


def tiny(kind: str, seed: int = 0, positions: int = 512):
    """Return a random model of a type, in float64."""
    options = OPTIONS.get(kind, {}) | dict(eos_token_id=2)
    model = of_kind(kind, options, seed, positions)
    return model if kind in SINGLE else model.double()


TREE = TokenTree([20, 21, 22, 23, 24, 25, 26], [-1, -1, 0, 0, 1, 2, 4])
REST = [20, 30, 40, 1, 2, 3]


def largest_error(model: CausalLM) -> float:
    """Return the largest difference between logits in pieces and those of one pass.

    The pieces are the self-test's, on a text that is longer than the windows.
    """
    with torch.inference_mode():
        pairs = list(in_pieces(model.backend, torch.tensor(PROMPT), TREE))
    assert len(pairs) == len(PARTS)
    return max((ours - theirs).abs().max().item() for ours, theirs in pairs)


def largest_batch_error(model: CausalLM) -> float:
    """Return the largest difference between logits of rows in one pass and of each row alone.

    The rows have different lengths and trees, and a second pass reads what the first one stored.
    """
    texts = [PROMPT, PROMPT[:4], PROMPT[:1]]
    trees = [TREE, TokenTree.chain(REST[:2]), TokenTree([], [])]
    storage, caches = row_caches(model, len(texts), 16)
    alone = [model.new_cache() for _ in texts]
    for cache, text in zip([*caches, *alone], texts * 2):
        if len(text) > 1:
            model.score(text[:-1], cache)
    worst = 0.0
    for again in (True, False):
        fed = [torch.tensor([text[-1], *tree.tokens.tolist()]) for text, tree in zip(texts, trees)]
        together = score_rows(model, storage, fed, caches, trees)
        for ours, row, cache, tree in zip(together, fed, alone, trees):
            theirs = model.score(row, cache, tree).logits
            worst = max(worst, (ours.logits - theirs).abs().max().item())
        if again:
            for cache in (*caches, *alone):
                cache.keep([0])
    return worst


def examine(kind: str) -> Finding:
    """Return what happens to a model type."""
    if kind in COMPOSITE:
        return Finding(kind, "not tried", reason=COMPOSITE[kind])
    module = tiny(kind)
    try:
        model = CausalLM(module)
    except ValueError as rejection:
        reason = str(rejection).removeprefix(type(module).__name__).split(" (off by")[0]
        return Finding(kind, "refused", reason=reason.strip())
    error = max(largest_error(model), largest_batch_error(model))
    assert error < (1e-3 if kind in SINGLE else 1e-5), (
        f"{kind} is accepted, but its logits are off by {error:.2g}"
    )
    varied = logits_of(model, PROMPT + REST).argmax(-1).unique().numel()
    return Finding(
        kind, "exact", "path by path" if model.backend.by_path else "one pass", varied=varied
    )
