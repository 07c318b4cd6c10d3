"""Text that the target writes itself: it continues prompts in batches, greedily or sampled.

Finished batches are stored in a folder, so an interrupted run resumes.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from tqdm import tqdm

from specdec_lite.engine.cache import Cache
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import fingerprint, write
from specdec_lite.sampling import Sampling, inverse

PREFILL_TOKENS = 1024
"""Tokens of one pass of a prefill on a CPU, over all rows."""


@torch.inference_mode()
def continue_prompts(
    target: CausalLM, prompts: Tensor, new_tokens: int, temperature: float = 0.0, seed: int = 0
) -> Tensor:
    """Return each prompt followed by the target's continuation, [B, n + new_tokens].

    All rows are decoded together, and no token ends a row.

    Shapes: prompts [B, n].
    """
    sampling = Sampling(temperature)
    generator = torch.Generator(target.device).manual_seed(seed)
    text = prompts.to(target.device).long()
    cache = target.new_cache(len(text), text.shape[1] + new_tokens)
    logits = prefill(target, text, cache)
    for left in reversed(range(new_tokens)):
        if sampling.greedy:
            tokens = logits.argmax(-1, keepdim=True)
        else:
            size = {"size": (len(text), 1), "dtype": torch.float64, "device": target.device}
            tokens = inverse(sampling(logits), torch.rand(**size, generator=generator))[0]
        text = torch.cat((text, tokens), 1)
        if left:
            logits = target.score(tokens, cache, last=True).logits[:, -1]
    return text.cpu()


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


def own_text(
    target: CausalLM,
    prompts: Sequence[Tensor],
    new_tokens: int,
    folder: Path,
    batch: int = 64,
    temperature: float = 0.0,
    seed: int = 0,
) -> list[Tensor]:
    """Return each prompt followed by the target's continuation.

    Every batch is a file in `folder`. Its name depends on everything that determines the text: the
    target and its dtype, the prompts and the settings. A run that was interrupted, or is repeated,
    computes only the missing batches, and the text of another target is never read.

    Shapes: prompts N × [n].
    """
    texts: list[Tensor] = []
    settings = (fingerprint(target), str(target.dtype), new_tokens, temperature, seed)
    parts = torch.stack(list(prompts)).long().cpu().split(batch)
    for number, part in enumerate(tqdm(parts, desc="own text", unit="batch", mininterval=5)):
        name = token_hash(part, *settings, number)
        path = folder / f"{name}.safetensors"
        if not path.exists():
            text = continue_prompts(target, part, new_tokens, temperature, int(name[:15], 16))
            write(path, {"text": text.int()}, {})
        texts += load_file(path)["text"].long()
    return texts


def token_hash(tokens: Tensor, *settings) -> str:
    """Return 32 hexadecimal digits that identify tokens and settings."""
    description = repr((tuple(tokens.shape), *settings)).encode()
    ids = tokens.detach().cpu().to(torch.int64).contiguous()
    return hashlib.sha256(description + ids.numpy().tobytes()).hexdigest()[:32]
