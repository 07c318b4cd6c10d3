"""Heads on the target's last hidden state: as modules, and the drafters that use them.

Shapes: d hidden size, K heads, e width of a head's hidden layer, V
tokens of the target's vocabulary, v of the draft's.
"""

import json
import math
from collections.abc import Callable, Generator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite import checks
from specdec_lite.checks import instance, is_whole, model, same_device, whole
from specdec_lite.contract import Context, Drafter, Limits
from specdec_lite.drafters.chain import (
    ChainDrafter,
    ChainSession,
    RoundDrafter,
    draft_chain,
    draft_rows,
)
from specdec_lite.drafters.lengths import Length
from specdec_lite.drafters.published import Checkpoint, is_published
from specdec_lite.drafters.trees import check_ranks
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import SHIPPED, Pretrained, find_weights, load
from specdec_lite.proposal import NOTHING, Proposal
from specdec_lite.transfer import upload
from specdec_lite.tree import TokenTree

# A draft's vocabulary ---------------------------------------------------------------------------
# A draft that is limited to a part of the target's vocabulary has a cheaper projection. In stored
# heads this vocabulary is called `words`.


class DraftVocabulary(nn.Module):
    """The tokens `ids` [v] that a draft may propose, in ascending order; at first the target's first v."""

    ids: Tensor

    def __init__(self, count: int):
        super().__init__()
        self.register_buffer("ids", torch.arange(count))

    def spread(self, logits: Tensor, vocab_size: int) -> Tensor:
        """Return logits over the target's vocabulary, −∞ for tokens that the draft lacks.

        This happens before any temperature.

        Shapes: logits [..., v].
        """
        if logits.shape[-1] == vocab_size:
            return logits
        wide = logits.new_full((*logits.shape[:-1], vocab_size), float("-inf"))
        return wide.index_copy_(-1, self.ids, logits)

    def number(self, tokens: Tensor) -> Tensor:
        """Return the draft-vocabulary index of each token; v if the token is absent."""
        last = len(self.ids) - 1
        index = torch.searchsorted(self.ids, tokens).clamp(max=last)
        return index.masked_fill(self.ids[index] != tokens, last + 1)


class OutputHead:
    """A target's embeddings, and the rows of its vocabulary projection of a draft vocabulary."""

    def __init__(self, target: CausalLM, vocabulary: DraftVocabulary):
        self.embed = target.embed
        ids = vocabulary.ids.to(target.device)
        self.rows = target.projection[ids]
        self.vocab_size = len(ids)

    def head(self, hidden: Tensor) -> Tensor:
        """Return logits [..., v] of hidden states."""
        return F.linear(hidden, self.rows)


def output_head(target: CausalLM, vocabulary: DraftVocabulary | None) -> CausalLM | OutputHead:
    """Return what turns a draft's states into logits; the target itself for its full vocabulary."""
    return target if vocabulary is None else OutputHead(target, vocabulary)


# Modules ----------------------------------------------------------------------------------------


class Heads(nn.Module):
    """K residual blocks on the hidden state "final", read by the target's vocabulary projection.

    Head i of 0 … K−1, at the row of token t_j, predicts t_{j+i+2}: the first head predicts one
    token further than the target's own head, and each later head one further still. A new head
    adds nothing, so it starts as a copy of the target's own head. Source: Stern et al. 2018,
    section 6 (there one layer of K·e units, which includes the target's own head).

    Args:
        hidden_size: the target's d.
        count: number of heads K.
        width: width e of the hidden layers; None: d.
    """

    def __init__(self, hidden_size: int, count: int, width: int | None = None):
        super().__init__()
        self.words: DraftVocabulary | None = None
        self.hidden_size, self.count, width = hidden_size, count, width or hidden_size
        self.config = {"hidden_size": hidden_size, "count": count, "width": width}
        self.up = nn.Parameter(torch.randn(count, hidden_size, width) * hidden_size**-0.5)
        self.down = nn.Parameter(torch.zeros(count, width, hidden_size))

    def forward(self, hidden: Tensor, which: slice = slice(None)) -> Tensor:
        """Return the states [..., K, d] of the heads."""
        inner = F.silu(torch.einsum("...d,kde->...ke", hidden, self.up[which]))
        return hidden[..., None, :] + torch.einsum("...ke,ked->...kd", inner, self.down[which])

    def logits(self, hidden: Tensor, which: slice, project: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the logits [..., K, V] of the heads."""
        return project(self(hidden, which))


class ReducedHeads(Heads):
    """Heads with one matrix each, x + SiLU(W x), and a draft vocabulary, as engines serve Medusa.

    New heads are copies of the target's own head. Source: Cai et al. 2024, section 2.1.1 (there
    with a vocabulary projection for each head).
    """

    words: DraftVocabulary

    def __init__(self, hidden_size: int, count: int, words: int):
        nn.Module.__init__(self)
        self.hidden_size, self.count = hidden_size, count
        self.config = {"hidden_size": hidden_size, "count": count, "words": words}
        self.up = nn.Parameter(torch.zeros(count, hidden_size, hidden_size))
        self.words = DraftVocabulary(words)

    def forward(self, hidden: Tensor, which: slice = slice(None)) -> Tensor:
        added = F.silu(torch.einsum("...d,kde->...ke", hidden, self.up[which]))
        return hidden[..., None, :] + added


class FullHeads(Heads):
    """Heads as Medusa's authors publish them: x + SiLU(W x + b), and a projection for each head.

    Source: Cai et al. 2024, section 2.1.1.
    """

    def __init__(self, hidden_size: int, count: int, vocab_size: int):
        nn.Module.__init__(self)
        self.words = None
        self.hidden_size, self.count = hidden_size, count
        self.config = {"hidden_size": hidden_size, "count": count, "vocab_size": vocab_size}
        self.up = nn.Parameter(torch.zeros(count, hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(count, hidden_size))
        self.rows = nn.Parameter(torch.zeros(count, vocab_size, hidden_size))

    def forward(self, hidden: Tensor, which: slice = slice(None)) -> Tensor:
        inner = torch.einsum("...d,kde->...ke", hidden, self.up[which]) + self.bias[which]
        return hidden[..., None, :] + F.silu(inner)

    def logits(self, hidden: Tensor, which: slice, project: Callable[[Tensor], Tensor]) -> Tensor:
        return torch.einsum("...kd,kvd->...kv", self(hidden, which), self.rows[which])


def stored_heads(**config) -> Heads:
    """Build untrained heads of the class that a stored config belongs to."""
    if "vocab_size" in config:
        return FullHeads(**config)
    return ReducedHeads(**config) if "words" in config else Heads(**config)


class ExitHead(Heads):
    """One residual block for an early exit: it corrects the normed exit state before the head."""

    def __init__(self, hidden_size: int, layers: int, width: int | None = None):
        super().__init__(hidden_size, 1, width)
        self.layers = layers
        self.config = {"hidden_size": hidden_size, "layers": layers, "width": self.up.shape[2]}

    def forward(self, hidden: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the corrected states [..., d]."""
        return super().forward(hidden)[..., 0, :]


class HydraHeads(nn.Module):
    """Heads that also read the tokens drafted before: R·x + SiLU(A·x).

    For head i of 0 … K−1, x = [f; e(t); e(x_1) … e(x_i)]: the target's last state f and the
    embeddings of the last token t and of the drafted tokens. The target's vocabulary projection
    reads the result. New heads return f. Source: Ankner et al. 2024 (there with a projection for
    each head).
    """

    def __init__(self, hidden_size: int, count: int):
        super().__init__()
        self.config = {"hidden_size": hidden_size, "count": count}
        widths = [(i + 2) * hidden_size for i in range(count)]
        self.direct = nn.ModuleList(nn.Linear(width, hidden_size, bias=False) for width in widths)
        self.bent = nn.ModuleList(nn.Linear(width, hidden_size, bias=False) for width in widths)
        for direct, bent in zip(self.direct, self.bent):
            nn.init.eye_(direct.get_parameter("weight"))
            nn.init.zeros_(bent.get_parameter("weight"))

    def forward(self, index: int, state: Tensor, embedded: Tensor) -> Tensor:
        """Return the state [..., d] of one head.

        Shapes: embedded [..., index + 1, d].
        """
        x = torch.cat((state, embedded.flatten(-2)), -1)
        return self.direct[index](x) + F.silu(self.bent[index](x))


def check_heads(heads: Heads, target: CausalLM) -> None:
    """Check that heads can read a target's hidden states."""
    model("target", target)
    allowed = "specdec_lite.drafters.heads.Heads, or use the drafter's from_pretrained"
    instance("heads", heads, Heads, allowed)
    check_size("heads read hidden states", heads.hidden_size, target)
    if (heads.up.device, heads.up.dtype) != (target.device, target.dtype):
        raise ValueError(
            f"heads are {heads.up.dtype} on {heads.up.device}, the target is {target.dtype} on"
            f" {target.device}: move them with heads.to(target.device, target.dtype)"
        )


def check_size(reader: str, size: int, target: CausalLM) -> None:
    """Raise ValueError if the target's hidden states do not have the expected size."""
    if size != target.hidden_size:
        raise ValueError(f"{reader} of size {size}, the target's have size {target.hidden_size}")


class OnHeads(Drafter):
    """A drafter with heads, which draft for any target of the size of their own."""

    target: CausalLM

    def check(self, target: CausalLM, positions: int) -> None:
        same_device("drafter", self.target, target)
        if self.target.hidden_size != target.hidden_size:
            raise ValueError(
                f"drafter's heads belong to a target of hidden size {self.target.hidden_size},"
                f" target has {target.hidden_size}: give the target they were trained on"
            )


# The network of the MLP speculator --------------------------------------------------------------
# Scales and weight tying are those of the authors' code: one E, one norm and one H for all
# depths. Source: Wertheimer et al. 2024, arXiv 2404.19124.


class MlpSpeculator(nn.Module):
    """state ← GELU(norm(P·state + weight · E[token])), read by one projection H at every depth.

    Args:
        hidden_size: size d of the target's states.
        vocab_size: size V of its own embeddings E and projection H.
        width: size w of its state.
        depth: number of drafted tokens it is made for; determines `weight`.
    """

    def __init__(self, hidden_size: int, vocab_size: int, width: int, depth: int):
        super().__init__()
        self.config = dict(hidden_size=hidden_size, vocab_size=vocab_size, width=width, depth=depth)
        self.first = nn.Linear(hidden_size, width, bias=False)
        self.again = nn.Linear(width, width, bias=False)
        self.embedding = nn.Embedding(vocab_size, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size, bias=False)
        share = 0.5 ** (0.5 / depth)
        self.weight = math.sqrt((1 - share**2) * width / 2) / share

    def begin(self, hidden: Tensor) -> Tensor:
        """Return the first state [..., w]."""
        return self.first(F.layer_norm(hidden, hidden.shape[-1:]) / math.sqrt(2))

    def forward(self, state: Tensor, tokens: Tensor) -> Tensor:
        """Return the next state [..., w], which `head` reads."""
        return F.gelu(self.norm(state + self.weight * self.embedding(tokens)))


# Blockwise parallel decoding --------------------------------------------------------------------
# Source: Stern et al. 2018.


class BlockwiseDrafter(OnHeads, Pretrained, RoundDrafter):
    """Predict a block of k tokens in one pass: one with the target's own head, k − 1 with extra heads.

    The tokens of a block do not depend on each other: q of each is the distribution of one head.

    Args:
        target: the model that decodes; its vocabulary projection is shared.
        heads: at least k − 1 heads trained on it.
        k: block size ≥ 1; 1 is plain decoding.
    """

    folder, build = "blockwise", Heads

    def __init__(self, target: CausalLM, heads: Heads, k: int = 4):
        check_heads(heads, target)
        whole("k", k, 1, heads.count + 1, f" (1 + the {heads.count} extra heads)")
        self.target = target
        self.heads = heads
        self.k = k
        self.hidden_layers = ("final",) if k > 1 else ()

    def limits(self) -> Limits:
        return Limits.chain(self.k - 1)

    @torch.inference_mode()
    def draft(self, context: Context, session: ChainSession) -> Proposal:
        count = min(self.k, context.wanted) - 1
        if count < 1 or context.scores is None:
            return NOTHING
        # The last committed token t_{n−1} has not been fed, so the last row of `context.scores`
        # belongs to t_{n−2}. There head i predicts t_{n+i}, the drafted token at depth i.
        states = context.scores.hidden["final"][0, -1]
        logits = self.target.head(self.heads(states, slice(count)))
        session.passes += 1
        return draft_rows(context, logits)


# Medusa: a tree of the heads' guesses, verified in one pass --------------------------------------
# Source: Cai et al. 2024, arXiv 2401.10774. The newest state is that of position m − 2, at which the
# target predicted the last committed token, m − 1. Extra head k = 1 … K predicts token m − 1 + k.

MEDUSA = SHIPPED / "medusa" / "pair"
"""Folder of the Medusa heads of the shipped pair."""


def load_report(folder: str | Path = MEDUSA) -> dict:
    """Return the measurements of the heads in a folder."""
    path = Path(folder) / "report.json"
    if not path.is_file():
        raise ValueError(
            f"folder={str(folder)!r}: must be a folder that holds report.json beside the heads"
        )
    return json.loads(path.read_text(encoding="utf-8"))


class MedusaDrafter(OnHeads, RoundDrafter):
    """Draft a tree of the heads' likeliest tokens, with the same shape in every round.

    The tokens are chosen, so a lossless rule stays lossless at every temperature.

    Args:
        target: the model that decodes; heads without a vocabulary projection share its own.
        heads: heads trained on this target.
        tree: tree of ranks: a node of rank r on level i is guess r (0: likeliest) of head i + 1.
    """

    def __init__(self, target: CausalLM, heads: Heads, tree: TokenTree):
        check_heads(heads, target)
        self.target = target
        self.heads = heads
        self.output_head = output_head(target, heads.words)
        self.tree = check_ranks(tree, heads.count, self.output_head.vocab_size)
        self.ranks = max(tree.tokens.tolist(), default=-1) + 1
        self.hidden_layers = ("final",) if len(tree) else ()

    @classmethod
    def from_pretrained(
        cls, target: CausalLM, path: str | Path | None = None, tree: TokenTree | None = None
    ) -> "MedusaDrafter":
        """Load trained heads.

        Args:
            target: the model that decodes.
            path: folder of the heads, ours, the authors' or vLLM's; None for the shipped ones.
            tree: None for the stored tree, or else a chain.
        """
        folder = find_weights("medusa", target, path)
        if is_published(folder):
            heads, stored = read_medusa(folder, target), None
        else:
            heads, stored = load(folder, target, stored_heads), load_report(folder).get("tree")
        if tree is None:
            tree = TokenTree(**stored) if stored else TokenTree.chain([0] * heads.count)
        return cls(target, heads, tree)

    @torch.inference_mode()
    def logits(self, hidden: Tensor, levels: int | None = None) -> Tensor:
        """Return logits [..., levels, V] of the first heads (None: all) on states [..., d]."""
        return self.heads.logits(hidden, slice(levels), self.output_head.head)

    def limits(self) -> Limits:
        return Limits(self.tree.levels, len(self.tree))

    def draft(self, context: Context, session: ChainSession) -> Proposal:
        if not self.ranks or context.wanted < 2 or context.scores is None:
            return NOTHING
        session.passes += 1
        # The heads read the last row of the target's last pass.
        logits = self.logits(context.scores.hidden["final"][0, -1], self.tree.levels)
        best = logits.topk(self.ranks).indices
        words = self.heads.words
        return Proposal(self.tree.fill(best if words is None else words.ids[best]))


AUTHORS_MEDUSA = ("medusa_lm_head.safetensors", "medusa_lm_head.pt")
"""Names of the file in which Medusa's authors, and engines after them, store all heads."""


def read_medusa(folder: str | Path, target: CausalLM) -> Heads:
    """Return published Medusa heads."""
    for name in AUTHORS_MEDUSA:
        if (Path(folder) / name).is_file():
            return _read_authors_medusa(Checkpoint(folder, target, name), name)
    stored = Checkpoint(folder, target)
    # A folder may repeat the target's matrix once per head. Such a copy is dropped; a matrix that
    # was trained further raises, since the class has no place for it.
    if copies := [name for name in stored.tensors if name.startswith("lm_heads.")]:
        rows = target.projection  # of a packed head it is computed
        stored.drop_copies(**{name.removesuffix(".weight"): rows for name in copies})
    up = []
    while (weight := stored.tensors.pop(f"blocks.{len(up)}.layers.0.weight", None)) is not None:
        up.append(weight.T)
    stored.check_empty(stored.tensors)
    stored.check(up, "holds no blocks.0.layers.0.weight: no Medusa heads")
    stored.check_size(up[0].shape[0])
    heads = ReducedHeads(target.hidden_size, len(up), target.vocab_size)
    return stored.load(heads, {"up": torch.stack(up), "words.ids": heads.words.ids})


def _read_authors_medusa(stored: Checkpoint, name: str) -> FullHeads:
    """Return Medusa heads in the authors' format: 0.0.linear.weight, 0.0.linear.bias, 0.1.weight …"""
    config, tensors, target = stored.config, stored.tensors, stored.target
    layers, most = config.get("medusa_num_layers", 1), len({key.split(".")[0] for key in tensors})
    stored.check(layers == 1, f"medusa_num_layers={layers}: must be 1 block per head")
    count = config.get("medusa_num_heads", most)
    is_right = is_whole(count) and 1 <= count <= most
    stored.check(is_right, f"medusa_num_heads={count!r}: must be 1 … {most}")
    heads = FullHeads(target.hidden_size, count, target.vocab_size)
    parts = {"up": "0.linear.weight", "bias": "0.linear.bias", "rows": "1.weight"}
    keys = {ours: [f"{i}.{theirs}" for i in range(count)] for ours, theirs in parts.items()}
    missing = [key for group in keys.values() for key in group if key not in tensors]
    stored.check(not missing, f"{name} lacks {''.join(missing[:1])}")
    known = {f"{i}.{theirs}" for i in range(most) for theirs in parts.values()}
    stored.check_empty(tensors.keys() - known)
    stored.check_size(tensors["0.0.linear.bias"].numel())
    for ours, group in keys.items():
        for key in group:
            stored.check_shape(key, tensors[key], heads.get_parameter(ours).shape[1:])
    state = {ours: torch.stack([tensors[key] for key in group]) for ours, group in keys.items()}
    return stored.load(heads, state | {"up": state["up"].transpose(1, 2)})


# Heads that draft one token after another -------------------------------------------------------


class HeadDrafter(OnHeads, Pretrained, RoundDrafter, ChainDrafter):
    """Draft a chain from the target's last state: subclass it and define `rows`."""

    hidden_layers = ("final",)

    def __init__(self, target: CausalLM, length: int | Length):
        super().__init__(length)
        self.target = checks.model("target", target)

    def rows(self, state: Tensor, token: Tensor) -> Generator[Tensor, Tensor, None]:
        """Yield the logits [V] after a token, then after each token that is sent.

        Shapes: state [d] of the token before, token [1].
        """
        raise NotImplementedError

    @torch.inference_mode()
    def draft(self, context: Context, session: ChainSession) -> Proposal:
        # After a prompt of one token no token has been scored yet.
        if context.scores is None:
            return NOTHING
        state = context.scores.hidden["final"][0, -1]
        rows = self.rows(state, upload(context.tokens[-1:], state.device))

        def follow(token: Tensor | None) -> Tensor:
            session.passes += 1
            return next(rows) if token is None else rows.send(token)

        return draft_chain(context, follow, session.length)


class HydraDrafter(HeadDrafter):
    """Draft a chain with heads that read the tokens drafted before.

    Source: Ankner et al. 2024, arXiv 2402.05109.

    Args:
        target: the model that decodes; heads read its state "final" and its embeddings, and share
            its vocabulary projection.
        heads: heads trained on this target.
        gamma: draft length, 1 … number of heads; None: the number of heads.
    """

    folder, build = "hydra", HydraHeads

    def __init__(self, target: CausalLM, heads: HydraHeads, gamma: int | None = None):
        self.heads = checks.instance("heads", heads, HydraHeads, "HydraHeads")
        size, count = heads.config["hidden_size"], heads.config["count"]
        check_size("heads read states", size, checks.model("target", target))
        super().__init__(target, count if gamma is None else whole("gamma", gamma, 1, count))

    def rows(self, state: Tensor, token: Tensor) -> Generator[Tensor, Tensor, None]:
        embedded = self.target.embed(token)
        while True:
            token = yield self.target.head(self.heads(len(embedded) - 1, state, embedded))
            embedded = torch.cat((embedded, self.target.embed(token)))


class MlpSpeculatorDrafter(HeadDrafter):
    """Draft a chain from the target's last state and the tokens since, without attention or cache.

    Source: Wertheimer et al. 2024, arXiv 2404.19124.

    Args:
        target: the model that decodes; its state "final" is read.
        speculator: network trained on this target.
        gamma: draft length ≥ 1, or a policy of `drafters.lengths`; None: the trained depth.
    """

    folder, build = "mlp_speculator", MlpSpeculator

    def __init__(
        self, target: CausalLM, speculator: MlpSpeculator, gamma: int | Length | None = None
    ):
        self.speculator = checks.instance("speculator", speculator, MlpSpeculator)
        super().__init__(target, speculator.config["depth"] if gamma is None else gamma)
        sizes = speculator.config["hidden_size"], speculator.config["vocab_size"]
        if sizes != (wanted := (target.hidden_size, target.vocab_size)):
            raise ValueError(f"speculator is for sizes d, V = {sizes}: the target's are {wanted}")

    def rows(self, state: Tensor, token: Tensor) -> Generator[Tensor, Tensor, None]:
        state = self.speculator.begin(state)
        while True:
            state = self.speculator(state, token[0])
            token = yield self.speculator.head(state)
            state = self.speculator.again(state)
