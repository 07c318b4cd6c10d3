"""Interactive × script: a reader with keyboard, mouse and menus does what it asks for, and is told so."""

import boards
import gallery
import pytest
from javascript import formula
from mounting import open_phone_folds, press_until, says
from playwright.sync_api import Page, expect
from test_formulas import PARTS, RATES, best_length, cost, rate, skipped

from specdec_book import viz
from specdec_book.viz.interactive import Interactive
from specdec_book.viz.interactives import Stepper

STATE, SAID = ".sdl-task-state", ".sdl-summary"
RUN = Stepper.load()
CUTS = [
    at
    for at, moment in enumerate(formula("stepper", "moments", RUN.rounds))
    if moment["kind"] == "cut" and RUN.rounds[moment["round"]]["accepted"] == RUN.gamma
]
"""Moments after the cut of a round in which every draft was accepted."""
ONE = dict(layers=3, group=1, rates=RATES, costs=PARTS)
SPEEDS = [best_length(rate(RATES, mask), cost(PARTS, 3, skipped(3, mask)))[1] for mask in range(64)]
"""Predicted speedup of each set of skipped sublayers."""
HERE = {"label": "here", "gamma": 4, "alpha": 0.6, "c": 0.3, "measured": 1.0, "by": "We."}


class Reader:
    """What a reader does with an interactive, and sees there."""

    def __init__(self, page: Page):
        self.page = page

    def field(self, name: str):
        """Find a control by the number that it sets, or by its label."""
        own = self.page.locator(f"[data-name='{name}']")
        return own if own.count() else self.page.get_by_label(name, exact=True)

    def button(self, name: str):
        return self.page.get_by_role("button", name=name).first

    def press(self, name: str, *keys: str):
        for key in keys:
            self.field(name).press(key)

    def until(self, name: str, key: str, words: str):
        press_until(self.page, name, key, words)

    def choose(self, name: str, option: int | str):
        key = "index" if isinstance(option, int) else "label"
        self.field(name).select_option(**{key: option})

    def fill(self, name: str, text: str):
        self.field(name).fill(text)

    def click(self, name: str):
        self.button(name).click()

    def enter(self, name: str):
        self.button(name).press("Enter")

    def open(self, words: str):
        self.page.get_by_text(words).first.click()

    def set(self, **values):
        self.page.evaluate("(s) => Object.entries(s).forEach((pair) => model.set(...pair))", values)

    def has(self, **values):
        for name, value in values.items():
            assert self.page.evaluate("(name) => model.get(name)", name) == pytest.approx(value)

    def says(self, where: str, *words: str):
        for each in words:
            says(self.page, where, each)

    def lacks(self, where: str, words: str):
        expect(self.page.locator(where).first).not_to_contain_text(words)

    def count(self, where: str, number: int):
        expect(self.page.locator(where)).to_have_count(number)


SCRIPTS: dict[str, tuple[Interactive | str, list[tuple]]] = {
    "payoff": (
        "payoff",
        [
            ("says", STATE, "Choose the mixture"),
            ("choose", "Pair", 4),
            ("says", STATE, "a smaller α still pays"),
            ("until", "alpha", "ArrowLeft", "Solved"),
        ],
    ),
    "payoff, measured": (
        viz.Payoff(pair=6, gamma=3, batch=8, alpha=0.7),
        [
            ("open", "I measured"),
            ("fill", "measured-tau", "2.533"),
            ("fill", "measured-gamma", "3"),
            ("fill", "measured-batch", "8"),
            ("fill", "plain-rate", "1000"),
            ("fill", "drafted-rate", "1400"),
            ("says", ".sdl-note[aria-live]", "times the usual ones"),
            ("says", "dl", "1.40×"),  # α = 0.7 and γ = 3 emit 2.533 tokens
            ("fill", "drafted-rate", "3000"),
            ("says", ".sdl-note[aria-live]", "Ignored"),
        ],
    ),
    "payoff, four bits": (
        viz.Payoff(pair=8, machine=5, gamma=2),
        [
            ("says", "dl", "measure T(k)"),
            ("says", ".sdl-note[aria-live]", "llama-bench"),
            ("fill", "growth", "1.2"),
            ("fill", "draft-cost", "0.27"),
            ("says", "dl", "1.26×"),
        ],
    ),
    "serving": (
        "serving",
        [
            ("says", STATE, "still helps"),
            ("press", "load", "End"),
            ("says", STATE, "also hurts at a smaller load"),
            ("until", "load", "ArrowLeft", "Solved"),
        ],
    ),
    "next_word": (
        "next_word",
        [
            ("says", STATE, "raise the temperature"),
            ("press", "temperature", "End"),
            ("says", STATE, "Now lower top-p"),
            ("press", "top_p", "Home"),
            ("says", STATE, "Solved"),
            ("says", SAID, "falls on"),
        ],
    ),
    "log_line": (
        viz.LogLine(),
        [
            ("says", SAID, "Paste a line"),
            ("fill", "Log line, counters or JSON", "accept len: 2.54, accept rate: 0.39"),
            ("says", "details dl", "SGLang"),
            ("says", "dl", "2.54"),
            ("fill", "Log line, counters or JSON", "nothing"),
            ("says", SAID, "none of the known formats"),
        ],
    ),
    "log_line without γ": (
        viz.LogLine(text="accept len: 2.54"),
        [
            ("says", ".sdl-notes", "give gamma="),
            ("fill", "gamma", "4"),
            ("says", "dl", f"{formula('log_line', 'explain', 'accept len: 2.54', 4)['alpha']:.2f}"),
        ],
    ),
    "advice": (
        "advice",
        [
            ("says", ".sdl-card", "Llama-3.3-70B-Instruct"),
            ("press", "Engine", "ArrowDown"),
            ("says", ".sdl-card", "sglang.launch_server"),
            ("lacks", ".sdl-card", "One measured round"),
            ("fill", "tau", "2.2"),
            ("fill", "gamma", "3"),
            ("fill", "speedup", "1.2"),
            ("says", SAID, "times the fitted ones"),
            ("says", ".sdl-card", "One measured round"),
        ],
    ),
    "second_word": (
        "second_word",
        [
            ("says", SAID, "also drafts “of problem”"),
            ("press", "bias", "End"),
            ("has", dict(bias=5)),
            ("set", dict(bias=2.2)),
            ("says", STATE, "Found"),
            ("click", "give the rule the row"),
            ("has", dict(honest=False)),
            ("says", STATE, "the text is wrong"),
            ("enter", "sees the first word"),
            ("says", STATE, "must now wait"),
        ],
    ),
    "stop_explorer": (
        "stop_explorer",
        [
            ("says", STATE, "Choose a policy"),
            ("choose", "Policy", "stop at low confidence"),
            ("press", "threshold", "ArrowRight"),
            ("has", dict(threshold=0.42)),
            ("count", ".sdl-control:not([hidden]) [data-name=length]", 0),
            ("choose", "Policy", "oracle"),
            ("says", STATE, "knows the target's tokens"),
        ],
    ),
    "jacobi_grid": (
        "jacobi_grid",
        [
            ("says", SAID, "and the pass added"),  # it opens after a pass
            ("click", "Reset"),
            ("says", SAID, "No position is final yet"),
            ("press", "Passes done", "ArrowRight"),
            ("says", SAID, "positions are final"),
            ("press", "Passes done", "End"),
            ("says", STATE, "Not yet"),
            ("choose", "First guess", 2),
            ("says", SAID, "No position is final yet"),
            ("press", "Passes done", "End"),
            ("says", STATE, "Solved"),
            ("count", "tbody tr:last-child td:not(.sdl-settled)", 0),
        ],
    ),
    "skip_switches": (
        viz.SkipSwitches({"tiny": ONE, "two": ONE | dict(layers=2, group=6, rates=RATES[:48])}),
        [
            ("says", STATE, "so far"),  # it opens with one sublayer off
            ("click", "all on"),
            ("says", STATE, "Skip a first sublayer"),
            ("says", ".sdl-part >> nth=2", f"{SPEEDS[0b1000] - 1:+.2f}".replace("0.", ".")[1:]),
            ("click", "A of block 2"),
            ("says", SAID, f"acceptance rate is {rate(RATES, 0b001000):.2f}"),
            ("says", STATE, f"The best of all 64 sets has {max(SPEEDS):.2f}×"),
            ("has", dict(mask=0b001000)),
            ("enter", "M of block 3"),
            ("has", dict(mask=0b001001)),
            ("count", ".sdl-part[aria-pressed=false]", 2),
            ("set", dict(mask=SPEEDS.index(max(SPEEDS)))),
            ("says", STATE, "Solved"),
            ("choose", "Target", "two"),
            ("says", STATE, "Skip a first sublayer"),
            ("click", "M of blocks 7 to 12"),
            ("says", SAID, f"acceptance rate is {rate(RATES, 1):.2f}"),
            ("has", dict(target="two", mask=1)),
        ],
    ),
    "tree_budget": (
        "tree_budget",
        [
            ("says", STATE, "Set the growth"),
            ("press", "stretch", *["ArrowRight"] * 10),
            ("press", "nodes", "Home"),
            ("until", "nodes", "ArrowRight", "Solved"),
        ],
    ),
    "stepper": (
        RUN,
        [
            ("says", SAID, "The round emits"),  # it opens at a cut
            ("press", "Moment", "Home", *["ArrowRight"] * CUTS[0]),
            ("says", STATE, "Solved"),
            ("says", SAID, "nothing is cut"),
            ("press", "Moment", "ArrowLeft"),
            ("says", SAID, "bonus"),
            ("lacks", STATE, "Solved"),
            ("enter", "Step"),
            ("has", dict(moment=CUTS[0])),
            ("count", "svg[role=img][aria-label^='Caches by position.']", 1),
        ],
    ),
    "bench": (
        viz.Bench(p=[0.5, 0.3, 0.2], q=[0.3, 0.5, 0.2]),
        [
            ("says", ".sdl-outcome", "✓ emits p"),
            ("says", ".sdl-outcome", "keeps 80 % of the drafts; no lossless rule keeps more"),
            ("choose", "Rule", "Agree (sample and match)"),
            ("says", ".sdl-outcome", "keeps 34 % of the drafts; a lossless rule can keep 80 %"),
            ("choose", "Rule", "Recovered from p"),
            ("says", ".sdl-outcome", "✗ does not emit p: total variation 0.100"),
            ("count", "select[id$=rejected]", 0),
        ],
    ),
    "bench of siblings": (
        viz.Bench(siblings=True),
        [
            ("choose", "Sibling under test", "the second"),
            ("says", SAID, "After one rejection the bench shows the residual"),
            ("says", SAID, "20.0 % of the first p"),
            ("count", "tbody td:nth-child(2):has-text('1.000')", 1),
            ("count", "output:has-text('0.500')", 2),  # the sliders keep the first p
            ("says", STATE, "The second draw is accepted with probability 0.30"),
            ("set", dict(q=[0, 0.8, 0.2])),
            ("says", STATE, "Solved: the whole residual is on tokens with q = 0"),
        ],
    ),
    "explorer of a measured pair": (
        viz.Explorer(alpha=0.6, gamma=4, c=0.3, presets=[HERE | {"measured": 0.5}]),
        [
            ("says", SAID, "The measured speedup of here is 0.50× at γ 4."),
            ("choose", "Start from", "EnDe, t5-large, T=0"),
            ("says", SAID, "1.70× at γ 7"),
            ("count", ".sdl-measured", 1),
            ("lacks", SAID, "here"),
            ("set", dict(c=0.3)),
            ("press", "c", "ArrowRight"),
            ("count", ".sdl-measured", 0),
            ("lacks", SAID, "measured"),
        ],
    ),
    "explorer of pairs": (
        viz.Explorer.of_pairs(
            [HERE | {"source": "https://example.org/", "facts": [["T(1)", "7 ms"]]}]
        ),
        [
            ("says", ".sdl-explorer", "Predicted 1.05×, measured 1.00×: 5 % too high."),
            ("open", "About this pair"),
            ("says", ".sdl-explorer", "here. We. source.", "7 ms"),
            ("count", "a[href='https://example.org/']", 1),
            ("press", "c", "Home"),
            ("says", STATE, "Solved with c = 0.00"),
            ("count", ".sdl-measured", 1),
            ("press", "alpha", "End"),
            ("says", STATE, "Move one slider only"),
            # a pair that the kernel measures later is offered and chosen
            ("set", dict(alpha=0.6, c=0.2, presets=[HERE | {"label": "mine", "c": 0.2}])),
            ("count", "select[id$=preset] option", 1),
            ("says", "select[id$=preset]", "mine"),
            ("says", ".sdl-explorer", "mine. We."),
        ],
    ),
    "scoreboard": (
        viz.Scoreboard.of(boards.board(), {"draft × typical": 0.2}, setting=4),
        [
            ("open", "The table of methods"),
            ("says", "tbody tr:first-child", "draft × typical"),
            ("click", "memory"),
            ("says", "tbody tr:first-child", "copy"),
            ("enter", "memory"),
            ("says", "tbody tr:first-child", "heads"),
            ("count", "thead th[aria-sort=descending]", 1),
            ("says", STATE, "Choose a row"),
            ("choose", "rules", "lossless"),
            ("lacks", "tbody", "draft × typical"),
            ("click", "heads"),
            ("says", STATE, "Another row"),
            ("says", SAID, "heads, code, temperature 1: 1.20× (1.20 to 1.20)"),
            ("says", ".sdl-note", "decoding in bfloat16, in which it is fastest, it is 1.20×"),
            ("says", SAID, "It needs 6.0 MB of memory after 3 minutes of training."),
            ("click", "copy"),
            ("says", STATE, "Solved"),
            ("choose", "rules", "all rules"),
            ("choose", "plot against", "drift"),
            ("count", "svg .sdl-pick", 4),
            ("count", "svg .sdl-pick[data-name='draft × typical']", 1),
            ("choose", "text", 0),
            ("count", "tbody tr", 3),
            ("says", "tbody tr.sdl-loses", "heads"),
        ],
    ),
}
"""Name → (the interactive, or its name in the gallery, what is done and seen in this order)."""


@pytest.mark.browser
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_reader_does_what_it_asks_for(used, name: str):
    widget, steps = SCRIPTS[name]
    page = used(gallery.made(widget) if isinstance(widget, str) else widget)
    open_phone_folds(page)
    reader = Reader(page)
    for what, *rest in steps:
        named = rest.pop() if isinstance(rest[-1], dict) else {}
        getattr(reader, what)(*rest, **named)
