"""The target's own words: it continues prompts in batches, greedily or at a temperature.

What lives here: one batch of prompts of equal length (`continued`), and any number of prompts,
kept in a folder so that an interrupted run goes on (`own_text`). What does not: where the prompts
come from (`text`, `loop.windows`), and what is trained on the text.
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
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import fingerprint, write
from specdec_lite.sampling import Sampling, inverse


@torch.inference_mode()
def continued(
    target: CausalLM,
    prompts: Tensor,
    new_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
    stop_token_ids: Sequence[int] = (),
    progress: bool = False,
) -> Tensor:
    """Each prompt followed by the target's own text, all rows decoded together: [B, n + new_tokens].

    Args:
        target: in any dtype; its context must hold n + new_tokens tokens.
        prompts: [B, n] ids, n ≥ 1.
        new_tokens: how many each row gets, ≥ 1.
        temperature: 0 takes the likeliest token.
        seed: of the draws; every row has draws of its own.
        stop_token_ids: a row that wrote one of these is filled up with it.
        progress: show a bar of the tokens.
    """
    whole("new_tokens", new_tokens, 1)
    adjusted = Sampling(temperature)
    generator = torch.Generator(target.device).manual_seed(seed)
    stops = torch.tensor(list(stop_token_ids), dtype=torch.long, device=target.device)
    rows = prompts.to(target.device).long()
    text = torch.cat((rows, rows.new_zeros(len(rows), new_tokens)), 1)
    ended = torch.zeros(len(rows), dtype=torch.bool, device=target.device)
    cache = target.new_cache(*text.shape)
    fed = rows
    for place in tqdm(range(rows.shape[1], text.shape[1]), disable=not progress):
        logits = target.score(fed, cache, last=True).logits[:, -1]
        drawn = chosen(logits, adjusted, generator)
        text[:, place] = torch.where(ended, text[:, place - 1], drawn)
        ended |= torch.isin(text[:, place], stops)
        if len(stops) and ended.all():
            text[:, place + 1 :] = text[:, place, None]
            break
        fed = text[:, place, None]
    return text.cpu()


def chosen(logits: Tensor, adjusted: Sampling, generator: torch.Generator) -> Tensor:
    """One token for every row of logits [B, V]: [B]."""
    if adjusted.greedy:
        return logits.argmax(-1)
    uniforms = torch.rand(
        (len(logits), 1), dtype=torch.float64, device=logits.device, generator=generator
    )
    return inverse(adjusted(logits), uniforms)[0][:, 0]


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
    """Each prompt followed by the target's own text, up to its first stop token, in the order of
    the prompts.

    Every batch is a file in `folder`, named after all that its text depends on: the target and its
    dtype, the prompts and the settings. A run that was interrupted, or is repeated, makes only what
    is missing, and the text of another target or of other settings is never taken for this one's.

    Args:
        target: continues the prompts.
        prompts: lists or 1-d tensors of ids, of any lengths; only equal lengths share a batch.
        new_tokens: at most so many for each prompt.
        folder: for the finished batches, an ignored one.
        batch: rows decoded together.
        temperature: 0 takes the likeliest token.
        seed: of the draws; every batch draws anew.
        stop_token_ids: a text ends with the first of these that it writes.
    """
    whole("new_tokens", new_tokens, 1)
    rows = [torch.as_tensor(prompt).long().cpu() for prompt in prompts]
    texts: dict[int, Tensor] = {}
    settings = (fingerprint(target), str(target.dtype), new_tokens, temperature, seed)
    parts = list(equal_lengths(rows, whole("batch", batch, 1)))
    for number, part in enumerate(tqdm(parts, desc="own text", unit="batch", mininterval=5)):
        stacked = torch.stack([rows[index] for index in part])
        name = digest(stacked, *settings, *stop_token_ids, number)
        path = folder / f"{name}.safetensors"
        if not path.exists():
            text = continued(
                target, stacked, new_tokens, temperature, int(name[:15], 16), stop_token_ids
            )
            write(path, {"text": text.int()}, {})
        for index, text in zip(part, load_file(path)["text"].long()):
            texts[index] = up_to_stop(text, len(rows[index]), stop_token_ids)
    return [texts[index] for index in range(len(rows))]


def equal_lengths(rows: Sequence[Tensor], batch: int) -> Iterator[list[int]]:
    """Batches of indices of rows that are equally long, shorter rows first."""
    ordered = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    for _, group in groupby(ordered, key=lambda index: len(rows[index])):
        equal = list(group)
        for start in range(0, len(equal), batch):
            yield equal[start : start + batch]


def up_to_stop(text: Tensor, length: int, stop_token_ids: Sequence[int]) -> Tensor:
    """text [n] up to the first stop token behind its prompt of `length` tokens, or all of it."""
    stops = torch.tensor(list(stop_token_ids), dtype=torch.long)
    places = torch.isin(text[length:], stops).nonzero()
    return text[: length + int(places[0]) + 1] if len(places) else text


def digest(tokens: Tensor, *settings) -> str:
    """Thirty-two hexadecimal digits that tell these tokens, cut and treated this way, from others."""
    described = repr((tuple(tokens.shape), *settings)).encode()
    ids = tokens.detach().cpu().to(torch.int64).contiguous()
    return hashlib.sha256(described + ids.numpy().tobytes()).hexdigest()[:32]
