"""The control panel: choose a pair, a prompt, γ and a temperature, and decode with them.

Its tokens per second come from a single run and are no measurement; `benchmarks` measures.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import sqrt

import ipywidgets

from specdec_book.viz.trace import Trace, trace
from specdec_lite.checks import whole
from specdec_lite.decoding import Stats, generate
from specdec_lite.drafters import ModelDrafter
from specdec_lite.loading.pairs import Pair

MAX_GAMMA = 16
MAX_TEMPERATURE = 1.5
LABEL_LENGTH = 60


def wilson_interval(accepted: int, tested: int, z: float = 1.959964) -> tuple[float, float]:
    """Return Wilson's interval of a rate, as (low, high)."""
    if tested == 0:
        return 0.0, 1.0
    share, scale = accepted / tested, 1 + z * z / tested
    middle = (share + z * z / (2 * tested)) / scale
    half = z * sqrt(share * (1 - share) / tested + z * z / (4 * tested * tested)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run: the settings and the trace.

    Attributes:
        pair: Name of the pair; "" if the panel has only one pair.
        prompt: Name of the prompt.
        gamma: Draft length; 0 is plain decoding.
        temperature: Temperature of the run.
        trace: Every token of the run.
    """

    pair: str
    prompt: str
    gamma: int
    temperature: float
    trace: Trace

    @property
    def summary(self) -> str:
        """The settings and the result in plain text."""
        name = f"{self.pair}, " if self.pair else ""
        return (
            f"{name}γ = {self.gamma}{'' if self.gamma else ' (plain decoding)'}, temperature"
            f" {self.temperature:g}, prompt “{self.prompt}”: {self.rate}; {self.speed}."
        )

    @property
    def rate(self) -> str:
        """The acceptance rate with its interval, as a phrase."""
        stats = self.trace.stats
        if not stats.tested:
            return "no draft was verified, so α is unknown"
        low, high = wilson_interval(stats.accepted, stats.tested)
        return (
            f"α ≈ {stats.acceptance_rate:.2f} ({stats.accepted} of {stats.tested} tests; 95\u00a0%"
            f" interval {low:.2f} to {high:.2f})"
        )

    @property
    def speed(self) -> str:
        """The speed of decoding, as a phrase."""
        stats: Stats = self.trace.stats
        return f"{stats.tokens / stats.seconds:.1f} tokens/s in this one run, without prefill"

    def _repr_html_(self) -> str:
        return f'<p role="status">{escape(self.summary)}</p>{self.trace._repr_html_()}'


class ControlPanel:
    """Menus for pair and prompt, sliders for γ and temperature, and a Run button.

    Below the controls is the last run, or the error that ended it. On a page without a kernel the
    panel shows the last run as plain HTML; if there is none, displaying the panel decodes once.

    Args:
        pairs: A `Pair`, or by name a `Pair` or a function that loads one when it is first chosen.
        prompts: Texts, or texts by name.
        gamma: Draft length at the start, 0 … 16; 0 is plain decoding.
        temperature: Temperature at the start, 0 … 1.5.
        max_new_tokens: Length of every run, at least 1.
        seed: Seed of every run.

    Attributes:
        last_run: The last `Run`; None before the first run and after an error.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range or empty.
    """

    def __init__(
        self,
        pairs: Pair | Mapping[str, Pair | Callable[[], Pair]],
        prompts: Sequence[str] | Mapping[str, str],
        gamma: int = 4,
        temperature: float = 0.0,
        max_new_tokens: int = 64,
        seed: int = 0,
    ):
        self._pairs = _check_pairs(pairs)
        self._prompts = _check_prompts(prompts)
        whole("gamma", gamma, 0, MAX_GAMMA)
        if not 0 <= temperature <= MAX_TEMPERATURE:
            raise ValueError(f"temperature={temperature!r}: must be in 0 … {MAX_TEMPERATURE}")
        whole("max_new_tokens", max_new_tokens, 1)
        self.max_new_tokens = max_new_tokens
        self.seed = seed
        self.last_run: Run | None = None
        self._html = ""
        wide = {"style": {"description_width": "7em"}, "layout": {"width": "min(36em, 100%)"}}
        self.pair = ipywidgets.Dropdown(options=list(self._pairs), description="Pair", **wide)
        self.prompt = ipywidgets.Dropdown(options=list(self._prompts), description="Prompt", **wide)
        self.gamma = ipywidgets.IntSlider(
            gamma, 0, MAX_GAMMA, description="γ", continuous_update=False, **wide
        )
        self.temperature = ipywidgets.FloatSlider(
            temperature,
            min=0,
            max=MAX_TEMPERATURE,
            step=0.1,
            description="temperature",
            continuous_update=False,
            **wide,
        )
        self.button = ipywidgets.Button(description="Run", button_style="primary")
        self.result = ipywidgets.HTML()
        menus = [self.pair, self.prompt] if len(self._pairs) > 1 else [self.prompt]
        self.view = ipywidgets.VBox(
            [*menus, self.gamma, self.temperature, self.button, self.result]
        )
        self.button.on_click(lambda _: self.run())

    def run(self) -> Run | None:
        """Decode with the chosen settings and show the run, or the error that ended it."""
        self.button.disabled = True
        self._show('<p role="status">Running…</p>')
        try:
            self.last_run = self._decode()
            self._show(self.last_run._repr_html_())
            return self.last_run
        # a reader's choice can fail in many ways: no network, no memory, a prompt that is too long
        except Exception as error:
            self.last_run = None
            self._show(
                f'<p role="alert"><strong>This run failed.</strong> {escape(type(error).__name__)}:'
                f" {escape(str(error))}</p>"
            )
            return None
        finally:
            self.button.disabled = False

    def _decode(self) -> Run:
        name, prompt_name = str(self.pair.value), str(self.prompt.value)
        gamma = self.gamma.value
        temperature = round(self.temperature.value, 6)
        pair = self._pairs[name]
        if not isinstance(pair, Pair):
            pair = self._pairs[name] = _check_loaded(name, pair())
        prompt = self._prompts[prompt_name]
        drafter = ModelDrafter(pair.draft, gamma) if gamma else None
        output = generate(
            pair.target,
            pair.tokenizer.encode(prompt),  # pyright: ignore[reportAttributeAccessIssue]
            drafter,
            self.max_new_tokens,
            temperature,
            seed=self.seed,
        )
        return Run(name, prompt_name, gamma, temperature, trace(output, pair.tokenizer, prompt))

    def _show(self, html: str) -> None:
        self._html = self.result.value = html

    def _repr_mimebundle_(self, **kwargs) -> dict:
        """Return the live controls, and the last run for a page without a kernel.

        The site prefers HTML to a widget's view.
        """
        if not self._html:
            self.run()
        choices = "a pair, a prompt" if len(self._pairs) > 1 else "a prompt"
        note = (
            f"This is a recorded run. In JupyterLab or Colab you can choose {choices}, γ and a"
            " temperature, and run it yourself."
        )
        return {
            "application/vnd.jupyter.widget-view+json": {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self.view.model_id,
            },
            "text/html": f"<p><em>{note}</em></p>{self._html}",
            "text/plain": self.last_run.summary if self.last_run else "This run failed.",
        }


def _check_pairs(pairs) -> dict[str, Pair | Callable[[], Pair]]:
    named = dict(pairs) if isinstance(pairs, Mapping) else {"": pairs}
    if not named:
        raise ValueError("pairs is empty: must hold at least one pair")
    for name, pair in named.items():
        if not isinstance(pair, Pair) and not callable(pair):
            raise TypeError(
                f"pairs holds a {type(pair).__name__}{f' at {name!r}' if name else ''}: must be a"
                " Pair, such as load_pair(), or a function that returns one"
            )
    return named


def _check_loaded(name: str, pair) -> Pair:
    if not isinstance(pair, Pair):
        raise TypeError(f"pairs[{name!r}] returned a {type(pair).__name__}: must return a Pair")
    return pair


def _check_prompts(prompts) -> dict[str, str]:
    if isinstance(prompts, str) or not isinstance(prompts, (Mapping, Sequence)):
        raise TypeError(
            f"prompts is a {type(prompts).__name__}: must be a list of texts or a dict of texts by"
            " name"
        )
    named = (
        dict(prompts) if isinstance(prompts, Mapping) else {_label(text): text for text in prompts}
    )
    if len(named) < len(prompts):
        raise ValueError(
            f"prompts holds texts that begin with the same {LABEL_LENGTH} characters: must be a"
            " dict of texts by name"
        )
    if not named or not all(isinstance(text, str) and text for text in named.values()):
        raise ValueError(f"prompts={prompts!r}: must hold at least one text, and no empty one")
    return named


def _label(text) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= LABEL_LENGTH else line[: LABEL_LENGTH - 1] + "…"
