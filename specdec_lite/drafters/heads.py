"""Extra prediction heads on a target's last hidden state: the module, and its file.

What lives here: `Heads`, saving and loading them beside the target they belong to. What does not:
drafting with them (`drafters`), training them (`training`). Shapes: d hidden size, K heads, e width
of a head's hidden layer.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import fingerprint

FILE = "heads.safetensors"


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
        width = width or hidden_size
        self.up = nn.Parameter(torch.randn(count, hidden_size, width) * hidden_size**-0.5)
        self.down = nn.Parameter(torch.zeros(count, width, hidden_size))

    @property
    def count(self) -> int:
        return len(self.up)

    @property
    def hidden_size(self) -> int:
        return self.up.shape[1]

    def forward(self, hidden: Tensor, which: slice = slice(None)) -> Tensor:
        """hidden [..., d] → [..., K, d], or only the heads of `which`."""
        inner = F.silu(torch.einsum("...d,kde->...ke", hidden, self.up[which]))
        return hidden[..., None, :] + torch.einsum("...ke,ked->...kd", inner, self.down[which])


def check_heads(heads: Heads, target: CausalLM) -> None:
    """TypeError where these are not heads on a target, ValueError where they cannot read its hidden
    states.
    """
    if not isinstance(target, CausalLM):
        raise TypeError(f"target is a {type(target).__name__}: must be a CausalLM")
    if not isinstance(heads, Heads):
        raise TypeError(
            f"heads is a {type(heads).__name__}: must be specdec_lite.drafters.heads.Heads, or use"
            " the drafter's from_pretrained"
        )
    if heads.hidden_size != target.hidden_size:
        raise ValueError(
            f"heads read hidden states of size {heads.hidden_size}, the target's have size"
            f" {target.hidden_size}"
        )
    if (heads.up.device, heads.up.dtype) != (target.device, target.dtype):
        raise ValueError(
            f"heads are {heads.up.dtype} on {heads.up.device}, the target is {target.dtype} on"
            f" {target.device}: bring them there with heads.to(target.device, target.dtype)"
        )


def save_heads(folder: Path, heads: Heads, target: CausalLM) -> Path:
    """Write the heads to folder/heads.safetensors in bfloat16, with the fingerprint of their
    target.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: weight.detach().cpu().to(torch.bfloat16).contiguous()
        for name, weight in heads.state_dict().items()
    }
    save_file(weights, folder / FILE, {"format": "pt", "target": fingerprint(target)})
    return folder / FILE


def load_heads(path: str | Path, target: CausalLM) -> Heads:
    """Heads from a safetensors file, or from the folder that holds heads.safetensors, on the
    target's device and in its dtype.

    Raises ValueError where there is no such file, where it holds something else, and for the heads
    of another target.
    """
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise ValueError(f"path={str(path)!r}: must be a folder that holds {FILE}, or such a file")
    try:
        with safe_open(file, "pt") as opened:
            found = opened.metadata() or {}
            weights = {name: opened.get_tensor(name) for name in opened.keys()}
    except SafetensorError as error:
        raise ValueError(f"path={str(path)!r}: not a safetensors file ({error})") from None
    if set(weights) != {"up", "down"} or "target" not in found:
        raise ValueError(
            f"path={str(path)!r}: holds {sorted(weights)}, not the weights of heads ('down', 'up')"
            " with the fingerprint of their target"
        )
    if found["target"] != fingerprint(target):
        raise ValueError(
            f"path={str(path)!r}: these heads were trained on another target (fingerprint"
            f" {found['target']}, this target's is {fingerprint(target)}): train them on this one"
            " with `python -m specdec_lite.training`"
        )
    with torch.device("meta"):
        heads = Heads(weights["up"].shape[1], *weights["up"].shape[::2])
    heads.load_state_dict(
        {name: weight.to(target.device, target.dtype) for name, weight in weights.items()},
        assign=True,
    )
    return heads.requires_grad_(False).eval()
