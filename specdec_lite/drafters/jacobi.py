"""The target's own guesses for many places at once: Jacobi iteration.

Source: Santilli et al. 2023 (accelerating transformer inference by parallel decoding).
"""

from collections.abc import Sequence

from specdec_lite import checks
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import Proposal, Verdict
from specdec_lite.speculation import Context, Drafter, Session, Shape
from specdec_lite.tree import TokenTree


class JacobiDrafter(Drafter):
    """Guess the next γ tokens anyhow; the pass that verifies them makes better guesses of them.

    Args:
        gamma: guesses a round, ≥ 1.
        guess: ids to begin with; None: the end of the prompt.

    The fixed point is the target's greedy text. Its first token is right after every pass, whatever
    was guessed, so m tokens take at most m passes. The guesses are chosen from the past alone: a
    lossless rule keeps the target's law at every temperature.
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

    def shape(self) -> Shape:
        return Shape.chain(self.gamma)


class JacobiSession(Session):
    """guess: of the γ tokens behind the committed text."""

    def __init__(self, gamma: int, guess: list[int], last: int):
        self.gamma = gamma
        self.guess = self.filled(guess, last)

    def filled(self, guess: list[int], last: int) -> list[int]:
        """γ guesses: where there are fewer, the last one again."""
        return [*guess, *[(guess or [last])[-1]] * self.gamma][: self.gamma]

    def propose(self, context: Context) -> Proposal:
        return Proposal(TokenTree.chain(self.guess))

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        """Row i of the pass followed guess i − 1. Of what the target says there, the rows behind the
        emitted tokens are the new guess.
        """
        emitted = len(verdict.path) + 1
        said = scores.logits[0, emitted:].argmax(-1).tolist()
        self.guess = self.filled(said, verdict.token)
