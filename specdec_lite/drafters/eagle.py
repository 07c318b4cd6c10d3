"""EAGLE and multi-token prediction: one block on the target's features drafts a chain or a tree.

A block is fed *pairs*: the state of token t_i and the embedding of token t_{i+1}, at position i. It
predicts t_{i+2}, and its output replaces the state of t_{i+1} when the next pair is drafted.
Shapes: d hidden size, v tokens of the draft's vocabulary, V of the target's.

Source: Li et al. 2024a, 2024b and 2025 (versions 1, 2 and 3); of P-EAGLE, Hui et al. 2026; of MTP,
DeepSeek-AI 2024.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite import checks
from specdec_lite.checks import is_whole, model
from specdec_lite.contract import Context, Drafter, Limits
from specdec_lite.drafters.chain import ChainSession, Followed, draft_chain, draft_rows
from specdec_lite.drafters.heads import DraftVocabulary
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.published import Checkpoint, is_copy, is_published, unusual
from specdec_lite.drafters.trees import (
    ConfidenceTree,
    check_ranks,
    expand_confidence_tree,
    expand_ranked_tree,
)
from specdec_lite.engine.cache import Layer
from specdec_lite.engine.int4 import can_decode, is_int4, let_rows_alone, product, round_layers
from specdec_lite.engine.linear import pack
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Block, Norm, Transformer, TransformerConfig
from specdec_lite.loading.model_config import config_in, read_config
from specdec_lite.loading.weights import Pretrained, find_weights, load
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.transfer import upload
from specdec_lite.tree import TokenTree

# Heads ------------------------------------------------------------------------------------------

FIXED = {"num_layers": 1, "tied": False, "window": None, "qkv_bias": False, "qk_norm": False}
"""Fields of the config that are the same for all heads of the EAGLE family."""
NORMS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
"""Options of an EAGLE-3 head; fc_norm and norm_output make it EAGLE-3.1."""


class FeatureHead(DraftVocabulary):
    """Base class: a block, a linear layer that fuses its inputs, and the draft's vocabulary.

    Embeddings are the target's, and so is the vocabulary projection unless there is a `head`.

    Args:
        layers: the target's hidden states that the head reads.
        vocab_size: size v of the draft's vocabulary, ≤ V; `ids` [v] are these tokens.
        shape: other fields of a `TransformerConfig`.
    """

    def __init__(self, layers: Sequence[Layer], vocab_size: int, **shape):
        super().__init__(vocab_size)
        self.layers = tuple(layers)
        self.shape = TransformerConfig(vocab_size=vocab_size, **shape | FIXED)
        self.size = self.shape.hidden_size
        own = {name: value for name, value in asdict(self.shape).items() if name not in FIXED}
        self.config: dict = {"layers": list(self.layers), **own}
        self.block = Block(self.shape)
        self.norm: nn.Module = nn.Identity()
        self.head: nn.Linear | None = None
        self.fuse = nn.Linear(2 * self.size, self.size, bias=False)

    @classmethod
    def for_target(
        cls,
        target: CausalLM,
        ids: Tensor | None = None,
        layers: Sequence[Layer] | None = None,
        **shape,
    ) -> "FeatureHead":
        """Build an untrained head for a target, in float32."""
        ids = torch.arange(target.vocab_size) if ids is None else ids.cpu().sort().values
        layers = cls.default_layers(target.num_layers) if layers is None else layers
        sizes = asdict(shape_for(target)) | shape
        head = cls(layers, **sizes | {"vocab_size": len(ids)})
        head.ids.copy_(ids)
        return head

    @staticmethod
    def default_layers(num_layers: int) -> tuple[Layer, ...]:
        """Return the hidden states that this class reads by default."""
        return ("final",)

    def extra_repr(self) -> str:
        """Return what the head reads and writes, for its repr."""
        return f"layers={list(self.layers)}, tokens={len(self.ids)}"

    def begin(self, features: Sequence[Tensor]) -> Tensor:
        """Return the state [..., d] of a pair."""
        return features[0]

    def enter(self, embedded: Tensor, state: Tensor) -> Tensor:
        """Return the block's input.

        Shapes: embedded [..., d], state [..., d].
        """
        raise NotImplementedError

    def leave(self, output: Tensor) -> Tensor:
        """Return the state [..., d] of the next drafted pair."""
        return output[..., -self.size :]

    def logits(self, output: Tensor, rows: Tensor) -> Tensor:
        """Return logits [..., v].

        Shapes: rows [v, d].
        """
        return F.linear(self.norm(output), rows)

    def rows(self, target: CausalLM) -> Tensor:
        """Return the rows [v, d] of the vocabulary projection, the head's own or the target's."""
        if self.head is not None:
            return self.head.weight
        weight = target.projection
        # The whole matrix is shared with the target; a reduced vocabulary needs a copy of its rows.
        return weight if len(self.ids) == len(weight) else weight[self.ids]

    @property
    def blocks(self) -> list[Block]:
        """The blocks, in order."""
        return [self.block]

    def body(self, target: CausalLM) -> CausalLM:
        """Return the blocks as a language model, which is fed states, not tokens."""
        width, blocks = self.block.qkv.in_features, self.blocks
        # Built without memory: every weight is replaced by one of the head's or the target's.
        with torch.device("meta"):
            model = Transformer(replace(self.shape, hidden_size=width, num_layers=len(blocks)))
        model.embedding = target.backend.embedding
        model.blocks = nn.ModuleList(blocks)
        model.norm = self.norm  # pyright: ignore[reportAttributeAccessIssue]
        model.head = nn.Linear(*reversed(self.rows(target).shape), bias=False, device="meta")
        model.head.weight = nn.Parameter(self.rows(target), requires_grad=False)
        if is_int4(target.model) and product() is not None:
            round_layers(self.fuse)
            round_layers(model)
            if all(map(can_decode, blocks)):
                let_rows_alone(model)
            return CausalLM(model)
        pack(self.fuse)
        return CausalLM(pack(model))


class Eagle1Head(FeatureHead):
    """EAGLE-1: [e; f] → d, then a block without an input norm, whose output is the next feature.

    Features are the states that enter the vocabulary projection. Source: Li et al. 2024a, section
    3; without the bias, as in vLLM.
    """

    def __init__(self, layers: Sequence[Layer], vocab_size: int, **shape):
        super().__init__(layers, vocab_size, **shape)
        self.block.norm1 = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]

    def enter(self, embedded: Tensor, state: Tensor) -> Tensor:
        return self.fuse(torch.cat((embedded, state), -1))


class Tail(Norm):
    """Normalize the last entries of a vector, as many as there are weights."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[..., -len(self.weight) :])


class Pair(nn.Module):
    """Normalize the two halves of a vector separately."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.embedded: nn.Module = Norm(size, eps)
        self.state: nn.Module = Norm(size, eps)

    def forward(self, x: Tensor) -> Tensor:
        embedded, state = x.chunk(2, -1)
        return torch.cat((self.embedded(embedded), self.state(state)), -1)


class TailBlock(Block):
    """A block on the second half of its input [e; g]; the first half stays as it is."""

    def attention(self, x: Tensor, *args, **options) -> Tensor:
        return pad_left(super().attention(tail(x), *args, **options))

    def mlp(self, x: Tensor) -> Tensor:
        return pad_left(super().mlp(tail(x)))


class WideBlock(TailBlock):
    """A block on [e; g] (2d) whose attention reads both halves, and which changes only g."""

    def __init__(self, config: TransformerConfig):
        super().__init__(config)
        self.norm1 = Pair(config.hidden_size, config.norm_eps)
        self.qkv = nn.Linear(2 * config.hidden_size, self.qkv.out_features, bias=False)

    def attention(self, x: Tensor, *args, **options) -> Tensor:
        return pad_left(Block.attention(self, x, *args, **options))


def tail(x: Tensor) -> Tensor:
    """Return the second half of vectors."""
    return x[..., x.shape[-1] // 2 :]


def pad_left(written: Tensor) -> Tensor:
    """Return [0; written] of [..., d]: the residual sum then leaves the first half as it is."""
    return F.pad(written, (written.shape[-1], 0))


class Eagle3Head(FeatureHead):
    """EAGLE-3: states of three depths fused into g, a wide block on [e; g], and its own head.

    Its output need not match any feature. Source: Li et al. 2025, section 3; depths as in the
    authors' code. EAGLE-3.1 is `fc_norm` with `norm_output`. Without them the states grow from
    depth to depth, and attention drifts to the head's own outputs. Source: arXiv 2605.09992; the
    options are those of `speculators`.

    Args:
        layers, vocab_size, shape: as for `FeatureHead`.
        norm_before_residual: whether the block adds to the normed g instead of g.
        norm_before_fc: whether the states are normed together before they are fused.
        fc_norm: whether each of them is normed by itself.
        norm_output: whether the next pair continues from the normed output.
    """

    def __init__(self, layers: Sequence[Layer], vocab_size: int, **options):
        shape = {name: value for name, value in options.items() if name not in NORMS}
        super().__init__(layers, vocab_size, **shape)
        self.options = {name: bool(options.get(name)) for name in NORMS}
        norm_before_residual, norm_before_fc, fc_norm, _ = self.options.values()
        if norm_before_fc and fc_norm:
            raise ValueError("norm_before_fc and fc_norm: must not both be true")
        self.config |= {name: True for name, is_set in self.options.items() if is_set}
        count, eps = len(self.layers), self.shape.norm_eps
        self.together: nn.Module = Norm(count * self.size, eps) if norm_before_fc else nn.Identity()
        self.each = nn.ModuleList(Norm(self.size, eps) for _ in range(count)) if fc_norm else None
        self.block = WideBlock(self.shape)
        self.before: nn.Module = nn.Identity()
        if norm_before_residual:
            # Normed once before the block, so that the residual adds to the normed state.
            self.before, self.block.norm1.state = self.block.norm1.state, nn.Identity()
        self.fuse = nn.Linear(len(self.layers) * self.size, self.size, bias=False)
        self.norm = Tail(self.size, self.shape.norm_eps)
        self.head = nn.Linear(self.size, vocab_size, bias=False)

    @staticmethod
    def default_layers(num_layers: int) -> tuple[Layer, ...]:
        if num_layers > 6:
            return 2, num_layers // 2, num_layers - 3
        return tuple(dict.fromkeys((0, num_layers // 2, "final")))

    def begin(self, features: Sequence[Tensor]) -> Tensor:
        if self.each is not None:
            features = [norm(state) for norm, state in zip(self.each, features, strict=True)]
        return self.fuse(self.together(torch.cat(tuple(features), -1)))

    def enter(self, embedded: Tensor, state: Tensor) -> Tensor:
        return torch.cat((embedded, self.before(state)), -1)

    def leave(self, output: Tensor) -> Tensor:
        return self.norm(output) if self.options["norm_output"] else super().leave(output)


class MtpHead(FeatureHead):
    """Multi-token prediction: both inputs normed, a full block, and a norm before the projection.

    The state comes first in the input, and the normed output is the next state. Source:
    DeepSeek-AI 2024, section 2.2, equations 21–23.
    """

    def __init__(self, layers: Sequence[Layer], vocab_size: int, **shape):
        super().__init__(layers, vocab_size, **shape)
        self.inputs = Pair(self.size, self.shape.norm_eps)
        self.norm = Norm(self.size, self.shape.norm_eps)

    def enter(self, embedded: Tensor, state: Tensor) -> Tensor:
        embedded, state = self.inputs(torch.cat((embedded, state), -1)).chunk(2, -1)
        return self.fuse(torch.cat((state, embedded), -1))

    def leave(self, output: Tensor) -> Tensor:
        return self.norm(output)


def shape_for(target: CausalLM) -> TransformerConfig:
    """Return the sizes of the target's blocks; for a Hugging Face model, typical sizes."""
    if model("target", target).native:
        return replace(target.model.config, **FIXED)
    size = target.hidden_size
    heads = max(1, size // 64)
    return TransformerConfig(
        vocab_size=target.vocab_size,
        hidden_size=size,
        intermediate_size=3 * size,
        num_layers=1,
        num_heads=heads,
        num_kv_heads=heads,
        head_size=size // heads,
        max_positions=min(target.max_positions, 8192),
    )


# P-EAGLE ----------------------------------------------------------------------------------------
# Source: Hui et al. 2026, arXiv 2602.01469; formats of `speculators`, SpecForge and vLLM.


class ParallelEagleHead(Eagle3Head):
    """EAGLE-3 with more blocks, and with a pair of its own for tokens that are not drafted yet.

    A mask pairs a learned state, which stands for the target's states and is fused like them, with
    the embedding of the mask's token.

    Args:
        depth: number of blocks.
        mask_id: the mask's token.
        embeddings: rows of the head's own embedding; 0: it reads the target's.
        layers, vocab_size, options: as for `Eagle3Head`.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        vocab_size: int,
        depth: int = 1,
        mask_id: int = 0,
        embeddings: int = 0,
        **options,
    ):
        super().__init__(layers, vocab_size, **options)
        self.mask_id = mask_id
        self.config |= {"depth": depth, "mask_id": mask_id, "embeddings": embeddings}
        self.more = nn.ModuleList(TailBlock(self.shape) for _ in range(depth - 1))
        self.mask = nn.Parameter(torch.zeros(len(self.layers) * self.size))
        self.embedding = nn.Embedding(embeddings, self.size) if embeddings else None

    @property
    def blocks(self) -> list[Block]:
        return [self.block, *cast(Iterable[Block], self.more)]

    def mask_state(self) -> Tensor:
        """Return the state [d] of a mask, fused and normed as the target's states are."""
        return self.begin(self.mask.split(self.size))

    def embed(self, tokens: Tensor, target: CausalLM) -> Tensor:
        """Return the embeddings [n, d] of tokens, the head's own or the target's."""
        return target.embed(tokens) if self.embedding is None else self.embedding(tokens)


# The session that EAGLE and multi-token prediction share ----------------------------------------


class FedTree(TokenTree):
    """The nodes that were fed in a round, whose parents stay on the device.

    A pass needs only their depths and their attention mask, whose last rows are `newest`'s.
    """

    mask: Tensor = None  # pyright: ignore
    is_chain: bool = False  # pyright: ignore

    def __init__(self, mask: Tensor, depths: list[int], newest: Tensor):
        self.mask, self._depths, self.newest = mask, depths, newest

    def __len__(self) -> int:
        return len(self._depths)

    def extended(self, above: Tensor) -> "FedTree":
        """Return the tree with a further level."""
        # A new node sees what its parent sees, and itself. Parents are always in the newest level.
        count = len(above)
        alone = torch.eye(count, dtype=torch.bool, device=above.device)
        rows = torch.cat((self.newest[above], alone), 1)
        mask = torch.cat((F.pad(self.mask, (0, count)), rows))
        return FedTree(mask, self._depths + [self.levels] * count, rows)


class FeatureSession(ChainSession):
    """Draft a chain or a tree, starting from the target's newest hidden state.

    Entry i of the cache pairs the state of token i with token i + 1, so the cache follows the text
    from its second token on. Its entries were made with the target's own states; those added while
    drafting were made with drafted states, and are made again even for accepted tokens.

    Attributes:
        states: states [n, d] of the tokens fed last, from which the next pairs are made.
        fed: the nodes fed in this round.
    """

    fed: FedTree

    def __init__(self, drafter: "EagleDrafter", context: Context):
        draft = self.draft = drafter.draft
        super().__init__(draft if isinstance(draft, Length) else 1)
        self.target, self.head, self.body = drafter.target, drafter.head, drafter.body
        self.cache = self.body.new_cache(capacity=len(context.tokens) + context.wanted + 64)
        self.followed = Followed(self.cache)
        self.states = torch.empty(0)
        chooses = isinstance(draft, ConfidenceTree) or context.sampling.greedy
        # Chosen tokens need no rows over the target's vocabulary.
        self.ids = self.head.ids if chooses else None

    def _score(
        self, tokens: Tensor, states: Tensor, tree: TokenTree | None = None, cached: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Feed pairs of a token and the state before it.

        Shapes: states [n, d].
        """
        # The pair replaces the embedding: the block starts "after block 0" with these rows.
        rows = self.head.enter(self.target.embed(tokens), states)[None]
        self.passes += 1
        scores = self.body.score(
            tokens, self.cache, tree, (1,), tree is None, cached=cached, states=(0, rows)
        )
        logits = scores.logits[0]
        if self.ids is None:
            logits = self.head.spread(logits, self.target.vocab_size)
        return logits, self.head.leave(scores.hidden[1][0])

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        # After a prompt of one token no token has been scored yet, so there is no state to read.
        if context.scores is None:
            return NOTHING
        newest = upload(self.followed.behind(context.tokens[1:]), self.target.device)
        hidden = context.scores.hidden
        features = [hidden[layer][0, -len(newest) :] for layer in self.head.layers]
        return self._draft(context, newest, self.head.begin(features))

    def _draft(self, context: Context, newest: Tensor, states: Tensor) -> Proposal:
        """Draft after the pairs that the cache lacks.

        Shapes: newest [n], states [n, d] before these tokens.
        """
        first, states = self._score(newest, states)
        self.states = states[-1:]
        none = torch.empty(0, 0, dtype=torch.bool, device=states.device)
        self.fed = FedTree(none, [], none.new_empty(1, 0))

        def follow(token: Tensor | None) -> Tensor:
            if token is None:
                return first[0]
            logits, self.states = self._score(token, self.states)
            return logits[0]

        if isinstance(self.draft, ConfidenceTree):
            return expand_confidence_tree(context, first, self._score_level, self.draft, self.ids)
        if isinstance(self.draft, TokenTree):
            return expand_ranked_tree(context, first, self._score_level, self.draft, self.ids)
        return draft_chain(context, follow, self.length, self.ids)

    def _score_level(self, tokens: Tensor, above: Tensor) -> Tensor:
        """Feed new nodes [n] and return the logits [n, V] after them; see `ScoreLevel`."""
        cached = len(self.fed)
        self.fed = self.fed.extended(above)
        logits, self.states = self._score(tokens, self.states[above], self.fed, cached)
        return logits


class ParallelEagleSession(FeatureSession):
    """Draft a chain in one pass over the pairs of new tokens and the masks after them."""

    head: ParallelEagleHead

    def _draft(self, context: Context, newest: Tensor, states: Tensor) -> Proposal:
        count = max(1, min(self.length.most(context), context.wanted - 1))
        head = self.head
        masks = newest.new_full((count - 1,), head.mask_id)
        tokens = torch.cat((newest, masks))
        states = torch.cat((states, head.mask_state().expand(count - 1, -1)))
        pairs = head.enter(head.embed(tokens, self.target), states)[None]
        self.passes += 1
        scores = self.body.score(
            tokens, self.cache, None, ("final",), states=(0, pairs), logits=False
        )
        rows = self.body.head(scores.hidden["final"][0, -count:])
        if self.ids is None:
            rows = head.spread(rows, self.target.vocab_size)
        return draft_rows(context, rows, self.length, self.ids)


# EAGLE ------------------------------------------------------------------------------------------

Draft = int | Length | TokenTree | ConfidenceTree


class EagleDrafter(Drafter):
    """Draft with a block that continues from the target's features and the sampled token.

    Above temperature 0, the tokens of chains and of trees of ranks are drawn. Those of a
    `ConfidenceTree` are chosen.

    Args:
        target: the model that decodes; its embeddings are read.
        head: head trained on this target.
        draft: γ or a policy for it: a chain; a `TokenTree` of ranks: a tree of this shape in every
            round; a `ConfidenceTree`: a tree that follows the draft's confidence. A P-EAGLE head
            drafts chains only, each in one pass.
    """

    def __init__(self, target: CausalLM, head: FeatureHead, draft: Draft = 4):
        self.target = checks.model("target", target)
        self.head = checks.instance("head", head, FeatureHead)
        # A head of another target may fit by its sizes alone: the file's fingerprint tells them apart.
        if head.size != target.hidden_size or int(head.ids[-1]) >= target.vocab_size:
            raise ValueError(
                f"head is for states of size {head.size} and tokens up to {int(head.ids[-1])}: the"
                f" target's are {target.hidden_size} and {target.vocab_size - 1}"
            )
        if isinstance(draft, TokenTree):
            check_ranks(draft, draft.levels, len(head.ids))
        is_tree = isinstance(draft, (TokenTree, ConfidenceTree))
        if is_tree and isinstance(head, ParallelEagleHead):
            raise ValueError(
                f"draft={draft!r}: a P-EAGLE head drafts a chain in one pass: give γ, a whole number"
            )
        self.draft = draft if is_tree else Length.of(draft)
        self.hidden_layers = head.layers
        self.body = head.body(target)

    @classmethod
    def from_pretrained(
        cls,
        target: CausalLM,
        version: int = 1,
        path: str | Path | None = None,
        draft: Draft | None = None,
    ) -> "EagleDrafter":
        """Load a trained head.

        Args:
            target: the model that decodes.
            version: 1 (a chain), 2 (the same head, a `ConfidenceTree`) or 3 (P-EAGLE as well).
            path: file or folder of the head, ours or one as its authors or `speculators` publish
                it; None for the one shipped for this target.
            draft: as for the class; None for the version's default.
        """
        checks.whole("version", version, 1, 3)
        name, build = ("eagle3", stored_eagle3) if version == 3 else ("eagle1", Eagle1Head)
        if is_published(path):
            head = read_eagle(str(path), target, version)
        else:
            head = load(find_weights(name, target, path), target, build)
        is_chain = version == 1 or isinstance(head, ParallelEagleHead)
        default = 4 if is_chain else ConfidenceTree()
        return cls(target, head, default if draft is None else draft)

    def start(self, context: Context) -> FeatureSession:
        is_parallel = isinstance(self.head, ParallelEagleHead)
        session = ParallelEagleSession if is_parallel else FeatureSession
        return session(self, context)

    def check(self, target: CausalLM, positions: int) -> None:
        super().check(target, positions)
        checks.positions(self.body, positions)

    def limits(self) -> Limits:
        if isinstance(self.draft, ConfidenceTree):
            return Limits(self.draft.levels, self.draft.nodes)
        if isinstance(self.draft, TokenTree):
            return Limits(self.draft.levels, len(self.draft))
        return Limits.chain(self.draft.gamma)

    def draft_model(self) -> CausalLM:
        return self.body


def stored_eagle3(**config) -> Eagle3Head:
    """Build an untrained EAGLE-3 head, or a P-EAGLE head if the config states its mask."""
    return ParallelEagleHead(**config) if "mask_id" in config else Eagle3Head(**config)


# Multi-token prediction -------------------------------------------------------------------------
# A block trained on the text itself drafts, fed with its own output. Source: DeepSeek-AI 2024
# (DeepSeek-V3), section 2.2. Their one module drafts one token; engines apply it repeatedly.


class MtpDrafter(Pretrained, EagleDrafter):
    """Draft as EAGLE does, with a block that norms both inputs and its output.

    In DeepSeek-V3 the block is trained together with the target and is a part of the model. The
    shipped block was trained later, on a frozen target.

    Args:
        target: the model that decodes.
        head: block trained on this target.
        draft: as for `EagleDrafter`.
    """

    folder, build = "mtp", MtpHead

    @classmethod
    def read(cls, target: CausalLM, path: str | Path | None) -> nn.Module:
        """Return a block of ours."""
        if is_published(path):
            kind = read_config(Path(path or "")).get("architectures")
            raise ValueError(f"{path}: {kind}: published MTP heads are not read, only own blocks")
        return super().read(target, path)


# Heads that others have published: their formats are those that engines serve ----------------------

MASKS = ("mask_token_id", "pard_token", "ptd_token_id")
"""Entries that name the mask's token of a P-EAGLE head, in the order in which they are read."""


def read_eagle(folder: str | Path, target: CausalLM, version: int) -> FeatureHead:
    """Return a published EAGLE head in the target's dtype, on its device."""
    stored = Checkpoint(folder, target)
    usual = "eagle3" if "norm.weight" in stored.tensors else "eagle"
    kind = str(stored.config.get("speculators_model_type", usual))
    kinds = ("eagle3", "peagle") if version == 3 else ("eagle",)
    stored.check(kind in kinds, f"holds a head of type {kind}, version={version} was asked for")
    return _read_eagle3(stored) if version == 3 else _read_eagle1(stored)


def _shape(stored: Checkpoint, is_deep: bool) -> TransformerConfig:
    """Return the sizes of a head's blocks, after checking that they fit the target."""
    sizes = {"vocab_size": stored.target.vocab_size} | stored.sizes
    types, slides = sizes.get("layer_types"), sizes.get("use_sliding_window")
    kinds = {*map(str, types)} if isinstance(types, list) else set()
    stored.check(
        not kinds - {"full_attention"} and not slides,
        f"layer_types={types}, use_sliding_window={slides}: an EAGLE head with a window is not known"
        " here",
    )
    shape = config_in(stored.folder / "config.json", sizes | {"model_type": "llama"})
    if shape is None:
        raise ValueError(
            f"{stored.folder}: its config.json states a layer that is not a plain"
            f" Llama's{unusual(sizes)}"
        )
    # Some authors copy the target's entries, its number of layers among them, for their one layer.
    is_one = is_deep or shape.num_layers in (1, stored.target.num_layers)
    stored.check(is_one, f"has {shape.num_layers} layers: must have one")
    stored.check_size(stored.config.get("target_hidden_size") or shape.hidden_size)
    return shape


def _read_eagle1(stored: Checkpoint) -> FeatureHead:
    """Return an EAGLE-1 head; `speculators` calls its layer "transformer"."""
    target, shape = stored.target, _shape(stored, is_deep=False)
    has_norms = stored.config.get("layernorms")
    stored.check(not has_norms, "layernorms=true adds norms that are not known here")
    stored.tensors = {
        name.replace("transformer.", "layers.0.", 1).replace("fusion_fc.", "fc.", 1): weight
        for name, weight in stored.tensors.items()
    }
    own = target.backend.embedding.weight
    stored.drop_copies(lm_head=target.projection, embed_tokens=own)
    stored.check_widths(replace(shape, num_layers=1))
    head = Eagle1Head.for_target(target, **_fields(shape))
    # Published heads have a bias or none; those that are trained here have none.
    if "fc.bias" in stored.tensors:
        head.fuse = nn.Linear(2 * head.size, head.size)
    names = {"fc.weight": "fuse.weight", "fc.bias": "fuse.bias"}
    return stored.load(head, stored.ours(names, lambda layer: "block") | {"ids": head.ids})


def _read_eagle3(stored: Checkpoint) -> FeatureHead:
    """Return an EAGLE-3 or P-EAGLE head; its layer is called "midlayer" or "layers.0"."""
    config, target = stored.config, stored.target
    is_parallel = config.get("speculators_model_type") == "peagle" or bool(
        config.get("parallel_drafting") or "mask_hidden" in stored.tensors
    )
    shape, nested = _shape(stored, is_parallel), config.get("eagle_config") or {}
    reads = (config.get("use_aux_hidden_state"), nested.get("use_aux_hidden_state"))
    stored.check(False not in reads, "use_aux_hidden_state=false: such a head is not known here")
    stored.tensors = tensors = {
        name.replace("midlayer.", "layers.0.", 1): w for name, w in stored.tensors.items()
    }
    own = target.backend.embedding.weight
    kind, parallel = Eagle3Head, {}
    if is_parallel:
        kind, parallel = ParallelEagleHead, _parallel_parts(stored, shape, own)
    if not parallel.get("embeddings"):
        stored.drop_copies(embed_tokens=own)
    rows, ids = tensors.get("lm_head.weight"), stored.vocabulary("lm_head.weight")
    if rows is not None and ids is not None:
        message = f"d2t has {len(ids)} entries, lm_head.weight has {len(rows)} rows"
        stored.check(len(rows) == len(ids), message)
    if rows is None:  # a head without its own matrix reads the target's
        weight = target.projection.cpu()
        tensors["lm_head.weight"] = weight if ids is None else weight[ids]
    options = {name: bool(config.get(name) or nested.get(name)) for name in NORMS}
    before = options["norm_before_residual"]
    layers = _depths(stored, nested)
    stored.check_widths(replace(shape, num_layers=1))
    head = kind.for_target(target, ids, layers, **options, **parallel, **_fields(shape))
    if "mask_hidden" in tensors:
        tensors["mask_hidden"] = tensors["mask_hidden"].flatten()
    names = {f"fc_norm.{i}.weight": f"each.{i}.weight" for i in range(len(head.layers))} | {
        "input_norm.weight": "together.weight",
        "fc.weight": "fuse.weight",
        "norm.weight": "norm.weight",
        "lm_head.weight": "head.weight",
        "layers.0.input_layernorm.weight": "block.norm1.embedded.weight",
        "layers.0.hidden_norm.weight": "before.weight" if before else "block.norm1.state.weight",
        "mask_hidden": "mask",
        "embed_tokens.weight": "embedding.weight",
    }
    block = lambda layer: f"more.{layer - 1}" if layer else "block"
    return stored.load(head, stored.ours(names, block) | {"ids": head.ids})


def _parallel_parts(stored: Checkpoint, shape: TransformerConfig, own: Tensor) -> dict:
    """Return the arguments of a P-EAGLE head, whose embedding may be trained further."""
    named = (stored.config[name] for name in MASKS if stored.config.get(name) is not None)
    mask: Any = next(named, None)
    is_token = is_whole(mask) and 0 <= mask < len(own)
    stored.check(is_token, f"mask_token_id={mask!r}: must be a token of the target")
    has_state = "mask_hidden" in stored.tensors
    stored.check(has_state, "lacks mask_hidden, the state of a mask (P-EAGLE)")
    embedding = stored.tensors.get("embed_tokens.weight")
    is_same = embedding is None or is_copy(embedding, own)
    stored.check_widths(shape)
    return {"depth": shape.num_layers, "mask_id": mask, "embeddings": 0 if is_same else len(own)}


def _depths(stored: Checkpoint, nested: dict) -> list[Layer] | None:
    """Return the target's layers that an EAGLE-3 head reads; None for the usual three.

    Ids are inputs of blocks, as in vLLM and `speculators`. SGLang, SpecForge and ModelOpt count the
    outputs from 0; a first id of 1 marks their files, and SGLang adds one then, as here.
    """
    name = "eagle_aux_hidden_state_layer_ids"
    ids = stored.config.get(name)
    ids = nested.get(name) if ids is None else ids
    if ids is None:
        return None
    counts_outputs = isinstance(ids, list) and ids[:1] == [1]
    is_shifted = counts_outputs and "speculators_model_type" not in stored.config
    return stored.check_layers(name, ids, int(is_shifted))


def _fields(shape: TransformerConfig) -> dict:
    """Return the sizes of a block as keyword arguments."""
    left_out = ("vocab_size", "num_layers", "tied", "window", "qkv_bias", "qk_norm")
    names = TransformerConfig.__dataclass_fields__
    return {name: getattr(shape, name) for name in names if name not in left_out}
