"""Measure speed in paired turns of random order, with intervals and flags for impossible results.

This module contains the contenders, the timing rules and the numbers of one setting. `__main__`
contains the command line, resuming and the table.

**Speed** is the number of tokens divided by the seconds of the rounds that emitted them, without
the prefills. The time to the first token includes the prefills. **A turn** is one prompt that every
contender decodes once, in a new random order. **A sweep** is one turn on every prompt.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from time import perf_counter

import numpy as np
from torch import Tensor

from specdec_lite import CausalLM, TokenTree, stream, theory, timing
from specdec_lite.acceptance import block_verification
from specdec_lite.acceptance.protocol import RuleFunction
from specdec_lite.contract import Drafter, Limits
from specdec_lite.drafters import MedusaDrafter
from specdec_lite.loading.pairs import Pair
from specdec_lite.measure.intervals import estimate, ratio
from specdec_lite.proposal import Step
from specdec_lite.speculation import Verifier

from .experiment import packed_run
from .methods import METHODS

DRAFTERS: dict[str, Callable[[Pair, int], Drafter]] = {
    "speculative": METHODS["draft model"].make,
    "block_verification": METHODS["draft model"].make,
    "medusa_chain": METHODS["Medusa, a chain"].make,
    "medusa_dense": lambda pair, gamma: MedusaDrafter.from_pretrained(
        pair.target, tree=TokenTree.cartesian([range(4), range(3)])
    ),
    "medusa_sparse": METHODS["Medusa, a tree"].make,
    "blockwise": METHODS["blockwise heads"].make,
}
"""Functions from a pair and a draft length γ to a drafter. The first drafter leads the row of a setting
and is compared with Hugging Face.
"""
RULES = {"block_verification": block_verification}
"""Drafters that another rule than the default verifies. They are timed only above temperature 0, where
the rules differ, and they do not measure α.
"""
WARM = 4
"""Tokens that every contender decodes before the first turn."""
MOVED = 0.2
"""Largest relative change of T(1) while a setting is measured."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the result.

    Attributes:
        dtype: PyTorch's name of the precision.
        domain: Kind of text.
        temperature: Sampling temperature.
    """

    dtype: str
    domain: str
    temperature: float

    def __str__(self) -> str:
        return f"{self.dtype} {self.domain} T={self.temperature:g}"


@dataclass(frozen=True, slots=True)
class Other:
    """Another library's decoding, and our contender that it is compared with.

    Attributes:
        decode: Function of (ids, new_tokens, temperature, seed, assisted), as `HuggingFace`.
        assisted: Whether it uses a draft.
        against: Name of our contender.
    """

    decode: Callable
    assisted: bool
    against: str


@dataclass(frozen=True)
class Bench:
    """What is measured, and on which models and prompts.

    Attributes:
        load: Function from a dtype's name to the pair in that dtype.
        prompts: {domain: rows of token ids}, with equally many rows per domain.
        gammas: Draft lengths; the first one leads.
        dtypes: PyTorch's names of the precisions.
        temperatures: Sampling temperatures.
        new_tokens: Most new tokens per prompt.
        turns: Paired turns per setting.
        least: Fewest turns per setting under a deadline.
        stops: Tokens that end a text before `new_tokens`.
        seed: Seed of the order of turns.
        drafters: Functions from a pair and γ to a drafter, by name.
        rules: Acceptance rules that differ from the default, by the name of the drafter.
        others: Hugging Face's contenders by name, in float32 only.
        pairs: Pairs loaded so far, by dtype.
    """

    load: Callable[[str], Pair]
    prompts: dict[str, list[Tensor]]
    gammas: Sequence[int] = (4, 2, 8)
    dtypes: Sequence[str] = ("float32", "bfloat16")
    temperatures: Sequence[float] = (0.0, 1.0)
    new_tokens: int = 96
    turns: int = 30
    least: int = 20
    stops: Sequence[int] = ()
    seed: int = 0
    drafters: dict[str, Callable[[Pair, int], Drafter]] = field(default_factory=lambda: DRAFTERS)
    rules: dict[str, RuleFunction | Verifier] = field(default_factory=lambda: RULES)
    others: dict[str, Other] = field(default_factory=dict)
    pairs: dict[str, Pair] = field(default_factory=dict)

    @property
    def settings(self) -> list[Setting]:
        """Every combination of dtype, domain and temperature."""
        return [
            Setting(dtype, domain, temperature)
            for dtype in self.dtypes
            for domain in self.prompts
            for temperature in self.temperatures
        ]

    def pair(self, dtype: str) -> Pair:
        """Return the pair in a dtype."""
        if dtype not in self.pairs:
            self.pairs[dtype] = self.load(dtype)
        return self.pairs[dtype]


# Contenders ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """One call of one contender.

    Attributes:
        seconds: Decoding time without prefill.
        tokens: Number of tokens emitted in that time.
        first: Seconds from the call to the first emitted burst.
        gaps: Seconds between bursts.
        steps: The rounds, if the contender reports them.
    """

    seconds: float
    tokens: int
    first: float
    gaps: tuple[float, ...]
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Contender:
    """A decoder that takes part in the turns.

    Attributes:
        run: Function from token ids and a seed to a Run.
        drafter: Its drafter, or None.
        name: Name of the drafter.
        gamma: Draft length.
        rule: Acceptance rule; None is the default.
    """

    run: Callable[[Tensor, int], Run]
    drafter: Drafter | None = None
    name: str | None = None
    gamma: int | None = None
    rule: RuleFunction | Verifier | None = None


def ours(
    target: CausalLM,
    drafter: Drafter | None,
    rule: RuleFunction | Verifier | None,
    new_tokens: int,
    temperature: float,
    stops: Sequence[int] = (),
) -> Callable[[Tensor, int], Run]:
    """Return this library's decoding, which reports its rounds."""
    options = {"rule": rule, "stop_token_ids": tuple(stops)}

    def run(ids: Tensor, seed: int) -> Run:
        timing.synchronize(target.device)
        began = perf_counter()
        times = []
        steps = []
        for step in stream(target, ids, drafter, new_tokens, temperature, seed=seed, **options):
            times.append(perf_counter() - began)
            steps.append(step)
        return Run(
            seconds=sum(step.seconds for step in steps),
            tokens=sum(len(step.tokens) for step in steps),
            first=times[0],
            gaps=tuple(np.diff(times).tolist()),
            steps=tuple(steps),
        )

    return run


def theirs(
    decode: Callable, new_tokens: int, temperature: float, assisted: bool
) -> Callable[[Tensor, int], Run]:
    """Return Hugging Face's decoding, which does not report rounds.

    Its first burst includes the prefill, so that burst and its tokens are not counted.
    """

    def run(ids: Tensor, seed: int) -> Run:
        bursts = decode(ids, new_tokens, temperature, seed, assisted)
        times = [at for at, _ in bursts]
        return Run(
            seconds=times[-1] - times[0],
            tokens=sum(count for _, count in bursts[1:]),
            first=times[0],
            gaps=tuple(np.diff(times).tolist()),
        )

    return run


def contenders(bench: Bench, setting: Setting) -> dict[str, Contender]:
    """Return the contenders of a setting by name; "name γ=g" if γ is not the leading one.

    Plain decoding in the other precisions takes part too, because a reader would use the fastest of
    them. A drafter whose proposals are the same for two γ takes part once. Hugging Face takes part
    in float32 only, where both sides run the same weights.
    """
    pair = bench.pair(setting.dtype)
    temperature = setting.temperature

    def contender(target, drafter=None, *about) -> Contender:
        rule = bench.rules.get(about[0]) if about else None
        run = ours(target, drafter, rule, bench.new_tokens, temperature, bench.stops)
        return Contender(run, drafter, *about, rule=rule)

    every = {"plain": contender(pair.target)}
    for dtype in bench.dtypes:
        if dtype != setting.dtype:
            every[f"plain {dtype}"] = contender(bench.pair(dtype).target)
    if setting.dtype == "float32":
        for name, other in bench.others.items():
            run = theirs(other.decode, bench.new_tokens, temperature, other.assisted)
            every[name] = Contender(run)
    for name, make in bench.drafters.items():
        if name in bench.rules and temperature == 0:
            continue
        seen: list[Limits | None] = []
        for gamma in bench.gammas:
            drafter = make(pair, gamma)
            limits = drafter.limits()
            if limits is not None and limits in seen:
                continue
            seen.append(limits)
            label = name if gamma == bench.gammas[0] else f"{name} γ={gamma}"
            every[label] = contender(pair.target, drafter, name, gamma)
    return every


Turns = dict[str, list[list[Run]]]


def take_turns(
    every: dict[str, Contender], prompts: Sequence[Tensor], bench: Bench, deadline: float = math.inf
) -> Turns:
    """Run every prompt in every sweep, with the contenders in random order."""
    order = np.random.default_rng(bench.seed)
    sweeps = math.ceil(bench.turns / len(prompts))
    least = math.ceil(bench.least / len(prompts))
    names = list(every)
    runs: Turns = {name: [[] for _ in prompts] for name in names}
    for sweep in range(sweeps):
        if sweep >= least and perf_counter() > deadline:
            break
        for index in order.permutation(len(prompts)):
            for name in order.permutation(names):
                seed = sweep * len(prompts) + int(index)
                runs[name][index].append(every[name].run(prompts[index], seed))
    return runs


# Flags --------------------------------------------------------------------------------------------


def flags(speedup: dict, ceiling: dict, excess: dict, one: tuple[float, float]) -> list[str]:
    """Return the reasons why a speedup cannot be right; empty if there is none."""
    reasons = []
    if excess["interval"][0] > 1:
        numbers = f"{speedup['value']:.2f} above its ceiling τ ÷ v = {ceiling['value']:.2f}"
        reasons.append(f"speedup {numbers}")
    moved = max(one) / min(one) - 1
    if moved > MOVED:
        reasons.append(f"T(1) moved by {100 * moved:.0f} %")
    return reasons


# One setting --------------------------------------------------------------------------------------


def passes(
    target: CausalLM, every: dict[str, Contender], trees: dict[str, TokenTree], ids: Tensor
) -> dict[tuple[str, str], float]:
    """Time single passes alternately, in seconds.

    Shapes: ids [n].
    """
    jobs = {("one", ""): timing.pass_job(target, ids, 1)}
    for name, tree in trees.items():
        jobs["tree", name] = timing.pass_job(target, ids, tree)
        if (draft := every[name].drafter.draft_model()) is not None:
            jobs["draft", name] = timing.pass_job(draft, ids, 1)
    return timing.interleaved(jobs, target.device)


def largest_tree(runs: list[list[Run]]) -> TokenTree:
    """Return the largest tree that was drafted, which is the shape of a full draft."""
    return max((step.tree for row in runs for run in row for step in run.steps), key=len)


def measure(bench: Bench, setting: Setting, deadline: float = math.inf) -> dict:
    """Time all contenders on one setting and explain the speedups."""
    state = {"start": timing.machine_state()}
    prompts = bench.prompts[setting.domain]
    every = contenders(bench, setting)
    target = bench.pair(setting.dtype).target
    for each in contenders(replace(bench, new_tokens=WARM), setting).values():
        each.run(prompts[0], 0)
    before = passes(target, every, {}, prompts[0])
    runs = take_turns(every, prompts, bench, deadline)
    trees = {name: largest_tree(runs[name]) for name, each in every.items() if each.drafter}
    after = passes(target, every, trees, prompts[0])
    figures = Figures(every, runs, before, after)
    explained = {name: figures.explain(name) for name in trees}
    state["end"] = timing.machine_state()
    return {
        **asdict(setting),
        "turns": sum(map(len, runs["plain"])),
        "sweeps": len(runs["plain"][0]),
        "state": state,
        "target_seconds": {
            "start": before["one", ""],
            "end": after["one", ""],
            "rounds": figures.one,
        },
        "best_plain": figures.best,
        "tokens_per_second": {name: figures.rate(name) for name in runs},
        "latency": {name: figures.latency(name) for name in runs},
        "runs": {
            name: [
                " ".join(packed_run(r.seconds, r.tokens, len(r.steps)) for r in row) for row in each
            ]
            for name, each in runs.items()
        },
        **figures.over(bench.others),
        **explained.pop(next(iter(trees))),
        "drafters": explained,
    }


class Figures:
    """The numbers that follow from the runs of one setting.

    `one` is the number of seconds of T(1) in the plain rounds of the turns. `best` is the name of
    the fastest plain decoder.

    Args:
        every: Contenders by name.
        runs: Runs of each contender.
        before: Seconds of single passes before the turns.
        after: Seconds of single passes after the turns.
    """

    def __init__(self, every: dict[str, Contender], runs: Turns, before: dict, after: dict):
        self.every = every
        self.runs = runs
        self.ends = (before["one", ""], after["one", ""])
        self.alone = after | {("one", ""): sum(self.ends) / 2}
        self.one = median(step.verifying for step in self.steps("plain"))
        plain = [name for name in runs if name.startswith("plain")]
        self.best = max(plain, key=self.rate)

    def table(self, name: str, get: Callable[[Run], float]) -> np.ndarray:
        """Return one number per run [prompts, sweeps]."""
        return np.array([[get(run) for run in row] for row in self.runs[name]], dtype=float)

    def count(self, name: str, get: Callable[[Step], float]) -> np.ndarray:
        """Return the sum over the steps of each run [prompts, sweeps]."""
        return self.table(name, lambda run: sum(map(get, run.steps)))

    def pace(self, name: str) -> np.ndarray:
        """Return the seconds per token [prompts, sweeps]."""
        return self.table(name, lambda run: run.seconds / run.tokens)

    def steps(self, name: str) -> list[Step]:
        """Return the steps of all runs of a contender."""
        return [step for row in self.runs[name] for run in row for step in run.steps]

    def rate(self, name: str) -> float:
        """Return the tokens per second of a contender."""
        return float(1 / self.pace(name).mean())

    def latency(self, name: str) -> dict:
        """Return the median seconds to the first burst and quantiles of the gaps between bursts."""
        gaps = np.concatenate([run.gaps for row in self.runs[name] for run in row])
        return {
            "first": float(np.median(self.table(name, lambda run: run.first))),
            "p50": float(np.quantile(gaps, 0.5)),
            "p95": float(np.quantile(gaps, 0.95)),
        }

    def over(self, others: dict[str, Other]) -> dict:
        """Return our speed divided by that of each contender of another library."""
        return {
            f"over_{name}": ratio(self.pace(name), self.pace(other.against))
            for name, other in others.items()
            if name in self.runs
        }

    def explain(self, name: str) -> dict:
        """Return the entry of a drafter: speedups, α, τ, ceiling, shares of time and predictions.

        The speedup is measured over plain decoding in the same precision and over the best plain
        decoder. The ceiling is τ ÷ v, where v is the drafter's pass divided by an undisturbed plain
        round.
        """
        contender = self.every[name]
        steps = self.steps(name)
        costs = timing.round_costs(steps, self.one)
        is_chain = all(step.tree.is_chain for step in steps)
        plain = self.pace("plain")
        pace = self.pace(name)
        tokens = self.count(name, lambda step: len(step.tokens))
        rounds = self.table(name, lambda run: len(run.steps))
        tau = ratio(tokens, rounds)
        alpha = None
        if is_chain and contender.rule is None:
            accepted = self.count(name, lambda step: step.accepted)
            alpha = ratio(accepted, self.count(name, lambda step: step.tested))
            alpha = None if alpha["value"] is None else alpha  # no round drafted anything
        # A round takes at least its pass. A plain token takes T(1) plus the overhead of its round.
        undisturbed = self.table("plain", lambda run: timing.round_costs(run.steps, 1.0).total)
        verify = self.table(name, lambda run: timing.round_costs(run.steps, 1.0).verify)
        ceiling = estimate(lambda t, r, p, v: t / r * p / v, tokens, rounds, undisturbed, verify)
        speedup = ratio(plain, pace)
        excess = estimate(
            lambda a, b, t, r, p, v: (a / b) / (t / r * p / v),
            *(plain, pace, tokens, rounds, undisturbed, verify),
        )
        seconds = sum(step.seconds for step in steps)
        limits = contender.drafter.limits() or drafted_limits(steps)
        return {
            "drafter": contender.name,
            "gamma": contender.gamma,
            "levels": limits.levels,
            "nodes": limits.nodes,
            "speedup": speedup,
            "over_best_plain": ratio(self.pace(self.best), pace),
            "flags": flags(speedup, ceiling, excess, self.ends),
            "alpha": alpha,
            "tau": tau,
            "ceiling": ceiling,
            "share": {
                "drafting": sum(step.drafting for step in steps) / seconds,
                "verifying": sum(step.verifying for step in steps) / seconds,
            },
            "prediction": self.prediction(name, limits, costs, alpha, tau["value"]),
        }

    def prediction(
        self, name: str, limits: Limits, costs: timing.RoundCosts, alpha: dict | None, tau: float
    ) -> dict:
        """Return the predictions of the plain and the corrected formula, and the costs they use.

        The plain formula needs α. The corrected formula uses the costs of the measured rounds. All
        costs are in units of T(1). "c" is a draft pass timed alone, or in the loop if no model can
        be timed alone. "c_in_loop" is the drafting time of a round per level. "verify" and
        "overhead" are measured in the rounds. "verify_alone" is a pass over the drafter's own tree,
        timed alone.
        """
        levels = max(1, limits.levels)
        one = self.alone["one", ""]
        c_in_loop = costs.draft / levels
        c = self.alone["draft", name] / one if ("draft", name) in self.alone else c_in_loop
        return {
            "c": c,
            "c_in_loop": c_in_loop,
            "verify": costs.verify,
            "verify_alone": self.alone["tree", name] / one,
            "overhead": costs.other,
            "target_seconds": self.one,
            "plain": theory.walltime_improvement(alpha["value"], levels, c) if alpha else None,
            "corrected": theory.corrected_improvement(
                tau, levels, c_in_loop, costs.verify, costs.other
            ),
        }


def drafted_limits(steps: Sequence[Step]) -> Limits:
    """Return the largest draft of any round, for a drafter that cannot state it in advance."""
    trees = [step.tree for step in steps]
    return Limits(max(tree.levels for tree in trees), max(map(len, trees)))
