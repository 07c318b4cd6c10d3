"""Extra prediction heads on a target's last hidden state, as modules.

Shapes: d hidden size, K heads, e width of a head's hidden layer.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite.checks import instance, model, same_device
from specdec_lite.drafters.heads.vocabulary import DraftVocabulary
from specdec_lite.engine.models import CausalLM


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
        width = width or hidden_size
        self.up = nn.Parameter(torch.randn(count, hidden_size, width) * hidden_size**-0.5)
        self.down = nn.Parameter(torch.zeros(count, width, hidden_size))

    @property
    def count(self) -> int:
        """The number of heads K."""
        return len(self.up)

    @property
    def hidden_size(self) -> int:
        """The size d of the states that the heads read."""
        return self.up.shape[1]

    @property
    def config(self) -> dict[str, int]:
        """The arguments of the constructor."""
        return {"hidden_size": self.hidden_size, "count": self.count, "width": self.up.shape[2]}

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

    Args:
        hidden_size: the target's d.
        count: number of heads K.
        words: size of the draft vocabulary.
    """

    words: DraftVocabulary

    def __init__(self, hidden_size: int, count: int, words: int):
        nn.Module.__init__(self)
        self.up = nn.Parameter(torch.zeros(count, hidden_size, hidden_size))
        self.words = DraftVocabulary(words)

    @property
    def config(self) -> dict[str, int]:
        sizes = {"hidden_size": self.hidden_size, "count": self.count}
        return sizes | {"words": len(self.words.ids)}

    def forward(self, hidden: Tensor, which: slice = slice(None)) -> Tensor:
        added = F.silu(torch.einsum("...d,kde->...ke", hidden, self.up[which]))
        return hidden[..., None, :] + added


class FullHeads(Heads):
    """Heads as Medusa's authors publish them: x + SiLU(W x + b), and a projection for each head.

    Source: Cai et al. 2024, section 2.1.1.

    Args:
        hidden_size: the target's d.
        count: number of heads K.
        vocab_size: the target's V.
    """

    def __init__(self, hidden_size: int, count: int, vocab_size: int):
        nn.Module.__init__(self)
        self.words = None
        self.up = nn.Parameter(torch.zeros(count, hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(count, hidden_size))
        self.rows = nn.Parameter(torch.zeros(count, vocab_size, hidden_size))

    @property
    def config(self) -> dict[str, int]:
        sizes = {"hidden_size": self.hidden_size, "count": self.count}
        return sizes | {"vocab_size": self.rows.shape[1]}

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
    """One residual block for an early exit: it corrects the normed exit state before the head.

    Args:
        hidden_size: the target's d.
        layers: number of layers before the exit.
        width: width e of the hidden layer; None: d.
    """

    def __init__(self, hidden_size: int, layers: int, width: int | None = None):
        super().__init__(hidden_size, 1, width)
        self.layers = layers

    @property
    def config(self) -> dict[str, int]:
        return {"hidden_size": self.hidden_size, "layers": self.layers, "width": self.up.shape[2]}

    def forward(self, hidden: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the corrected states [..., d]."""
        return super().forward(hidden)[..., 0, :]


class HydraHeads(nn.Module):
    """Heads that also read the tokens drafted before: R·x + SiLU(A·x).

    For head i of 0 … K−1, x = [f; e(t); e(x_1) … e(x_i)]: the target's last state f and the
    embeddings of the last token t and of the drafted tokens. The target's vocabulary projection
    reads the result. New heads return f. Source: Ankner et al. 2024 (there with a projection for
    each head).

    Args:
        hidden_size: the target's d.
        count: number of heads K.
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
    allowed = "specdec_lite.drafters.heads.heads.Heads, or use the drafter's from_pretrained"
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


def check_target(own: CausalLM, target: CausalLM) -> None:
    """Raise ValueError if heads made for one target are to draft for a different kind of target."""
    same_device("drafter", own, target)
    if own.hidden_size != target.hidden_size:
        raise ValueError(
            f"drafter's heads belong to a target of hidden size {own.hidden_size}, target has"
            f" {target.hidden_size}: give the target they were trained on"
        )
