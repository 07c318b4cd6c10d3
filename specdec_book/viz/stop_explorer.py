"""When to stop: one recorded text, and the draft of every length policy at each of its positions.

`static/stop_explorer.js` replays the policies; a test compares it with `drafters.lengths`.
"""

from collections.abc import Callable, Sequence

import torch
import traitlets
from torch import Tensor

from specdec_book.viz.interactive import Interactive
from specdec_lite.contract import Drafter
from specdec_lite.decoding import generate, stream
from specdec_lite.drafters.lengths import Length
from specdec_lite.engine.models import CausalLM

POLICIES = ("constant", "heuristic", "confidence", "entropy", "oracle")


class StopExplorer(Interactive):
    """A text whose drafts end where a policy stops, beside the best constant length and an oracle.

    Attributes:
        prompt: Text before the recorded one.
        words: Texts of the recorded tokens.
        places: For each token {"q": draft's probability of each token it would draft from there,
            "h": entropies of the draft's rows in nats, "right": number of drafts that the target
            accepts}.
        policy: One of POLICIES.
        length: Draft length of the constant policy, and the first one of the heuristic policy.
        threshold: Threshold of the confidence policy, 0 … 1.
        nats: Threshold of the entropy policy, in nats.
        cost: Cost of a drafted token, in target passes.
    """

    module = "stop_explorer"
    label = "Stop explorer: one recorded text, and where each policy ends its drafts"

    prompt = traitlets.Unicode()
    words = traitlets.List(traitlets.Unicode(), minlen=1)
    places = traitlets.List(traitlets.Dict(), minlen=1)
    policy = traitlets.Enum(POLICIES, "constant")
    length = traitlets.Int(4, min=1)
    threshold = traitlets.Float(0.4, min=0, max=1)
    nats = traitlets.Float(1.0, min=0)
    cost = traitlets.Float(0.1, min=0, max=1)


class RecordingLength(Length):
    """A length policy that never stops and records (q, entropy) of every drafted token."""

    looks = True

    def __init__(self, gamma: int):
        super().__init__(gamma)
        self.records: list[tuple[float, float]] = []

    def go_on(self, row: Tensor, token: int) -> bool:
        self.records.append((row[token].item(), torch.special.entr(row).sum().item()))
        return True


def record_positions(
    target: CausalLM,
    tokenizer,
    prompt_ids: Sequence[int],
    drafter: Callable[[Length], Drafter],
    count: int,
    gamma: int = 8,
) -> tuple[list[str], list[dict]]:
    """Return the words of a greedy text, and what would be drafted at each of its positions."""
    ids = [int(token) for token in prompt_ids]
    text = generate(target, ids, max_new_tokens=count, stop_token_ids=()).tokens.tolist()
    positions = []
    for position in range(count):
        policy = RecordingLength(gamma)
        step = next(
            stream(target, [*ids, *text[:position]], drafter(policy), gamma + 1, stop_token_ids=())
        )
        positions.append(
            {
                "q": [round(q, 4) for q, _ in policy.records],
                "h": [round(h, 4) for _, h in policy.records],
                "right": step.accepted,
            }
        )
    return [tokenizer.decode([token]) for token in text], positions
