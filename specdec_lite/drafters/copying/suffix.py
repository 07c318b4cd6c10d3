"""Suffix decoding: propose what most often followed the longest match of the text's end.

Source: Oliaro et al. 2024, arXiv 2411.04975.
"""

from specdec_lite import checks
from specdec_lite.drafters.copying.matches import END, NgramIndex, frequency_tree, token_ids
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal
from specdec_lite.speculation import Context, Drafter, Limits, Session
from specdec_lite.tree import TokenTree

ORDERS = (16, 8, 4, 2, 1)
"""Lengths of the n-grams that are indexed. A match is then extended backwards token by token."""
LATEST = 64
"""Number of most recent occurrences to examine."""


class SuffixDrafter(Drafter):
    """Propose many tokens after a long match and few after a short one.

    A node of a suffix tree is the set of positions after one n-gram. Two lists of positions
    therefore replace the two suffix trees: one of this text, one of what `learn` was given.
    Estimates are fractions of positions and never rows of probs, so the tokens are chosen.

    Args:
        gamma: largest number of drafted tokens, ≥ 1.
        depth: longest match that is distinguished from longer ones, ≥ 1 (vLLM's
            `suffix_decoding_max_tree_depth`).
        factor: largest number of drafted tokens per token of the match, ≥ 0 (vLLM's
            `suffix_decoding_max_spec_factor`).
        least: smallest estimated probability of a drafted token, in (0, 1] (vLLM's
            `suffix_decoding_min_token_prob`).
        width: children per node: 1 makes a chain, more make a tree of `gamma` nodes.
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
        self.memory = NgramIndex(ORDERS)

    def start(self, context: Context) -> "SuffixSession":
        return SuffixSession(self)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.learnt(max(self.memory.text, default=END), target)

    def learn(self, tokens) -> None:
        self.memory.extend([*token_ids("tokens", tokens).tolist(), END])

    def limits(self) -> Limits:
        return Limits(self.gamma, self.gamma, branches=self.width > 1)


class SuffixSession(Session):
    """The drafting of one generation, with an index of its own text."""

    def __init__(self, drafter: SuffixDrafter):
        self.drafter = drafter
        self.text = NgramIndex(ORDERS)

    def propose(self, context: Context) -> Proposal:
        self.text.catch_up(context)
        indexes = (self.text, self.drafter.memory)
        drafts = [self._draft(index, context.wanted - 1) for index in indexes]
        return Proposal(max(drafts, key=lambda draft: draft[1])[0])

    def _draft(self, index: NgramIndex, most: int) -> tuple[TokenTree, float]:
        """Return the draft from one index, and its expected number of accepted tokens."""
        drafter, text = self.drafter, self.text.text
        latest = index.find(text)[1][-LATEST:]
        lengths = [index.match_length(position, text, drafter.depth) for position in latest]
        longest = max(lengths, default=0)
        budget = min(most, drafter.gamma, int(drafter.factor * longest))
        pairs = zip(lengths, latest)
        rows = [index.continuation(position, budget) for n, position in pairs if n == longest]
        return frequency_tree(rows, budget, drafter.width, drafter.least)
