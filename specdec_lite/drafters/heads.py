"""Extra prediction heads on a target's last hidden state.

What lives here: the modules `Heads`, `PlainHeads`, `ExitHead` and `HydraHeads`. What does not:
drafting with them (`blockwise`, `medusa`, `early_exit`, `hydra`), training them (`training`), their
file (`loading.weights`).
Shapes: d hidden size, K heads, e width of a head's hidden layer.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lite.checks import instance, model, same_device
from specdec_lite.drafters.words import Words
from specdec_lite.engine.models import CausalLM


class Heads(nn.Module):
    """K residual blocks on the hidden state "final"; the target's own vocabulary projection makes
    logits of what they return.

    Head i of 0 … K−1, read at the row of token t_j, predicts t_{j+i+2}: one further than the head
    before it, the first of them one further than the target's own. A fresh head adds nothing, so it
    begins as a copy of the target's own. Source: Stern et al. 2018, section 6 (there one layer of
    K·e units, of which the target's own head is a part too).
    """

    def __init__(self, hidden_size: int, count: int, width: int | None = None):
        super().__init__()
        self.words: Words | None = None
        width = width or hidden_size
        self.up = nn.Parameter(torch.randn(count, hidden_size, width) * hidden_size**-0.5)
        self.down = nn.Parameter(torch.zeros(count, width, hidden_size))

    @property
    def count(self) -> int:
        return len(self.up)

    @property
    def hidden_size(self) -> int:
        return self.up.shape[1]

    @property
    def config(self) -> dict[str, int]:
        """What heads of these sizes are built with."""
        return {"hidden_size": self.hidden_size, "count": self.count, "width": self.up.shape[2]}

    def forward(self, hidden: Tensor, which: slice = slice(None)) -> Tensor:
        """hidden [..., d] → [..., K, d], or only the heads of `which`."""
        inner = F.silu(torch.einsum("...d,kde->...ke", hidden, self.up[which]))
        return hidden[..., None, :] + torch.einsum("...ke,ked->...kd", inner, self.down[which])


class PlainHeads(Heads):
    """The same with one matrix a head, x + SiLU(W x), as engines serve Medusa's: they begin as
    copies of the target's own head, too. words: how many of its tokens they say.

    Source: Cai et al. 2024, section 2.1.1 (there with a vocabulary projection for each head).
    """

    def __init__(self, hidden_size: int, count: int, words: int):
        nn.Module.__init__(self)
        self.up = nn.Parameter(torch.zeros(count, hidden_size, hidden_size))
        self.words = Words(words)

    @property
    def config(self) -> dict[str, int]:
        sizes = {"hidden_size": self.hidden_size, "count": self.count}
        return sizes | {"words": len(self.words.ids)}

    def forward(self, hidden: Tensor, which: slice = slice(None)) -> Tensor:
        """hidden [..., d] → [..., K, d], or only the heads of `which`."""
        added = F.silu(torch.einsum("...d,kde->...ke", hidden, self.up[which]))
        return hidden[..., None, :] + added


def stored_heads(**config) -> Heads:
    """Untrained heads of the kind that this config is of."""
    return PlainHeads(**config) if "words" in config else Heads(**config)


class ExitHead(Heads):
    """One such block for a target that is left after its first `layers` layers: it corrects the
    exit's state, normed as the target's last one is, towards what the target's head expects.
    """

    def __init__(self, hidden_size: int, layers: int, width: int | None = None):
        super().__init__(hidden_size, 1, width)
        self.layers = layers

    @property
    def config(self) -> dict[str, int]:
        return {"hidden_size": self.hidden_size, "layers": self.layers, "width": self.up.shape[2]}

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden [..., d] → [..., d]."""
        return super().forward(hidden)[..., 0, :]


class HydraHeads(nn.Module):
    """Head i of 0 … K−1: R·x + SiLU(A·x) of x = [f; e(t); e(x_1) … e(x_i)], with the target's last
    state f, its embeddings e, the last token t and the words drafted since.

    The target's vocabulary projection reads what they return; fresh heads return f. Source: Ankner
    et al. 2024 (there with a projection of its own for each head).
    """

    def __init__(self, hidden_size: int, count: int):
        super().__init__()
        self.config = {"hidden_size": hidden_size, "count": count}
        widths = [(i + 2) * hidden_size for i in range(count)]
        self.direct = nn.ModuleList(nn.Linear(width, hidden_size, bias=False) for width in widths)
        self.bent = nn.ModuleList(nn.Linear(width, hidden_size, bias=False) for width in widths)
        for direct, bent in zip(self.direct, self.bent):
            nn.init.eye_(direct.weight)
            nn.init.zeros_(bent.weight)

    def forward(self, index: int, state: Tensor, embedded: Tensor) -> Tensor:
        """state [..., d], embedded [..., index + 1, d] → [..., d]."""
        x = torch.cat((state, embedded.flatten(-2)), -1)
        return self.direct[index](x) + F.silu(self.bent[index](x))


def check_heads(heads: Heads, target: CausalLM) -> None:
    """TypeError where these are not heads on a target, ValueError where they cannot read its hidden
    states.
    """
    model("target", target)
    allowed = "specdec_lite.drafters.heads.Heads, or use the drafter's from_pretrained"
    instance("heads", heads, Heads, allowed)
    check_size("heads read hidden states", heads.hidden_size, target)
    if (heads.up.device, heads.up.dtype) != (target.device, target.dtype):
        raise ValueError(
            f"heads are {heads.up.dtype} on {heads.up.device}, the target is {target.dtype} on"
            f" {target.device}: bring them there with heads.to(target.device, target.dtype)"
        )


def check_size(reader: str, size: int, target: CausalLM) -> None:
    """ValueError where the target's hidden states are not of the size that is read of them."""
    if size != target.hidden_size:
        raise ValueError(f"{reader} of size {size}, the target's have size {target.hidden_size}")


def check_target(own: CausalLM, target: CausalLM) -> None:
    """ValueError where heads of the target `own` are to draft for another kind of target."""
    same_device("drafter", own, target)
    if own.hidden_size != target.hidden_size:
        raise ValueError(
            f"drafter's heads belong to a target of hidden size {own.hidden_size}, target has"
            f" {target.hidden_size}: give the target they were trained on"
        )
