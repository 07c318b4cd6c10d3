"""Trained parts for the tests: random ones of every kind, and tensors as others publish them."""

import torch

from specdec_lite.drafters.block_diffusion import BlockHead
from specdec_lite.drafters.eagle import Eagle1Head, Eagle3Head, MtpHead, ParallelEagleHead
from specdec_lite.drafters.heads import ExitHead, Heads, HydraHeads, MlpSpeculator
from specdec_lite.drafters.parallel import Correction, Selector
from specdec_lite.drafters.self_drafts import LookaheadRows

FEATURE_HEADS = {"eagle1": Eagle1Head, "eagle3": Eagle3Head, "mtp": MtpHead}


def randomize(module, target, scale, seed=8):
    """Return a module with random matrices, in the target's dtype: its drafts do no harm."""
    generator = torch.Generator().manual_seed(seed)
    for weight in module.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=scale, generator=generator)
    return module.to(target.dtype).requires_grad_(False)


def random_heads(target, count=3, seed=8, scale=0.3):
    return randomize(Heads(target.hidden_size, count), target, scale, seed)


def exit_head(target, layers=1):
    return randomize(ExitHead(target.hidden_size, layers), target, 0.2)


def lookahead(target, count=2):
    return randomize(LookaheadRows(target.hidden_size, count), target, 0.3)


def random_head(target, kind="eagle1", ids=None, scale=0.25):
    layers = (0, 1, "final") if kind == "eagle3" else None
    return randomize(FEATURE_HEADS[kind].for_target(target, ids, layers), target, scale, 0)


def random_parallel_head(target, ids=None, depth=2, embeddings=0):
    """Return a P-EAGLE head; its mask is the target's last token."""
    options = dict(depth=depth, mask_id=target.vocab_size - 1, embeddings=embeddings)
    head = ParallelEagleHead.for_target(target, ids, (0, 1, "final"), **options)
    torch.nn.init.normal_(head.mask, std=0.25, generator=torch.Generator().manual_seed(0))
    return randomize(head, target, 0.25)


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


def published_tensors(target, kind, options=None, layers=2, reads=2, words=0, seed=3):
    """Return random tensors of a head under the names that its authors publish.

    `kind` is "blocks" (DFlash and its kin, with the parts that `options` of its config name),
    "eagle", "eagle3" or "peagle"; float32 numbers in float64, since heads are built in float32.
    """
    d, v, options, eagle = target.hidden_size, target.vocab_size, options or {}, kind != "blocks"
    wide = eagle and kind != "eagle"
    shapes = {"fc.weight": (d, 2 * d if kind == "eagle" else reads * d)}
    shapes |= {"norm.weight": (d,)} if kind != "eagle" else {}
    shapes |= {"lm_head.weight": (words or v, d)} if wide else {}
    shapes |= {} if eagle else {"hidden_norm.weight": (d,)}
    if kind == "peagle":
        shapes |= {"mask_hidden": (1, 1, reads * d), "embed_tokens.weight": (v, d)}
    if rank := options.get("selector_rank"):
        for name in ("predecessor_codebook", "successor_codebook"):
            shapes[f"candidate_selector.{name}"] = (v, rank)
        shapes["candidate_selector.hidden_projection.weight"] = (rank, d)
    if rank := options.get("markov_rank"):
        shapes["markov_head.markov_w1.weight"] = (v, rank)
        shapes["markov_head.markov_w2.weight"] = (words or v, rank)
        if options.get("enable_confidence_head"):
            shapes |= {
                "confidence_head.proj.weight": (1, d + rank),
                "confidence_head.proj.bias": (1,),
            }
    for layer in range(layers):
        width = 2 * d if wide and layer == 0 else d
        each = {f"self_attn.{p}_proj": (n, width) for p, n in (("q", 32), ("k", 16), ("v", 16))}
        each |= {"self_attn.o_proj": (d, 32), "mlp.gate_proj": (24, d), "mlp.up_proj": (24, d)}
        each |= {"mlp.down_proj": (d, 24), "post_attention_layernorm": (d,)}
        each |= {} if kind == "eagle" else {"input_layernorm": (d,)}
        each |= {} if eagle else {"self_attn.q_norm": (8,), "self_attn.k_norm": (8,)}
        each |= {"hidden_norm": (d,)} if wide and layer == 0 else {}
        shapes |= {f"layers.{layer}.{name}.weight": shape for name, shape in each.items()}
        if taps := options.get("conv_kernel_size"):
            groups = d // options["conv_group_size"]
            for name in (f"layers.{layer}.attention_conv", f"layers.{layer}.mlp_conv"):
                shapes[f"{name}.base_kernel"] = (2, taps, d)
                shapes[f"{name}.kernel_projection.weight"] = (2 * taps * groups, d)
    generator = torch.Generator().manual_seed(seed)
    tensors = {n: torch.randn(shape, generator=generator) * 0.4 for n, shape in shapes.items()}
    return {n: (t + 1 if "norm" in n else t).double() for n, t in tensors.items()}
