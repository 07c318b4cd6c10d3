"""What rules share: the mark, the ratio p/q of a drawn token, the residual, and the walk down a tree.

An *accepted* token was drafted and is kept. A *recovered* token replaces the first rejected one. A
*bonus* token follows a draft that was accepted to its end. `target_probs` [n+1, V] contains the
target's adjusted distributions: row 0 follows the root (the last committed token), row i+1 follows
node i.
"""

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import ParamSpec

import torch
from torch import Tensor

from specdec_lite.proposal import DraftNumbers, Draws, Proposal, Verdict, one_hot, positive
from specdec_lite.sampling import Rng
from specdec_lite.transfer import upload

RuleFunction = Callable[[Proposal, Tensor, Rng], Verdict]
P = ParamSpec("P")
Visit = Callable[[int, Draws], tuple[int | None, int]]
"""(node, its draws) → (index of the accepted draw, unused) or (None, the token to emit)."""


def rule(
    lossless: bool, name: str | None = None, chains_only: bool = False
) -> Callable[[RuleFunction], RuleFunction]:
    """Return a decorator that marks (proposal, target_probs, rng) → Verdict as a rule.

    The function gets these three as attributes, and is otherwise unchanged.

    Args:
        lossless: whether the emitted text has the target's distribution for every proposal.
        name: in tables; None for the function's own name.
        chains_only: whether it raises ValueError for a tree.
    """

    def mark(function: RuleFunction) -> RuleFunction:
        # Attributes, not a wrapper: the function in a traceback is the one that was written.
        setattr(function, "lossless", lossless)  # noqa: B010
        setattr(function, "name", name or function.__name__)  # noqa: B010
        setattr(function, "chains_only", chains_only)  # noqa: B010
        return function

    return mark


class RuleWithSettings:
    """A rule that a function of settings made; a pickle or a copy makes it again.

    Attributes:
        verify: the rule itself, whose marks it has too.
        make: a function without arguments that returns an equal rule.
    """

    def __init__(self, verify: RuleFunction, make: Callable[[], RuleFunction]):
        self.verify = verify
        self.make = make
        self.__dict__.update(vars(verify))

    def __call__(self, proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
        return self.verify(proposal, target_probs, rng)

    def __repr__(self) -> str:
        return self.name  # pyright: ignore[reportAttributeAccessIssue]

    def __reduce__(self) -> tuple:
        return self.make, ()


def with_settings(make: Callable[P, RuleFunction]) -> Callable[P, RuleFunction]:
    """Let a function that returns a rule return one that can be pickled, as a closure cannot."""

    @wraps(make)
    def made(*args: P.args, **settings: P.kwargs) -> RuleFunction:
        return RuleWithSettings(make(*args, **settings), partial(made, *args, **settings))

    return made


def ratio(p: Tensor, q: Tensor, token: int) -> float:
    """Return p(x)/q(x) for a token x that was drawn from q.

    Args:
        p: the target's distribution [V].
        q: the drafter's distribution [V].
        token: x.

    Raises:
        ValueError: q(x) = 0. Such a token cannot have been drawn from this row.
    """
    # float64 on the device, and one read for both numbers.
    p_token, q_token = torch.stack((p[token].double(), q[token].double())).tolist()
    return p_token / positive(q_token, token)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """Return what q leaves of p, norm(max(0, p − q)); p itself if nothing is left.

    The arguments are not checked; `theory.residual` computes the same and checks them. Source:
    Leviathan et al. 2023, section 2.3.

    Args:
        p: distributions [..., V].
        q: distributions [..., V].
    """
    excess = (p - q).clamp(min=0)
    mass = excess.sum(-1, keepdim=True)
    # Without excess p = q, and nothing drawn from q is rejected: any result will do but NaN.
    return torch.where(mass > 0, excess / mass, p)


def drawn_from(proposal: Proposal, row: int | None, token: int, like: Tensor) -> Tensor:
    """Return the distribution [V] that a draw was made from; one-hot if the token was chosen."""
    if row is None or proposal.probs is None:
        return one_hot(token, like)
    return proposal.probs[row]


def kind_of(path: tuple[int, ...] | list[int], rejected: bool) -> str:
    """Return what the token after a path is: "recovered", "bonus" or "sampled"."""
    return "recovered" if rejected else "bonus" if path else "sampled"


def numbers_of(proposal: Proposal, target_probs: Tensor) -> DraftNumbers:
    """Return the proposal's `numbers`: as the verifier has read them, or read now."""
    return proposal.numbers or proposal.read(target_probs)[0].numbers  # pyright: ignore[reportReturnType]


class TokenProbs:
    """p(x) and q(x) of every draw x, where p is the residual after the rejections before it.

    The numbers of the first draw at a node were read with the proposal. Those of later siblings are
    read once a first draw has been rejected: most rounds never need them.

    Args:
        proposal: the drafted tree.
        target_probs: [n+1, V], row 0 after the root, row i+1 after node i.
    """

    def __init__(self, proposal: Proposal, target_probs: Tensor):
        self.proposal = proposal
        self.target_probs = target_probs
        self.numbers = numbers_of(proposal, target_probs)
        self.later: dict[int, list[float]] = {}  # node → p(x) of its draws after the first

    def __call__(self, node: int, index: int) -> tuple[float, float]:
        """Return p(x) and q(x) of the draw with this index below a node."""
        child, row = self.proposal.draws[node][index]
        p, q = self.numbers.p_and_q(child, row)
        if index == 0:
            return p, q
        if node not in self.later:
            self._read_later(node)
        return self.later[node][index - 1], q

    def _read_later(self, node: int) -> None:
        """Read p(x) of the later draws at a node, and at every node that may be visited after it.

        Every read waits for the device, so one read covers whatever this walk can still ask for.
        """
        draws, device = self.proposal.draws, self.target_probs.device
        # The first draw was rejected: the walk can only go on below the others.
        nodes, below = [node], [child for child, _ in draws[node][1:]]
        while below:
            nodes += below
            below = [child for parent in below for child, _ in draws.get(parent, ())]
        # Nodes with most draws come first, so that the nodes still tested are always a prefix.
        families = {n: draws[n] for n in nodes if len(draws.get(n, ())) > 1}
        order = sorted(families, key=lambda n: -len(families[n]))
        p = self.target_probs[upload([n + 1 for n in order], device)]
        tested: list[int] = []
        values: list[Tensor] = []
        # One step per sibling index, for all nodes together: reject the draw before, then look up x.
        for index in range(1, len(families[order[0]])):
            order = [n for n in order if len(families[n]) > index]
            p = residual(p[: len(order)], self._rows([families[n][index - 1] for n in order], p))
            tokens = [self.numbers.tokens[families[n][index][0]] for n in order]
            values.append(p.gather(-1, upload(tokens, device)[:, None])[:, 0])
            tested += order
        for n, value in zip(tested, torch.cat(values).tolist()):
            self.later.setdefault(n, []).append(value)

    def _rows(self, draws: Sequence[tuple[int, int | None]], like: Tensor) -> Tensor:
        """Return the distributions [n, V] that draws were made from."""
        tokens = self.numbers.tokens
        return torch.stack([drawn_from(self.proposal, r, tokens[n], like[0]) for n, r in draws])


def walk_tree(proposal: Proposal, visit: Visit) -> Verdict:
    """Walk down from the root, one accepted draw per level, and return the verdict."""
    path: list[int] = []
    tests: list[int] = []
    node = -1
    while True:
        draws = proposal.draws.get(node, ())  # empty at a leaf: the token is then a bonus
        accepted, token = visit(node, draws)
        if draws:
            tests.append(len(draws) if accepted is None else accepted + 1)
        if accepted is None:
            kind = kind_of(path, rejected=bool(draws))
            return Verdict(tuple(path), token, kind, tuple(tests))
        node = draws[accepted][0]
        path.append(node)
