"""Extra heads for the tests: random ones, and ones trained to repeat one text."""

from functools import cache

import torch
import torch.nn.functional as F
from models_zoo import PROMPT
from text_laws import model_named

from specdec_lite import generate
from specdec_lite.drafters.block_head import BlockHead, Correction, Selector
from specdec_lite.drafters.heads import Heads, HydraHeads, MlpSpeculator


def random_heads(target, count=3, seed=0, scale=0.3):
    torch.manual_seed(seed)
    heads = Heads(target.hidden_size, count).to(target.dtype)
    torch.nn.init.normal_(heads.down, std=scale)
    return heads.requires_grad_(False)


@cache
def taught_heads(name, count=3, length=36):
    """Return heads that predict two thirds of the greedy continuation of PROMPT exactly."""
    target = model_named(name)
    text = PROMPT + generate(target, PROMPT, max_new_tokens=length).tokens.tolist()
    known = len(PROMPT) + 2 * length // 3
    scores = target.score(text, target.new_cache(), hidden_layers=("final",))
    hidden, labels = scores.hidden["final"][0].clone(), torch.tensor(text)
    torch.manual_seed(0)
    heads = Heads(target.hidden_size, count, 4 * target.hidden_size).to(target.dtype)
    head = target.backend.head.weight.detach().clone().to(target.dtype)
    optimizer = torch.optim.Adam(heads.parameters(), lr=0.01)
    for _ in range(2000):
        logits = heads(hidden) @ head.T
        if all(
            bool((logits[: known - i - 2, i].argmax(-1) == labels[i + 2 : known]).all())
            for i in range(count)
        ):
            return heads.requires_grad_(False)
        optimizer.zero_grad()
        sum(
            F.cross_entropy(logits[: known - i - 2, i], labels[i + 2 : known]) for i in range(count)
        ).backward()
        optimizer.step()
    raise AssertionError("these heads do not learn the text")


def randomize(module, target, scale, seed=8):
    """Return a module with random matrices, in the target's dtype: its drafts are useless."""
    generator = torch.Generator().manual_seed(seed)
    for weight in module.parameters():
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=scale, generator=generator)
    return module.to(target.dtype).requires_grad_(False)


def random_speculator(target, width=8, depth=3):
    return randomize(
        MlpSpeculator(target.hidden_size, target.vocab_size, width, depth), target, 0.6
    )


def random_hydra(target, count=3):
    return randomize(HydraHeads(target.hidden_size, count), target, 0.3)


def random_correction(target, rank=2):
    return randomize(Correction(target.vocab_size, rank), target, 1.0)


def random_selector(target, rank=2, candidates=4):
    width = target.hidden_size
    return randomize(
        Selector(target.vocab_size, rank, candidates=candidates, width=width), target, 1.0
    )


def random_blocks(target, size=4, rank=0, **shape):
    return randomize(BlockHead.for_target(target, size, rank, **shape), target, 0.3)
