"""The stop explorer: its replay of every policy against decoding."""

from functools import partial

import pytest
from javascript import formula
from letters import Letters, tiny
from torch.special import entr

from specdec_book.viz.interactives import StopExplorer
from specdec_lite import generate
from specdec_lite.decoding import stream
from specdec_lite.drafters import ModelDrafter
from specdec_lite.drafters.lengths import Confidence, Constant, Entropy, Heuristic, Length

PROMPT = Letters().encode("hello")
TARGET, DRAFT = tiny(0), tiny(0, noise=0.15)
COUNT = 40
SETTINGS = {"length": 3, "threshold": 0.6, "nats": 0.8, "cost": 0.1}
POLICIES = {
    "constant": Constant(3),
    "heuristic": Heuristic(8, 3),
    "confidence": Confidence(8, 0.6),
    "entropy": Entropy(8, 0.8),
}


class RecordingLength(Length):
    """A length policy that never stops and records (q, entropy) of every drafted token."""

    looks = True

    def __init__(self):
        super().__init__(8)
        self.records: list[tuple[float, float]] = []

    def go_on(self, row, token):
        self.records.append((row[token].item(), entr(row).sum().item()))
        return True


@pytest.fixture(scope="module")
def recorded():
    """What a draft of eight tokens would be at each position of a greedy text."""
    text = generate(TARGET, PROMPT, max_new_tokens=COUNT).tokens.tolist()
    places = []
    for position in range(COUNT):
        policy = RecordingLength()
        step = next(stream(TARGET, [*PROMPT, *text[:position]], ModelDrafter(DRAFT, policy), 9))
        q, h = ([round(number, 4) for number in column] for column in zip(*policy.records))
        places.append({"q": q, "h": h, "right": step.accepted})
    return StopExplorer(prompt="hello", words=[*Letters().decode(text)], places=places)


of = partial(formula, "stop_explorer")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policys_rounds_equal_the_librarys(recorded, policy):
    out = generate(TARGET, PROMPT, ModelDrafter(DRAFT, POLICIES[policy]), COUNT)
    rounds = of("rounds", recorded.places, policy, SETTINGS)
    assert [(r["drafted"], r["accepted"]) for r in rounds] == [
        (len(step.tree), step.accepted) for step in out.steps
    ]
    passes, drafted = len(out.steps), out.stats.drafted
    assert len({len(step.tree) for step in out.steps}) > 1 or policy == "constant"
    speed = of("speed", recorded.places, policy, SETTINGS)
    assert speed == pytest.approx(COUNT / (passes + 0.1 * drafted))


def test_the_oracle_beats_every_policy(recorded):
    for cost in (0.02, 0.1, 0.4):
        settings = SETTINGS | {"cost": cost}
        oracle = of("speed", recorded.places, "oracle", settings)
        assert all(of("speed", recorded.places, policy, settings) <= oracle for policy in POLICIES)
        best = of("bestConstant", recorded.places, cost)
        assert best["speed"] == max(
            of("speed", recorded.places, "constant", settings | {"length": length})
            for length in range(1, 9)
        )
