"""Predict the cost of a round from model sizes, a datasheet and what engines reach of it.

`Hardware` is a datasheet, and `Hardware.seconds` is a best case. `Engine` adds what real engines
lose; `FITTED` was fitted to published measurements (`python -m benchmarks run estimator`), and
`calibrate` replaces its least certain part by one measured round. `estimate` returns a likely
speedup, a band of 80 % and a verdict. Weights of four bits depend on kernels that no size describes:
`from_times` takes their measured times instead.
"""

import math
from dataclasses import dataclass, replace

from specdec_lite import checks, theory
from specdec_lite.simulation.goodput import PassTimes

BENCH = "llama-bench -m target.gguf -p 1,2,3,4,5,8 -n 0"
"""Command that measures T(1), T(2) … of a backend; `-m draft.gguf -n 64 -p 0` measures a draft."""
QUANTILE = 1.2816
"""Standard deviations around the mean that contain 80 % of a normal distribution."""


def expected_experts(experts: int, chosen: int, positions: int) -> float:
    """Return the expected number of distinct experts per layer that a pass needs.

    The formula is E · (1 − (1 − k/E)^n), with E experts, k chosen per position and n positions. It
    assumes that positions choose independently and uniformly. Neighboring positions of a text share
    experts, so real passes need fewer (`Engine.experts`).
    """
    return experts * (1 - (1 - chosen / experts) ** positions)


@dataclass(frozen=True, slots=True)
class Network:
    """Sizes of a model.

    Attributes:
        parameters: number of weights that every pass multiplies by: all except the experts' and the
            table of input embeddings.
        bytes_per_weight: bytes of a weight, 2 in bfloat16.
        cache_bytes: bytes of keys and values per token of context.
        experts: experts per layer; 1 for a dense model.
        chosen: experts that a token uses per layer; 1 for a dense model.
        expert_parameters: weights of one expert in all layers together; 0 for a dense model.
        layers: number of layers, which run one after the other.
        block: whether a drafter makes its whole draft in one pass (DFlash, DSpark).
    """

    parameters: float
    bytes_per_weight: float = 2.0
    cache_bytes: float = 0.0
    experts: int = 1
    chosen: int = 1
    expert_parameters: float = 0.0
    layers: int = 0
    block: bool = False

    def weights(self, positions: int, share: float = 1.0) -> float:
        """Return the bytes of weights that a pass over this number of positions reads.

        `share` is the part of the further experts, beyond those of one position, that is read.
        """
        if self.experts == 1:
            distinct = 1.0
        else:
            most = expected_experts(self.experts, self.chosen, positions)
            distinct = self.chosen + share * (most - self.chosen)
        return (self.parameters + distinct * self.expert_parameters) * self.bytes_per_weight

    def operations(self, batch: int, tokens: int) -> float:
        """Return the operations of a pass: two for every weight that a position uses."""
        return 2 * (self.parameters + self.chosen * self.expert_parameters) * batch * tokens


@dataclass(frozen=True, slots=True)
class Hardware:
    """Speeds of a device, from its datasheet or measured.

    Attributes:
        bandwidth: bytes per second of one card.
        throughput: operations per second of one card.
        per_layer: the shortest seconds of a layer, however narrow: about ten operations, each with
            a shortest time of its own. Only the best case uses it.
        gpus: number of cards that share every layer (tensor parallel).
    """

    bandwidth: float
    throughput: float
    per_layer: float = 0.0
    gpus: int = 1

    def seconds(
        self, network: Network, batch: int = 1, tokens: int = 1, context: float = 0
    ) -> float:
        """Return the shortest possible seconds of a pass: `tokens` for each of `batch` sequences."""
        read = network.weights(batch * tokens) + batch * context * network.cache_bytes
        reading = read / (self.bandwidth * self.gpus)
        computing = network.operations(batch, tokens) / (self.throughput * self.gpus)
        return max(reading, computing, network.layers * self.per_layer)


@dataclass(frozen=True, slots=True)
class Engine:
    """What an engine and its kernels make of a datasheet. Times are in seconds.

    Attributes:
        reading: share of the bandwidth that a pass reaches.
        arithmetic: share of the throughput that a pass reaches.
        overlap: p of the soft maximum (a^p + b^p)^(1/p) of reading and arithmetic; 1 adds them.
        per_layer: gaps and small kernels of a layer.
        per_exchange: further time of a layer if several cards share it.
        per_step: host, sampling and scheduling of every step, plain or drafted.
        per_round: the rest of a round: metadata, rejection, the drafter's own bookkeeping.
        per_draft: overhead of a draft pass.
        per_row: overhead of a row that is sampled or verified.
        per_host: further time of a step whose drafts come from the host: matching, and a schedule
            that waits for them. From six runs of one source, a 70B on four cards.
        unsplit: how much longer one sequence's cache takes to read where a kernel does not split it
            for several positions: 10 (flashinfer 3420) to 39 (vLLM 51995). Only the band uses it.
        experts: share of the further experts of a mixture that a pass reads.
        factor: factor of the last four overheads in a round: 1 for an unknown engine.
        spread: standard deviation of the logarithm of `factor` between engines.
        error: share of the speedup by which the band is wider on either side, for all the rest.
        batch: batch at which `factor` was measured; 0 if it was not.
    """

    reading: float
    arithmetic: float
    overlap: float
    per_layer: float
    per_exchange: float
    per_step: float
    per_round: float
    per_draft: float
    per_row: float
    per_host: float = 0.0
    unsplit: float = 1.0
    experts: float = 1.0
    factor: float = 1.0
    spread: float = 0.7
    error: float = 0.05
    batch: int = 0

    def seconds(
        self,
        network: Network,
        hardware: Hardware,
        batch: int = 1,
        tokens: int = 1,
        context: float = 0,
    ) -> float:
        """Return the likely seconds of a pass, without the engine's overhead per step."""
        bandwidth = self.reading * hardware.bandwidth * hardware.gpus
        weights = network.weights(batch * tokens, self.experts) / bandwidth
        computing = network.operations(batch, tokens) / (
            self.arithmetic * hardware.throughput * hardware.gpus
        )
        both = (weights**self.overlap + computing**self.overlap) ** (1 / self.overlap)
        layer = self.per_layer + (hardware.gpus > 1) * self.per_exchange
        # The cache is read once per sequence, however many of its tokens are verified, unless …
        sequences = batch if self.unsplit == 1 or tokens == 1 else max(batch, self.unsplit)
        cache = sequences * context * network.cache_bytes / bandwidth
        return both + cache + network.layers * layer

    def draft_seconds(
        self,
        draft: Network,
        hardware: Hardware,
        batch: int = 1,
        context: float = 0,
        tokens: int = 1,
    ) -> float:
        """Return the likely seconds of a draft pass; 0 for a drafter without a model."""
        one = self.seconds(draft, hardware, batch, tokens, context) + self.factor * self.per_draft
        return one * (draft.parameters > 0)

    def rest_of_step(self, batch: int) -> float:
        """Return the seconds of a plain step beside its pass."""
        return self.per_step + self.per_row * batch

    def rest_of_round(self, batch: int, gamma: int) -> float:
        """Return the seconds of a round beside its passes."""
        rows = self.per_row * batch * (gamma + 1)
        return self.per_step + self.factor * (self.per_round + rows)

    def margin(self, batch: int) -> float:
        """Return the half width of the band of a measured engine, as a share of the speedup."""
        return 0.06 + 0.04 * abs(math.log2(batch / self.batch))


FITTED = Engine(
    reading=0.819,
    arithmetic=0.675,
    overlap=1.29,
    per_layer=33.8e-6,
    per_exchange=28.0e-6,
    per_step=0.593e-3,
    per_round=1.29e-3,
    per_draft=0.187e-3,
    per_row=9.66e-6,
    experts=0.326,
)
"""The engine that fits published measurements best: results/estimator, a test compares them."""
HOST = 3.3e-3
"""Seconds of `Engine.per_host`, as six runs of one source had them."""
GENERATIONS = {
    "fitted": FITTED,
    "vllm": replace(FITTED, factor=0.42, per_host=HOST),
    "sglang": replace(FITTED, per_host=HOST),
}
"""Engine → its default. vLLM's overheads are those of the newest vLLM that the fit has seen, 0.11.2:
later releases lost more of them (0.26 in 0.23), earlier ones had them all. SGLang 0.5.9 has factor .95.
"""
UNSPLIT, SHORT = 10.0, 2048
"""`Engine.unsplit` of the band's lower end, and the context up to which no kernel is slow."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Costs of a round and of a plain step in seconds, and what follows from them.

    In the formula speedup = (1 + o₀)·τ ÷ (v + γc + o), times are in units of `plain`.

    Attributes:
        draft: seconds of all drafting of the round.
        verify: seconds of the target's pass over γ + 1 tokens per sequence.
        overhead: seconds of the rest of the round.
        plain: seconds of the target's pass over one token per sequence.
        plain_overhead: seconds of the rest of a plain step.
        tokens: tokens per sequence that the round emits.
        low: lower end of the speedup's band of 80 %.
        high: upper end of the band.
        batch: sequences decoded together.
        doubts: why sizes cannot promise a gain here, whatever the band says.
    """

    draft: float
    verify: float
    overhead: float
    plain: float
    plain_overhead: float
    tokens: float
    low: float = math.nan
    high: float = math.nan
    batch: int = 1
    doubts: tuple[str, ...] = ()

    @property
    def round(self) -> float:
        """Seconds of the round."""
        return self.draft + self.verify + self.overhead

    @property
    def step(self) -> float:
        """Seconds of a step of plain decoding."""
        return self.plain + self.plain_overhead

    @property
    def break_even(self) -> float:
        """Tokens per sequence that the round must emit to be as fast as plain decoding."""
        return self.round / self.step

    @property
    def speedup(self) -> float:
        """Likely speed relative to plain decoding."""
        return self.tokens / self.break_even

    @property
    def verdict(self) -> str:
        """Return "pays" or "loses" if the whole band says so, else "measure"."""
        if self.high < 0.95:
            return "loses"
        return "pays" if self.low > 1.05 and not self.doubts else "measure"


def costs(
    target: Network,
    draft: Network,
    hardware: Hardware,
    gamma: int,
    batch: int = 1,
    context: float = 0.0,
    engine: Engine = FITTED,
) -> tuple[float, float, float, float, float]:
    """Return (draft, verify, overhead, plain, plain_overhead), the seconds of `Estimate`."""
    pass_of = lambda tokens: engine.seconds(target, hardware, batch, tokens, context)
    passes, tokens = (1, gamma + 1) if draft.block else (gamma, 1)
    return (
        passes * engine.draft_seconds(draft, hardware, batch, context, tokens),
        pass_of(gamma + 1),
        engine.rest_of_round(batch, gamma) + engine.per_host * (draft.parameters == 0),
        pass_of(1),
        engine.rest_of_step(batch),
    )


def emitted(alpha: float | None, tau: float | None, gamma: int) -> float:
    """Return the tokens per round, from a constant α or as measured."""
    if tau is None and alpha is not None:
        return float(theory.expected_tokens(alpha, gamma))
    if tau is None or alpha is not None:
        raise ValueError(f"alpha={alpha}, tau={tau}: give one of them, and None for the other")
    checks.whole("gamma", gamma, 1)
    if not checks.is_number(tau) or not 1 <= tau <= gamma + 1:
        raise ValueError(f"tau={tau!r}: must be in [1, {gamma + 1}] at gamma={gamma}")
    return float(tau)


def check_sizes(target: Network, hardware: Hardware, batch: int, context: float) -> None:
    """Raise an error for arguments that the fitted engine does not cover."""
    checks.whole("batch", batch, 1)
    checks.number("context", context)
    checks.whole("hardware.gpus", hardware.gpus, 1)
    sizes = {"target.parameters": target.parameters, "hardware.bandwidth": hardware.bandwidth}
    for name, value in (sizes | {"hardware.throughput": hardware.throughput}).items():
        if not checks.is_number(value) or not 0 < value < math.inf:
            raise ValueError(f"{name}={value!r}: must be a number above 0")
    if target.bytes_per_weight < 1:
        raise ValueError(
            f"target.bytes_per_weight={target.bytes_per_weight}: below 1 the kernel decides whether"
            f" drafting pays, and sizes do not describe it: run `{BENCH}` and pass its rates to"
            " bench_times, and the result to from_times"
        )


def doubts_about(
    target: Network, draft: Network, hardware: Hardware, batch: int, context: float, trained: float
) -> tuple[str, ...]:
    """Return why a gain that the sizes promise may not come."""
    doubts = {
        "mixtures of experts rest on two sources": target.experts > 1,
        "no batch above 64 was tested": batch > 64,
        "a draft model on several cards lost by half where vLLM measured it": hardware.gpus > 1
        and draft.layers > 1
        and not draft.block,
        "drafts from the host: one source measured their cost": draft.parameters == 0,
        f"the context is longer than the {trained:g} tokens that the draft was trained for": context
        > trained,
    }
    return tuple(doubt for doubt, holds in doubts.items() if holds)


def estimate(
    target: Network,
    draft: Network,
    hardware: Hardware,
    alpha: float | None,
    gamma: int,
    batch: int = 1,
    context: float = 0.0,
    *,
    tau: float | None = None,
    engine: Engine = FITTED,
    trained: float = math.inf,
) -> Estimate:
    """Predict a round of γ drafted tokens per sequence, with a band of 80 % for its speedup.

    The band of an unmeasured engine runs over its factor and a further error; that of a measured
    one (`calibrate`) is the error that measured engines had. `draft` has 0 parameters for a drafter
    without a model. A constant α overestimates long drafts, so prefer a measured `tau`, with
    alpha=None. The fit is dense, in bfloat16, with chains of at most 7 and batches of at most 64;
    for mixtures of experts there are two public sources only. `trained` is the longest context that
    the draft was trained for, if it is known.
    """
    check_sizes(target, hardware, batch, context)
    tokens = emitted(alpha, tau, gamma)
    doubts = () if engine.batch else doubts_about(target, draft, hardware, batch, context, trained)
    at = lambda which: Estimate(
        *costs(target, draft, hardware, gamma, batch, context, which),
        tokens,
        batch=batch,
        doubts=doubts,
    )
    likely = at(engine)
    if engine.batch:
        return banded(likely, engine.margin(batch))
    away = math.exp(QUANTILE * engine.spread)
    split = UNSPLIT if context > SHORT else 1.0
    low = at(replace(engine, factor=engine.factor * away, unsplit=split)).speedup
    high = at(replace(engine, factor=engine.factor / away, per_host=0.0)).speedup
    return replace(likely, low=low * (1 - engine.error), high=high * (1 + engine.error))


def banded(likely: Estimate, margin: float) -> Estimate:
    """Return an estimate with a band of ± `margin`, a share of the speedup."""
    return replace(likely, low=likely.speedup * (1 - margin), high=likely.speedup * (1 + margin))


def calibrate(
    target: Network,
    draft: Network,
    hardware: Hardware,
    gamma: int,
    batch: int = 1,
    context: float = 0.0,
    *,
    tau: float,
    speedup: float,
    engine: Engine = FITTED,
) -> Engine:
    """Return the engine whose factor makes one measured round come out right.

    `tau` is the tokens per round of that run, and `speedup` its tokens per second ÷ those of the
    same load without drafts; take the median of three texts. No draft of the right quality is
    needed: engines can accept drafts at a given rate without looking at them, and such a round costs
    what a real one does. In vLLM that is `"rejection_sample_method": "synthetic"` with
    `"synthetic_acceptance_length"`, in SGLang the variable `SGLANG_SIMULATE_ACC_LEN`.
    """
    check_sizes(target, hardware, batch, context)
    tokens = emitted(None, tau, gamma)
    if not checks.is_number(speedup) or speedup <= 0:
        raise ValueError(f"speedup={speedup!r}: must be a number above 0")
    free, full = (
        Estimate(
            *costs(target, draft, hardware, gamma, batch, context, replace(engine, factor=f)), 1.0
        )
        for f in (0.0, 1.0)
    )
    # The round is linear in the factor.
    factor = (tokens / speedup * full.step - free.round) / (full.round - free.round)
    if factor <= 0:
        raise ValueError(
            f"speedup={speedup}: a round would cost {tokens / speedup:.2f} plain steps, and its"
            f" passes alone cost {free.break_even:.2f} by the sizes: check tau, the plain run, the"
            " device and the sizes"
        )
    return replace(engine, factor=factor, batch=batch)


def switch_off(
    target: Network,
    draft: Network,
    hardware: Hardware,
    alpha: float | None,
    gamma: int,
    context: float = 0.0,
    *,
    tau: float | None = None,
    engine: Engine = FITTED,
    largest: int = 512,
) -> tuple[int | None, int | None]:
    """Return the batches between which drafting begins to lose: (surely pays below, surely loses from).

    They are the first batches at which the lower and the upper end of the band are below 1; None if
    that does not happen up to `largest`. The speedup falls slowly with the batch, so an error of
    10 % in it is a factor of 2 in the batch, and no single batch can be named.
    """
    tokens = emitted(alpha, tau, gamma)
    load = lambda batch: (target, draft, hardware, None, gamma, batch, context)
    at = [estimate(*load(b), tau=tokens, engine=engine) for b in range(1, largest + 1)]
    first = lambda ends: next((batch for batch, end in enumerate(ends, 1) if end < 1), None)
    return first(each.low for each in at), first(each.high for each in at)


def schedule(
    target: Network,
    draft: Network,
    hardware: Hardware,
    alpha: float,
    context: float = 0.0,
    *,
    engine: Engine = FITTED,
    longest: int = 5,
) -> list[tuple[int, int, int]]:
    """Return the best γ by batch as ranges (first batch, last batch, γ); γ = 0: no drafts.

    Each range has the γ that is best at its last batch, and never more than the range before, since
    engines expect schedules that fall. Above 64 requests no source of the fit measured: γ = 0.
    """
    ranges: list[tuple[int, int, int]] = []
    most = longest
    for begin, end in ((1, 7), (8, 31), (32, 64)):
        gains = [1.0]
        for gamma in range(1, most + 1):
            e = estimate(target, draft, hardware, alpha, gamma, end, context, engine=engine)
            gains.append(e.speedup)
        most = max(range(most + 1), key=lambda gamma: (round(gains[gamma], 2), -gamma))
        ranges.append((begin, end, most))
    return [*ranges, (65, 512, 0)]


def bench_times(rates: dict[int, float], draft_rate: float = math.inf) -> PassTimes:
    """Return the table T(1, k) of a backend from the tokens per second that llama-bench prints.

    `rates` has one entry per k of `-p`, 1 included (its rows pp1, pp2 …); `draft_rate` is the rate
    of the draft model alone (tg64), infinite for a drafter without a model.
    """
    for size, rate in rates.items():
        if not checks.is_number(rate) or not 0 < rate < math.inf:
            raise ValueError(f"rates[{size}]={rate!r}: must be tokens per second, above 0")
    if not checks.is_number(draft_rate) or draft_rate <= 0:
        raise ValueError(f"draft_rate={draft_rate!r}: must be a number above 0")
    sizes = tuple(sorted(rates))
    return PassTimes((1,), sizes, (tuple(k / rates[k] for k in sizes),), (1 / draft_rate,))


def from_times(
    times: PassTimes,
    alpha: float | None,
    gamma: int,
    batch: int = 1,
    *,
    tau: float | None = None,
    margin: float = 0.15,
) -> Estimate:
    """Predict a round from measured times of passes: of a backend with 4-bit weights, of a recording.

    The band is ± `margin`, for the overheads of a round, which such a table does not contain.
    """
    checks.whole("batch", batch, 1)
    tokens = emitted(alpha, tau, gamma)
    verify, plain = times.of_pass(batch, gamma + 1), times.of_pass(batch, 1)
    drafting = times.of_round(batch, gamma) - verify
    likely = Estimate(drafting, verify, 0.0, plain, 0.0, tokens, batch=batch)
    return banded(likely, margin)
