"""Time rounds: trained pairs in every mode, and shapes of real size with synthetic acceptance."""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import product
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from specdec_lite import theory
from specdec_lite.contract import Drafter
from specdec_lite.decoding import generate, stream
from specdec_lite.drafters import EagleDrafter, ModelDrafter
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer
from specdec_lite.gpu.graphs import StaticLM
from specdec_lite.gpu.on_device import DeviceDrafter, on_device
from specdec_lite.gpu.plan.bench import Bench, CannotRun
from specdec_lite.gpu.plan.forward import Layers, forward
from specdec_lite.gpu.plan.passes import chain_of, timed_cells
from specdec_lite.gpu.plan.shapes import Scale
from specdec_lite.gpu.whole_draft import CapturedDrafter, why_no_graphs
from specdec_lite.loading.pairs import Pair, load_pair
from specdec_lite.loading.smollm2 import load_smollm2
from specdec_lite.measure.clocks import interleaved, synchronize
from specdec_lite.measure.intervals import ratio
from specdec_lite.measure.timing import pass_job, round_costs
from specdec_lite.proposal import Step
from specdec_lite.texts import corpus
from specdec_lite.texts.smollm2_tasks import chat

GAMMA = 4
"""Draft length of the shipped pair."""
CAPACITY = 512
"""Tokens that a cache of fixed size can store."""
MODES = {
    "eager": ("eager", ModelDrafter, None),
    "eager, one read": ("eager", DeviceDrafter, on_device),
    "static, plain rule": ("static", ModelDrafter, None),
    "static": ("static", DeviceDrafter, on_device),
    "static, whole draft": ("static", CapturedDrafter, on_device),
}
"""Modes of a whole round: (kind of pass, drafter, rule). Static passes are captured on a GPU."""
BOTH_WAYS = {mode: MODES[mode] for mode in ("eager", "static, whole draft")}
"""Modes of a reader's pair: one by one, and in graphs."""


class TimedPair:
    """A target and its draft on a device, in every mode.

    Args:
        pair: both models; the draft may be the target itself, whose heads then draft.
        encode: returns the ids of a text.
        modes: {name: (kind of pass, function of (draft, γ) that returns a drafter, rule)}.
    """

    def __init__(self, pair: Pair, encode: Callable, modes: dict[str, tuple]):
        self.pair, self.encode, self.modes = pair, encode, modes

    @cached_property
    def static(self) -> tuple[CausalLM, CausalLM]:
        """The pair with passes of fixed shape."""
        target = StaticLM(self.pair.target, CAPACITY, (1, 2, GAMMA + 1))
        return target, StaticLM(self.pair.draft, CAPACITY, (1, 2))

    def method(self, mode: str) -> tuple[CausalLM, Drafter, object]:
        """Return the target, the drafter and the rule of a mode."""
        passes, drafter, rule = self.modes[mode]
        eager = self.pair.target, self.pair.draft
        target, draft = eager if passes == "eager" else self.static
        return target, drafter(draft, GAMMA), rule

    def prompts(self, scale: Scale) -> list[Tensor]:
        """Return prompts of code as token ids."""
        texts = corpus.evaluation_prompts()["code"][: scale.prompts]
        return [torch.tensor(self.encode(each["text"]))[-scale.prompt_tokens :] for each in texts]


def shipped(device: torch.device, dtype: str) -> TimedPair:
    """Return the shipped pair in every mode."""
    pair = load_pair(device=str(device), dtype=dtype, context=CAPACITY)
    return TimedPair(pair, pair.tokenizer.encode, MODES)


def contenders(pair: TimedPair) -> dict[str, tuple]:
    """Return {name: (target, drafter, rule)} of every decoder that takes part in the turns."""
    ways: dict[str, tuple] = {}
    for mode, (passes, *_) in pair.modes.items():
        target, drafter, rule = pair.method(mode)
        ways[f"speculative {mode}"] = target, drafter, rule
        ways[f"plain {passes}"] = target, None, None
    return ways


def shipped_rounds(bench: Bench) -> dict:
    """Decode with the shipped pair in every mode: text, speed, and the parts of a round."""
    name = str(bench.dtype).removeprefix("torch.")
    exact = {"float32": shipped(bench.device, "float32")} if name != "float32" else {}
    return whole_rounds(bench, {name: shipped(bench.device, name)} | exact)


def reader_rounds(bench: Bench) -> dict:
    """Decode with the reader's pair, one by one and, if both models are our own, in graphs."""
    if not bench.names:
        raise CannotRun("no pair was named; --pair TARGET DRAFT measures one")
    dtype = str(bench.dtype).removeprefix("torch.")
    try:
        pair = load_pair(*bench.names, device=str(bench.device), dtype=dtype, context=CAPACITY)
    except (ValueError, MemoryError, OSError) as error:
        raise CannotRun(str(error)) from None
    why = why_no_graphs(pair.target, pair.draft)
    modes = {"eager": MODES["eager"]} if why else BOTH_WAYS
    encode = lambda text: chat(pair.tokenizer, text)
    result = whole_rounds(bench, {dtype: TimedPair(pair, encode, modes)})
    return result | {"target": bench.names[0], "draft": bench.names[1], "no_graphs": why}


def smollm2_rounds(bench: Bench) -> dict:
    """Decode with SmolLM2-135M and its trained EAGLE-1 head, one by one and in graphs."""
    dtype = str(bench.dtype).removeprefix("torch.")
    try:
        target, tokenizer = load_smollm2(str(bench.device), dtype)
    except (OSError, ValueError) as error:
        raise CannotRun(f"SmolLM2's weights cannot be loaded: {error}"[:300]) from None
    head = lambda _, gamma: EagleDrafter.from_pretrained(target, draft=gamma)
    modes = {passes: (passes, head, None) for passes in ("eager", "static")}  # of the target
    pair = TimedPair(Pair(target, target, tokenizer), lambda x: chat(tokenizer, x), modes)
    names = {"target": "SmolLM2-135M", "draft": "its EAGLE-1 head"}
    return whole_rounds(bench, {dtype: pair}) | names


def whole_rounds(bench: Bench, pairs: dict[str, TimedPair]) -> dict:
    """Compare greedy texts with plain decoding by dtype, then time paired turns of the first."""
    result: dict = {"gamma": GAMMA, "new_tokens": bench.scale.new_tokens, "lossless": []}
    for dtype, pair in pairs.items():
        result["lossless"] += lossless_rows(bench, pair, dtype)
        bench.keep(result)
    for index, temperature in enumerate((0.0, 1.0)):
        left = max(0.0, bench.until - perf_counter())
        until = perf_counter() + left / (2 - index)
        first = next(iter(pairs.values()))
        result[f"T = {temperature:g}"] = timed_rounds(bench, first, temperature, until)
        bench.keep(result)
    return result


def lossless_rows(bench: Bench, pair: TimedPair, dtype: str) -> list[dict]:
    """Find where speculative greedy text first differs from plain text, and the two logits' gap."""
    rows, texts = [], {}

    def decode(target, ids, drafter=None, rule=None):
        options = {"rule": rule, "stop_token_ids": ()}
        return generate(target, ids, drafter, bench.scale.new_tokens, **options)

    for mode, (index, ids) in product(pair.modes, enumerate(pair.prompts(bench.scale))):
        target, drafter, rule = pair.method(mode)
        passes = pair.modes[mode][0]
        if (passes, index) not in texts:
            texts[passes, index] = decode(target, ids).tokens
        plain, fast = texts[passes, index], decode(target, ids, drafter, rule=rule).tokens
        row = {"dtype": dtype, "mode": mode, "prompt": index, "tokens": len(plain)}
        row["diverges_at"] = None
        differ = (plain != fast).nonzero()
        if len(differ):
            at = int(differ[0])
            cache = target.new_cache()
            text = torch.cat((ids, plain[:at].to(ids.device)))
            logits = target.score(text, cache, last=True).logits[0, -1].float()
            row["diverges_at"] = at
            row["gap"] = abs(float(logits[plain[at]] - logits[fast[at]]))
            row["largest_logit"] = float(logits.abs().max())
        rows.append(row)
    return rows


def timed_rounds(bench: Bench, pair: TimedPair, temperature: float, until: float) -> dict:
    """Time all contenders in paired turns, and explain the speedup of every mode."""
    prompts, ways = pair.prompts(bench.scale), contenders(pair)
    failed: dict[str, str] = {}

    def decode(name: str, index: int, seed: int) -> list[Step]:
        target, drafter, rule = ways[name]
        settings = prompts[index], drafter, bench.scale.new_tokens, temperature
        return list(stream(target, *settings, rule=rule, seed=seed, stop_token_ids=()))

    for name in list(ways):  # warm up: capture, and let libraries choose their kernels
        try:
            for seed, index in enumerate([*range(len(prompts))][:2] * 2):
                decode(name, index, seed)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"[:300]
            del ways[name]
            synchronize(bench.device)
    order = np.random.default_rng(0)
    runs: dict[str, list] = {name: [[] for _ in prompts] for name in ways}
    for sweep in range(max(1, bench.scale.turns // len(prompts))):
        if sweep >= 2 and perf_counter() > until:
            break
        for index in map(int, order.permutation(len(prompts))):
            for name in order.permutation(list(ways)):
                runs[name][index].append(decode(name, index, sweep * len(prompts) + index))
    pace = {
        name: np.array([[seconds_per_token(steps) for steps in row] for row in rows])
        for name, rows in runs.items()
    }
    result: dict = {"temperature": temperature, "failed": failed}
    result["turns"] = sum(map(len, next(iter(runs.values()))))
    result["tokens_per_second"] = {name: float(1 / row.mean()) for name, row in pace.items()}
    result["modes"] = {
        mode: explained(bench, pair, mode, runs, pace)
        for mode, (passes, *_) in pair.modes.items()
        if f"speculative {mode}" in runs and f"plain {passes}" in runs
    }
    return result


def seconds_per_token(steps: Sequence[Step]) -> float:
    """Return the seconds of rounds, without the prefill, per token."""
    return sum(step.seconds for step in steps) / sum(len(step.tokens) for step in steps)


def explained(bench: Bench, pair: TimedPair, mode: str, runs: dict, pace: dict) -> dict:
    """Return a mode's speedup, α and τ, passes timed alone, and the parts of its rounds.

    Parts of a round are in plain steps of the same kind of pass, T(1).
    """
    fast, plain = f"speculative {mode}", f"plain {pair.modes[mode][0]}"
    steps = [step for row in runs[fast] for run in row for step in run]
    plain_steps = [step for row in runs[plain] for run in row for step in run]
    tested = sum(step.tested for step in steps)
    tau = sum(len(step.tokens) for step in steps) / len(steps)
    one = median(step.verifying for step in plain_steps)
    costs, base = round_costs(steps, one), round_costs(plain_steps, one)
    target, drafter, _ = pair.method(mode)
    ids = pair.prompts(bench.scale)[0]
    jobs = {"one": pass_job(target, ids, 1), "verify": pass_job(target, ids, GAMMA + 1)}
    if (draft := drafter.draft_model()) is not None:
        jobs["draft"] = pass_job(draft, ids, 1)
    alone = interleaved(jobs, target.device, bench.scale.repeats)
    c = alone["draft"] / alone["one"] if draft else costs.draft / GAMMA  # a head reads states, too
    v = alone["verify"] / alone["one"]
    fastest = min((name for name in pace if name.startswith("plain")), key=lambda x: pace[x].mean())
    return {
        "speedup": ratio(pace[plain], pace[fast]),
        "over_fastest": ratio(pace[fastest], pace[fast]) | {"plain": fastest},
        "alpha": sum(step.accepted for step in steps) / tested if tested else None,
        "tau": tau,
        "alone": alone | {"predicted": float(theory.corrected_improvement(tau, GAMMA, c, v))},
        "rounds": {
            "target_seconds": one,
            "draft": costs.draft,
            "verify": costs.verify,
            "other": costs.other,
            "plain": base.total,
            "predicted": tau * base.total / costs.total,
        },
    }


# Synthetic acceptance -------------------------------------------------------------------------------

ALPHAS = (0.6, 0.7, 0.8)
SYNTHETIC = ("head, 32k rows", "Llama-3.2-1B")
"""Drafts of the synthetic rounds."""
SYNTHETIC_BATCHES = (1, 4, 16, 64, 128)
"""Batch sizes of the synthetic rounds, if the scale has them."""


class SyntheticRounds:
    """Rounds of B sequences at a fixed context, whose drafts a coin accepts.

    A round drafts γ tokens, runs the target over γ + 1, turns all its logits into probabilities,
    tests every draft, draws one token per sequence, and lets the host read the outcome. Only the
    tests are synthetic: they compare with α. γ = 0 is plain decoding. The context does not grow.
    """

    def __init__(
        self,
        bench: Bench,
        models: tuple[Transformer, Transformer],
        buffers: tuple[Tensor, Tensor],
        batch: int,
        gamma: int,
    ):
        self.gamma, self.context = gamma, bench.scale.contexts[0]
        self.target, self.draft = models
        length = self.context + gamma + 1
        self.layers, self.draft_layers = (
            Layers(buffer, model.config, batch, length) for buffer, model in zip(buffers, models)
        )
        make = lambda *shape, **more: torch.zeros(*shape, device=bench.device, **more)
        self.tokens = make(batch, 1, dtype=torch.long)
        self.coins, self.alpha = make(batch, gamma + 1), make(1)
        self.replay, (self.outcome,) = bench.captured(self.run)

    def run(self) -> tuple[Tensor]:
        """Return the numbers accepted, the next tokens and the drafts [B, 2 + γ]."""
        batch = len(self.tokens)
        drafted = chain_of(self.draft, self.draft_layers, self.tokens, self.context, self.gamma)
        block = torch.cat((self.tokens, *drafted), 1)
        logits = forward(self.target, block, self.layers, self.context)
        probs = logits.float().softmax(-1)
        chosen = block.roll(-1, 1)  # what was drafted after each row; the last row has no draft
        p = probs.gather(-1, chosen[..., None])[..., 0]
        # A real test compares with p: adding nothing of it keeps its cost in the round.
        passed = self.coins[:, :-1] < self.alpha + 0 * p[:, :-1]
        accepted = passed.long().cumprod(1).sum(1, keepdim=True)
        row = probs.gather(1, accepted[..., None].expand(batch, 1, probs.shape[-1]))[:, 0]
        # Drafts are the likeliest tokens, so the residual is the row without the rejected one.
        row = row.scatter(-1, chosen.gather(1, accepted), 0.0)
        sums = row.cumsum(-1)
        token = torch.searchsorted(sums, self.coins[:, -1:] * sums[:, -1:])
        self.tokens.copy_(token.clamp(max=probs.shape[-1] - 1))
        return (torch.cat((accepted, self.tokens, *drafted), 1),)

    def decode(self, rounds: int, alpha: float) -> tuple[float, int]:
        """Return (seconds, tokens emitted) of this many rounds, with the host's bookkeeping."""
        self.alpha.fill_(alpha)
        texts: list[list[int]] = [[] for _ in self.tokens]
        synchronize(self.tokens.device)
        began = perf_counter()
        for _ in range(rounds):
            self.coins.uniform_()
            outcome = self.replay() or (self.outcome,)
            rows: list[list[int]] = outcome[0].tolist()  # pyright: ignore[reportIndexIssue]
            for text, (accepted, token, *drafted) in zip(texts, rows):
                text += [*drafted[:accepted], token]
        return perf_counter() - began, sum(map(len, texts))


@torch.inference_mode()
def synthetic_rounds(bench: Bench) -> dict:
    """Time whole rounds on real shapes by draft, batch and γ, with synthetic acceptance.

    Each row has the seconds per round and, by α, the tokens per sequence and round and the measured
    speedup over plain rounds that were timed beside it.
    """
    target, buffer = bench.model(bench.scale.target), bench.cache_buffer()
    batches = [batch for batch in SYNTHETIC_BATCHES if batch in bench.scale.batches]
    plain: dict[int, SyntheticRounds] = {}

    def jobs():
        for name in SYNTHETIC:
            models = target, bench.model(name)
            buffers = buffer, bench.random(max(1 << 14, len(buffer) // 8))
            for gamma, batch in product(bench.scale.gammas, batches):

                def make(models=models, buffers=buffers, batch=batch, gamma=gamma):
                    if batch not in plain:
                        plain[batch] = SyntheticRounds(bench, models, buffers, batch, 0)
                    return plain[batch], SyntheticRounds(bench, models, buffers, batch, gamma)

                yield {"draft": name, "batch": batch, "gamma": gamma}, make

    about = {"target": bench.scale.target, "context": bench.scale.contexts[0]}
    return timed_cells(bench, jobs(), lambda both: compared(bench, *both), **about)


def compared(bench: Bench, plain: SyntheticRounds, fast: SyntheticRounds) -> dict:
    """Return the seconds of plain and speculative rounds, alternating, and the speedup by α."""
    for rounds in (plain, fast):
        rounds.decode(2, 0.5)
    one = fast.decode(2, 0.5)[0] / 2
    count = max(3, min(30, int(bench.scale.seconds / 2 / one)))
    times: dict[str, list[float]] = {"plain": [], "round": []}
    emitted: dict[str, float] = {}
    for alpha in ALPHAS:
        times["plain"].append(plain.decode(count, alpha)[0] / count)
        seconds, tokens = fast.decode(count, alpha)
        times["round"].append(seconds / count)
        emitted[f"{alpha:g}"] = tokens / count / len(fast.tokens)
    base, cost = median(times["plain"]), median(times["round"])
    return {
        "plain_seconds": base,
        "round_seconds": cost,
        "times": times,
        "tokens": emitted,
        "speedup": {
            f"{alpha:g}": float(theory.expected_tokens(alpha, fast.gamma)) * base / cost
            for alpha in ALPHAS
        },
    }
