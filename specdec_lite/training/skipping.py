"""What a draft of some of the target's sublayers would be accepted, on stored text, without a round
of decoding: what a search for the best set asks hundreds of times.

What lives here: the acceptance of one set, and of every set of a small target. What does not: the
search (`drafters.layer_skip`), and what a set costs.
"""

from collections.abc import Collection
from itertools import product

import torch
from torch import Tensor

from specdec_lite.engine.models import CausalLM


class StoredText:
    """Texts with the target's keys, values and laws.

    At each place a draft's *first* token is asked for: the text before it was committed, so its
    keys and values are the whole target's, and only the last token goes through fewer sublayers.
    All places are asked in one pass, in which every row sees the text before it and itself.

    Args:
        target: a native model without a window.
        texts: [B, n] ids.
        first: the first place asked, ≥ 1; the last is n − 1.
    """

    def __init__(self, target: CausalLM, texts: Tensor, first: int):
        self.model = target.model
        self.length = texts.shape[1]
        self.asked = torch.arange(first, self.length)
        cache = target.new_cache(len(texts), capacity=2 * self.length)
        logits = target.score(texts, cache).logits
        self.law = logits[:, first:].softmax(-1)
        self.fed = texts[:, first:]
        self.storage = cache.storage.tensors
        own = torch.eye(len(self.asked), dtype=torch.bool)
        before = torch.arange(self.length) < self.asked[:, None]
        self.mask = torch.cat((before, own), dim=1)

    def rates(self, logits: Tensor) -> Tensor:
        """Σ min(p, q) at every place: the acceptance rates at temperature 1, [B, places]."""
        return torch.minimum(self.law, logits.softmax(-1)).sum(-1).clamp(max=1)

    @torch.inference_mode()
    def by_place(self, skip: Collection[tuple[int, str]] = ()) -> Tensor:
        """The rates of a draft without the sublayers in `skip`, [B, places]."""
        logits = self.model(
            self.fed, self.storage, self.length, self.asked, self.mask, skip=frozenset(skip)
        )
        return self.rates(logits)

    def acceptance(self, skip: Collection[tuple[int, str]] = ()) -> float:
        """The mean of `by_place`."""
        return self.by_place(skip).mean().item()

    @torch.inference_mode()
    def every_set(self, group: int = 1) -> list[float]:
        """The rates of all sets of sublayers, where `group` neighbouring blocks share their two
        switches: 4^(L/group) of them. What the first blocks make is computed once for every set
        that begins alike.

        The number of a set in binary says what is left out: its two highest bits are attention and
        MLP of the first group.
        """
        model = self.model
        cos, sin = (t[self.asked] for t in model.rotary(self.law.device, self.law.dtype))
        mask = self.mask.repeat(model.config.num_heads // model.config.num_kv_heads, 1)
        rates: list[float] = []

        def below(x: Tensor, first: int) -> None:
            if first == len(model.blocks):
                rates.append(self.rates(model.head(model.norm(x))).mean().item())
                return
            for attends, thinks in product((True, False), repeat=2):
                y = x
                for index in range(first, first + group):
                    block = model.blocks[index]
                    past = self.storage.layers[index]
                    if attends:
                        y = y + block.attention(y, cos, sin, mask, past, self.length)
                    if thinks:
                        y = y + block.mlp(y)
                below(y, first + group)

        below(model.embedding(self.fed), 0)
        return rates
