"""Blocks on a target's features, for the tests: random ones of every kind."""

import torch

from specdec_lite.drafters.feature_head import Eagle1Head, Eagle3Head, MtpHead

KINDS = {"eagle1": Eagle1Head, "eagle3": Eagle3Head, "mtp": MtpHead}


def random_head(target, kind="eagle1", ids=None, seed=0, scale=0.25):
    """Useless drafts, but never harmful ones."""
    layers = (0, 1, "final") if kind == "eagle3" else None
    head = KINDS[kind].beside(target, ids, layers)
    generator = torch.Generator().manual_seed(seed)
    for weight in head.parameters():
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=scale, generator=generator)
    return head.to(target.dtype).requires_grad_(False)
