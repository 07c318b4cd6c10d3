"""Decode with Hugging Face's `generate` on the same weights, plain and assisted, for comparison."""

from pathlib import Path
from time import perf_counter

import torch
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer

from specdec_lite.engine.models import steady_attention


class Bursts(BaseStreamer):
    """A streamer that records (seconds since its creation, tokens) of every burst of `generate`."""

    def __init__(self):
        self.began = perf_counter()
        self.bursts: list[tuple[float, int]] = []

    def put(self, value: torch.Tensor) -> None:
        self.bursts.append((perf_counter() - self.began, value.numel()))

    def end(self) -> None:
        pass

    @property
    def emitted(self) -> list[tuple[float, int]]:
        """The bursts without the first one, which is the prompt."""
        return self.bursts[1:]


class HuggingFace:
    """Transformers' `generate`, with assisted generation at constant γ and no confidence threshold.

    Attention runs without cuDNN, as in this library.

    Args:
        folder: Folder with `target` and `draft` as transformers loads them.
        dtype: PyTorch's name of the dtype.
        gamma: Draft length.
        device: PyTorch's name of the device.
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
        self, ids: torch.Tensor, new_tokens: int, temperature: float, seed: int, assisted: bool
    ) -> list[tuple[float, int]]:
        """Decode `new_tokens` tokens; fewer only if an end token is set and emitted.

        Shapes: ids [n].
        """
        torch.manual_seed(seed)
        sampling = (
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
                **sampling,
                **(self.assistance if assisted else {}),
            )
        ended = int(out[0, -1]) == self.target.generation_config.eos_token_id
        if out.shape[1] != len(ids) + new_tokens and not ended:
            raise RuntimeError(
                f"Hugging Face stopped after {out.shape[1] - len(ids)} of {new_tokens} tokens: the"
                " comparison would be unfair"
            )
        return bursts.emitted

    def batch(
        self, prompts: list[list[int]], new_tokens: int, assisted: bool
    ) -> tuple[list[list[int]], list[int]]:
        """Decode prompts together, greedily, padded on the left to one length."""
        longest = max(map(len, prompts))
        rows = torch.tensor([[0] * (longest - len(ids)) + ids for ids in prompts])
        mask = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in prompts])
        bursts = Bursts() if len(prompts) == 1 else None
        with torch.inference_mode():
            out = self.target.generate(
                rows,
                attention_mask=mask,
                max_new_tokens=new_tokens,
                do_sample=False,
                streamer=bursts,
                **(self.assistance if assisted else {}),
            )
        texts = out[:, longest:].tolist()
        return texts, [count for _, count in bursts.emitted] if bursts else []


class HuggingFaceLookup(HuggingFace):
    """The same with transformers' prompt lookup in place of a draft.

    Args:
        folder: Folder of the model as transformers loads it.
        dtype: PyTorch's name of the dtype.
        gamma: `prompt_lookup_num_tokens`.
        stop: Token that ends an answer, or None.
        max_ngram: `max_matching_ngram_size`.
    """

    def __init__(self, folder: Path, dtype: str, gamma: int, stop: int | None, max_ngram: int = 3):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        self.target = model.eval()
        self.target.generation_config.eos_token_id = stop
        self.target.generation_config.pad_token_id = stop or 0
        self.assistance = {"prompt_lookup_num_tokens": gamma, "max_matching_ngram_size": max_ngram}


def tune(assistant, gamma: int) -> None:
    """Make an assistant always draft γ tokens.

    `generate` silently ignores these three settings if they are passed as arguments.
    """
    config = assistant.generation_config
    config.num_assistant_tokens = gamma
    config.num_assistant_tokens_schedule = "constant"
    config.assistant_confidence_threshold = 0.0
