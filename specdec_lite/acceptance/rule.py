"""What every rule is made of: its mark, the ratio p/q of a drawn token, what is left of p after a rejection.

Words used throughout. An *accepted* token was drafted and kept. A *recovered* token replaces the
first rejected one. A *bonus* token follows a draft that was accepted to its end. `target_probs`
[n+1, V] holds the target's adjusted distributions: row 0 follows the root (the last committed
token), row i+1 follows node i.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from specdec_lite.proposal import Proposal, Verdict, one_hot
from specdec_lite.sampling import Rng

RuleFunction = Callable[[Proposal, Tensor, Rng], Verdict]


def rule(lossless: bool, name: str | None = None) -> Callable[[RuleFunction], RuleFunction]:
    """Mark a function (proposal, target_probs, rng) → Verdict as an acceptance rule.

    Args:
        lossless: whether the emitted text has the target's law, whatever the proposal.
        name: how it is called in tables; None: as the function.

    The function gets two attributes, `lossless` and `name`, and is otherwise left as it is.
    """

    def mark(function: RuleFunction) -> RuleFunction:
        function.lossless = lossless
        function.name = name or function.__name__
        return function

    return mark


def ratio(p: Tensor, q: Tensor, token: int) -> float:
    """p(x)/q(x) for a token that was really drawn from q, so q(x) > 0.

    Raises ValueError when q(x) = 0: such a token cannot have been drawn, so the row is not the one
    it was drawn from.
    """
    owed, drawn_with = torch.stack((p[token].double(), q[token].double())).tolist()
    if not drawn_with > 0:
        raise ValueError(
            f"token {token} has draft probability {drawn_with}: it cannot have been drawn from this"
            " row of probs"
        )
    return owed / drawn_with


def residual(p: Tensor, q: Tensor) -> Tensor:
    """What q leaves of p, norm(max(0, p − q)); p itself where nothing is left. p, q: [..., V].

    Unchecked: `theory.residual` is the same for the book's formulas, and looks at its arguments.
    Source: Leviathan et al. 2023, section 2.3.
    """
    excess = (p - q).clamp(min=0)
    mass = excess.sum(-1, keepdim=True)
    return torch.where(mass > 0, excess / mass, p)


def drawn_from(proposal: Proposal, row: int | None, token: int, like: Tensor) -> Tensor:
    """The distribution [V] that a draw was made from; of a chosen token (row None) the point mass."""
    return one_hot(token, like) if row is None else proposal.probs[row]


def kind_of(path: tuple[int, ...] | list[int], rejected: bool) -> str:
    """What the token after `path` is: "recovered" after a rejection, else "bonus" after accepted
    tokens, else "sampled": nothing was tested."""
    return "recovered" if rejected else "bonus" if path else "sampled"
