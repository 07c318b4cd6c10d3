"""Provide the plain decoders of a machine, which a reader would use instead of any draft.

They use the same weights in another format, without the packed copy, and in transformers'
`generate`. `scoreboard_clocks` compares them with the library's own plain decoding in float32.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from time import perf_counter

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer

from specdec_lite import CausalLM, load_pair, load_smollm2, stream
from specdec_lite.engine.linear import unpack
from specdec_lite.engine.models import steady_attention
from specdec_lite.loading.pairs import SHIPPED
from specdec_lite.loading.smollm2 import smollm2_folder

from .smollm2 import STOP

Decoder = Callable[[Tensor, int], tuple[float, int]]
"""(token ids, seed) → the seconds of decoding without the prefill, and the tokens of that time."""


@cache
def target(model: str, form: str) -> CausalLM:
    """Return a target in a dtype; "unpacked" is float32 without packed weights."""
    dtype = "float32" if form == "unpacked" else form
    if model == "pair":
        loaded = load_pair(device="cpu", dtype=dtype).target
    else:
        loaded = load_smollm2("cpu", dtype)[0]
    if form == "unpacked":
        unpack(loaded.model)
    return loaded


class Bursts(BaseStreamer):
    """A streamer that records (seconds since its creation, tokens) of every burst of `generate`."""

    def __init__(self):
        self.began = perf_counter()
        self.bursts: list[tuple[float, int]] = []

    def put(self, value: Tensor) -> None:
        self.bursts.append((perf_counter() - self.began, value.numel()))

    def end(self) -> None:
        pass


@cache
def transformers_target(model: str):
    """Return a target as transformers loads it."""
    folder, stop = (SHIPPED / "target", None) if model == "pair" else (smollm2_folder(), STOP)
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    loaded.generation_config.eos_token_id = stop
    loaded.generation_config.pad_token_id = stop or 0
    return loaded


def ours(
    target: CausalLM,
    new_tokens: int,
    temperature: float,
    stops: Sequence[int],
    ids: Tensor,
    seed: int,
) -> tuple[float, int]:
    """Decode with this library.

    Shapes: ids [n].
    """
    options = {"stop_token_ids": tuple(stops), "seed": seed}
    steps = [*stream(target, ids, None, new_tokens, temperature, **options)]
    return sum(step.seconds for step in steps), sum(len(step.tokens) for step in steps)


def theirs(
    model: str, new_tokens: int, temperature: float, ids: Tensor, seed: int
) -> tuple[float, int]:
    """Decode with transformers' `generate`; attention runs without cuDNN, as in this library.

    The first burst after the prompt includes the prefill, so its token is not counted.

    Shapes: ids [n].
    """
    target = transformers_target(model)
    sampled = {"do_sample": True, "temperature": temperature, "top_k": 0}
    rows, bursts = ids[None], Bursts()
    torch.manual_seed(seed)
    with torch.inference_mode(), steady_attention(rows.device):
        out = target.generate(
            rows,
            attention_mask=torch.ones_like(rows),
            max_new_tokens=new_tokens,
            streamer=bursts,
            **(sampled if temperature else {"do_sample": False}),
        )
    ended = int(out[0, -1]) == target.generation_config.eos_token_id
    if out.shape[1] != len(ids) + new_tokens and not ended:
        raise RuntimeError(
            f"Hugging Face stopped after {out.shape[1] - len(ids)} of {new_tokens} tokens: the"
            " comparison would be unfair"
        )
    _, (first, _), *rest = bursts.bursts
    return (rest[-1][0] if rest else first) - first, sum(count for _, count in rest)


def others(
    model: str, new_tokens: int, temperature: float, stops: Sequence[int], timed: Sequence[str] = ()
) -> dict[str, Decoder]:
    """Return the plain decoders by name, without the formats that are timed elsewhere.

    Each format rounds differently, so texts may differ.
    """
    # The pair has no weights in the 4-bit format of SmolLM2's file.
    forms = ("bfloat16", "unpacked", *(("int4",) if model == "smollm2" else ()))
    decoders: dict[str, Decoder] = {
        form: partial(ours, target(model, form), new_tokens, temperature, stops)
        for form in forms
        if form not in timed
    }
    return decoders | {"transformers": partial(theirs, model, new_tokens, temperature)}
