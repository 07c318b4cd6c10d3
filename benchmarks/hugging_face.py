"""Hugging Face's `generate` on the same weights, plain and assisted: what ours is held against."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

import torch
from transformers import AutoModelForCausalLM, CompileConfig
from transformers.generation.streamers import BaseStreamer

from specdec_lite.engine.transformer import steady_attention


class Bursts(BaseStreamer):
    """Hears what `generate` emits: (seconds since it was made, tokens) of every burst. The prompt,
    which comes first, is none.
    """

    def __init__(self):
        self.began = perf_counter()
        self.heard: list[tuple[float, int]] = []

    def put(self, value: torch.Tensor) -> None:
        self.heard.append((perf_counter() - self.began, value.numel()))

    def end(self) -> None:
        pass

    @property
    def emitted(self) -> list[tuple[float, int]]:
        return self.heard[1:]


class HuggingFace:
    """`generate` of transformers; assisted generation is tuned: constant γ, no confidence
    threshold.

    folder: holds `target` and `draft` as transformers loads them. Called with ids [n], it decodes
    exactly `new_tokens` (where an end is set, up to that), or raises RuntimeError; it returns
    (seconds since the call, tokens) of every burst. more: options of `generate`. Attention as in
    ours: without cuDNN.
    """

    def __init__(self, folder: Path, dtype: str, gamma: int, device: str = "cpu"):
        load = lambda name: (
            AutoModelForCausalLM.from_pretrained(folder / name, dtype=getattr(torch, dtype))
            .to(device)
            .eval()
        )
        self.target, self.draft = load("target"), load("draft")
        for model in (self.target, self.draft):
            model.generation_config.eos_token_id = None
            model.generation_config.pad_token_id = 0
        self.assistance: dict = {"assistant_model": self.draft}
        tune(self.draft, gamma)

    def __call__(
        self,
        ids: torch.Tensor,
        new_tokens: int,
        temperature: float,
        seed: int,
        assisted: bool,
        **more,
    ) -> list[tuple[float, int]]:
        torch.manual_seed(seed)
        chance = (
            {"do_sample": True, "temperature": temperature, "top_k": 0}
            if temperature
            else {"do_sample": False}
        )
        rows = ids[None].to(self.target.device)
        bursts = Bursts()
        with torch.inference_mode(), steady_attention(rows.device):
            out = self.target.generate(
                rows,
                attention_mask=torch.ones_like(rows),
                max_new_tokens=new_tokens,
                streamer=bursts,
                **chance,
                **more,
                **(self.assistance if assisted else {}),
            )
        ended = int(out[0, -1]) == self.target.generation_config.eos_token_id
        if out.shape[1] != len(ids) + new_tokens and not ended:
            raise RuntimeError(
                f"Hugging Face stopped after {out.shape[1] - len(ids)} of {new_tokens} tokens: the"
                " comparison would be unfair"
            )
        return bursts.emitted

    def compiled(self) -> Callable[..., list[tuple[float, int]]]:
        """The same call with a cache of fixed size and `torch.compile(mode="reduce-overhead")`:
        plain decoding on a GPU, as assisted generation takes no such cache.
        """
        compiling = CompileConfig(mode="reduce-overhead")
        return partial(self, cache_implementation="static", compile_config=compiling)

    def batch(
        self, prompts: list[list[int]], new_tokens: int, assisted: bool
    ) -> tuple[list[list[int]], list[int]]:
        """Decode rows of ids together, greedily, on the left padded to one length: (texts, tokens of
        every burst). Bursts are heard of one row alone. Raises what `generate` raises.
        """
        longest = max(map(len, prompts))
        rows = torch.tensor([[0] * (longest - len(ids)) + ids for ids in prompts])
        seen = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts])
        bursts = Bursts() if len(prompts) == 1 else None
        with torch.inference_mode():
            out = self.target.generate(
                rows,
                attention_mask=seen,
                max_new_tokens=new_tokens,
                do_sample=False,
                streamer=bursts,
                **(self.assistance if assisted else {}),
            )
        texts = out[:, longest:].tolist()
        return texts, [count for _, count in bursts.emitted] if bursts else []


class HuggingFaceLookup(HuggingFace):
    """The same with transformers' own prompt lookup in place of a draft.

    folder: a model as transformers loads it. gamma, max_ngram: its `prompt_lookup_num_tokens` and
    `max_matching_ngram_size`. stop: the token that ends an answer; None: none does.
    """

    def __init__(self, folder: Path, dtype: str, gamma: int, stop: int | None, max_ngram: int = 3):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        self.target = model.eval()
        self.target.generation_config.eos_token_id = stop
        self.target.generation_config.pad_token_id = stop or 0
        self.assistance = {"prompt_lookup_num_tokens": gamma, "max_matching_ngram_size": max_ngram}

    def early_exit(self, layers: int, gamma: int) -> "HuggingFaceLookup":
        """The same model assisted by its own first layers, with its final norm and head."""
        other = copy.copy(self)
        other.assistance = {"assistant_early_exit": layers}
        tune(self.target, gamma)
        return other


def tune(assistant, gamma: int) -> None:
    """Draft γ tokens always. These three are silently ignored when they are given to generate()."""
    config = assistant.generation_config
    config.num_assistant_tokens = gamma
    config.num_assistant_tokens_schedule = "constant"
    config.assistant_confidence_threshold = 0.0
