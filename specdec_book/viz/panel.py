"""The panel that measures a pair of the reader's choice and puts it into the explorer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from time import perf_counter

import ipywidgets
import numpy as np
import torch

from specdec_book.recordings import measured
from specdec_book.viz.interactives import Explorer
from specdec_book.viz.trace import Trace, trace
from specdec_lite import theory, timing
from specdec_lite.contract import Drafter
from specdec_lite.decoding import generate
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.models import CausalLM
from specdec_lite.gpu.whole_draft import both_ways
from specdec_lite.loading.pairs import Pair, load_pair
from specdec_lite.measure.intervals import ratio
from specdec_lite.proposal import Step
from specdec_lite.texts.smollm2_tasks import chat

MAX_GAMMA = 16
MAX_TEMPERATURE = 1.5
TURNS = 20
"""Paired turns of a measurement."""
LEAST_TURNS = 4
SECONDS = 60.0
"""After this time no further turn begins."""
OWN = "your own: two hub ids or folders"
GROUP = "Measured here, now"
ONE_BY_ONE = "one by one"
WIDE = {"style": {"description_width": "7em"}, "layout": {"width": "min(36em, 100%)"}}


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is measured: a target, its drafter and its text encoding.

    Attributes:
        target: The model that decodes.
        drafter: Function from a draft length to a drafter.
        encode: Function from a text to token ids.
        tokenizer: Tokenizer that decodes the target's tokens.
    """

    target: CausalLM
    drafter: Callable[[int], Drafter]
    encode: Callable[[str], Sequence[int]]
    tokenizer: object


def rates_by_position(steps: Sequence[Step]) -> list[float]:
    """Return the share of tested drafts that were accepted, by position in the draft."""
    rates = []
    for i in range(max(step.drafted for step in steps)):
        tested = [step for step in steps if step.drafted > i and step.accepted >= i]
        if not tested:
            break
        rates.append(sum(step.accepted > i for step in tested) / len(tested))
    return rates


def measure(
    label: str,
    candidate: Candidate,
    text: str,
    gamma: int,
    temperature: float,
    new_tokens: int,
    progress: Callable[[float, str], None] = lambda share, what: None,
) -> tuple[list[dict], Trace]:
    """Time passes and paired turns of plain and speculative decoding of one text, both ways.

    Returns the pair as a preset of the explorer, first in graphs if it can decode so, and every
    token of the last speculative run.
    """
    target, drafter = candidate.target, candidate.drafter(gamma)
    ids = torch.as_tensor(candidate.encode(text)).flatten().to(target.device)
    ways, why = both_ways(target, drafter, len(ids) + new_tokens + 16)
    progress(0.0, "warming up")
    alone: dict[str, dict] = {}
    for way, (model, fast, rule) in ways.items():
        for by in (None, fast):
            options = {"rule": by and rule, "seed": 0, "stop_token_ids": ()}
            generate(model, ids, by, new_tokens, temperature, **options)
        progress(0.1, "timing passes")
        ks = sorted({1, 2, gamma + 1} | ({16} if way == ONE_BY_ONE else set()))
        jobs: dict = {k: timing.pass_job(model, ids, k) for k in ks}
        if (draft := fast.draft_model()) is not None:
            known = ids.clamp(max=draft.vocab_size - 1).to(draft.device)
            jobs["draft"] = timing.pass_job(draft, known, 1)
        alone[way] = timing.interleaved(jobs, target.device, repeats=7, warmup=2)
    order, began = np.random.default_rng(0), perf_counter()
    kinds = [(way, kind) for way in ways for kind in ("plain", "drafted")]
    pace: dict[tuple, list[float]] = {each: [] for each in kinds}
    steps: dict[tuple, list[Step]] = {each: [] for each in kinds}
    runs: dict = {}
    for turn in range(TURNS):
        if turn >= LEAST_TURNS and perf_counter() - began > SECONDS:
            break
        progress(0.2 + 0.8 * turn / TURNS, f"turn {turn + 1} of {TURNS}")
        for number in order.permutation(len(kinds)):
            way, kind = each = kinds[number]
            model, by, rule = ways[way] if kind == "drafted" else (ways[way][0], None, None)
            options = {"rule": rule, "seed": turn, "stop_token_ids": ()}
            runs[each] = generate(model, ids, by, new_tokens, temperature, **options)
            pace[each].append(runs[each].stats.seconds / runs[each].stats.tokens)
            steps[each] += runs[each].steps
    shown = trace(runs[kinds[-1]], candidate.tokenizer, text)
    machine = timing.machine_name(target.device)
    fastest = min(median(pace[way, "plain"]) for way in ways)
    presets = []
    for way in ways:
        times, rounds = ({kind: of[way, kind] for _, kind in kinds[:2]} for of in (pace, steps))
        gain = fastest / median(pace[way, "drafted"])
        facts = [["over the fastest plain decoding", f"{gain:.2f}×"]]
        name = f"{label}, {way}" if len(ways) > 1 else label
        presets.insert(0, preset_of(name, machine, gamma, alone[way], times, rounds, facts))
    compared = [[f"c {way}", f"{each['c']:.2f}"] for way, each in zip(ways, presets[::-1])]
    compared += [["c in graphs", f"not measured: {why}"]] if why else []
    compared.append(["engines", "vLLM and SGLang run in graphs, transformers one by one"])
    return [each | {"facts": compared + each["facts"]} for each in presets], shown


def preset_of(
    label: str, machine: str, gamma: int, alone: dict, pace: dict, steps: dict, facts: list
) -> dict:
    """Return the preset of a measurement: {k or "draft": seconds}, seconds per token, and rounds."""
    one = median(step.verifying for step in steps["plain"])
    costs, plain = (timing.round_costs(steps[name], one) for name in ("drafted", "plain"))
    speedup = ratio([pace["plain"]], [pace["drafted"]])
    tested = sum(step.tested for step in steps["drafted"])
    rates = rates_by_position(steps["drafted"])
    parts = {"draft": costs.draft, "verify": costs.verify, "other": costs.other}
    passes = {k: seconds for k, seconds in alone.items() if isinstance(k, int)}
    tau = sum(len(step.tokens) for step in steps["drafted"]) / len(steps["drafted"])
    v = alone[gamma + 1] / alone[1]
    c = alone["draft"] / alone[1] if "draft" in alone else costs.draft / gamma
    forecast = float(theory.corrected_improvement(tau, gamma, c, v))
    facts = [*facts, measured.real_forecast(forecast, speedup["value"])]
    facts += [["T(1)", f"{1e3 * alone[1]:.2f} ms"]]
    facts += [[f"T({k}) ÷ T(1)", f"{t / alone[1]:.2f}"] for k, t in passes.items() if k > 1]
    if "draft" in alone:
        facts.append(["a draft pass alone ÷ T(1)", f"{alone['draft'] / alone[1]:.2f}"])
    facts.append(["α by position", ", ".join(f"{rate:.2f}" for rate in rates)])
    return measured.preset(
        GROUP,
        label,
        speedup["value"],
        gamma,
        f"Measured on {machine}: {len(pace['plain'])} paired turns in random order;"
        f" {measured.interval(speedup)}, over these turns of one text. {measured.REMAINDER}",
        alpha=sum(step.accepted for step in steps["drafted"]) / max(1, tested),
        **measured.costs_of(parts | {"plain": plain.total}, v, gamma),
        facts=facts,
    )


class PairPanel:
    """Menus for a pair and a text, a Measure button, and the explorer with the measured pair.

    On a page without a kernel the explorer alone is shown, with the recorded pairs.

    Args:
        pairs: By name a `Pair`, a `Candidate`, or a function that loads one when it is first chosen.
        prompts: Texts by name; the reader can edit the chosen one.
        presets: Recorded pairs, as `recordings.measured` returns them.
        gamma: Draft length at the start, 1 … 16.
        max_new_tokens: Length of every run.

    Attributes:
        explorer: The explorer.
    """

    def __init__(
        self,
        pairs: Mapping[str, object],
        prompts: Mapping[str, str],
        presets: Sequence[dict],
        gamma: int = 4,
        max_new_tokens: int = 32,
    ):
        self._pairs = dict(pairs)
        self.max_new_tokens = max_new_tokens
        self.explorer = Explorer.of_pairs(presets)
        menu = lambda options, name: ipywidgets.Dropdown(options=options, description=name, **WIDE)
        word = lambda name, hint: ipywidgets.Text(description=name, placeholder=hint, **WIDE)
        self.pair = menu([*self._pairs, OWN], "Pair")
        self.own = [word("Target", "hub id or folder"), word("Draft", "hub id or folder")]
        self.prompt = menu(list(prompts.items()), "Text")
        self.text = ipywidgets.Textarea(self.prompt.value, rows=3, description="", **WIDE)
        self.prompt.observe(lambda change: setattr(self.text, "value", change["new"]), "value")
        self.temperature = ipywidgets.FloatSlider(
            0.0, min=0, max=MAX_TEMPERATURE, step=0.1, description="temperature", **WIDE
        )
        self.gamma = ipywidgets.IntSlider(gamma, 1, MAX_GAMMA, description="γ", **WIDE)
        self.button = ipywidgets.Button(description="Measure", button_style="primary")
        self.progress = ipywidgets.FloatProgress(min=0, max=1, description="", **WIDE)
        self.progress.layout.visibility = "hidden"
        self.result = ipywidgets.HTML()

        def show_own(_=None) -> None:
            for field in self.own:
                field.layout.display = None if self.pair.value == OWN else "none"

        show_own()
        self.pair.observe(show_own, "value")
        self.button.on_click(lambda _: self.measure())
        choices = [self.pair, *self.own, self.prompt, self.text, self.gamma, self.temperature]
        parts = [*choices, self.button, self.progress, self.explorer, self.result]
        self.view = ipywidgets.VBox(parts)

    def measure(self) -> list[dict]:
        """Measure the chosen pair and put it into the explorer, or show the error that ended it."""
        self.button.disabled = True
        self.progress.layout.visibility = "visible"
        self.result.value = ""
        presets: list[dict] = []
        try:
            presets, shown = self._measure()
            self._choose(presets)
            self.result.value = shown._repr_html_()
        # a reader's choice can fail in many ways: no network, no memory, a text that is too long
        except Exception as error:
            self.result.value = (
                f'<p role="alert"><strong>This run failed.</strong> {escape(type(error).__name__)}:'
                f" {escape(str(error))}</p>"
            )
        finally:
            self.button.disabled = False
            self.progress.layout.visibility = "hidden"
        return presets

    def _measure(self) -> tuple[list[dict], Trace]:
        def show(share: float, what: str) -> None:
            self.progress.value, self.progress.description = share, what

        name, gamma = str(self.pair.value), self.gamma.value
        temperature = round(self.temperature.value, 6)
        if name == OWN:
            names = [field.value.strip() for field in self.own]
            if not all(names):
                raise ValueError("give a target and a draft: two hub ids or folders")
            name = " with ".join(names)
            if name not in self._pairs:
                self._pairs[name] = lambda: load_pair(*names)
        show(0.0, "loading")
        candidate = self._pairs[name] = _loaded(self._pairs[name])
        label = f"{name}, T = {temperature:g}, γ = {gamma}"
        text = self.text.value
        return measure(label, candidate, text, gamma, temperature, self.max_new_tokens, show)

    def _choose(self, presets: list[dict]) -> None:
        labels = {each["label"] for each in presets}
        older = [each for each in self.explorer.presets if each["label"] not in labels]
        with self.explorer.hold_trait_notifications():
            self.explorer.set_trait("presets", [*presets, *older])
            for name in filter(self.explorer.has_trait, presets[0]):
                self.explorer.set_trait(name, presets[0][name])

    def _repr_mimebundle_(self, **kwargs) -> dict:
        """Return the live controls, and the explorer for a page without a kernel."""
        data, _ = self.explorer._repr_mimebundle_(**kwargs)
        data["application/vnd.jupyter.widget-view+json"]["model_id"] = self.view.model_id
        return data


def _loaded(pair) -> Candidate:
    """Return the candidate of a pair, which is loaded first if it is a function."""
    if not isinstance(pair, (Pair, Candidate)):
        pair = pair()
    if isinstance(pair, Candidate):
        return pair
    draft, tokenizer = pair.draft, pair.tokenizer
    return Candidate(
        pair.target,
        lambda gamma: ModelDrafter(draft, gamma),
        lambda text: chat(tokenizer, text),
        tokenizer,
    )
