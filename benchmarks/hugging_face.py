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
        target: Folder of the target as transformers loads it.
        dtype: PyTorch's name of the dtype.
        draft: Folder of the draft; None for plain decoding.
        gamma: Draft length.
        device: PyTorch's name of the device.
        stop: Token that ends a text, or None.
    """

    def __init__(
        self,
        target: Path,
        dtype: str,
        draft: Path | None = None,
        gamma: int = 1,
        device: str = "cpu",
        stop: int | None = None,
    ):
        def load(folder: Path):
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
            model.generation_config.eos_token_id = stop
            model.generation_config.pad_token_id = stop or 0
            return model.to(device).eval()

        self.target, self.assistance = load(target), {}
        if draft is not None:
            self.assistance = {"assistant_model": load(draft)}
            tune(self.assistance["assistant_model"], gamma)

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


def tune(assistant, gamma: int) -> None:
    """Make an assistant always draft γ tokens.

    `generate` silently ignores these three settings if they are passed as arguments.
    """
    config = assistant.generation_config
    config.num_assistant_tokens = gamma
    config.num_assistant_tokens_schedule = "constant"
    config.assistant_confidence_threshold = 0.0
