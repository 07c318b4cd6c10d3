"""Check a drafter on tiny models: does the text keep the target's distribution, and if not, why?

Every outcome of every draw and every coin is enumerated, so the answer is exact. Each drafted token
is also compared with the row that the drafter reports for it, because a wrong row is the usual
cause of a wrong distribution.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specdec_lite import checks
from specdec_lite.contract import Context, Drafter, Limits, Session
from specdec_lite.decoding import generate, stream
from specdec_lite.engine.cache import CacheReader, ReadOnlyCacheError
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.proposal import Proposal, one_hot
from specdec_lite.sampling import EnumeratingRng, Sampling, outcomes

TOLERANCE = 1e-6
"""The largest total variation that rounding explains: rows may be reported in float32."""
SAMPLINGS = (Sampling(1.0), Sampling(0.5), Sampling(1.5, top_k=2), Sampling(1.0, top_p=0.7))
PROMPT = (1, 2, 0, 1, 2, 1)
"""A text that repeats itself, so that drafters which copy have something to copy."""
GREEDY_TOKENS = 24
MOST_OUTCOMES = 20_000
"""Outcomes to enumerate at each setting; a drafter that has more is not checked."""
MOST_OF_LONG_TEXTS = 1000
"""Outcomes from which on shorter texts are enumerated."""

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


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a drafter.

    Attributes:
        name: a key of `CAUSES`.
        where: the setting and the round in which it was seen, with numbers.
    """

    name: str
    where: str

    def __str__(self) -> str:
        return f"{self.name}: {CAUSES[self.name]}\n    {self.where}"


@dataclass(frozen=True, slots=True, repr=False)
class LosslessReport:
    """The result of `check_lossless`; true if nothing is wrong.

    Attributes:
        drafter: name of the drafter's class.
        faults: what is wrong, causes before consequences; each name occurs once.
        outcomes: number of texts that were enumerated.
        drafted: number of reported rows that were compared with the drawn tokens.
    """

    drafter: str
    faults: tuple[Fault, ...]
    outcomes: int
    drafted: int

    @property
    def names(self) -> tuple[str, ...]:
        """Return the name of every fault."""
        return tuple(fault.name for fault in self.faults)

    def __bool__(self) -> bool:
        return not self.faults

    def __repr__(self) -> str:
        counts = f"{self.outcomes} enumerated texts, {self.drafted} reported rows"
        if self.faults:
            return "\n".join([f"{self.drafter} is not lossless ({counts})", *map(str, self.faults)])
        note = "" if self.drafted else "; it drafted nothing on this text"
        return f"{self.drafter} is lossless ({counts}{note})"


def check_lossless(
    make_drafter: Callable[[CausalLM], Drafter], rule=None, max_outcomes: int = MOST_OUTCOMES
) -> LosslessReport:
    """Check whether a drafter leaves the target's distribution unchanged, and name what is wrong.

    Texts of three tokens over a vocabulary of three are enumerated at four settings of temperature,
    top-k and top-p. Greedy text, the target's cache and the drafter's states are checked on a
    vocabulary of sixteen. Use a small drafter: a chain of 2 or 3 tokens, a tree of few draws.

    Example:
        check_lossless(lambda target: ModelDrafter(tiny_draft(target), gamma=2))

    Args:
        make_drafter: a function from a native target to a new drafter for it. `tiny_draft(target)`
            is a draft model for drafters that need one.
        rule: the lossless rule to verify with; None for the default rule. A rule of your own is
            checked too.
        max_outcomes: the largest number of texts to enumerate per setting.

    Raises:
        TypeError: make_drafter does not return a drafter.
        ValueError: the drafter has more outcomes than `max_outcomes`, even for two tokens.
    """
    checks.whole("max_outcomes", max_outcomes, 1)
    target = tiny_target()
    drafter = checks.drafter("make_drafter's result", make_drafter(target))
    faults: dict[str, Fault] = {}
    count = rows = 0
    has_wrong_row = False
    for sampling in SAMPLINGS:
        try:
            texts, watch = _enumerate(target, drafter, sampling, rule, max_outcomes)
        except _Found as found:
            faults.setdefault(found.fault.name, found.fault)
            continue
        except _TooMany:
            raise ValueError(
                f"the drafter has more than max_outcomes={max_outcomes} outcomes at"
                f" {_label(sampling)}: make_drafter must return a smaller one, such as a chain of 2 tokens"
            ) from None
        except Exception as error:
            where = f"{_label(sampling)}: {type(error).__name__}: {error}"
            faults.setdefault("error", Fault("error", where))
            continue
        count += watch.outcomes
        fault, compared = _compare_rows(watch, sampling)
        rows += compared
        if fault is not None and not has_wrong_row:  # the first one; others follow from it
            has_wrong_row = True
            faults[fault.name] = fault
        distance = _distance(texts, _own_texts(target, sampling, len(next(iter(texts)))))
        if distance > TOLERANCE:
            where = f"{_label(sampling)}: total variation {distance:.4f}"
            faults.setdefault("text", Fault("text", where))
    for fault in _check_greedy(make_drafter, rule):
        faults.setdefault(fault.name, fault)
    if "not repeatable" in faults:  # everything else is a consequence
        faults = {"not repeatable": faults["not repeatable"]}
    ordered = tuple(faults[name] for name in CAUSES if name in faults)
    return LosslessReport(type(drafter).__name__, ordered, count, rows)


def tiny_target(vocab_size: int = 3, seed: int = 5) -> CausalLM:
    """Return a native model with random weights in float64: two layers of size 16.

    Args:
        vocab_size: V.
        seed: of the weights.
    """
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
    """Return a draft model that often agrees with a native target: a copy with noise.

    Args:
        target: a native model.
        noise: standard deviation of the noise, relative to that of each matrix.
        seed: of the noise.
    """
    checks.native("target", target)
    model, generator = copy.deepcopy(target.model), torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        if weight.dim() > 1:
            shape, dtype = weight.shape, weight.dtype
            error = torch.randn(shape, generator=generator, dtype=dtype).to(weight.device)
            weight.data += noise * weight.std() * error
    return CausalLM(model)


def _label(sampling: Sampling) -> str:
    """Return the settings in words."""
    parts = [f"temperature {sampling.temperature:g}"]
    parts += [] if sampling.top_k is None else [f"top-k {sampling.top_k}"]
    parts += [] if sampling.top_p is None else [f"top-p {sampling.top_p:g}"]
    return ", ".join(parts)


class _Found(Exception):
    """A fault that ends a run."""

    def __init__(self, name: str, where: str):
        super().__init__(name)
        self.fault = Fault(name, where)


class _TooMany(Exception):
    """More outcomes than are enumerated."""


class _Watch(Drafter):
    """Another drafter, whose proposals are recorded.

    Attributes:
        drafts: {committed text: {choices so far: (their probability, the proposal)}}.
        outcomes: number of texts that were enumerated.
        strict: whether the target's cache and the drafter's states are compared too.
    """

    def __init__(self, inner: Drafter, target: CausalLM, strict: bool = False):
        self.inner = inner
        self.target = target
        self.strict = strict
        self.hidden_layers = inner.hidden_layers
        self.drafts: dict[tuple, dict[tuple, tuple[float, Proposal]]] = {}
        self.outcomes = 0

    def start(self, context: Context) -> Session:
        return _WatchedSession(self, self.inner.start(context))

    def check(self, target: CausalLM, positions: int) -> None:
        self.inner.check(target, positions)

    def check_rule(self, rule: object) -> None:
        self.inner.check_rule(rule)

    def limits(self) -> Limits | None:
        return self.inner.limits()


class _WatchedSession(Session):
    def __init__(self, watch: _Watch, session: Session):
        self.watch = watch
        self.session = session

    def propose(self, context: Context) -> Proposal:
        watch, rng = self.watch, context.rng
        before = _contents(context.cache) if watch.strict else []
        try:
            proposal = self.session.propose(context)
        except ReadOnlyCacheError as error:
            raise _Found("target's cache", str(error)) from None
        self.passes = self.session.passes
        where = f"after {context.tokens.tolist()}"
        length = len(context.tokens) - 1 if context.cache is None else context.cache.length
        if length != len(context.tokens) - 1:
            raise _Found("target's cache", f"{where}: it has {length} tokens after drafting")
        if not isinstance(proposal, Proposal):
            return proposal  # the round names it
        try:
            proposal.check_contents(context.vocab_size)
        except (ValueError, IndexError) as error:
            raise _Found("invalid proposal", f"{where}: {error}") from None
        limits = watch.limits()
        if limits is not None and len(proposal.tree) > limits.nodes:
            raise _Found("limits", f"{where}: {len(proposal.tree)} nodes, limits() states {limits}")
        if watch.strict:
            self._compare_cache(context, before, where)
            self._compare_states(context, proposal, where)
        if isinstance(rng, EnumeratingRng):
            group = watch.drafts.setdefault(tuple(context.tokens.tolist()), {})
            known = group.setdefault(rng.choices[: rng.step], (rng.weight, proposal))[1]
            if not _equal(known, proposal):
                tokens = [each.tree.tokens.tolist() for each in (known, proposal)]
                raise _Found("not repeatable", f"{where}: {tokens[0]}, then {tokens[1]}")
        return proposal

    def observe(self, verdict, scores) -> None:
        self.session.observe(verdict, scores)

    def cut(self, length: int) -> None:
        self.session.cut(length)

    def _compare_cache(self, context: Context, before: list[Tensor], where: str) -> None:
        if not all(map(torch.equal, before, _contents(context.cache))):
            raise _Found("target's cache", f"{where}: stored keys or values differ")

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
            raise _Found("states", f"{where}: the rows after block {block} differ")


def _contents(reader) -> list[Tensor]:
    """Return copies of the keys and values that a native model's cache stores."""
    cache = reader._cache if isinstance(reader, CacheReader) else reader
    tensors, stored = cache.storage.tensors, slice(cache.length)
    return [part[..., stored, :].clone() for part in (tensors.keys, tensors.values)]


def _equal(first: Proposal, second: Proposal) -> bool:
    """Return whether two proposals have the same tree and the same rows."""
    if first.tree.parents != second.tree.parents:
        return False
    if not torch.equal(first.tree.tokens, second.tree.tokens):
        return False
    if first.probs is None or second.probs is None:
        return first.probs is second.probs
    return first.probs.shape == second.probs.shape and bool(
        torch.allclose(first.probs, second.probs, rtol=0, atol=1e-9)
    )


def _enumerate(
    target: CausalLM, drafter: Drafter, sampling: Sampling, rule, max_outcomes: int
) -> tuple[dict[tuple[int, ...], float], _Watch]:
    """Return the exact distribution of the text, and the drafts that were made for it.

    Texts have three tokens, or two if there would be too many outcomes.
    """
    for length in (3, 2):
        watch = _Watch(drafter, target)
        settings = (length, sampling.temperature, sampling.top_k, sampling.top_p, rule)

        def text(rng, watch=watch, settings=settings):
            steps = stream(target, PROMPT, watch, *settings, rng=rng)
            return tuple(token for step in steps for token in step.tokens)

        texts: dict[tuple[int, ...], float] = {}
        text(EnumeratingRng())  # twice, so that chance from elsewhere is seen
        for emitted, weight in outcomes(text):
            watch.outcomes += 1
            texts[emitted] = texts.get(emitted, 0.0) + weight
            if watch.outcomes > (
                max_outcomes if length == 2 else min(MOST_OF_LONG_TEXTS, max_outcomes)
            ):
                break
        else:
            return texts, watch
    raise _TooMany


def _own_texts(target: CausalLM, sampling: Sampling, length: int) -> dict[tuple[int, ...], float]:
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


def _distance(first: dict, second: dict) -> float:
    """Return the total variation distance of two distributions of texts."""
    keys = first.keys() | second.keys()
    return sum(abs(first.get(key, 0.0) - second.get(key, 0.0)) for key in keys) / 2


# Reported rows ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Draw:
    """All outcomes of one draw: the same text, the same earlier draws and the same reported row.

    Attributes:
        row: the reported row [V], in float64.
        older: tokens of the older siblings.
        sorted: whether siblings descend by their probability in every outcome.
        weights: [V], probability of each token that was drawn.
    """

    row: Tensor
    older: tuple[int, ...]
    sorted: bool = True
    weights: Tensor = field(init=False)

    def __post_init__(self):
        self.weights = torch.zeros_like(self.row)


def _compare_rows(watch: _Watch, sampling: Sampling) -> tuple[Fault | None, int]:
    """Return the fault of the first wrong row, and the number of rows that were compared."""
    fault = None
    compared = 0
    for text, drafts in watch.drafts.items():
        draws: dict[tuple, _Draw] = {}
        reached: dict[tuple, float] = {}
        for weight, proposal in drafts.values():
            _add(proposal, weight, draws, reached)
        for (history, _), draw in draws.items():
            compared += 1
            mass = draw.weights.sum()
            actual = draw.weights / mass
            distance = (actual - draw.row).abs().sum().item() / 2
            if distance > TOLERANCE and fault is None:
                rows = [each.weights.sum().item() for (h, _), each in draws.items() if h == history]
                is_dropped = sum(rows) < reached[history] * (1 - TOLERANCE)
                name = _cause(actual, draw, sampling, is_dropped, len(rows) == 1)
                shown = [[round(x, 4) for x in row.tolist()] for row in (draw.row, actual)]
                where = f"{_label(sampling)}, after {list(text)}: reported {shown[0]}"
                fault = Fault(name, f"{where}, drawn from {shown[1]}")
    return fault, compared


def _add(
    proposal: Proposal, weight: float, draws: dict[tuple, _Draw], reached: dict[tuple, float]
) -> None:
    """Add one outcome of a round to its draws.

    Args:
        proposal: what was drafted.
        weight: its probability.
        draws: {(earlier draws, row): all outcomes of the next draw}.
        reached: {earlier draws: probability that they were made}.
    """
    tokens = proposal.tree.tokens.tolist()
    after: dict[int, tuple] = {-1: ()}
    for parent in range(-1, len(tokens)):
        if parent not in after:
            continue
        history = after[parent]
        reached[history] = reached.get(history, 0.0) + weight
        siblings = proposal.draws.get(parent, ())
        rows = [_row(proposal, row, tokens[node]) for node, row in siblings]
        values = [row[tokens[node]].item() for row, (node, _) in zip(rows, siblings)]
        descends = _descends(values) and len(set(values)) > 1
        older: tuple[int, ...] = ()
        for (node, _), row in zip(siblings, rows):
            key = tuple(row.tolist())
            draw = draws.setdefault((history, key), _Draw(row, older))
            draw.sorted &= descends or len(set(values)) == 1 and len(values) > 1
            draw.weights[tokens[node]] += weight
            older = (*older, tokens[node])
            history = (*history, (key, tokens[node]))
            after.setdefault(node, (*history, "children"))
            reached[history] = reached.get(history, 0.0) + weight


def _row(proposal: Proposal, row: int | None, token: int) -> Tensor:
    """Return the row [V] of a draw in float64; a one-hot row if the token was chosen."""
    if row is None or proposal.probs is None:
        size = token + 1 if proposal.probs is None else proposal.probs.shape[1]
        return one_hot(token, torch.zeros(size, dtype=torch.float64))
    return proposal.probs[row].double()


def _descends(values: Sequence[float]) -> bool:
    return all(a >= b for a, b in zip(values, values[1:]))


def _cause(
    actual: Tensor, draw: _Draw, sampling: Sampling, is_dropped: bool, is_only_row: bool
) -> str:
    """Return the name of the fault that explains how a token was really drawn.

    Args:
        actual: the distribution [V] of the drawn token.
        draw: the reported row, and the siblings.
        sampling: of the generation.
        is_dropped: whether the draw is missing in some outcomes.
        is_only_row: whether the row is the same whatever token is drawn.
    """

    def close(row: Tensor) -> bool:
        return bool((actual - row).abs().sum() / 2 <= TOLERANCE)

    excluded = draw.row.clone()
    excluded[list(draw.older)] = 0
    if draw.older and excluded.sum() > 0 and close(excluded / excluded.sum()):
        return "row before exclusion"
    if close(sampling(draw.row.log())):
        return "row before sampling"
    if is_dropped:
        return "dropped draw"
    if actual.max() > 1 - TOLERANCE and is_only_row:
        return "argmax row"
    if draw.sorted:
        return "sorted siblings"
    return "wrong row"


# Greedy text --------------------------------------------------------------------------------------


def _check_greedy(make_drafter: Callable[[CausalLM], Drafter], rule) -> list[Fault]:
    """Return the faults of greedy text and of one sampled text, with strict checks."""
    target = tiny_target(16, seed=1)
    prompt = [3, 7, 1, 12, 3, 7, 1, 9, 3, 7]
    plain = generate(target, prompt, max_new_tokens=GREEDY_TOKENS).tokens.tolist()
    faults = []
    for temperature in (0.0, 1.0):
        where = f"temperature {temperature:g}"
        try:
            drafter = _Watch(make_drafter(target), target, strict=True)
            out = generate(target, prompt, drafter, GREEDY_TOKENS, temperature, rule=rule, seed=0)
        except _Found as found:
            faults.append(Fault(found.fault.name, f"{where}, {found.fault.where}"))
            continue
        except Exception as error:
            faults.append(Fault("error", f"{where}: {type(error).__name__}: {error}"))
            continue
        if not temperature and out.tokens.tolist() != plain:
            pairs = zip(out.tokens.tolist(), plain)
            first = next(i for i, (ours, theirs) in enumerate(pairs) if ours != theirs)
            faults.append(Fault("greedy text", f"token {first} of {GREEDY_TOKENS} differs first"))
    return faults
