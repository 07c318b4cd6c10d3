"""How speed is measured: paired turns in random order, intervals over prompts and turns, and what
must not be believed.

What lives here: the contenders, the clock's rules, one setting's figures. What does not: the
command line, resuming and the table (`__main__`).

**Speed** is tokens over the seconds of the rounds that emitted them, without either prefill; what
the prefills cost is the time to the first token. **A turn** is one prompt on which every contender
decodes once, in an order drawn anew; **a sweep** is one turn on every prompt.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from time import perf_counter

import numpy as np
from torch import Tensor
from tqdm import tqdm

from specdec_lite import CausalLM, TokenTree, generate, stream, theory, timing
from specdec_lite.acceptance import block_verification
from specdec_lite.acceptance.rule import RuleFunction
from specdec_lite.drafters import BlockwiseDrafter, MedusaDrafter, ModelDrafter
from specdec_lite.loading.pairs import Pair
from specdec_lite.measure.intervals import estimate, ratio
from specdec_lite.speculation import Drafter, Shape, Step, Verifier
from specdec_lite.training.blockwise import COUNT

DRAFTERS: dict[str, Callable[[Pair, int], Drafter]] = {
    "speculative": lambda pair, gamma: ModelDrafter(pair.draft, gamma),
    "block_verification": lambda pair, gamma: ModelDrafter(pair.draft, gamma),
    "medusa_chain": lambda pair, gamma: MedusaDrafter.from_pretrained(
        pair.target, tree=TokenTree.chain([0] * min(gamma, 4))
    ),
    "medusa_dense": lambda pair, gamma: MedusaDrafter.from_pretrained(
        pair.target, tree=TokenTree.cartesian([range(4), range(3)])
    ),
    "medusa_sparse": lambda pair, gamma: MedusaDrafter.from_pretrained(pair.target),
    "blockwise": lambda pair, gamma: BlockwiseDrafter.from_pretrained(
        pair.target, k=min(gamma, COUNT) + 1
    ),
}
"""What is timed beside plain decoding: a drafter for a pair and a draft length γ. The first one
leads the row of a setting, and is held against Hugging Face.
"""
RULES = {"block_verification": block_verification}
"""Judged by another rule than the default: timed above temperature 0 only, where the rules differ,
and not a measure of α.
"""
WARM = 4
"""Tokens that every contender decodes before the first turn."""
MOVED = 0.2
"""A share by which T(1) may move while a setting is measured."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the result: which precision, which text, which temperature."""

    dtype: str
    domain: str
    temperature: float

    def __str__(self) -> str:
        return f"{self.dtype} {self.domain} T={self.temperature:g}"


@dataclass(frozen=True, slots=True)
class Other:
    """Another library's decoding, and the contender of ours it is held against.

    decode: as `HuggingFace` does, with (ids, new_tokens, temperature, seed, assisted).
    """

    decode: Callable
    assisted: bool
    against: str


@dataclass(frozen=True)
class Bench:
    """What is measured, and on what.

    Attributes:
        load: a dtype's name → the pair in it.
        prompts: {domain: rows of token ids}, equally many of each domain.
        rules: of the drafters, by name, that another rule than the default judges.
        gammas: draft lengths; the first one leads.
        turns, least: paired turns a setting, and the fewest that a deadline leaves of them.
        stops: the tokens that end a text before `new_tokens`.
        others: Hugging Face's contenders, by name; in float32 only.
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
        return [
            Setting(dtype, domain, temperature)
            for dtype in self.dtypes
            for domain in self.prompts
            for temperature in self.temperatures
        ]

    def pair(self, dtype: str) -> Pair:
        if dtype not in self.pairs:
            self.pairs[dtype] = self.load(dtype)
        return self.pairs[dtype]


# What takes turns ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """One call of one contender.

    seconds, tokens: of its decoding without prefill. first: seconds from the call to the first
    emitted burst. gaps: seconds between bursts. steps: its rounds, where they can be seen.
    """

    seconds: float
    tokens: int
    first: float
    gaps: tuple[float, ...]
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Contender:
    """What decodes a prompt: run(ids, seed) → Run. A drafter's name, γ and rule, where it has one."""

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
    """Our own loop, round by round."""
    options = {"rule": rule, "stop_token_ids": tuple(stops)}

    def run(ids: Tensor, seed: int) -> Run:
        timing.synchronise(target.device)
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
    """Hugging Face, which tells no rounds: its first burst holds the prefill, and is left out with
    its tokens.
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
    """All that take turns in a setting, by name; "name γ=g" where γ is not the leading one.

    Plain decoding in the other precisions too, since the fastest of them is what a reader would use
    instead. A drafter that proposes the same at two γ takes turns once. Hugging Face in float32
    only, where both sides run the same weights alike.
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
        seen: list[Shape | None] = []
        for gamma in bench.gammas:
            drafter = make(pair, gamma)
            shape = drafter.shape()
            if shape is not None and shape in seen:
                continue
            seen.append(shape)
            label = name if gamma == bench.gammas[0] else f"{name} γ={gamma}"
            every[label] = contender(pair.target, drafter, name, gamma)
    return every


Turns = dict[str, list[list[Run]]]


def take_turns(
    every: dict[str, Contender],
    prompts: Sequence[Tensor],
    bench: Bench,
    label: str = "",
    deadline: float = math.inf,
) -> Turns:
    """{name: [prompts][sweeps] runs}. Every prompt in every sweep, contenders in random order.

    deadline: on `perf_counter`, after which no sweep begins that `bench.least` does not ask for.
    """
    order = np.random.default_rng(bench.seed)
    sweeps = math.ceil(bench.turns / len(prompts))
    least = math.ceil(bench.least / len(prompts))
    names = list(every)
    runs: Turns = {name: [[] for _ in prompts] for name in names}
    with tqdm(total=sweeps * len(prompts), desc=label, unit="turn") as bar:
        for sweep in range(sweeps):
            if sweep >= least and perf_counter() > deadline:
                break
            for index in order.permutation(len(prompts)):
                for name in order.permutation(names):
                    seed = sweep * len(prompts) + int(index)
                    runs[name][index].append(every[name].run(prompts[index], seed))
                bar.update()
    return runs


# What must not be believed -------------------------------------------------------------------------


def flags(speedup: dict, ceiling: dict, excess: dict, one: tuple[float, float]) -> list[str]:
    """Why a speedup is not to be believed; empty where nothing speaks against it.

    Args:
        speedup, ceiling: estimates; the ceiling is what no speedup can exceed, τ ÷ v.
        excess: the estimate of speedup ÷ ceiling, drawn together.
        one: seconds of T(1) before the setting's turns and after them.
    """
    reasons = []
    if excess["interval"][0] > 1:
        numbers = f"{speedup['value']:.2f} above its ceiling τ ÷ v = {ceiling['value']:.2f}"
        reasons.append(f"speedup {numbers}")
    moved = max(one) / min(one) - 1
    if moved > MOVED:
        reasons.append(f"T(1) moved by {100 * moved:.0f} %")
    return reasons


# One setting ---------------------------------------------------------------------------------------


def passes(
    target: CausalLM, every: dict[str, Contender], trees: dict[str, TokenTree], ids: Tensor
) -> dict[tuple[str, str], float]:
    """Seconds of single passes, timed in turns: ("one", "") of the target over one token, ("tree",
    name) over a contender's own tree and ("draft", name) of its model alone.
    """
    jobs = {("one", ""): timing.pass_job(target, ids, 1)}
    for name, tree in trees.items():
        jobs["tree", name] = timing.pass_job(target, ids, tree)
        draft = every[name].drafter.draft_model()
        if draft is not None:
            known = ids.clamp(max=draft.vocab_size - 1).to(draft.device)
            jobs["draft", name] = timing.pass_job(draft, known, 1)
    return timing.interleaved(jobs, target.device)


def largest_tree(runs: list[list[Run]]) -> TokenTree:
    """The largest tree that was drafted: the shape of a full draft, whatever the drafter says."""
    return max((step.tree for row in runs for run in row for step in run.steps), key=len)


def measure(bench: Bench, setting: Setting, deadline: float = math.inf) -> dict:
    """Time all contenders on one setting and explain the speedups: the leading drafter's at the
    top, the others' under "drafters".
    """
    state = {"start": timing.machine_state()}
    prompts = bench.prompts[setting.domain]
    every = contenders(bench, setting)
    target = bench.pair(setting.dtype).target
    for each in contenders(replace(bench, new_tokens=WARM), setting).values():
        each.run(prompts[0], 0)
    before = passes(target, every, {}, prompts[0])
    runs = take_turns(every, prompts, bench, str(setting), deadline)
    trees = {name: largest_tree(runs[name]) for name, each in every.items() if each.drafter}
    after = passes(target, every, trees, prompts[0])
    found = Figures(every, runs, before, after)
    explained = {name: found.explain(name) for name in trees}
    state["end"] = timing.machine_state()
    return {
        **asdict(setting),
        "turns": sum(map(len, runs["plain"])),
        "sweeps": len(runs["plain"][0]),
        "state": state,
        "target_seconds": {
            "start": before["one", ""],
            "end": after["one", ""],
            "rounds": found.one,
        },
        "best_plain": found.best,
        "tokens_per_second": {name: found.rate(name) for name in runs},
        "latency": {name: found.latency(name) for name in runs},
        **found.over(bench.others),
        **explained.pop(next(iter(trees))),
        "drafters": explained,
    }


class Figures:
    """What the runs of one setting say.

    one: seconds of T(1) in the plain rounds that took turns. best: the name of the fastest plain
    decoder.
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
        """[prompts, sweeps] of a number of each run."""
        return np.array([[get(run) for run in row] for row in self.runs[name]], dtype=float)

    def count(self, name: str, get: Callable[[Step], float]) -> np.ndarray:
        """[prompts, sweeps] of a number of each step, summed over a run."""
        return self.table(name, lambda run: sum(map(get, run.steps)))

    def pace(self, name: str) -> np.ndarray:
        """Seconds a token [prompts, sweeps]."""
        return self.table(name, lambda run: run.seconds / run.tokens)

    def steps(self, name: str) -> list[Step]:
        return [step for row in self.runs[name] for run in row for step in run.steps]

    def rate(self, name: str) -> float:
        """Tokens per second."""
        return float(1 / self.pace(name).mean())

    def latency(self, name: str) -> dict:
        """Seconds to the first burst (median of the runs), and between bursts (of all of them)."""
        gaps = np.concatenate([run.gaps for row in self.runs[name] for run in row])
        return {
            "first": float(np.median(self.table(name, lambda run: run.first))),
            "p50": float(np.quantile(gaps, 0.5)),
            "p95": float(np.quantile(gaps, 0.95)),
        }

    def over(self, others: dict[str, Other]) -> dict:
        """The speed of ours over that of each other library's contender that took turns."""
        return {
            f"over_{name}": ratio(self.pace(name), self.pace(other.against))
            for name, other in others.items()
            if name in self.runs
        }

    def explain(self, name: str) -> dict:
        """A drafter's speedup over plain decoding in its own precision and over the best, α, τ, its
        ceiling τ ÷ v (v: its pass over an undisturbed plain round), where its time goes, and what
        the formulas predict.
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
            alpha = None if alpha["value"] is None else alpha  # nothing was ever drafted
        # A round takes at least its pass; a plain token takes T(1) and what is beside it.
        undisturbed = self.table("plain", lambda run: timing.round_costs(run.steps, 1.0).total)
        verify = self.table(name, lambda run: timing.round_costs(run.steps, 1.0).verify)
        ceiling = estimate(lambda t, r, p, v: t / r * p / v, tokens, rounds, undisturbed, verify)
        speedup = ratio(plain, pace)
        excess = estimate(
            lambda a, b, t, r, p, v: (a / b) / (t / r * p / v),
            *(plain, pace, tokens, rounds, undisturbed, verify),
        )
        seconds = sum(step.seconds for step in steps)
        shape = contender.drafter.shape() or drafted_shape(steps)
        return {
            "drafter": contender.name,
            "gamma": contender.gamma,
            "levels": shape.levels,
            "nodes": shape.nodes,
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
            "prediction": self.prediction(name, shape, costs, alpha, tau["value"]),
        }

    def prediction(
        self, name: str, shape: Shape, costs: timing.RoundCosts, alpha: dict | None, tau: float
    ) -> dict:
        """The plain formula (where there is an α), and the corrected one with what the same rounds
        cost. All costs in units of T(1).

        c: a draft pass alone, or in the loop where no model can be timed alone; c_in_loop: drafting
        of a round for each level. verify, overhead: of the same rounds; verify_alone: a pass over
        the drafter's own tree, timed alone against T(1).
        """
        levels = max(1, shape.levels)
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


def drafted_shape(steps: Sequence[Step]) -> Shape:
    """The most that was drafted in a round, for a drafter that does not know it beforehand."""
    depths = [step.tree.depth for step in steps if len(step.tree)]
    levels = max((int(depth.max()) + 1 for depth in depths), default=0)
    return Shape(levels, max(len(step.tree) for step in steps))


def growth(target: CausalLM, prompt: Tensor, most: int = 1000) -> dict:
    """Seconds of a token by position in one long plain run, and of the target's pass in the same
    rounds.
    """
    prompt = prompt[:64]
    count = min(most, target.max_positions - len(prompt))
    runs = [generate(target, prompt, None, count, 1.0, seed=seed).steps for seed in range(3)]
    places = [place for place in range(100, most, 200) if place + 25 <= len(prompt) + count]

    def at(place: int, part: str) -> float:
        first = place - len(prompt) - 25
        near = [step for steps in runs for step in steps[max(0, first) : first + 50]]
        return median(getattr(step, part) for step in near)

    return {
        "context": places,
        "pass_seconds": [at(place, "verifying") for place in places],
        "seconds_per_token": [at(place, "seconds") for place in places],
    }
