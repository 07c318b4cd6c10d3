"""When to stop: one recorded text, and what every policy would have drafted at each of its places.

What lives here: the recording, made by the loop that decodes, and the widget that carries it. What
does not: any drawing, and the policies' replay, which follows from the numbers
(`static/stop_explorer.js`, held against `drafters.lengths` in the tests).
"""

from collections.abc import Callable, Sequence

import torch
import traitlets
from torch import Tensor

from specdec_lite.decoding import generate, stream
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.models import CausalLM
from specdec_lite.speculation import Drafter
from specdec_lite.viz.interactive import Interactive

POLICIES = ("constant", "heuristic", "confidence", "entropy", "oracle")


class StopExplorer(Interactive):
    """A text whose drafts are cut where a policy stops; the best constant length and an oracle beside
    it.

    prompt: what was asked. words: the text's tokens. places: for each, {"q": the draft's
    probability of each token it would draft from there, "h": the entropies of their rows, "right":
    how many of them the target keeps}. policy: one of POLICIES. length: of the constant policy and
    the first of the heuristic. threshold: of confidence, in [0, 1]. nats: of entropy. cost: of a
    drafted token, in target passes.
    """

    module = "stop_explorer"
    label = "Stop explorer: one recorded text, and where each policy ends its drafts"

    prompt = traitlets.Unicode().tag(sync=True)
    words = traitlets.List(traitlets.Unicode(), minlen=1).tag(sync=True)
    places = traitlets.List(traitlets.Dict(), minlen=1).tag(sync=True)
    policy = traitlets.Enum(POLICIES, "constant").tag(sync=True)
    length = traitlets.Int(4, min=1).tag(sync=True)
    threshold = traitlets.Float(0.4, min=0, max=1).tag(sync=True)
    nats = traitlets.Float(1.0, min=0).tag(sync=True)
    cost = traitlets.Float(0.1, min=0, max=1).tag(sync=True)


class Watched(Length):
    """Never stops, and keeps what a policy could look at: (q, entropy) of every drafted token."""

    looks = True

    def __init__(self, gamma: int):
        super().__init__(gamma)
        self.seen: list[tuple[float, float]] = []

    def go_on(self, row: Tensor, token: int) -> bool:
        self.seen.append((row[token].item(), torch.special.entr(row).sum().item()))
        return True


def recorded_places(
    target: CausalLM,
    tokenizer,
    prompt_ids: Sequence[int],
    drafter: Callable[[Length], Drafter],
    count: int,
    gamma: int = 8,
) -> tuple[list[str], list[dict]]:
    """The words of a greedy text of `count` tokens, and what would be drafted at each place of it.

    Args:
        target, tokenizer: of the text; the tokenizer has `decode(ids)`.
        prompt_ids: at least one id.
        drafter: makes a chain drafter from its γ policy.
        count: places.
        gamma: the most tokens drafted at a place.
    """
    ids = [int(token) for token in prompt_ids]
    text = generate(target, ids, max_new_tokens=count).tokens.tolist()
    places = []
    for place in range(count):
        policy = Watched(gamma)
        step = next(stream(target, [*ids, *text[:place]], drafter(policy), gamma + 1))
        places.append(
            {
                "q": [round(q, 4) for q, _ in policy.seen],
                "h": [round(h, 4) for _, h in policy.seen],
                "right": step.accepted,
            }
        )
    return [tokenizer.decode([token]) for token in text], places
