"""Block diffusion (DFlash and its kin): fill a block of masks after the text in one pass.

Shapes: B texts, n tokens, a draft blocks per text, s positions per block, d hidden size.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite import checks
from specdec_lite.checks import is_whole, whole
from specdec_lite.contract import Context
from specdec_lite.drafters.chain import ChainDrafter, common_prefix
from specdec_lite.drafters.eagle import FIXED, shape_for
from specdec_lite.drafters.heads import DraftVocabulary, check_size, output_head
from specdec_lite.drafters.lengths import Length, probability
from specdec_lite.drafters.parallel import Correction, ParallelSession, Selector, check_correction
from specdec_lite.drafters.published import Checkpoint, is_published, read_file, unusual
from specdec_lite.engine.cache import Layer, additive, aligned
from specdec_lite.engine.models import CausalLM, steady_attention
from specdec_lite.engine.native import NativeStorage
from specdec_lite.engine.transformer import (
    Block,
    Norm,
    Transformer,
    TransformerConfig,
    rotate,
    store,
)
from specdec_lite.loading.model_config import config_in
from specdec_lite.loading.weights import Pretrained

# Parts of block heads ---------------------------------------------------------------------------
# What published block heads add to DFlash. Sources: DSpark, Cheng et al. 2026 (the anchor's own
# row, the confidence); DFlash 2, vllm-project/vllm#52816 (convolutions); `speculators` (windows,
# causal layers).


@dataclass(frozen=True, slots=True)
class BlockParts:
    """The parts of a block head that DFlash's first form does not have.

    Attributes:
        windows: per layer, a position attends to positions less than this far away, None: to all;
            empty: no layer has a window.
        causal: per layer, whether a position attends to no later position of its block; empty: no
            layer is causal.
        from_anchor: whether the row of the block's first position, the last token of the text,
            predicts the next token, and each mask the token after its own position.
        taps: positions that each convolution around a sublayer reads; 0: there are none.
        group: channels of a convolution that share what it predicts from its input.
        candidates: k of the selector that replaces the correction; 0: there is none.
        confidence: what predicts the acceptance of a position's token: "" (nothing does), "state",
            or "state and token", the row of the correction for the token before.
        all_tokens: whether the correction has a row for each of the target's tokens although the
            head has a draft vocabulary.
    """

    windows: tuple[int | None, ...] = ()
    causal: tuple[bool, ...] = ()
    from_anchor: bool = False
    taps: int = 0
    group: int = 16
    candidates: int = 0
    confidence: str = ""
    all_tokens: bool = False

    @property
    def stated(self) -> dict:
        """The arguments of the constructor that differ from their defaults."""
        usual = asdict(BlockParts())
        own = {name: value for name, value in asdict(self).items() if value != usual[name]}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in own.items()}

    def hidden(self, layer: int, distance: Tensor) -> Tensor | None:
        """Return which keys a layer does not attend to although they are its text or block.

        Shapes: distance [n, m], position of a query minus position of a key.
        """
        window = self.windows[layer] if self.windows else None
        later = distance < 0 if self.causal and self.causal[layer] else None
        if window is None:
            return later
        far = distance.abs() >= window
        return far if later is None else far | later


class Convolution(nn.Module):
    """A norm, and two convolutions over the positions of a block: before a sublayer and after it.

    A coefficient is a learned number per channel plus a number per group of channels that is
    predicted from the normed input. A position reads itself and `taps` − 1 earlier positions of its
    block. A new convolution changes nothing.
    """

    def __init__(self, size: int, taps: int, group: int, block: int, eps: float):
        super().__init__()
        self.norm = Norm(size, eps)
        self.group = group
        self.block = block
        base = torch.zeros(2, taps, size)
        base[:, 0] = 1
        self.base = nn.Parameter(base)
        self.predict = nn.Linear(size, 2 * taps * (size // group), bias=False)
        nn.init.zeros_(self.predict.weight)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the sublayer's output [B, n, d] between the two convolutions."""
        x = self.norm(x)
        side = (2, self.base.shape[1], -1)
        predicted = self.predict(x).unflatten(-1, side).repeat_interleave(self.group, -1)
        first, second = (self.base + predicted).unbind(-3)
        return self.mix(sublayer(self.mix(x, first)), second)

    def mix(self, x: Tensor, kernel: Tensor) -> Tensor:
        """Return the sum over taps of earlier positions times their coefficients.

        Shapes: x [B, n, d], kernel [B, n, taps, d].
        """
        blocks = x.unflatten(1, (-1, self.block))
        # Before the first position of a block there are zeros, not the block before it.
        shifted = [
            F.pad(blocks, (0, 0, tap, 0))[:, :, : self.block] for tap in range(kernel.shape[2])
        ]
        return (torch.stack(shifted, 3).flatten(1, 2) * kernel).sum(2)


class ConvolvedBlock(Block):
    """A block with a convolution on both sides of each sublayer."""

    def __init__(self, config: TransformerConfig, parts: BlockParts, block: int):
        super().__init__(config)
        size, eps = config.hidden_size, config.norm_eps
        self.around_attention = Convolution(size, parts.taps, parts.group, block, eps)
        self.around_mlp = Convolution(size, parts.taps, parts.group, block, eps)
        # The norms are the convolutions': their coefficients are predicted from normed inputs.
        self.norm1 = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
        self.norm2 = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]

    def attention(self, x: Tensor, *args, **options) -> Tensor:
        attend = super().attention
        return self.around_attention(x, lambda mixed: attend(mixed, *args, **options))

    def mlp(self, x: Tensor) -> Tensor:
        return self.around_mlp(x, super().mlp)


# The layers of block diffusion ------------------------------------------------------------------

Past = Sequence[tuple[Tensor, Tensor]]
FREE = ("num_layers", "qk_norm")
"""Fields that may differ here although they are fixed for the EAGLE family."""


class BlockHead(Transformer):
    """A small transformer over the target's states whose only own embedding is that of the mask.

    A position attends to the text before its block and to its whole block. Embeddings and
    vocabulary projection are the target's.

    Args:
        layers: the target's hidden states that it reads, fused to one row [d] per token.
        size: positions s per block: the last token of the text and s − 1 masks.
        target_vocabulary: the target's V.
        rank: rank of the correction; 0 for no correction.
        words: size of the draft vocabulary; 0 for all tokens.
        parts: fields of `BlockParts`.
        shape: fields of a `TransformerConfig`.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        size: int,
        target_vocabulary: int,
        rank: int = 0,
        words: int = 0,
        parts: Mapping | None = None,
        **shape,
    ):
        fixed = {name: value for name, value in FIXED.items() if name not in FREE}
        super().__init__(TransformerConfig(**shape | fixed | {"vocab_size": 1, "tied": True}))
        width = self.config.hidden_size
        self.layers = tuple(layers)
        self.size = size
        self.head = nn.Identity()
        self.fuse = nn.Linear(len(self.layers) * width, width, bias=False)
        self.inputs = Norm(width, self.config.norm_eps)
        self.words = DraftVocabulary(words) if words else None
        self.parts = BlockParts(**(parts or {}))
        self.own: dict[str, Any] = {"words": words} if words else {}
        self.own |= {"size": size, "target_vocabulary": target_vocabulary, "rank": rank}
        self.own |= {"parts": self.parts.stated} if self.parts.stated else {}
        if self.parts.taps:
            blocks = (ConvolvedBlock(self.config, self.parts, size) for _ in self.blocks)
            self.blocks = nn.ModuleList(blocks)
        self.correction: Correction | None = None
        if rank:
            inputs = target_vocabulary if self.parts.all_tokens else 0
            sizes = words or target_vocabulary, rank, bool(words) and not inputs, inputs
            count = self.parts.candidates
            self.correction = Selector(*sizes, count, width) if count else Correction(*sizes)
        self.confidence: nn.Linear | None = None
        if self.parts.confidence:
            inputs = width + (rank if self.parts.confidence == "state and token" else 0)
            self.confidence = nn.Linear(inputs, 1)
            nn.init.zeros_(self.confidence.bias)

    def extra_repr(self) -> str:
        """Return what the head reads and predicts, for its repr."""
        return f"layers={list(self.layers)}, size={self.size}, most={self.most}"

    @property
    def most(self) -> int:
        """The number of tokens that a block predicts."""
        return self.size if self.parts.from_anchor else self.size - 1

    @classmethod
    def for_target(
        cls,
        target: CausalLM,
        size: int = 8,
        rank: int = 0,
        words: int = 0,
        layers: Sequence[Layer] | None = None,
        parts: Mapping | None = None,
        **shape,
    ) -> "BlockHead":
        """Build an untrained head of two layers for a target, in float32."""
        usual = shape_for(target)
        most = {"num_layers": 2, "max_positions": usual.max_positions + size}
        sizes = asdict(replace(usual, **most | shape))
        layers = cls.default_layers(target.num_layers) if layers is None else layers
        return cls(layers, size, target.vocab_size, rank, words, parts, **sizes)

    @staticmethod
    def default_layers(num_layers: int) -> tuple[Layer, ...]:
        """Return three depths, from the first block to the third last."""
        if num_layers > 5:
            return 1, (num_layers - 2) // 2, num_layers - 3
        return tuple(dict.fromkeys((0, num_layers // 2, "final")))

    @property
    def sizes(self) -> dict:
        """The arguments of the constructor."""
        bound = ({*FIXED} - {*FREE}) | {"vocab_size"}
        shape = {name: value for name, value in asdict(self.config).items() if name not in bound}
        return shape | {"layers": list(self.layers)} | self.own

    def inject(
        self, states: Sequence[Tensor], past: Past, cos: Tensor, sin: Tensor, start: int
    ) -> None:
        """Store keys and values of target states.

        Shapes: cos [n, h], sin [n, h].
        """
        fused = self.fuse(torch.cat(tuple(states), -1))
        text = self.inputs(fused.to(self.inputs.weight.dtype))
        size, heads = self.config.head_size, self.config.num_kv_heads
        for module, stored in zip(self.blocks, past):
            block = cast(Block, module)
            weight = block.qkv.weight[block.heads * size :]
            pairs = F.linear(text, weight).unflatten(-1, (-1, size)).transpose(1, 2)
            k, v = pairs.split_with_sizes((heads, heads), dim=1)
            k = k if block.k_norm is None else block.k_norm(k)
            store(stored, rotate(k, cos, sin), v, start)

    def fill(
        self,
        anchors: Tensor,
        past: Past,
        cos: Tensor,
        sin: Tensor,
        start: int,
        mask: Tensor | None = None,
        distance: Tensor | None = None,
    ) -> Tensor:
        """Return the states [B, a, most, d] that enter the vocabulary projection.

        The mask says which keys are an anchor's text or block, and the distance how far before
        the query they are. Both may be left out for one block after the whole text.

        Shapes: anchors [B, a, d], cos [a·s, h], sin [a·s, h], mask and distance [a·s, start + a·s].
        """
        masks = self.embedding.weight.expand(*anchors.shape[:2], self.size - 1, -1)
        x = torch.cat((anchors[:, :, None].to(masks.dtype), masks), 2).flatten(1, 2)
        for module, stored, bias in zip(self.blocks, past, self.biases(x, start, mask, distance)):
            block = cast(Block, module)
            x = x + block.attention(x, cos, sin, bias, stored, start)
            x = x + block.mlp(x)
        return self.norm(x).unflatten(1, (-1, self.size))[:, :, self.size - self.most :]

    def biases(
        self, x: Tensor, start: int, mask: Tensor | None, distance: Tensor | None
    ) -> list[Tensor]:
        """Return every layer's mask [n, start + n], for attention to text and block."""
        shape = (x.shape[1], start + x.shape[1])
        whole = aligned(shape, x.dtype, x.device).zero_() if mask is None else mask
        if not (self.parts.windows or self.parts.causal):
            return [whole] * len(self.blocks)
        if distance is None:
            keys = torch.arange(shape[1], device=x.device)
            distance = keys[start:, None] - keys
        hidden = [self.parts.hidden(layer, distance) for layer in range(len(self.blocks))]
        if mask is not None:
            return [mask if part is None else mask & ~part for part in hidden]
        return [whole if part is None else additive(~part, x.dtype) for part in hidden]


# DFlash: a block of masks, whose layers all read the target's states ----------------------------
# Source: Chen, Liang and Liu 2026, arXiv 2602.06036; for heads with a correction and a confidence
# (DSpark), Cheng et al. 2026; for heads with a selector, see `BlockParts`.


class BlockSession(ParallelSession):
    """The drafting of one generation.

    Attributes:
        storage: keys and values of the target's states at the tokens `text`, followed by those of
            the last block.
    """

    def __init__(self, drafter: "BlockDiffusionDrafter", context: Context):
        gamma, least = drafter.length.gamma, drafter.least
        super().__init__(Survival(gamma, least, self) if least else gamma)
        self.target, self.head, self.output_head = drafter.target, drafter.head, drafter.output_head
        self.correction, self.words = self.head.correction, self.head.words
        capacity = len(context.tokens) + context.wanted + self.head.size
        self.storage = NativeStorage(self.head, 1, capacity)
        self.text = context.tokens[:0]

    def rows(self, context: Context, count: int) -> Tensor:
        head = self.head
        text = context.tokens[:-1]
        before, known = common_prefix(self.text, text), len(text)
        self.text = text
        self.storage.reserve(known + head.size)
        past = self.storage.tensors.layers
        states = [context.scores.hidden[layer][:, before - known :] for layer in head.layers]  # pyright: ignore[reportOptionalMemberAccess]
        angles = head.rotary(self.target.device, states[0].dtype)
        cos, sin = (table[before:known] for table in angles)
        head.inject(states, past, cos, sin, before)
        block = slice(known, known + head.size)
        anchor = self.target.embed(context.tokens[-1:])[None]
        cos, sin = (table[block] for table in angles)
        with steady_attention(self.target.device):
            filled = head.fill(anchor, past, cos, sin, known)
        self.states = filled[0, 0, :count]
        return self.output_head.head(self.states)


class Survival(Length):
    """Draft the next position while the head predicts that its token is accepted.

    The prediction reads the token before, never the position's own.
    """

    looks = True

    def __init__(self, gamma: int, least: float, session: BlockSession):
        super().__init__(gamma)
        self.least = least
        self.session = session
        self.drafted = 0

    def most(self, context: Context) -> int:
        self.drafted = 0
        return self.gamma

    @torch.inference_mode()
    def go_on(self, row: Tensor, token: int | Tensor) -> bool:
        head, states, correction = self.session.head, self.session.states, self.session.correction
        self.drafted += 1
        if self.drafted >= len(states):
            return False
        inputs = states[self.drafted]
        if head.parts.confidence == "state and token" and correction is not None:
            index = correction.index(torch.as_tensor(token), self.session.words)
            inputs = torch.cat((inputs, correction.before(index)))
        assert head.confidence is not None
        return head.confidence(inputs).sigmoid().item() >= self.least


class BlockDiffusionDrafter(Pretrained, ChainDrafter):
    """Draft by filling the masks after the last token, all in one pass.

    Args:
        target: the model that decodes; its embeddings and vocabulary projection are used.
        head: block head trained on this target.
        gamma: draft length, 1 … block size − 1; None: block size − 1. The whole block is always
            filled, since its positions attend to each other; tokens beyond γ are not used. A head
            that also predicts from the last token of the text drafts up to its block size.
        least: draft a further token only while the head predicts that it is accepted with at least
            this probability; 0: draft γ tokens. Needs a head with a confidence part (DSpark).

    Raises:
        ValueError: if `least` is above 0 and the head has no confidence part.
    """

    folder, build = "block_diffusion", BlockHead

    def __init__(
        self, target: CausalLM, head: BlockHead, gamma: int | None = None, least: float = 0.0
    ):
        self.target = checks.model("target", target)
        self.head = checks.instance("head", head, BlockHead)
        check_size("head reads states", head.config.hidden_size, target)
        self.output_head = output_head(target, head.words)
        if head.correction is not None:
            check_correction(head.correction, self.output_head)
        super().__init__(whole("gamma", head.most if gamma is None else gamma, 1, head.most))
        self.least = probability("least", least)
        if self.least and head.confidence is None:
            raise ValueError(f"least={least}: the head has no part that predicts acceptance")
        self.hidden_layers = head.layers

    @classmethod
    def read(cls, target: CausalLM, path: str | Path | None) -> nn.Module:
        """Return a head of ours or a published one (DFlash, DSpark, DFlash 2)."""
        return read_blocks(str(path), target) if is_published(path) else super().read(target, path)

    def check(self, target: CausalLM, positions: int) -> None:
        super().check(target, positions)
        checks.positions(self.head.config, positions + self.head.size)

    def start(self, context: Context) -> BlockSession:
        return BlockSession(self, context)


# Heads that others have published ----------------------------------------------------------------
# The formats are those of DFlash's authors, `speculators`, SpecForge and DeepSpec. An option that is
# not known here is refused: a head without it would draft from what it was not trained to read.

USUAL = {
    "projector_type": (None, "dflash", "dspark", "dflash2"),
    "markov_head_type": (None, "vanilla"),
    "draft_ffn_type": (None, "dense"),
    "shift_label": (None, False),
    "attention_sink_bias": (None, False),
    "add_swa_attention_sink_bias": (None, False),
    "final_logit_softcapping": (None, 0),
    "output_multiplier": (None, 1),
    "input_embedding_scale": (None, 1),
    "attention_mode": (None, "gqa", "mha"),
    **dict.fromkeys(("attention_modes", "conditioning_source", "moe_preset"), (None,)),
    **dict.fromkeys(("dspine_config", "hspec_config"), (None,)),
    "rope_is_neox_style": (None, True),
    "enable_qwen35_gated_q_proj": (None, False),
}
"""Options of a head, and their values that are known here."""
CORRECTIONS = {
    "markov_head.markov_w1.weight": "correction.before.weight",
    "markov_head.markov_w2.weight": "correction.after.weight",
    "candidate_selector.predecessor_codebook": "correction.before.weight",
    "candidate_selector.successor_codebook": "correction.after.weight",
    "candidate_selector.hidden_projection.weight": "correction.gate.weight",
}
PARTS = CORRECTIONS | {
    "fc.weight": "fuse.weight",
    "norm.weight": "norm.weight",
    "hidden_norm.weight": "inputs.weight",
    "confidence_head.proj.weight": "confidence.weight",
    "confidence_head.proj.bias": "confidence.bias",
}
"""Published names of the parts outside the layers → ours."""
CONVOLUTIONS = {
    f"{theirs}.{part}": f"{ours}.{new}"
    for theirs, ours in (("attention_conv", "around_attention"), ("mlp_conv", "around_mlp"))
    for part, new in (("base_kernel", "base"), ("kernel_projection.weight", "predict.weight"))
} | {
    "input_layernorm.weight": "around_attention.norm.weight",
    "post_attention_layernorm.weight": "around_mlp.norm.weight",
}
"""Published names of a convolved layer's parts → ours; its norms belong to the convolutions."""
MOST_BLOCK = 1024
"""The most tokens of a block."""
FULL, SLIDING = "full_attention", "sliding_attention"


def read_blocks(folder: str | Path, target: CausalLM) -> BlockHead:
    """Return a published block head in the target's dtype, on its device."""
    stored = Checkpoint(folder, target)
    config, tensors = stored.config, stored.tensors
    # DSpark's options may have an object of their own, which comes first, as in SGLang.
    own = (config.get("dflash_config") or {}) | (config.get("dspark_config") or {})
    config["dflash_config"] = own
    options = config | own
    for name, known in USUAL.items():
        value = options.get(name)
        stored.check(value in known, f"{name}={value!r} is an option not known here")
    shape = _shape(stored, options)
    stored.check_size(shape.hidden_size)
    ids = stored.vocabulary("lm_head.weight", "markov_head.markov_w2.weight")
    rows = target.projection if ids is None else target.projection[ids]
    stored.drop_copies(lm_head=rows, embed_tokens=target.backend.embedding.weight)
    mask = _mask(stored, options.get("mask_token_id"))
    words = 0 if ids is None else len(ids)
    parts = _parts(stored, options, shape, words)
    rank = next((tensors[name].shape[-1] for name in CORRECTIONS if name in tensors), 0)
    stored.check_widths(shape)
    name, shift = "target_layer_ids", 1
    if name not in options:
        # The authors count blocks from 0, and name a block's output; ours is "after block b".
        name, shift = "aux_hidden_state_layer_ids", 0
    layers = stored.check_layers(name, options.get(name), shift)
    fields = {name: getattr(shape, name) for name in TransformerConfig.__dataclass_fields__}
    head = BlockHead(
        layers, options["block_size"], target.vocab_size, rank, words, parts.stated, **fields
    )
    names = dict(PARTS)
    for layer in range(shape.num_layers if parts.taps else 0):
        for theirs, ours in CONVOLUTIONS.items():
            names[f"layers.{layer}.{theirs}"] = f"blocks.{layer}.{ours}"
    # The only row of an embedding that the head has of its own is that of the mask.
    further = {"embedding.weight": mask[None]} | ({} if ids is None else {"words.ids": ids})
    return stored.load(head, stored.ours(names, "blocks.{}".format) | further)


def _shape(stored: Checkpoint, options: dict) -> TransformerConfig:
    """Return the sizes of a head's layers; windows are read apart, as they may differ by layer."""
    plain = {"model_type": "qwen3", "tie_word_embeddings": True, "layer_types": None}
    sizes = stored.sizes
    size: Any = options.get("block_size")
    shape = config_in(stored.folder / "config.json", sizes | plain | {"use_sliding_window": False})
    if shape is None or not is_whole(size) or not 2 <= size <= MOST_BLOCK:
        raise ValueError(
            f"{stored.folder}: its config.json is not that of a DFlash head of this kind: the layers"
            f" must be Qwen3's{unusual(sizes)}, and block_size={size!r} a whole number in 2 …"
            f" {MOST_BLOCK}"
        )
    return shape


def _parts(stored: Checkpoint, options: dict, shape: TransformerConfig, words: int) -> BlockParts:
    """Return the parts that a head has beyond DFlash's first form."""
    config, tensors = stored.config, stored.tensors
    windows, causal = _windows(stored, shape.num_layers)
    kinds = [options.get("projector_type"), config.get("speculators_model_type")]
    kinds += [config.get("architectures")]
    is_dspark = any("dspark" in str(kind).lower() for kind in kinds)
    kernel = tensors.get("layers.0.attention_conv.base_kernel")
    group = options.get("conv_group_size", 16) if kernel is not None else 16
    stored.check(
        kernel is None or is_whole(group) and group >= 1 and shape.hidden_size % group == 0,
        f"conv_group_size={group!r}: must divide hidden_size={shape.hidden_size}",
    )
    has_selector = any(name.startswith("candidate_selector.") for name in tensors)
    candidates = options.get("selector_top_k", 16) if has_selector else 0
    is_right = is_whole(candidates) and candidates >= has_selector
    stored.check(is_right, f"selector_top_k={candidates!r}: must be a whole number ≥ 1")
    confidence = tensors.get("confidence_head.proj.weight")
    reads = "" if confidence is None else "state"
    if confidence is not None and confidence.shape[-1] > shape.hidden_size:
        reads = "state and token"
    return BlockParts(
        windows=windows,
        causal=causal,
        from_anchor=bool(options.get("sample_from_anchor", is_dspark)),
        taps=0 if kernel is None else kernel.shape[1],
        group=group,
        candidates=candidates,
        confidence=reads,
        all_tokens=bool(words) and "markov_head.markov_w1.weight" in tensors,
    )


def _windows(stored: Checkpoint, count: int) -> tuple[tuple[int | None, ...], tuple[bool, ...]]:
    """Return the window of every layer, and whether it attends to no later position of its block.

    A query attends to keys less than a window away, as in transformers and vLLM. If a config does
    not state which layers are causal, those of type sliding_attention are, as in vLLM.
    """
    config, sizes = stored.config, stored.sizes
    own = config["dflash_config"]
    types: Any = sizes.get("layer_types") or [FULL] * count
    if not sizes.get("layer_types") and sizes.get("use_sliding_window"):
        first = sizes.get("max_window_layers", 28)
        stored.check(is_whole(first), f"max_window_layers={first!r:.60}: must be a whole number")
        types = [FULL if layer < first else SLIDING for layer in range(count)]
    window = own.get("swa_window_size", sizes.get("sliding_window"))
    stored.check(
        isinstance(types, list)
        and len(types) == count
        and not {*map(str, types)} - {FULL, SLIDING},
        f"layer_types={types}: must be {FULL!r} or {SLIDING!r} for each of {count} layers",
    )
    declared = [kind == SLIDING for kind in types]
    slides = [True] * count if own.get("use_swa") and not any(declared) else declared
    is_right = not any(slides) or window is not None and is_whole(window) and window >= 1
    stored.check(is_right, f"sliding_window={window!r}: must be a whole number ≥ 1")
    says_none = sizes.get("use_sliding_window") is False and not own.get("use_swa")
    stored.check(
        not (any(slides) and says_none), f"use_sliding_window=false contradicts layer_types={types}"
    )
    stated = config.get("is_causal", own.get("causal"))
    if stated is not None:
        causal = [bool(stated)] * count
    else:
        later = "dflash2" in str(config.get("speculators_model_type"))
        causal = declared
        if config.get("sliding_window_non_causal", later):
            causal = [False] * count
    windows = tuple(window if slide else None for slide in slides)
    return windows if any(slides) else (), tuple(causal) if any(causal) else ()


def _mask(stored: Checkpoint, mask_id: Any) -> Tensor:
    """Return the embedding [d] of a position to fill."""
    file = stored.folder / "mask_embedding.pt"
    if file.is_file():
        content = read_file(file)
        mask = content.get("embedding") if isinstance(content, dict) else None
        if not isinstance(mask, Tensor):
            raise ValueError(f"{file}: lacks 'embedding', the state of a position to fill")
        return stored.numbers({file.name: mask})[file.name]
    known = len(stored.target.backend.embedding.weight)
    is_token = mask_id is not None and is_whole(mask_id) and 0 <= mask_id < known
    stored.check(is_token, f"mask_token_id={mask_id}: must be a token of the target")
    return stored.target.embed(torch.tensor(mask_id)).detach().cpu()
