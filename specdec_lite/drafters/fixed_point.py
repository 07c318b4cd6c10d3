"""Drafts by guesses that the target itself improves: Jacobi iteration and Lookahead decoding."""

from collections.abc import Sequence

from specdec_lite import checks
from specdec_lite.contract import Context, Drafter, Limits, Session
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.transfer import upload
from specdec_lite.tree import TokenTree

# Jacobi iteration -------------------------------------------------------------------------------
# The target improves its own guesses for many positions in each pass. Source: Santilli et al.
# 2023 (accelerating transformer inference by parallel decoding).


class JacobiDrafter(Drafter):
    """Guess the next γ tokens; the pass that verifies them also yields better guesses.

    The fixed point is the target's greedy text. Each pass settles at least one more token, so m
    tokens take at most m passes. The guesses are chosen from the past alone, so a lossless rule
    keeps the target's distribution at every temperature.

    Args:
        gamma: guesses per round, ≥ 1.
        guess: first guess, token ids; None: the end of the prompt.
    """

    def __init__(self, gamma: int = 8, guess: Sequence[int] | None = None):
        self.gamma = checks.whole("gamma", gamma, 1)
        self.guess = None if guess is None else [checks.whole("guess", t) for t in guess]

    def start(self, context: Context) -> "JacobiSession":
        guess = context.tokens[-self.gamma :].tolist() if self.guess is None else self.guess
        return JacobiSession(self.gamma, guess, int(context.tokens[-1]))

    def check(self, target: CausalLM, positions: int) -> None:
        for token in self.guess or ():
            checks.whole("guess", token, 0, target.vocab_size - 1)

    def limits(self) -> Limits:
        return Limits.chain(self.gamma)


class JacobiSession(Session):
    """`guess` is the guess for the γ tokens after the committed text."""

    def __init__(self, gamma: int, guess: list[int], last: int):
        self.gamma = gamma
        self.guess = self._pad(guess, last)

    def _pad(self, guess: list[int], last: int) -> list[int]:
        """Return γ guesses: missing ones repeat the last guess, or `last` if there is none."""
        return [*guess, *[(guess or [last])[-1]] * self.gamma][: self.gamma]

    def propose(self, context: Context) -> Proposal:
        return Proposal(TokenTree.chain(self.guess))

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        # Row i of the pass follows guess i − 1; the rows after the emitted tokens are the new guess.
        emitted = len(verdict.path) + 1
        predicted = scores.logits[0, emitted:].argmax(-1).tolist()
        self.guess = self._pad(predicted, verdict.token)


# Lookahead decoding -----------------------------------------------------------------------------
# Jacobi iteration in a window yields n-grams, which are proposed. Source: Fu et al. 2024.


def window_tree(rows: list[list[int]]) -> tuple[TokenTree, list[int]]:
    """Return the window as a tree, and the last node of every column (−1: the root).

    The first row is a chain below the root, whose column is 0. The parent of every other entry is
    the entry above it.
    """
    tokens = list(rows[0])
    parents = list(range(-1, len(tokens) - 1))
    ends = list(range(-1, len(tokens)))
    for row in rows[1:]:
        parents += ends
        ends = list(range(len(tokens), len(tokens) + len(row)))
        tokens += row
    return TokenTree(tokens, parents), ends


class LookaheadDrafter(Drafter):
    """Propose n-grams that the target predicted earlier, while a window produces new ones.

    Window and proposals are one tree in one pass; only the n-grams may be accepted. All tokens are
    chosen from the past alone, so a lossless rule keeps the target's distribution at every
    temperature.

    Args:
        window: W ≥ 1, number of positions ahead that are guessed together.
        ngram: N ≥ 2, tokens per n-gram: the first is the key, the others are proposed.
        guesses: G ≥ 1, n-grams stored per key; the least recently seen one is replaced.
    """

    def __init__(self, window: int = 5, ngram: int = 4, guesses: int = 5):
        self.window = checks.whole("window", window, 1)
        self.ngram = checks.whole("ngram", ngram, 2)
        self.guesses = checks.whole("guesses", guesses, 1)

    def start(self, context: Context) -> "LookaheadSession":
        return LookaheadSession(self, context.tokens.tolist())

    def limits(self) -> Limits:
        depth = self.ngram - 1
        nodes = depth * self.window - 1 + depth * self.guesses
        return Limits(depth + max(self.window - 2, 0), nodes)


class LookaheadSession(Session):
    """The drafting of one generation.

    Attributes:
        pool: key token → its n-grams without the key, the most recent first.
        rows: up to N − 1 rows of guesses, each the target's predictions at the row before it.
    """

    def __init__(self, drafter: LookaheadDrafter, text: list[int]):
        self.drafter = drafter
        self.pool: dict[int, list[tuple[int, ...]]] = {}
        width = drafter.window
        self.rows = [(text * width)[len(text) * width - width + 1 :]]

    def remember(self, gram: list[int] | tuple[int, ...]) -> None:
        """Store an n-gram as the most recent of its key."""
        first, *rest = gram
        others = [other for other in self.pool.get(first, ()) if other != tuple(rest)]
        self.pool[first] = [tuple(rest), *others][: self.drafter.guesses]

    def propose(self, context: Context) -> Proposal:
        self.root = int(context.tokens[-1])
        tree, ends = window_tree(self.rows)
        grams = [TokenTree.chain(gram) for gram in self.pool.get(self.root, ())]
        tree, (nodes, *branches) = TokenTree.merge([tree, *grams])
        self.ends = [0 if end < 0 else nodes[end] + 1 for end in ends]
        self.fed = len(tree) + 1
        return Proposal(tree, candidates=frozenset().union(*branches))

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        if scores.logits.shape[1] < self.fed:
            return  # the engine cut the tree because the text ends
        ends = upload(self.ends, scores.logits.device)
        self.rows.append(scores.logits[0, ends].argmax(-1).tolist())
        if len(self.rows) == self.drafter.ngram:
            for gram in zip([self.root, *self.rows[0]], *self.rows[1:]):
                self.remember(gram)
            self.rows = [self.rows[1][1:], *self.rows[2:]]
