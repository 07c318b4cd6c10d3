"""Rounds that the host does not interrupt: drafting and judging on the device, one read a round.

A GPU runs behind the host by a queue of kernels. Every `.item()` waits until the queue is empty,
and the plain drafter does one for each token it draws, the plain rule several more. Here the tokens
of a draft stay on the device, the acceptance tests of the whole chain are one vectorised
expression, and the verdict comes back in a single read. What lives here: `DeviceDrafter` and the
rule `on_device`, to be used together. What does not: the round and the loop, which are the ordinary
ones, passes of fixed shape (`graphs`), and a draft that is one graph (`whole_draft`). Chance comes
from the same uniforms in the same order as in the plain path, so one seed gives one text on both;
nothing here needs a GPU.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from specdec_lite.acceptance.rule import kind_of
from specdec_lite.checks import whole
from specdec_lite.drafters.model import ModelDrafter, ModelSession, fit
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.sampling import Rng, Sampling, SeededRng, inverse
from specdec_lite.speculation import Context, Verifier, not_finite
from specdec_lite.tree import TokenTree


def upload(numbers: list[float], device: torch.device) -> Tensor:
    """Numbers as float64 on the device, copied without waiting for it."""
    tensor = torch.tensor(numbers, dtype=torch.float64)
    return (
        tensor.pin_memory().to(device, non_blocking=True)
        if device.type == "cuda"
        else tensor.to(device)
    )


def _seeded(rng: Rng) -> SeededRng:
    if not isinstance(rng, SeededRng):
        raise TypeError(
            f"rng is a {type(rng).__name__}: drafting and judging on the device need a SeededRng,"
            " whose uniforms can be sent ahead"
        )
    return rng


def upcoming(rng: Rng, count: int) -> list[float]:
    """The next `count` uniforms of a seeded rng, which stay to be drawn. TypeError for another kind
    of rng.
    """
    state = _seeded(rng).generator.get_state()
    ahead = [SeededRng.uniform(rng) for _ in range(count)]
    rng.generator.set_state(state)
    return ahead


def invert(probs: Tensor, uniform: Tensor) -> Tensor:
    """`sampling.invert` without a read: the token [1] at which the cumulative distribution of probs
    [V] exceeds uniform [1].

    NaN or no mass cannot be reported here: the token is then some id, and the verdict's checks of
    the target's logits and of q name the fault.
    """
    token, _ = inverse(probs, uniform)
    return token.clamp(max=len(probs) - 1)


def judge_sampled(
    tokens: Tensor, q: Tensor, p: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Speculative sampling of a chain at once: (accepted [1], token [1], p(x) [n], q(x) [n]), all
    on the device.

    tokens [n] drawn from q [n, V]; p [n+1, V]; uniforms [n+1]: one for each test, then the one for
    the token that follows, which after a rejection is the next unused one. Equal to
    `acceptance.speculative_sampling`, draw by draw.
    """
    count, each = len(tokens), tokens[:, None]
    p_drafted, q_drafted = (rows[:count].gather(-1, each)[:, 0].double() for rows in (p, q))
    passed = uniforms[:count] < p_drafted / q_drafted
    accepted = passed.long().cumprod(0).sum(0, keepdim=True)
    owed = p.index_select(0, accepted)[0]
    if count:
        excess = (owed - q.index_select(0, accepted.clamp(max=count - 1))[0]).clamp(min=0)
        mass = excess.sum(-1, keepdim=True)
        owed = torch.where((accepted < count) & (mass > 0), excess / mass, owed)
    token = invert(owed, uniforms.index_select(0, (accepted + 1).clamp(max=count)))
    return accepted, token, p_drafted, q_drafted


def judge_greedy(tokens: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Exact match of a chain at once: the shapes of `judge_sampled`, on the target's logits [n+1,
    V].
    """
    likeliest = logits.argmax(-1)
    passed = tokens == likeliest[: len(tokens)]
    accepted = passed.long().cumprod(0).sum(0, keepdim=True)
    return (
        accepted,
        likeliest.index_select(0, accepted),
        passed.double(),
        torch.ones(len(tokens), dtype=torch.float64, device=tokens.device),
    )


def read(**parts: Tensor) -> dict[str, list[float]]:
    """Tensors [n_i] as lists on the host, by one copy: a round's only wait."""
    numbers = torch.cat([part.double() for part in parts.values()]).tolist()
    ends = list(accumulate(len(part) for part in parts.values()))
    return {name: numbers[end - len(part) : end] for (name, part), end in zip(parts.items(), ends)}


class OnDevice(Verifier):
    """The rule for chains that is judged on the device: exact match at temperature 0, speculative
    sampling above.
    """

    name = "on_device"
    lossless = True

    def __call__(self, proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
        """Judge as any rule does, from the distributions [n+1, V]; used where rules are compared
        under a `SeededRng`.
        """
        _check(proposal)
        count = len(proposal.tree)
        tokens = proposal.tree.tokens.to(target_probs.device)
        uniforms = upload(upcoming(rng, count + 1), target_probs.device)
        accepted, token, _, q = judge_sampled(
            tokens, _rows(proposal, target_probs), target_probs, uniforms
        )
        _check_drawn(q.tolist(), int(accepted))
        return _verdict(rng, count, int(accepted), int(token))

    def verify(self, proposal: Proposal, scores: Scores, context: Context) -> Verdict:
        """Judge the target's logits and read everything a step reports with one copy to the host."""
        _check(proposal)
        logits = scores.logits[0]
        count = len(proposal.tree)
        tokens = proposal.tree.tokens.to(logits.device)
        rng = context.rng
        if context.sampling.greedy and proposal.probs is None:
            rng = None
            accepted, token, p, q = judge_greedy(tokens, logits)
        else:
            probs = context.sampling(logits)
            uniforms = upload(upcoming(rng, count + 1), logits.device)
            rows = _rows(proposal, probs)
            accepted, token, p, q = judge_sampled(tokens, rows, probs, uniforms)
        finite = logits.amax(-1).isfinite().all()[None]
        host = read(finite=finite, accepted=accepted, token=token, p=p, q=q, tokens=tokens)
        if not host["finite"][0]:
            raise not_finite(context, logits.dtype)
        taken = int(host["accepted"][0])
        _check_drawn(host["q"], taken)
        return replace(
            _verdict(rng, count, taken, int(host["token"][0])),
            tokens=tuple(int(token) for token in host["tokens"]),
            p=tuple(host["p"]),
            q=tuple(host["q"]),
        )


on_device = OnDevice()


def _check(proposal: Proposal) -> None:
    if not proposal.is_plain_chain:
        raise ValueError(
            "on_device judges chains of one draw a level; this proposal is a tree, or holds merged"
            " draws or candidates: use rule=None"
        )


def _check_drawn(q: list[float], accepted: int) -> None:
    if impossible := [x for x in q[: accepted + 1] if not x > 0]:  # NaN too
        raise ValueError(
            f"the draft drew a token to which it gave probability {impossible[0]}: this is not the"
            " row it was drawn from"
        )


def _rows(proposal: Proposal, like: Tensor) -> Tensor:
    """The rows [n, V] that the chain was drawn from; a chosen token is a draw from a one-hot row."""
    if proposal.probs is not None:
        return proposal.probs.to(like.device)
    return torch.zeros_like(like[:-1]).scatter_(
        -1, proposal.tree.tokens.to(like.device)[:, None], 1.0
    )


def _verdict(rng: Rng | None, count: int, accepted: int, token: int) -> Verdict:
    """The verdict, after drawing from the rng what was used of the uniforms that had been sent
    ahead.
    """
    tested = min(accepted + 1, count)
    for _ in range(0 if rng is None else tested + 1):
        rng.uniform()
    path = tuple(range(accepted))
    kind = kind_of(path, rejected=accepted < count)
    return Verdict(path, token, kind, (1,) * tested)


class DeviceDrafter(ModelDrafter):
    """`ModelDrafter` whose tokens stay on the device until the verdict; use it with
    `rule=on_device`.

    With a draft of fixed shapes (`graphs.StaticLM`) a whole round is queued without a wait. gamma:
    a number; a policy that looks at the draft would have to wait for it.
    """

    def __init__(self, model: CausalLM, gamma: int = 4):
        super().__init__(model, whole("gamma", gamma, 1))

    def start(self, context: Context) -> "DeviceSession":
        return DeviceSession(self.model, self.gamma, context)


class DeviceSession(ModelSession):
    """The same draft, token for token, under the same uniforms."""

    def propose(self, context: Context) -> Proposal:
        self.root = len(context.tokens)
        gamma = min(self.length.gamma, context.wanted - 1)
        if gamma < 1:
            return NOTHING
        rng = _seeded(context.rng)
        chance = [] if context.sampling.greedy else [rng.uniform() for _ in range(gamma)]
        uniforms = upload(chance, context.tokens.device)
        fed = context.tokens[self.cache.length :]
        tokens, rows = self._draft(fed, gamma, uniforms, context.sampling, context.vocab_size)
        return Proposal(TokenTree.chain(tokens), rows)

    def _draft(
        self, fed: Tensor, gamma: int, uniforms: Tensor, sampling: Sampling, vocab_size: int
    ) -> tuple[Tensor, Tensor | None]:
        follow = lambda tokens: self._score(tokens).logits[0, -1]
        return drafted(follow, fed, gamma, uniforms, sampling, vocab_size)


def drafted(
    follow: Callable[[Tensor], Tensor],
    fed: Tensor,
    gamma: int,
    uniforms: Tensor,
    sampling: Sampling,
    vocab_size: int,
) -> tuple[Tensor, Tensor | None]:
    """Draft a chain without a read: (tokens [γ], the rows [γ, V] that they were drawn from, or None
    where they were chosen).

    follow: tokens [n] → the draft's logits [V'] after the last of them. fed: what it is given
    first. uniforms [γ]: none when greedy.
    """
    tokens: list[Tensor] = []
    rows: list[Tensor] = []
    for i in range(gamma):
        logits = fit(follow(fed), vocab_size)
        if sampling.greedy:
            fed = logits.argmax(-1, keepdim=True)
        else:
            rows.append(sampling(logits))
            fed = invert(rows[-1], uniforms[i : i + 1])
        tokens.append(fed)
    return torch.cat(tokens), torch.stack(rows) if rows else None
