"""Enumerate every text that a drafter can lead to on a tiny model, and watch its proposals.

`lossless.check_lossless` evaluates what is recorded here.
"""

import copy
from contextlib import suppress
from functools import partial

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.contract import Context, Drafter, Session
from specdec_lite.decoding import stream
from specdec_lite.drafters.combined import WrapperDrafter, WrapperSession
from specdec_lite.engine.cache import CacheReader, ReadOnlyCacheError
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.proposal import Proposal
from specdec_lite.sampling import EnumeratingRng, Rng, Sampling, outcomes

PROMPT = (1, 2, 0, 1, 2, 1)
"""A text that repeats itself, so that drafters which copy have something to copy."""
MOST_OF_LONG_TEXTS = 1000
"""Outcomes from which on shorter texts are enumerated."""
MOST_OF_ONE_ROUND = 30
"""Drafts of one round, given the rounds before it."""


def tiny_target(vocab_size: int = 3, seed: int = 5) -> CausalLM:
    """Return a native model with random weights in float64: two layers of size 16."""
    config = TransformerConfig(
        vocab_size=vocab_size,
        hidden_size=16,
        intermediate_size=16,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_size=8,
        tied=False,
        max_positions=512,
    )
    with torch.random.fork_rng(devices=[]):
        model = Transformer(config)
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.6, generator=generator)
    return CausalLM(model.double().requires_grad_(False))


def tiny_draft(target: CausalLM, noise: float = 0.3, seed: int = 1) -> CausalLM:
    """Return a draft model that often agrees with a target: a copy with noise."""
    checks.model("target", target)
    model, generator = copy.deepcopy(target.model), torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        if weight.dim() > 1:
            shape, dtype = weight.shape, weight.dtype
            error = torch.randn(shape, generator=generator, dtype=dtype).to(weight.device)
            weight.data += noise * weight.std() * error
    return CausalLM(model)


CAUSES = {
    "invalid proposal": "a token or a row of probs is not valid",
    "limits": "a proposal is larger than limits() states",
    "target's cache": "drafting changes entries of the target's cache",
    "states": "Proposal.states differ from the hidden states of the target's own pass",
    "not repeatable": "equal choices of context.rng give different drafts: chance comes from"
    " elsewhere, or a memory changes during a generation",
    "argmax row": "a token is chosen, but a row with several possible tokens is reported: report"
    " probs=None or a one-hot row",
    "row before sampling": "the reported row is the one before temperature, top-k or top-p",
    "row before exclusion": "a sibling is drawn without the tokens of its older siblings, but the"
    " row that still contains them is reported",
    "sorted siblings": "drawn siblings are sorted; they must keep the order in which they were"
    " drawn",
    "dropped draw": "a drawn token is discarded after its value was looked at",
    "wrong row": "a token is not drawn from the row that is reported for it",
    "error": "decoding with this drafter raises an error",
    "greedy text": "at temperature 0 the text differs from the target's own",
    "text": "the text does not have the target's distribution",
}
"""What can be wrong, the causes before their consequences."""


class Fault(Exception):
    """One thing that is wrong with a drafter.

    Attributes:
        name: a key of `CAUSES`.
        where: the setting and the round in which it was seen, with numbers.
    """

    def __init__(self, name: str, where: str):
        super().__init__(name, where)
        self.name = name
        self.where = where

    def __str__(self) -> str:
        return f"{self.name}: {CAUSES[self.name]}\n    {self.where}"


class TooManyOutcomes(ValueError):
    """More outcomes than are enumerated."""


def label(sampling: Sampling) -> str:
    """Return the settings in words."""
    parts = [f"temperature {sampling.temperature:g}"]
    parts += [] if sampling.top_k is None else [f"top-k {sampling.top_k}"]
    parts += [] if sampling.top_p is None else [f"top-p {sampling.top_p:g}"]
    return ", ".join(parts)


class _Reached(Exception):
    """The round whose drafts are enumerated has drafted."""


class Watch(WrapperDrafter):
    """Another drafter, whose proposals are recorded.

    Args:
        inner: the other drafter.
        target: the model that decodes.
        strict: whether the target's cache and the drafter's states are compared too.

    Attributes:
        only: number of the round that is recorded, and after which a run ends; None: all rounds.
        drafts: {committed text: {choices so far: (their probability, the proposal)}}.
        choices: number of choices that were made before each recorded round.
        outcomes: number of texts that were enumerated.
    """

    def __init__(self, inner: Drafter, target: CausalLM, strict: bool = False):
        super().__init__(inner)
        self.target = target
        self.strict = strict
        self.only: int | None = None
        self.drafts: dict[tuple, dict[tuple, tuple[float, Proposal]]] = {}
        self.choices: list[int] = []
        self.outcomes = 0

    def start(self, context: Context) -> Session:
        return WatchedSession(self, self.inner.start(context))

    def check_rule(self, rule: object) -> None:
        self.inner.check_rule(rule)


class WatchedSession(WrapperSession):
    """The drafting of one generation, whose proposals are checked and recorded.

    Raises:
        Fault: a proposal or the target's cache is wrong.
    """

    def __init__(self, watch: Watch, session: Session):
        super().__init__(watch, session)
        self.watch = watch
        self.earlier = watch.only or 0  # rounds before the first that is recorded

    def propose(self, context: Context) -> Proposal:
        if self.earlier:
            self.earlier -= 1
            return self.session.propose(context)
        watch, rng = self.watch, context.rng
        before_draft = getattr(rng, "step", 0)
        before = _contents(context.cache) if watch.strict else []
        try:
            proposal = self.session.propose(context)
        except ReadOnlyCacheError as error:
            raise Fault("target's cache", str(error)) from None
        self.passes = self.session.passes
        where = f"after {context.tokens.tolist()}"
        length = len(context.tokens) - 1 if context.cache is None else context.cache.length
        if length != len(context.tokens) - 1:
            raise Fault("target's cache", f"{where}: it has {length} tokens after drafting")
        if not isinstance(proposal, Proposal):
            return proposal  # the round names it
        try:
            proposal.check_contents(context.vocab_size)
        except (ValueError, IndexError) as error:
            raise Fault("invalid proposal", f"{where}: {error}") from None
        limits = watch.limits()
        if limits is not None and len(proposal.tree) > limits.nodes:
            raise Fault("limits", f"{where}: {len(proposal.tree)} nodes, limits() states {limits}")
        if watch.strict:
            if not all(map(torch.equal, before, _contents(context.cache))):
                raise Fault("target's cache", f"{where}: stored keys or values differ")
            self._compare_states(context, proposal, where)
        if isinstance(rng, EnumeratingRng):
            watch.choices.append(before_draft)
            group = watch.drafts.setdefault(tuple(context.tokens.tolist()), {})
            known = group.setdefault(rng.choices[: rng.step], (rng.weight, proposal))[1]
            if not _equal(known, proposal):
                tokens = [each.tree.tokens.tolist() for each in (known, proposal)]
                raise Fault("not repeatable", f"{where}: {tokens[0]}, then {tokens[1]}")
        if watch.only is not None:
            raise _Reached
        return proposal

    def _compare_states(self, context: Context, proposal: Proposal, where: str) -> None:
        if proposal.states is None:
            return
        block, rows = proposal.states
        target, tokens, tree = self.watch.target, context.tokens, proposal.tree
        cache = target.new_cache()
        if len(tokens) > 1:
            target.score(tokens[:-1], cache)
        fed = torch.cat((tokens[-1:], tree.tokens))
        own = target.score(fed, cache, tree, (block,)).hidden[block]
        if own.shape != rows.shape or (own - rows).abs().max() > 1e-6:
            raise Fault("states", f"{where}: the rows after block {block} differ")


def _contents(reader) -> list[Tensor]:
    """Return copies of the keys and values that a native model's cache stores."""
    cache = reader._cache if isinstance(reader, CacheReader) else reader
    tensors, stored = cache.storage.tensors, slice(cache.length)
    return [part[..., stored, :].clone() for part in (tensors.keys, tensors.values)]


def _equal(first: Proposal, second: Proposal) -> bool:
    """Return whether two proposals have the same tree and the same rows."""
    trees = [(each.tree.parents, each.tree.tokens.tolist()) for each in (first, second)]
    if first.probs is None or second.probs is None:
        return trees[0] == trees[1] and first.probs is second.probs
    same = trees[0] == trees[1] and first.probs.shape == second.probs.shape
    return same and torch.allclose(first.probs, second.probs, rtol=0, atol=1e-9)


def enumerate_texts(
    target: CausalLM, drafter: Drafter, sampling: Sampling, rule, max_outcomes: int
) -> tuple[dict[tuple[int, ...], float], Watch]:
    """Return the exact distribution of the text, and the drafts that were made for it.

    Texts have three tokens, or two if there would be too many outcomes.

    Raises:
        TooManyOutcomes: two tokens have too many, too.
    """
    for length, most in ((3, min(MOST_OF_LONG_TEXTS, max_outcomes)), (2, max_outcomes)):
        watch = Watch(drafter, target)
        text = partial(_text, target, watch, sampling, rule, length)
        texts: dict[tuple[int, ...], float] = {}
        text(EnumeratingRng())  # twice, so that chance from elsewhere is seen
        for emitted, weight in outcomes(text):
            watch.outcomes += 1
            texts[emitted] = texts.get(emitted, 0.0) + weight
            if watch.outcomes > most:
                break
        else:
            return texts, watch
    raise TooManyOutcomes(
        f"the drafter has more than max_outcomes={max_outcomes} outcomes at {label(sampling)}:"
        " make_drafter must return a smaller one, such as a chain of 2 tokens"
    )


def _text(
    target: CausalLM, watch: Watch, sampling: Sampling, rule, length: int, rng: Rng
) -> tuple[int, ...]:
    """Return the tokens that are decoded after `PROMPT`."""
    settings = (length, sampling.temperature, sampling.top_k, sampling.top_p, rule)
    steps = stream(target, PROMPT, watch, *settings, rng=rng)
    return tuple(token for step in steps for token in step.tokens)


class SampledRng(EnumeratingRng):
    """Take seeded choices instead of the first possible ones, and remember them."""

    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def _choose(self, probs: list[float]) -> int:
        weights = torch.tensor(probs, dtype=torch.float64)
        self.choices += (int(weights.multinomial(1, generator=self.generator)),)
        return super()._choose(probs)


def enumerate_rounds(
    target: CausalLM, drafter: Drafter, sampling: Sampling, rule, length: int
) -> Watch:
    """Return all drafts of every third round of one sampled text, given the rounds before it.

    A round with more drafts than `MOST_OF_ONE_ROUND` is left out.
    """
    sampled, rng = Watch(drafter, target), SampledRng()
    _text(target, sampled, sampling, rule, length, rng)
    watch = Watch(drafter, target)
    for watch.only, step in [*enumerate(sampled.choices)][::3]:
        pending = [rng.choices[:step]]
        count = 0
        while pending and count < MOST_OF_ONE_ROUND:
            replay = EnumeratingRng(pending.pop())
            with suppress(_Reached):
                _text(target, watch, sampling, rule, length, replay)
            pending += replay.others
            count += 1
        if pending:  # its draws are not complete, so they cannot be compared with their rows
            del watch.drafts[max(watch.drafts, key=len)]
    return watch


def own_texts(target: CausalLM, sampling: Sampling, length: int) -> dict[tuple[int, ...], float]:
    """Return the distribution of the target's own text: one pass per prefix, without a drafter."""
    texts: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        longer = {}
        for text, weight in texts.items():
            logits = target.score([*PROMPT, *text], target.new_cache()).logits[0, -1]
            probs = sampling(logits).tolist()
            longer |= {(*text, x): weight * p for x, p in enumerate(probs) if p > 0}
        texts = longer
    return texts


def distance(first: dict, second: dict) -> float:
    """Return the total variation distance of two distributions of texts."""
    keys = first.keys() | second.keys()
    return sum(abs(first.get(key, 0.0) - second.get(key, 0.0)) for key in keys) / 2
