"""Drafters made from other drafters: wrapped, coupled, merged, one after another, or nested."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.acceptance import exact_match, sample_and_match, speculative_sampling
from specdec_lite.contract import Context, Drafter, Limits, Session
from specdec_lite.drafters.chain import Followed
from specdec_lite.drafters.self_drafts import PassDrafter, SelfDrafter
from specdec_lite.drafters.trees import merge, stack_rows
from specdec_lite.engine.cache import Scores
from specdec_lite.engine.models import CausalLM
from specdec_lite.proposal import NOTHING, Proposal, Verdict
from specdec_lite.sampling import Sampling
from specdec_lite.speculation import NotFiniteError, Verifier, speculate, verify
from specdec_lite.tree import TokenTree

# What composites share --------------------------------------------------------------------------


class CompositeDrafter(Drafter):
    """A drafter with others in its attribute `inner`, `drafters` or `legs`."""

    def check_rule(self, rule: object) -> None:
        """Require `same_noise` where a `CoupledDrafter` meets a tree, a merge or a cascade.

        There the noise of a position decides about several tokens. After a rejection, other rules
        would draw again with noise whose outcome they have already seen.
        """
        name = getattr(rule, "name", rule)
        parts = list(members(self))
        branching = [part for part in parts if branches(part)]
        coupled = any(getattr(part, "shares_noise", False) for part in parts)
        if coupled and branching and name != "same_noise":
            raise ValueError(
                f"rule={name!s}: a CoupledDrafter with a {type(branching[0]).__name__} is lossless"
                " only under same_noise"
            )

    def check(self, target: CausalLM, positions: int) -> None:
        for drafter in children(self):
            drafter.check(target, positions)

    def learn(self, tokens: Sequence[int] | Tensor) -> None:
        for drafter in children(self):
            drafter.learn(tokens)


class GroupDrafter(CompositeDrafter):
    """A drafter with several others, each of which drafts from the committed text."""

    merges = False
    """Whether a draft has the nodes of all drafters, not of one."""

    def __init__(self, drafters: Sequence[Drafter]):
        pairs = enumerate(drafters)
        self.drafters = tuple(checks.drafter(f"drafters[{i}]", each) for i, each in pairs)
        if not self.drafters:
            raise ValueError("drafters is empty: give at least one")
        layers = [layer for drafter in self.drafters for layer in drafter.hidden_layers]
        self.hidden_layers = tuple(dict.fromkeys(layers))

    def limits(self) -> Limits | None:
        known = [limits for each in self.drafters if (limits := each.limits()) is not None]
        if len(known) < len(self.drafters):
            return None
        nodes = (sum if self.merges else max)(each.nodes for each in known)
        return Limits(max(x.levels for x in known), nodes, any(not x.is_chain for x in known))


def children(drafter: Drafter) -> list[Drafter]:
    """Return the drafters directly inside a drafter, each once."""
    values = [getattr(drafter, name, ()) for name in ("inner", "drafters", "legs")]
    lists = [each if isinstance(each, (tuple, list)) else (each,) for each in values]
    each_once = dict.fromkeys(x[0] if isinstance(x, tuple) else x for each in lists for x in each)
    return list(each_once)


def members(drafter: Drafter) -> Iterator[Drafter]:
    """Yield a drafter and all drafters inside it."""
    yield drafter
    for each in children(drafter):
        yield from members(each)


def branches(drafter: Drafter) -> bool:
    """Return whether a drafter may draw several tokens for one position in one round."""
    limits = drafter.limits()
    chain = limits is not None and limits.is_chain
    return not chain or getattr(drafter, "nested_rounds", False)


# Wrapped in another context ---------------------------------------------------------------------


class WrapperDrafter(CompositeDrafter):
    """Draft with another drafter, in a changed context: subclass it and define `inner_context`."""

    def __init__(self, inner: Drafter):
        self.inner = checks.drafter("inner", inner)
        self.hidden_layers = inner.hidden_layers

    def inner_context(self, context: Context) -> Context:
        """Return the context that the inner drafter is given."""
        raise NotImplementedError

    def start(self, context: Context) -> "WrapperSession":
        return WrapperSession(self, self.inner.start(self.inner_context(context)))

    def limits(self) -> Limits | None:
        return self.inner.limits()

    def draft_model(self) -> CausalLM | None:
        return self.inner.draft_model()


class WrapperSession(Session):
    def __init__(self, drafter: WrapperDrafter, session: Session):
        self.drafter = drafter
        self.session = session

    def propose(self, context: Context) -> Proposal:
        proposal = self.session.propose(self.drafter.inner_context(context))
        self.passes = self.session.passes
        return proposal

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        self.session.observe(verdict, scores)


# Another temperature ----------------------------------------------------------------------------


class TemperedDrafter(WrapperDrafter):
    """Draft at another temperature than the target's, with the target's top-k and top-p.

    At 0 the tokens are chosen (argmax); above 0 they are drawn, and the rows report the
    distributions they were drawn from. So every temperature is lossless; the acceptance differs.

    Args:
        inner: any drafter.
        temperature: temperature of the draft, ≥ 0.
    """

    def __init__(self, inner: Drafter, temperature: float = 0.0):
        super().__init__(inner)
        self.temperature = Sampling(temperature).temperature

    def inner_context(self, context: Context) -> Context:
        return replace(context, sampling=replace(context.sampling, temperature=self.temperature))


# Coupling: draft and verdict use the same noise -------------------------------------------------
# Source: Daliri et al. 2025 (drafter-invariant speculative decoding).


def at_position(context: Context) -> Context:
    """Return the context with the noise of its next position in place of its rng."""
    rng = context.rng.at(len(context.tokens))  # pyright: ignore[reportAttributeAccessIssue]
    return replace(context, rng=rng)


class CoupledDrafter(WrapperDrafter):
    """Draft with the noise that the rule `same_noise` will draw the target's tokens with.

    It is meant for that rule, and with trees, merged drafts and cascades it requires it. For a
    chain it is lossless under every rule that verifies a token without looking at later ones.
    Block verification looks at them: it would decide with the noise of a position that the next
    round uses again.

    Args:
        inner: any drafter.
    """

    shares_noise = True

    def inner_context(self, context: Context) -> Context:
        return at_position(context)


class SameNoise(Verifier):
    """Sample and match with the noise of each position.

    The text depends on the seed alone, and not on the drafter or the draft length.
    """

    name = "same_noise"
    lossless = True

    def verify(self, proposal: Proposal, scores: Scores, context: Context) -> Verdict:
        return verify(sample_and_match, proposal, scores, at_position(context))


same_noise = SameNoise()


# Merged into one tree ---------------------------------------------------------------------------
# Source: Miao et al. 2024 (SpecInfer).


class MergedDrafter(GroupDrafter):
    """Let every drafter draft, and verify all drafts as one tree.

    Draws are tested in the order of the drafters, and chosen tokens after all drawn ones
    (`trees.merge`). Drafted states are not reused, since the pass is shared.

    Args:
        drafters: at least one drafter, of chains or trees; the same one may occur several times.
    """

    merges = True

    def start(self, context: Context) -> "MergedSession":
        return MergedSession([drafter.start(context) for drafter in self.drafters])


class MergedSession(Session):
    """`maps` has each session's nodes as merged nodes."""

    def __init__(self, sessions: Sequence[Session]):
        self.sessions = sessions
        self.maps: list[tuple[int, ...]] = [()] * len(sessions)

    @property
    def passes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return sum(session.passes for session in self.sessions)

    def propose(self, context: Context) -> Proposal:
        drafts = [each.propose(context).trimmed(context.wanted - 1) for each in self.sessions]
        proposal, self.maps = merge(drafts)
        return proposal

    def observe(self, verdict: Verdict, scores: Scores) -> None:
        for session, new in zip(self.sessions, self.maps):
            own = {merged: node for node, merged in reversed([*enumerate(new)])}
            path = [own[node] for node in verdict.path if node in own]
            complete = len(path) == len(verdict.path)
            part = replace(
                verdict,
                path=tuple(path),
                token=verdict.token if complete else verdict.tokens[verdict.path[len(path)]],
                kind=verdict.kind if complete else "recovered" if new else "sampled",
                tests=verdict.tests[: len(path) + 1],
                tokens=tuple(verdict.tokens[node] for node in new),
                p=tuple(verdict.p[node] for node in new),
                q=tuple(verdict.q[node] for node in new),
            )
            session.observe(part, scores.along(new))


# One after another: the best first, less costly ones later --------------------------------------
# Later tokens are reached less often. Source: Chen et al. 2024 (cascade drafting, horizontal
# part).


class RelayDrafter(CompositeDrafter):
    """Draft one chain whose parts, the legs, come from different drafters.

    Each leg continues the tokens of the legs before it. Its session hears no verdict, since none is
    about its tokens alone: it sees in the next text what was accepted.

    Args:
        legs: pairs (drafter, tokens) in order: a chain drafter and the largest number of tokens, ≥
            1, that it drafts. Only the first drafter may read the target's hidden states, or draft
            with a part of the target.
    """

    def __init__(self, legs: Sequence[tuple[Drafter, int]]):
        if not legs:
            raise ValueError("legs is empty: give at least one (drafter, tokens)")
        self.legs = [
            (checks.drafter("legs", drafter), checks.whole("tokens", tokens, 1))
            for drafter, tokens in legs
        ]
        self.hidden_layers = self.legs[0][0].hidden_layers
        for drafter, _ in self.legs:
            if (limits := drafter.limits()) is not None and not limits.is_chain:
                raise ValueError(f"legs holds a {type(drafter).__name__}, which drafts a tree")
        if any(drafter.hidden_layers for drafter, _ in self.legs[1:]):
            raise ValueError("legs: only the first may read the target's hidden states")
        later = [part for drafter, _ in self.legs[1:] for part in members(drafter)]
        if any(isinstance(part, (SelfDrafter, PassDrafter)) for part in later):
            # The target's cache lacks the tokens of the legs before.
            raise ValueError("legs: only the first may draft with a part of the target")

    def start(self, context: Context) -> "RelaySession":
        sessions = [(drafter.start(context), tokens) for drafter, tokens in self.legs]
        return RelaySession(sessions)

    def limits(self) -> Limits:
        return Limits.chain(sum(tokens for _, tokens in self.legs))


class RelaySession(Session):
    def __init__(self, legs: list[tuple[Session, int]]):
        self.legs = legs

    def propose(self, context: Context) -> Proposal:
        root, text = len(context.tokens), context.tokens
        rows: list[Tensor | None] = []
        for leg, (session, tokens) in enumerate(self.legs):
            wanted = min(tokens + 1, root + context.wanted - len(text))
            inner = replace(context, tokens=text, wanted=wanted)
            part = session.propose(inner).trimmed(wanted - 1)
            if not part.is_plain_chain:  # of a drafter that does not tell its limits
                raise ValueError(f"legs[{leg}] proposed a tree: the legs of a relay draft chains")
            drafted = part.tree.tokens.cpu()
            rows += [None] * len(drafted) if part.probs is None else part.probs
            text = torch.cat((text, drafted))
        self.passes = sum(session.passes for session, _ in self.legs)
        tokens = text[root:]
        return Proposal(TokenTree.chain(tokens), stack_rows(tokens.tolist(), rows))


# Cascades: a draft model that itself decodes speculatively --------------------------------------
# Source: Spector and Re 2023.


class CascadeDrafter(CompositeDrafter):
    """Draft γ tokens by speculative rounds of a middle model, for which another drafter drafts.

    Args:
        model: the middle model, a `CausalLM` or an `NgramModel` with the target's vocabulary size.
        inner: drafter for the middle model; may be a cascade too.
        gamma: draft length ≥ 1.
    """

    def __init__(self, model: CausalLM, inner: Drafter, gamma: int = 8):
        self.model = checks.model("model", model)
        self.inner = checks.drafter("inner", inner)
        self.gamma = checks.whole("gamma", gamma, 1)
        self.nested_rounds = True  # see CompositeDrafter

    def start(self, context: Context) -> "CascadeSession":
        return CascadeSession(self, context)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.same_device("drafter", self.model, target)
        checks.same_width("cascade's model", self.model, target)
        checks.positions(self.model, positions)
        self.model.check_layers(self.inner.hidden_layers)
        self.inner.check(self.model, positions)

    def limits(self) -> Limits:
        return Limits.chain(self.gamma)

    def draft_model(self) -> CausalLM | None:
        return self.model if isinstance(self.model, CausalLM) else None


class CascadeSession(Session):
    """The drafting of one generation, with a cache of the middle model.

    If the inner session reads hidden states, the tokens whose states it has not read yet are fed
    again, in the same pass as the new ones.

    Attributes:
        read: number of tokens whose states the inner session has read.
        scored: number of tokens at which the scores end, if they begin where `read` ends; else −1.
    """

    def __init__(self, drafter: CascadeDrafter, context: Context):
        self.drafter = drafter
        self.layers = tuple(drafter.inner.hidden_layers)
        self.cache = drafter.model.new_cache(capacity=len(context.tokens) + context.wanted + 8)
        self.followed = Followed(self.cache)
        self.scores = None
        self.read = 0
        self.scored = -1
        self.inner = drafter.inner.start(self._inner_context(context, context.wanted))

    def _inner_context(self, context: Context, wanted: int) -> Context:
        """Feed the middle model the new committed tokens and return its context."""
        known = len(context.tokens) - 1
        # The inner session forgets the states of tokens that this text does not have.
        same = self.followed.trim(context.tokens)
        self.read = min(self.read, max(0, same - 1))
        if self.layers and self.scored != known:
            # Rejections may have discarded the scores of tokens that stayed.
            self.cache.crop(min(self.cache.length, self.read))
        self.scored = known
        fed = context.tokens[self.cache.length : -1]
        if len(fed):
            self.passes += 1
            self.scores = self.drafter.model.score(fed, self.cache, hidden_layers=self.layers)
        return replace(context, scores=self.scores, cache=self.cache, wanted=wanted)

    def propose(self, context: Context) -> Proposal:
        wanted = min(self.drafter.gamma, context.wanted - 1)
        if wanted < 1:
            return NOTHING
        rule = exact_match if context.sampling.greedy else speculative_sampling
        inner = self._inner_context(context, wanted)
        tokens, rows = [], []
        while inner.wanted > 0:
            self.read, self.scored = len(inner.tokens) - 1, -1
            try:
                step, inner = speculate(self.drafter.model, self.inner, inner, rule, self.layers)
            except NotFiniteError as error:
                text = str(error).replace("the target's", "the cascade's middle model's")
                raise NotFiniteError(text) from None
            self.passes += 1
            tokens += step.tokens
            rows += context.sampling(inner.scores.logits[0])  # pyright: ignore[reportOptionalMemberAccess]
        self.scores, self.followed.text = inner.scores, inner.tokens
        return Proposal(TokenTree.chain(tokens), None if rule is exact_match else torch.stack(rows))
