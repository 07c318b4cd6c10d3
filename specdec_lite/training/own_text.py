"""Text that the target writes itself: it continues prompts in batches, greedily or sampled.

Finished batches are stored in a folder, so an interrupted run resumes.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from tqdm import tqdm

from specdec_lite.checks import whole
from specdec_lite.engine.cache import Cache
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.ragged import BatchStorage
from specdec_lite.loading.weights import fingerprint, write
from specdec_lite.sampling import Sampling, inverse

COMPACT_BELOW = 0.85
"""Finished rows are dropped once at most this fraction of the rows continue: dropping copies the
cache."""
PREFILL_TOKENS = 1024
"""Tokens of one pass of a prefill on a CPU, over all rows."""


@torch.inference_mode()
def continue_prompts(
    target: CausalLM,
    prompts: Tensor,
    new_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
    stop_token_ids: Sequence[int] = (),
    progress: bool = False,
) -> Tensor:
    """Return each prompt followed by the target's continuation, [B, n + new_tokens].

    All rows are decoded together. A row that ends with a stop token is padded with this token.

    Shapes: prompts [B, n].
    """
    whole("new_tokens", new_tokens, 1)
    sampling = Sampling(temperature)
    generator = torch.Generator(target.device).manual_seed(seed)
    stops = torch.tensor(list(stop_token_ids), dtype=torch.long, device=target.device)
    prompts = prompts.to(target.device).long()
    text = torch.cat((prompts, prompts.new_zeros(len(prompts), new_tokens)), 1)
    cache = row_cache(target, *text.shape)
    rows = torch.arange(len(prompts), device=target.device)  # of text, for each row of the cache
    active = torch.ones_like(rows, dtype=torch.bool)
    logits = prefill(target, prompts, cache)
    for end in tqdm(range(prompts.shape[1], text.shape[1]), disable=not progress):
        uniforms = draw_uniforms(sampling, len(text), generator)
        tokens = choose_tokens(logits, sampling, None if uniforms is None else uniforms[rows])
        text[rows, end] = torch.where(active, tokens, text[rows, end - 1])
        active &= ~torch.isin(tokens, stops)
        text[rows[~active], end + 1 :] = text[rows[~active], end, None]
        if end + 1 == text.shape[1] or not active.any():
            break
        if target.native and int(active.sum()) <= COMPACT_BELOW * len(active):
            drop_rows(cache, active)
            rows, active = rows[active], active[active]
        logits = target.score(text[rows, end, None], cache, last=True).logits[:, -1]
    return text.cpu()


def row_cache(target: CausalLM, batch: int, capacity: int) -> Cache:
    """Return an empty cache for rows of equal length; native models can drop rows of it."""
    if target.native:
        return Cache(BatchStorage(target, batch, capacity), batch)
    return target.new_cache(batch, capacity)


def drop_rows(cache: Cache, active: Tensor) -> None:
    """Drop the finished rows of a cache from `row_cache`.

    Shapes: active [B].
    """
    cache.storage.keep_rows(active.nonzero()[:, 0].tolist())
    cache.batch = cache.storage.batch


def prefill(target: CausalLM, prompts: Tensor, cache: Cache) -> Tensor:
    """Return the logits [B, V] after the prompts.

    On a CPU the prompts are fed in parts whose states fit into its cache memory.

    Shapes: prompts [B, n].
    """
    on_cpu = prompts.device.type == "cpu"
    size = max(1, PREFILL_TOKENS // len(prompts)) if on_cpu else prompts.shape[1]
    *parts, final = prompts.split(size, 1)
    for part in parts:
        target.score(part, cache, logits=False)
    return target.score(final, cache, last=True).logits[:, -1]


def draw_uniforms(sampling: Sampling, rows: int, generator: torch.Generator) -> Tensor | None:
    """Return one uniform number [rows, 1] per row, or None for greedy sampling."""
    if sampling.greedy:
        return None
    return torch.rand((rows, 1), dtype=torch.float64, device=generator.device, generator=generator)


def choose_tokens(logits: Tensor, sampling: Sampling, uniforms: Tensor | None) -> Tensor:
    """Return one token [B] per row.

    Shapes: logits [B, V], uniforms [B, 1].
    """
    return logits.argmax(-1) if uniforms is None else inverse(sampling(logits), uniforms)[0][:, 0]


def own_text(
    target: CausalLM,
    prompts: Sequence[Tensor | Sequence[int]],
    new_tokens: int,
    folder: Path,
    batch: int = 64,
    temperature: float = 0.0,
    seed: int = 0,
    stop_token_ids: Sequence[int] = (),
) -> list[Tensor]:
    """Return each prompt followed by the target's continuation, up to its first stop token.

    Every batch is a file in `folder`. Its name depends on everything that determines the text: the
    target and its dtype, the prompts and the settings. A run that was interrupted, or is repeated,
    computes only the missing batches, and the text of another target is never read.
    """
    whole("new_tokens", new_tokens, 1)
    rows = [torch.as_tensor(prompt).long().cpu() for prompt in prompts]
    texts: dict[int, Tensor] = {}
    settings = (fingerprint(target), str(target.dtype), new_tokens, temperature, seed)
    parts = list(equal_length_batches(rows, whole("batch", batch, 1)))
    for number, part in enumerate(tqdm(parts, desc="own text", unit="batch", mininterval=5)):
        stacked = torch.stack([rows[index] for index in part])
        name = token_hash(stacked, *settings, *stop_token_ids, number)
        path = folder / f"{name}.safetensors"
        if not path.exists():
            batch_seed = int(name[:15], 16)
            text = continue_prompts(
                target, stacked, new_tokens, temperature, batch_seed, stop_token_ids
            )
            write(path, {"text": text.int()}, {})
        for index, text in zip(part, load_file(path)["text"].long()):
            texts[index] = cut_after_stop(text, len(rows[index]), stop_token_ids)
    return [texts[index] for index in range(len(rows))]


def equal_length_batches(rows: Sequence[Tensor], batch: int) -> Iterator[list[int]]:
    """Yield batches of indices of rows of equal length, shorter rows first."""
    ordered = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    for _, group in groupby(ordered, key=lambda index: len(rows[index])):
        indices = list(group)
        for start in range(0, len(indices), batch):
            yield indices[start : start + batch]


def cut_after_stop(text: Tensor, length: int, stop_token_ids: Sequence[int]) -> Tensor:
    """Return a text up to the first stop token after its prompt, or all of it.

    Shapes: text [n].
    """
    stops = torch.tensor(list(stop_token_ids), dtype=torch.long)
    positions = torch.isin(text[length:], stops).nonzero()
    return text[: length + int(positions[0]) + 1] if len(positions) else text


def token_hash(tokens: Tensor, *settings) -> str:
    """Return 32 hexadecimal digits that identify tokens and settings."""
    description = repr((tuple(tokens.shape), *settings)).encode()
    ids = tokens.detach().cpu().to(torch.int64).contiguous()
    return hashlib.sha256(description + ids.numpy().tobytes()).hexdigest()[:32]
