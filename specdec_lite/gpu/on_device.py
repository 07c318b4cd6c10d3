"""Rounds that read the device once: the draft and its verification stay on the device.

A GPU works through a queue of kernels that the host fills. Every `.item()` waits until the queue is
empty. The plain rule waits twice per round: for the draft's numbers, and for the token that it draws.
Here the tokens of a draft stay on the device, one vectorized expression runs the acceptance tests of
the whole chain, and the verdict is read back by one copy.

Use `DeviceDrafter` and the rule `on_device` together. The uniforms are those of the plain path, in
the same order, so one seed gives one text on both paths. Nothing here needs a GPU.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from specdec_lite.acceptance.protocol import kind_of
from specdec_lite.checks import whole
from specdec_lite.contract import Context
from specdec_lite.drafters.chain import fit
from specdec_lite.drafters.models import ModelDrafter, ModelSession
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.sampling import Rng, Sampling, SeededRng, inverse
from specdec_lite.speculation import Verifier, not_finite
from specdec_lite.transfer import download, upload
from specdec_lite.tree import TokenTree


def upcoming(rng: Rng, count: int) -> list[float]:
    """Return the next uniforms of an rng without drawing them."""
    seeded = _seeded(rng)
    state = seeded.generator.get_state()
    ahead = [SeededRng.uniform(seeded) for _ in range(count)]
    seeded.generator.set_state(state)
    return ahead


def invert(probs: Tensor, uniform: Tensor) -> Tensor:
    """Return the token [1] at which the cumulative distribution first exceeds a uniform.

    It equals `sampling.invert` without reading the device, so it cannot report NaN or a row without
    mass. The token is then some id, and the verdict's checks of the target's logits and of q name
    the fault.

    Shapes: probs [V].
    """
    token, _ = inverse(probs, uniform)
    return token.clamp(max=len(probs) - 1)


def verify_sampled(
    tokens: Tensor, q: Tensor, p: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run speculative sampling of a whole chain on the device.

    It equals `acceptance.speculative_sampling`, draw by draw.

    Shapes: tokens [n], q [n, V], p [n+1, V], uniforms [n+1].
    """
    count, columns = len(tokens), tokens[:, None]
    p_drafted, q_drafted = (rows[:count].gather(-1, columns)[:, 0].double() for rows in (p, q))
    passed = uniforms[:count] < p_drafted / q_drafted
    accepted = passed.long().cumprod(0).sum(0, keepdim=True)
    row = p.index_select(0, accepted)[0]
    if count:
        excess = (row - q.index_select(0, accepted.clamp(max=count - 1))[0]).clamp(min=0)
        mass = excess.sum(-1, keepdim=True)
        row = torch.where((accepted < count) & (mass > 0), excess / mass, row)
    token = invert(row, uniforms.index_select(0, (accepted + 1).clamp(max=count)))
    return accepted, token, p_drafted, q_drafted


def verify_greedy(tokens: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run exact match of a whole chain on the device.

    Shapes: tokens [n], logits [n+1, V].
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


class OnDevice(Verifier):
    """The rule that verifies chains on the device.

    It is exact match at temperature 0 and speculative sampling above.
    """

    name = "on_device"
    lossless = True

    def __call__(self, proposal: Proposal, target_probs: Tensor, rng: Rng) -> Verdict:
        """Verify from probabilities as other rules do, for code that compares rules.

        Shapes: target_probs [n+1, V].
        """
        _check(proposal)
        count = len(proposal.tree)
        tokens = proposal.tree.tokens.to(target_probs.device)
        uniforms = upload(upcoming(rng, count + 1), target_probs.device, torch.float64)
        accepted, token, _, q = verify_sampled(
            tokens, _rows(proposal, target_probs), target_probs, uniforms
        )
        _check_drawn(q.tolist(), int(accepted))
        return _verdict(_seeded(rng), count, int(accepted), int(token))

    def verify(self, proposal: Proposal, scores: Scores, context: Context) -> Verdict:
        """Verify from logits, and read everything that a step reports by one copy."""
        _check(proposal)
        logits = scores.logits[0]
        count = len(proposal.tree)
        tokens = proposal.tree.tokens.to(logits.device)
        rng = None
        if context.sampling.greedy and proposal.probs is None:
            accepted, token, p, q = verify_greedy(tokens, logits)
        else:
            rng = _seeded(context.rng)
            probs = context.sampling(logits)
            uniforms = upload(upcoming(rng, count + 1), logits.device, torch.float64)
            rows = _rows(proposal, probs)
            accepted, token, p, q = verify_sampled(tokens, rows, probs, uniforms)
        finite = logits.amax(-1).isfinite().all()[None]
        host = download(finite=finite, accepted=accepted, token=token, p=p, q=q, tokens=tokens)
        if not host["finite"][0]:
            raise not_finite(context, logits.dtype)
        length = int(host["accepted"][0])
        _check_drawn(host["q"], length)
        return replace(
            _verdict(rng, count, length, int(host["token"][0])),
            tokens=tuple(int(token) for token in host["tokens"]),
            p=tuple(host["p"]),
            q=tuple(host["q"]),
        )


on_device = OnDevice()


def _seeded(rng: Rng) -> SeededRng:
    """Return the rng itself, or raise TypeError if its uniforms cannot be sent in advance."""
    if not isinstance(rng, SeededRng):
        raise TypeError(
            f"rng is a {type(rng).__name__}: must be a SeededRng to draft and verify on the device,"
            " because its uniforms are sent in advance"
        )
    return rng


def _check(proposal: Proposal) -> None:
    """Raise ValueError for anything but a chain of one draw per level."""
    if not proposal.is_plain_chain:
        raise ValueError(
            "on_device verifies chains of one draw per level; this proposal is a tree, or holds"
            " merged draws or candidates: use rule=None"
        )


def _check_drawn(q: list[float], accepted: int) -> None:
    """Raise ValueError if a tested token had probability 0 (or NaN) under the draft."""
    if impossible := [x for x in q[: accepted + 1] if not x > 0]:
        raise ValueError(
            f"the draft drew a token to which it gave probability {impossible[0]}: this is not the"
            " row it was drawn from"
        )


def _rows(proposal: Proposal, like: Tensor) -> Tensor:
    """Return the rows [n, V] that the chain was drawn from: one-hot rows for chosen tokens."""
    if proposal.probs is not None:
        return proposal.probs.to(like.device)
    return torch.zeros_like(like[:-1]).scatter_(
        -1, proposal.tree.tokens.to(like.device)[:, None], 1.0
    )


def _verdict(rng: SeededRng | None, count: int, accepted: int, token: int) -> Verdict:
    """Return the verdict, and draw from the rng those of the sent uniforms that were used."""
    tested = min(accepted + 1, count)
    if rng is not None:
        for _ in range(tested + 1):
            rng.uniform()
    path = tuple(range(accepted))
    kind = kind_of(path, rejected=accepted < count)
    return Verdict(path, token, kind, (1,) * tested)


class DeviceDrafter(ModelDrafter):
    """`ModelDrafter` whose tokens stay on the device until the verdict; use `rule=on_device`.

    With a draft model of fixed shapes (`graphs.StaticLM`) a whole round is queued without a wait.

    Args:
        model: a `CausalLM`.
        gamma: draft length ≥ 1. A policy would have to wait for the draft's probabilities.
    """

    def __init__(self, model: CausalLM, gamma: int = 4):
        super().__init__(model, whole("gamma", gamma, 1))

    def start(self, context: Context) -> "DeviceSession":
        return DeviceSession(self.model, self.gamma, context)


class DeviceSession(ModelSession):
    """The same draft as `ModelSession`, token for token, under the same uniforms."""

    def propose(self, context: Context) -> Proposal:
        gamma = min(self.length.gamma, context.wanted - 1)
        if gamma < 1:
            return NOTHING
        rng = _seeded(context.rng)
        numbers = [] if context.sampling.greedy else [rng.uniform() for _ in range(gamma)]
        uniforms = upload(numbers, self.model.device, torch.float64)
        fed = upload(self.followed.behind(context.tokens), self.model.device)
        tokens, rows = self._draft(fed, gamma, uniforms, context.sampling, context.vocab_size)
        return Proposal(TokenTree.chain(tokens), rows)

    def _draft(
        self, fed: Tensor, gamma: int, uniforms: Tensor, sampling: Sampling, vocab_size: int
    ) -> tuple[Tensor, Tensor | None]:
        """Return what `draft_tokens` returns."""
        follow = lambda tokens: self._score(tokens).logits[0, -1]
        return draft_tokens(follow, fed, gamma, uniforms, sampling, vocab_size)


def draft_tokens(
    follow: Callable[[Tensor], Tensor],
    fed: Tensor,
    gamma: int,
    uniforms: Tensor,
    sampling: Sampling,
    vocab_size: int,
) -> tuple[Tensor, Tensor | None]:
    """Draft a chain without reading the device.

    Shapes: fed [n].
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
