"""A tiny model of letters and its tokenizer, for tests of interactives that show text."""

import torch

from specdec_lite import CausalLM
from specdec_lite.engine.transformer import Transformer, TransformerConfig


class Letters:
    """A tokenizer with one character per token, of `size` tokens: its code modulo the size."""

    def __init__(self, size: int = 24):
        self.size = size

    def encode(self, text):
        return [ord(letter) % self.size for letter in text]

    def decode(self, ids):
        return "".join(chr(97 + i) for i in ids)


def tiny(seed: int, noise: float = 0.0) -> CausalLM:
    """Return a model of two layers with random weights, plus normal noise times `noise`."""
    torch.manual_seed(seed)
    model = Transformer(TransformerConfig(24, 32, 48, 2, 2, 2, 16, max_positions=512)).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight += noise * torch.randn_like(weight)
    return CausalLM(model.requires_grad_(False))
