"""Random heads of every kind on a target's features, for the tests."""

import torch

from specdec_lite.drafters.eagle_head import Eagle1Head, Eagle3Head, MtpHead, ParallelEagleHead

KINDS = {"eagle1": Eagle1Head, "eagle3": Eagle3Head, "mtp": MtpHead}


def random_head(target, kind="eagle1", ids=None, seed=0, scale=0.25):
    """Return a head with random weights: its drafts are useless, never harmful."""
    layers = (0, 1, "final") if kind == "eagle3" else None
    head = KINDS[kind].for_target(target, ids, layers)
    generator = torch.Generator().manual_seed(seed)
    for weight in head.parameters():
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=scale, generator=generator)
    return head.to(target.dtype).requires_grad_(False)


def random_parallel_head(target, ids=None, depth=2, embeddings=0):
    """Return a P-EAGLE head with random weights; its mask is the target's last token."""
    options = dict(depth=depth, mask_id=target.vocab_size - 1, embeddings=embeddings)
    head = ParallelEagleHead.for_target(target, ids, (0, 1, "final"), **options)
    generator = torch.Generator().manual_seed(0)
    for weight in head.parameters():
        if weight.dim() == 2 or weight is head.mask:
            torch.nn.init.normal_(weight, std=0.25, generator=generator)
    return head.to(target.dtype).requires_grad_(False)
