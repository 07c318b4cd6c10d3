"""Drafts by a part of the target: its first layers, all but some sublayers, a part of its cache.

Others draft by a copy in fewer bits, or by the whole target on trained look-ahead embeddings (PaSS).
"""

import copy
from collections.abc import Collection, Sequence
from typing import Any, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite import checks
from specdec_lite.contract import Context, Limits
from specdec_lite.drafters.chain import (
    ChainDrafter,
    ChainSession,
    RoundDrafter,
    draft_chain,
    draft_rows,
)
from specdec_lite.drafters.heads import ExitHead, check_heads, check_size
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.models import ModelDrafter
from specdec_lite.engine.cache import Cache, sublayers
from specdec_lite.engine.linear import pack, unpack
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Block, Transformer, rotate
from specdec_lite.loading.weights import Pretrained
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.transfer import upload

# What self-drafts share -------------------------------------------------------------------------


class SelfDrafter(RoundDrafter, ChainDrafter):
    """Draft a chain with the target itself: subclass it and define `draft_cache`."""

    makes_passes = True

    def __init__(self, target: CausalLM, gamma: int | Length):
        super().__init__(gamma)
        self.target = checks.native("target", target)

    def draft_cache(self, context: Context) -> Cache:
        """Return the cache a round drafts with: a view of the target's, or a part of it."""
        raise NotImplementedError

    def draft(self, context: Context, session: ChainSession) -> Proposal:
        cache = self.draft_cache(context)

        def follow(token: Tensor | None) -> Tensor:
            fed = context.tokens[-1:] if token is None else token
            session.passes += 1
            return self.target.score(fed, cache, last=True).logits[0, -1]

        return draft_chain(context, follow, session.length)


# Early exit: the target's first layers ----------------------------------------------------------
# Source: Elhoushi et al. 2024 (LayerSkip). Their training makes the drafts better, not exact;
# here a small adapter is trained instead, and the target is not changed. Verification may
# continue from the drafted states.


class EarlyExitDrafter(Pretrained, SelfDrafter):
    """Draft γ tokens with the first layers of the target, its final norm and its head.

    The draft reads and writes the target's own cache through a view, so it never has to catch up.
    Verification overwrites its entries or, with `reuse`, keeps them.

    Args:
        target: a native model; the one that decodes.
        layers: number of its layers that draft, 1 … all but one.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
        reuse: verify from the drafted states, so that no layer runs twice. The states of the last
            drafted token, which drafting does not need, are then computed too.
        adapter: module trained for this exit, between norm and head; None for none. One that
            `from_pretrained` loads sets the number of layers too.
    """

    folder, build = "early_exit", ExitHead

    def __init__(
        self,
        target: CausalLM,
        layers: int,
        gamma: int | Length = 4,
        reuse: bool = True,
        adapter: ExitHead | None = None,
    ):
        super().__init__(target, gamma)
        self.layers = checks.whole("layers", layers, 1, target.num_layers - 1)
        self.reuse = reuse
        self.adapter = adapter
        if adapter is not None:
            check_heads(adapter, target)
            if adapter.layers != layers:
                raise ValueError(f"layers={layers}: the adapter was trained for {adapter.layers}")

    @classmethod
    def made(cls, target: CausalLM, module: ExitHead, **options: Any) -> Self:
        return cls(target, module.layers, adapter=module, **options)

    def draft_cache(self, context: Context) -> Cache:
        return context.cache.view(layers=self.layers)  # pyright: ignore[reportOptionalMemberAccess]

    @torch.inference_mode()
    def draft(self, context: Context, session: ChainSession) -> Proposal:
        view = self.draft_cache(context)
        states: list[Tensor] = []

        def run(token: Tensor | None) -> Tensor:
            """Feed one token and return its normed exit state [d]."""
            fed = context.tokens[-1:] if token is None else token
            session.passes += 1
            layers = (self.layers, "final")
            hidden = self.target.score(fed, view, hidden_layers=layers, logits=False).hidden
            states.append(hidden[self.layers])
            return hidden["final"][0, -1]

        def follow(token: Tensor | None) -> Tensor:
            state = run(token)
            return self.target.head(state if self.adapter is None else self.adapter(state))

        proposal = draft_chain(context, follow, session.length)
        if not self.reuse or not len(proposal.tree):
            return proposal
        run(proposal.tree.tokens[-1:])
        reused = (self.layers, torch.cat(states, dim=1))
        return Proposal(proposal.tree, proposal.probs, states=reused)


# The target minus some of its sublayers ---------------------------------------------------------
# Source: Zhang et al. 2024 (Draft & Verify).

Sublayer = tuple[int, str]


class LayerSkipDrafter(SelfDrafter):
    """Draft γ tokens with the target, without some attention and MLP sublayers.

    The draft reads the target's keys and values of the text and writes its own after them. The
    target's pass overwrites all of these.

    Args:
        target: a native model; the one that decodes.
        skip: sublayers to leave out, as (block from 0, "attention" or "mlp").
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`; the paper stops after an
            uncertain token, as `Confidence` does.
    """

    def __init__(self, target: CausalLM, skip: Collection[Sublayer], gamma: int | Length = 4):
        super().__init__(target, gamma)
        self.skip = sublayers(skip, target.num_layers)

    def draft_cache(self, context: Context) -> Cache:
        return context.cache.view(skip=self.skip)  # pyright: ignore[reportOptionalMemberAccess]


# A part of the cache: sinks, a window and chunks ------------------------------------------------
# Sources: Chen et al. 2025 (MagicDec); Xiao et al. 2024 (StreamingLLM); Sun et al. 2024
# (TriForce), the chunks that the last query attends to most, selected here once per round for all
# layers.


class Chunks:
    """Select the chunks of the text whose mean key fits the last known query best.

    Args:
        layers: blocks (from 0) whose queries and keys are used.
        budget: cache entries to select, ≥ `size`, in whole chunks.
        size: entries per chunk, ≥ 1 (8 in the paper).
    """

    def __init__(self, layers: Sequence[int], budget: int = 64, size: int = 8):
        self.layers = tuple(layers)
        self.size = checks.whole("size", size, 1)
        self.budget = checks.whole("budget", budget, size)

    def scores(self, target: CausalLM, cache: Cache, states: dict) -> Tensor:
        """Return the attention [chunks] each chunk gets, averaged over heads and layers."""
        model, count = cast(Transformer, target.model), cache.length // self.size
        position = cache.length - 1
        cos, sin = (table[position] for table in model.rotary(target.device, target.dtype))
        total = torch.zeros(count, dtype=torch.float64, device=target.device)
        for layer in self.layers:
            block = cast(Block, model.blocks[layer])
            query = rotate(block.queries(states[layer][0, -1]), cos, sin)
            keys = cache.keys(layer)[0, :, : count * self.size]
            means = keys.unflatten(1, (count, self.size)).mean(2)
            fit = torch.einsum("gqh,gch->gqc", query.view(len(means), -1, query.shape[-1]), means)
            total += (fit * query.shape[-1] ** -0.5).softmax(-1).mean((0, 1)) / len(self.layers)
        return total

    def __call__(self, target: CausalLM, context: Context, end: int) -> set[int]:
        """Return the entries to select, in whole chunks."""
        if context.scores is None or end < self.size:
            return set()
        scores = self.scores(target, context.cache, context.scores.hidden)[: end // self.size]  # pyright: ignore[reportArgumentType]
        best = scores.topk(min(self.budget // self.size, len(scores))).indices.tolist()
        return {chunk * self.size + offset for chunk in best for offset in range(self.size)}


class SparseCacheDrafter(SelfDrafter):
    """Draft γ tokens with the whole target, which attends to only a part of its cache.

    It pays if reading the cache costs more than reading the weights: with long contexts in large
    batches. If the window covers the whole text, the draft is the target itself.

    Args:
        target: a native model; the one that decodes.
        sinks: entries kept from the beginning of the text, ≥ 0.
        window: entries kept from its end, ≥ 1.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
        select: selects chunks between sinks and window in every round; None for none.
    """

    def __init__(
        self,
        target: CausalLM,
        sinks: int = 4,
        window: int = 64,
        gamma: int | Length = 4,
        select: Chunks | None = None,
    ):
        super().__init__(target, gamma)
        self.sinks = checks.whole("sinks", sinks, 0)
        self.window = checks.whole("window", window, 1)
        self.select = select
        self.hidden_layers = () if select is None else select.layers
        for layer in self.hidden_layers:
            checks.whole("select's layer", layer, 0, target.num_layers - 1)

    def draft_cache(self, context: Context) -> Cache:
        length = context.cache.length  # pyright: ignore[reportOptionalMemberAccess]
        recent = max(0, length - self.window)
        entries = {*range(min(self.sinks, length)), *range(recent, length)}
        if self.select is not None:
            entries |= self.select(self.target, context, recent)
        return context.cache.select(sorted(entries), room=self.length.gamma)  # pyright: ignore[reportOptionalMemberAccess]


# The target in fewer bits -----------------------------------------------------------------------
# Source: Tiwari et al. 2025 (QuantSpec), weights only: the draft has its own cache.

GROUP = 32
"""Weights per scale below 8 bits."""


class Int8Linear(nn.Module):
    """A linear layer with 8-bit integer weights and one scale per row.

    It uses PyTorch's product for CPUs, which reads the weights as they are stored; inputs and
    results are bfloat16. The product reads 16 entries at a time, so rows are padded with zeros.
    """

    rows: Tensor
    scales: Tensor

    def __init__(self, layer: nn.Linear):
        super().__init__()
        weight = layer.weight.detach().float()  # bfloat16 quotients may round to 128
        scales = (weight.abs().amax(1).clamp(min=1e-12) / 127).bfloat16()
        rows = (weight / scales[:, None].float()).round().clamp(-127, 127).to(torch.int8)
        self.padding = -rows.shape[1] % 16
        self.register_buffer("rows", F.pad(rows, (0, self.padding)))
        self.register_buffer("scales", scales)
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs [..., out].

        Shapes: x [..., in].
        """
        flat = F.pad(x.flatten(0, -2).bfloat16(), (0, self.padding))
        product = torch.ops.aten._weight_int8pack_mm(flat, self.rows, self.scales)
        out = product.to(x.dtype)
        out = out if self.bias is None else out + self.bias
        return out.unflatten(0, x.shape[:-1])


def round_weight(weight: Tensor, bits: int, group: int = GROUP) -> Tensor:
    """Return a weight rounded to 2^bits − 1 levels around zero, in its own dtype.

    Shapes: weight [out, in].
    """
    most = 2 ** (bits - 1) - 1
    parts = weight.detach().split(group, dim=1)
    scales = [part.abs().amax(1, keepdim=True).clamp(min=1e-12) / most for part in parts]
    return torch.cat([(part / s).round() * s for part, s in zip(parts, scales)], dim=1)


def quantize(target: CausalLM, bits: int = 8) -> CausalLM:
    """Return a copy of a native model with fewer bits per weight in its linear layers.

    8 bits multiply integers. 2 … 7 bits only round the weights and multiply as before. The
    embedding is not changed.
    """
    checks.native("target", target)
    checks.whole("bits", bits, 2, 8)
    if bits == 8 and target.device.type != "cpu":
        raise ValueError(f"bits=8: the target is on {target.device}, the product needs a CPU")
    model = unpack(copy.deepcopy(target.model))  # a copy would not read the rounded weights
    for part in list(model.modules()):
        for name, layer in list(part.named_children()):
            if not isinstance(layer, nn.Linear):
                continue
            if bits == 8:
                setattr(part, name, Int8Linear(layer))
            else:
                layer.weight = nn.Parameter(round_weight(layer.weight, bits), requires_grad=False)
    return CausalLM(pack(model))


class QuantizedDrafter(ModelDrafter):
    """Draft γ tokens with a rounded copy of the target, which is another model than the target.

    Args:
        target: a native model.
        bits: bits per weight, 2 … 8.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`.
    """

    def __init__(self, target: CausalLM, bits: int = 8, gamma: int | Length = 4):
        super().__init__(quantize(target, bits), gamma)


# PaSS: trained look-ahead embeddings after the text ---------------------------------------------
# Source: Monea et al. 2023. A look-ahead token has an embedding but no id: it can be fed, but
# neither drafted nor accepted.


class LookaheadRows(nn.Module):
    """Embeddings [L, d] of L look-ahead tokens, the only trained weights."""

    def __init__(self, hidden_size: int, count: int):
        super().__init__()
        self.config = {"hidden_size": hidden_size, "count": count}
        self.rows = nn.Parameter(torch.zeros(count, hidden_size))


class PassDrafter(Pretrained, RoundDrafter):
    """Draft L + 1 tokens in one pass of the target over the last token and L look-ahead tokens.

    The first token is drawn from p itself, so it is always accepted. The tokens do not depend on
    each other. A round takes two passes of the target and emits at least two tokens.

    Args:
        target: a native model; the one that decodes.
        lookahead: embeddings trained for this target.
    """

    makes_passes = True
    folder, build = "pass_rows", LookaheadRows

    def __init__(self, target: CausalLM, lookahead: LookaheadRows):
        self.target = checks.native("target", target)
        rows = lookahead.rows
        check_size("lookahead has rows", rows.shape[1], target)
        self.rows = rows.detach().to(target.device, target.dtype)

    def limits(self) -> Limits:
        return Limits.chain(len(self.rows) + 1)

    @torch.inference_mode()
    def draft(self, context: Context, session: ChainSession) -> Proposal:
        """Draft in a view of the target's cache, which verification overwrites."""
        target, rows = self.target, self.rows
        count = min(len(rows) + 1, context.wanted - 1)
        if count < 1:
            return NOTHING
        last = upload(context.tokens[-1:], target.device)
        fed = torch.cat((target.embed(last), rows[: count - 1]))[None]
        session.passes += 1
        # The embeddings are given, so only the number of ids matters.
        logits = target.score(last.expand(count), context.cache.view(), states=(0, fed)).logits[0]  # pyright: ignore[reportOptionalMemberAccess]
        return draft_rows(context, logits)
