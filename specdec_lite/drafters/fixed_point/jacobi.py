"""Jacobi iteration: the target improves its own guesses for many positions in each pass.

Source: Santilli et al. 2023 (accelerating transformer inference by parallel decoding).
"""

from collections.abc import Sequence

from specdec_lite import checks
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.speculation import Context, Drafter, Limits, Session
from specdec_lite.tree import TokenTree


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
    """The drafting of one generation.

    Args:
        gamma: number of guesses.
        guess: first guess.
        last: last token of the prompt.

    Attributes:
        guess: guess for the γ tokens after the committed text.
    """

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
