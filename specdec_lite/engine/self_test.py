"""The self-test of a Hugging Face model: whether it can be decoded speculatively.

A text is read in pieces, as speculative decoding reads it (a prompt, a block, a token after the
cache was cut back, a tree, a token after a kept path), and each piece's logits are compared with
those of one plain pass over the whole text. It runs once, when the model is wrapped.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from specdec_lite.engine.cache import Cache, Pass
from specdec_lite.tree import TokenTree

PARTS = (
    "a prompt",
    "a block of tokens",
    "a token after its cache was cut back",
    "a tree",
    "what follows a kept path",
)
"""What is compared, in this order."""
TREE_PARTS = PARTS[3:]
PARENTS = (-1, -1, 0, 1, 2, 3)
"""The tree that is fed: two paths, whose nodes alternate."""
TEXT = 11
"""Number of tokens in the text, the tree's nodes included."""
ATTEMPTS = 3
"""Number of texts to try before a model is rejected."""
ROUNDINGS = 20
"""Largest tolerated error, in units of the dtype's rounding.

Models of 32 layers in which every module rounds at random reached 7 units (Llama) and 18 (Gemma 2).
A mixture of experts may exceed the limit when rounding sends a token to another expert, so other
texts are tried. Models that cannot be decoded reached 40 units and more with wide random weights. A
misread tree reached 30 units in a trained model in bfloat16, but a gap of one position there stays
below the limit. No dtype counts as finer than float16, because GPUs may multiply float32 in TF32.
"""


def run(backend: Any) -> None:
    """Run the test. A model that misreads a tree mask is set to take trees path by path.

    A model that cannot run here (its weights are on the meta device, or its kernels are not
    installed) or that reads less than the test's text is not tested, and takes trees path by
    path. The model and the global random generator are left as they were.
    """
    model = backend.model
    device = next(model.parameters()).device
    if device.type == "meta" or backend.max_positions in range(TEXT):
        backend.by_path = True
        return
    modes = {module: module.training for module in model.modules()}
    model.eval()
    generators = [device] if device.type == "cuda" else []
    try:
        with torch.no_grad(), torch.random.fork_rng(generators):
            fault = first_fault(backend, device)
            if fault and fault[0] in TREE_PARTS and not backend.by_path:
                backend.by_path = True
                fault = first_fault(backend, device)
    except ImportError:
        backend.by_path, fault = True, None
    finally:
        for module, mode in modes.items():
            module.training = mode
    if fault:
        raise ValueError(f"{type(model).__name__} {fault[1]}")


def first_fault(backend: Any, device: torch.device) -> tuple[str, str] | None:
    """Return (the first of PARTS that fails, how it fails) of the last text tried."""
    size = min(backend.vocab_size, len(backend.embedding.weight))
    padding = getattr(backend.config, "pad_token_id", None)
    ids = torch.arange(1, TEXT + 1, device=device) * size // (TEXT + 2)
    fault = None
    for attempt in range(ATTEMPTS):
        text = (ids + attempt) % size
        text = text if padding is None else (text + (text == padding)) % size
        nodes = text[-len(PARENTS) :]
        fault = compare(backend, text[: -len(PARENTS)], TokenTree(nodes.cpu(), PARENTS))
        if fault is None:
            break
    return fault


def compare(backend: Any, prompt: Tensor, tree: TokenTree) -> tuple[str, str] | None:
    """Return (the first of PARTS that fails, how it fails) on one text, or None."""
    pairs: list[tuple[Tensor, Tensor]] = []
    try:
        for pieces, whole in in_pieces(backend, prompt, tree):
            if len(pieces) != len(whole):
                raise ValueError(f"it gives {len(pieces)} rows for {len(whole)} tokens")
            pairs.append((pieces, whole))
    except (ImportError, MemoryError, torch.OutOfMemoryError):
        raise
    except PlainPassError as error:
        reason = f"cannot run a plain pass in {backend.model.dtype} on this device ({error})"
        return PARTS[0], reason
    except Exception as error:
        part = PARTS[len(pairs)]
        reason = first_line(error)
        return part, f"fails on {part}: it cannot be decoded speculatively ({reason})"
    dtype = pairs[0][1].dtype
    tolerance = ROUNDINGS * max(torch.finfo(dtype).eps, torch.finfo(torch.float16).eps)
    for part, error in zip(PARTS, deviations(pairs)):
        if error > tolerance:
            encoder = getattr(backend.config, "is_decoder", None) is False
            hint = "; its config says is_decoder=False" if encoder else ""
            return part, (
                f"gives other logits for {part} than in one pass over the whole text: it cannot"
                f" be decoded speculatively (off by {error:.0%} of their spread; rounding to"
                f" {dtype} explains {tolerance:.0%} at most{hint})"
            )
    return None


class PlainPassError(Exception):
    """A pass over a whole text fails, without any cache of ours."""


def first_line(error: Exception) -> str:
    """Return an error's type and the first line of its message."""
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]


def in_pieces(backend: Any, prompt: Tensor, tree: TokenTree) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield, for each of PARTS, the logits [n, V] in pieces and those of one pass over the text."""
    root, nodes = prompt[-1:], tree.tokens.to(prompt.device)
    start = len(prompt) - 1
    paths = [list(path) for path in tree.paths()]
    texts = [torch.cat((prompt, nodes[path], root)) for path in paths]
    try:
        whole = [backend.model(input_ids=text[None]).logits[0] for text in texts]
    except (RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise PlainPassError(first_line(error)) from None
    backend.vocab_size = whole[0].shape[-1]
    cache = Cache(backend.storage(1, 0))

    def feed(tokens: Tensor, tree: TokenTree | None = None) -> Tensor:
        logits = backend.score(Pass(tokens[None], cache, tree)).logits[0]
        cache.length += len(tokens)
        return logits

    yield feed(prompt[:-1]), whole[0][:start]
    if not cache.storage.snapshot():
        raise ValueError("it puts no keys and values in the cache that it is given")
    yield feed(texts[0][start:]), whole[0][start:]
    cache.crop(start)
    yield feed(root), whole[0][start : start + 1]
    cache.crop(start)
    logits = feed(torch.cat((root, nodes)), tree)
    rows = [[0, *(node + 1 for node in path)] for path in paths]
    yield logits[sum(rows, [])], torch.cat([logits[start:-1] for logits in whole])
    cache.storage.move(start, torch.tensor(rows[-1]))
    cache.crop(start + len(rows[-1]))
    yield feed(root), whole[-1][-1:]


def deviations(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[float]:
    """Return, for each pair, the largest error of a row relative to the spread of all logits.

    Entries that the second of a pair leaves out (NaN, infinities, the number that masks tokens) are
    not counted.
    """
    expected = torch.cat([rows for _, rows in pairs])
    finite = expected.isfinite() & (expected > torch.finfo(expected.dtype).min / 2)
    rows = expected.float().masked_fill(~finite, torch.nan)
    spread = (rows - rows.nanmean(-1, keepdim=True)).square().nanmean(-1).nanmean().sqrt()
    floor = rows.square().nanmean().sqrt() / ROUNDINGS  # logits themselves are rounded
    errors = torch.cat([ours for ours, _ in pairs]).float() - rows
    errors = errors.nan_to_num(torch.inf).masked_fill(~finite, torch.nan)
    errors = errors.square().nanmean(-1).sqrt() / torch.maximum(spread, floor)
    errors = errors.nan_to_num(0.0, torch.inf)
    return [part.max().item() for part in errors.split([len(rows) for rows, _ in pairs])]


@torch.inference_mode()
def logits_scale(backend: Any) -> float:
    """Return the factor by which a model multiplies its logits after the vocabulary projection.

    Some types multiply by the scale that their config names, some divide by it and some ignore it.
    The factor is the one that reproduces a pass's own logits for a few tokens (more than one: a
    padding token's state may be zero).
    """
    names = ("logit_scale", "logits_scaling")
    values = [getattr(backend.config, name, None) for name in names]
    numbers = [float(value) for value in values if isinstance(value, int | float) and value]
    device = next(backend.model.parameters()).device
    tokens = torch.arange(min(8, backend.vocab_size), device=device)[None]
    scores = backend.score(Pass(tokens, Cache(backend.storage(1, 8)), hidden_layers=("final",)))

    def error(scale: float) -> float:
        logits = backend.project(scores.hidden["final"], scale)
        return (logits - scores.logits).abs().max().item()

    scale = 1.0
    try:
        scale = min((1.0, *numbers, *(1 / number for number in numbers)), key=error)
        fits = error(scale) <= 0.02 * scores.logits.abs().max().item()
    except RuntimeError:  # the hidden states have another width than the projection
        fits = False
    if not fits:
        raise ValueError(
            f"{type(backend.model).__name__} does something to its logits after the vocabulary"
            " projection that is not known here: heads cannot draft for it"
        )
    return scale
