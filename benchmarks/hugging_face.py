"""Hugging Face's `generate` on the same weights, plain and assisted: what ours is held against."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


class HuggingFace:
    """`generate` of transformers; assisted generation is tuned: constant γ, no confidence
    threshold.

    folder: holds `target` and `draft` as transformers loads them. Called with ids [n], it decodes
    exactly `new_tokens`, or raises RuntimeError.
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
        # These three are silently ignored when they are given to generate() instead.
        config = self.draft.generation_config
        config.num_assistant_tokens = gamma
        config.num_assistant_tokens_schedule = "constant"
        config.assistant_confidence_threshold = 0.0

    def __call__(
        self, ids: torch.Tensor, new_tokens: int, temperature: float, seed: int, assisted: bool
    ) -> None:
        torch.manual_seed(seed)
        chance = (
            {"do_sample": True, "temperature": temperature, "top_k": 0}
            if temperature
            else {"do_sample": False}
        )
        rows = ids[None].to(self.target.device)
        with torch.inference_mode():
            out = self.target.generate(
                rows,
                attention_mask=torch.ones_like(rows),
                max_new_tokens=new_tokens,
                min_new_tokens=new_tokens,
                assistant_model=self.draft if assisted else None,
                **chance,
            )
        if out.shape[1] != len(ids) + new_tokens:
            raise RuntimeError(
                f"Hugging Face stopped after {out.shape[1] - len(ids)} of {new_tokens} tokens: the"
                " comparison would be unfair"
            )
