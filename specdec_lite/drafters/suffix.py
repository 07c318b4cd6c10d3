"""Suffix decoding: the longest end of the text that occurred before, and what followed it there
most often.

Source: Oliaro et al. 2024, arXiv 2411.04975.
"""

from specdec_lite import checks
from specdec_lite.drafters.matches import END, Places, heaviest, token_ids
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal
from specdec_lite.speculation import Context, Drafter, Session, Shape
from specdec_lite.tree import TokenTree

ORDERS = (16, 8, 4, 2, 1)
"""Runs that are entered; a match is then followed back, token by token."""
LATEST = 64
"""Of the places behind a run, so many are looked at."""


class SuffixDrafter(Drafter):
    """Propose much after a long match and little after a short one.

    Args:
        gamma: the most tokens of a draft, ≥ 1.
        depth: the longest match that is told from longer ones, ≥ 1 (vLLM's
            `suffix_decoding_max_tree_depth`).
        factor: a draft has at most so many tokens for each token of the match, ≥ 0 (vLLM's
            `suffix_decoding_max_spec_factor`).
        least: no token whose estimated chance is below it, in (0, 1] (vLLM's
            `suffix_decoding_min_token_prob`).
        width: children of a node: 1 makes a chain, more a tree of `gamma` nodes.

    A node of a suffix tree is a set of places: those behind one run of tokens. So two lists of
    places stand for the two trees, one of this text and one of what `learn` was given. Estimates
    are shares of places, never rows of probs: the tokens are chosen.
    """

    def __init__(
        self,
        gamma: int = 16,
        depth: int = 24,
        factor: float = 1.0,
        least: float = 0.1,
        width: int = 1,
    ):
        self.gamma = checks.whole("gamma", gamma, 1)
        self.depth = checks.whole("depth", depth, 1)
        self.factor = checks.number("factor", factor)
        self.least = checks.unit("least", least)
        self.width = checks.whole("width", width, 1)
        self.memory = Places(ORDERS)

    def start(self, context: Context) -> "SuffixSession":
        return SuffixSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.learnt(max(self.memory.text, default=END), target)

    def learn(self, tokens) -> None:
        """Remember a text, such as an answer, for the generations that follow."""
        self.memory.extend([*token_ids("tokens", tokens).tolist(), END])

    def shape(self) -> Shape | None:
        return Shape.chain(self.gamma) if self.width == 1 else None

    def draft(self, places: Places, text: list[int], most: int) -> tuple[TokenTree, float]:
        """What one of the two memories proposes after a text, and how many tokens it promises."""
        _, found = places.after(text)
        matches = [(places.before(place, text, self.depth), place) for place in found[-LATEST:]]
        longest = max(matches, default=(0,))[0]
        budget = min(most, self.gamma, int(self.factor * longest))
        rows = [places.behind(place, budget) for length, place in matches if length == longest]
        return heaviest(rows, budget, self.width, self.least)


class SuffixSession(Session):
    """The tree of this text alone; the other one is the drafter's."""

    def __init__(self, drafter: SuffixDrafter):
        self.drafter = drafter
        self.own = Places(ORDERS)

    def propose(self, context: Context) -> Proposal:
        self.own.catch_up(context)
        drafts = [
            self.drafter.draft(places, self.own.text, context.wanted - 1)
            for places in (self.own, self.drafter.memory)
        ]
        return Proposal(max(drafts, key=lambda draft: draft[1])[0])

    def cut(self, length: int) -> None:
        self.own.cut(length)
