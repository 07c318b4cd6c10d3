"""Interactive × script: what a reader with keyboard, mouse and menus does, and what it answers."""

import re

import boards
import gallery
import pytest
from javascript import evaluate, formula
from mounting import open_phone_folds, press_until, says
from playwright.sync_api import Page, expect
from test_formulas import PARTS, RATES, best_length, cost, leaks, rate, skipped, value

from specdec_book import viz
from specdec_book.viz.interactives import BlockStepper, Stepper
from specdec_lite import roofline, theory

STATE, SAID, NOTE = ".sdl-task-state", ".sdl-summary", ".sdl-note[aria-live]"
CARD, OUTCOME, FIRST = ".sdl-card", ".sdl-outcome", "tbody tr:first-child"
LINE = "Log line, counters or JSON"
RUN = Stepper.load()
WHOLE = [len(each["drafts"]) == each["accepted"] > 0 for each in RUN.rounds]
CUTS = [
    at
    for at, moment in enumerate(formula("stepper", "moments", RUN.rounds))
    if moment["kind"] == "cut" and WHOLE[moment["round"]]
]
"""Moments after the cut of a round in which every draft was accepted."""
ONE = dict(layers=3, group=1, rates=RATES, costs=PARTS)
SPEEDS = [best_length(rate(RATES, mask), cost(PARTS, 3, skipped(3, mask)))[1] for mask in range(64)]
"""Predicted speedup of each set of skipped sublayers."""
TREE = viz.TreeExplorer()
BEST = value(formula("tree_explorer", "bestTree", TREE.accuracies, TREE.budget), TREE.accuracies)
FIRST_BLOCK = dict(context=1, root="a", drafts=["b", "c", "d"], accepted=1, token="x")
SECOND_BLOCK = dict(context=3, root="x", drafts=["e", "f", "g"], accepted=3, token="h")
BLOCKS = BlockStepper(prompt="a", k=4, rounds=[FIRST_BLOCK, SECOND_BLOCK])
ROUND = viz.Round.load()
MOMENTS = formula("round", "moments", ROUND.rounds)
QUESTIONS = evaluate("round", "question", [[ROUND.rounds, moment] for moment in MOMENTS])
ASKED = {kind: QUESTIONS.index(kind) for kind in ("accept", "word")}
REJECTION = ROUND.rounds[MOMENTS[ASKED["word"]]["round"]]
REJECTED = REJECTION["rows"][REJECTION["accepted"]]
DRAFT = REJECTED["words"][REJECTED["tests"][0]["word"]].strip()
ALPHA = next(a / 100 for a in range(101) if theory.optimal_gamma(a / 100, 0.2, 24)[1] >= 2)
FREE = int(roofline.ridge_tokens(2, 2e12, 312e12) / 8)
"""Tokens of a pass that are free in a batch of 8, in the roofline's worked example."""
HERE = {"label": "here", "gamma": 4, "alpha": 0.6, "c": 0.3, "measured": 1.0, "by": "We."}


class Reader:
    """What a reader does with an interactive, and sees there."""

    def __init__(self, page: Page):
        self.page = page

    def field(self, name: str):
        """Find a control by the number that it sets, or by its label."""
        own = self.page.locator(f"[data-name='{name}']")
        return own if own.count() else self.page.get_by_label(name, exact=True)

    def press(self, name: str, *keys: str):
        for key in keys:
            self.field(name).press(key)

    def drag(self, chart: str, start: tuple[float, float], end: tuple[float, float]):
        """Drag with the left button; positions are shares of the plot's width and height."""
        svg = self.page.get_by_role("img", name=chart)
        svg.scroll_into_view_if_needed()
        box, left = svg.bounding_box(), 62 if self.page.locator(".sdl-roofline").count() else 40
        foot, across = box["height"] - 40, box["width"] - 12 - left
        at = lambda x, y: (box["x"] + left + x * across, box["y"] + foot - y * (foot - 30))
        self.page.mouse.move(*at(*start))
        self.page.mouse.down()
        self.page.mouse.move(*at(*end), steps=4)
        self.page.mouse.up()
        self.page.mouse.move(*at(0.5, 0.5))

    def until(self, name: str, key: str, words: str):
        press_until(self.page, name, key, words)

    def choose(self, name: str, option: int | str):
        key = "index" if isinstance(option, int) else "label"
        self.field(name).select_option(**{key: option})

    def fill(self, name: str, text: str):
        self.field(name).fill(text)

    def button(self, name: str):
        return self.page.get_by_role("button", name=re.compile(f"^{re.escape(name)}")).first

    def click(self, name: str):
        self.button(name).click()

    def enter(self, name: str):
        self.button(name).press("Enter")

    def focus(self, where: str):
        self.page.locator(where).focus()

    def tap(self, where: str):
        self.page.locator(where).click()

    def hover(self, where: str):
        self.page.locator(where).hover()

    def keys(self, names: str):
        for key in names.split():
            self.page.keyboard.press(key)

    def open(self, words: str):
        self.page.get_by_text(words).first.click()

    def set(self, name: str, value):
        self.page.evaluate("(pair) => model.set(...pair)", [name, value])

    def sees(self, where: str, what):
        """See words, or a number of nodes, at a selector; "=name" is a value of the model."""
        if where[0] == "=":
            assert self.page.evaluate("(name) => model.get(name)", where[1:]) == pytest.approx(what)
        elif isinstance(what, int):
            expect(self.page.locator(where)).to_have_count(what)
        else:
            for words in what if isinstance(what, tuple) else (what,):
                says(self.page, where, words)


def lacks(words: str) -> re.Pattern:
    """Return what matches a text without these words."""
    return re.compile(f"^(?!.*{words})", re.S)


SCRIPTS: dict[str, list] = {
    "payoff": [
        "payoff",
        ({STATE: "Choose the mixture"},),
        ("choose", "Pair", 4, {STATE: "a smaller α still pays"}),
        ("until", "alpha", "ArrowLeft", "Solved", {}),
    ],
    "payoff, measured": [
        viz.Payoff(pair=6, gamma=3, batch=8, alpha=0.7),
        ("open", "I measured", {}),
        ("fill", "measured-tau", "2.533", {}),
        ("fill", "measured-gamma", "3", {}),
        ("fill", "measured-batch", "8", {}),
        ("fill", "plain-rate", "1000", {}),
        ("fill", "drafted-rate", "1400", {NOTE: "times the usual ones"}),
        ({"dl": "1.40×"},),
        ("fill", "drafted-rate", "3000", {NOTE: "Ignored"}),
    ],
    "payoff, four bits": [
        viz.Payoff(pair=8, machine=5, gamma=2),
        ({"dl": "measure T(k)", NOTE: "llama-bench"},),
        ("fill", "growth", "1.2", {}),
        ("fill", "draft-cost", "0.27", {"dl": "1.26×"}),
    ],
    "serving": [
        "serving",
        ({STATE: "still helps"},),
        ("press", "load", "End", {STATE: "also hurts at a smaller load"}),
        ("until", "load", "ArrowLeft", "Solved", {}),
    ],
    "next_word": [
        "next_word",
        ({STATE: "raise the temperature"},),
        ("press", "temperature", "End", {STATE: "Now lower top-p"}),
        ("press", "top_p", "Home", {STATE: "Solved", SAID: "falls on"}),
    ],
    "log_line": [
        viz.LogLine(),
        ({SAID: "Paste a line"},),
        ("fill", LINE, "accept len: 2.54, accept rate: 0.39", {}),
        ({"details dl": "SGLang", "dl": "2.54"},),
        ("fill", LINE, "nothing", {SAID: "none of the known formats"}),
    ],
    "log_line without γ": [
        viz.LogLine(text="accept len: 2.54"),
        ({".sdl-notes": "give gamma="},),
        ("fill", "gamma", "4", {}),
        ({"dl": f"{formula('log_line', 'explain', 'accept len: 2.54', 4)['alpha']:.2f}"},),
    ],
    "advice": [
        "advice",
        ({CARD: "Llama-3.3-70B-Instruct"},),
        ("press", "Engine", "ArrowDown", {}),
        ({CARD: ("sglang.launch_server", lacks("One measured round"))},),
        ("fill", "tau", "2.2", {}),
        ("fill", "gamma", "3", {}),
        ("fill", "speedup", "1.2", {SAID: "times the fitted ones"}),
        ({CARD: "One measured round"},),
    ],
    "second_word": [
        "second_word",
        ({SAID: "also drafts “of problem”"},),
        ("press", "bias", "End", {"=bias": 5}),
        ("set", "bias", 2.2, {STATE: "Found"}),
        (
            "click",
            "give the rule the row with the bias",
            {"=honest": False, STATE: "the text is wrong"},
        ),
        ("enter", "head 2 sees the first word", {STATE: "must now wait"}),
    ],
    "stop_explorer": [
        "stop_explorer",
        ({STATE: "Choose a policy"},),
        ("choose", "Policy", "stop at low confidence", {}),
        ("press", "threshold", "ArrowRight", {"=threshold": 0.42}),
        ({".sdl-control:not([hidden]) [data-name=length]": 0},),
        ("choose", "Policy", "oracle", {STATE: "knows the target's tokens"}),
    ],
    "jacobi_grid": [
        "jacobi_grid",
        ({SAID: "and the pass added"},),  # it opens after a pass
        ("click", "Reset", {SAID: "No position is final yet"}),
        ("press", "Passes done", "ArrowRight", {SAID: "positions are final"}),
        ("press", "Passes done", "End", {STATE: "Not yet"}),
        ("choose", "First guess", 2, {SAID: "No position is final yet"}),
        ("press", "Passes done", "End", {STATE: "Solved"}),
        ({"tbody tr:last-child td:not(.sdl-settled)": 0},),
    ],
    "skip_switches": [
        viz.SkipSwitches({"tiny": ONE, "two": ONE | dict(layers=2, group=6, rates=RATES[:48])}),
        ({STATE: "so far"},),  # it opens with one sublayer off
        ("click", "all on", {STATE: "Skip a first sublayer"}),
        ({".sdl-part >> nth=2": f"{SPEEDS[0b1000] - 1:+.2f}".replace("0.", ".")[1:]},),
        ("click", "A of block 2", {SAID: f"acceptance rate is {rate(RATES, 0b001000):.2f}"}),
        ({STATE: f"The best of all 64 sets has {max(SPEEDS):.2f}×", "=mask": 0b001000},),
        ("enter", "M of block 3", {"=mask": 0b001001, ".sdl-part[aria-pressed=false]": 2}),
        ("set", "mask", SPEEDS.index(max(SPEEDS)), {STATE: "Solved"}),
        ("choose", "Target", "two", {STATE: "Skip a first sublayer"}),
        ("click", "M of blocks 7 to 12", {SAID: f"acceptance rate is {rate(RATES, 1):.2f}"}),
        ({"=target": "two", "=mask": 1},),
    ],
    "tree_budget": [
        "tree_budget",
        ({STATE: "Set the growth"},),
        ("press", "stretch", *["ArrowRight"] * 10, {}),
        ("press", "nodes", "Home", {}),
        ("until", "nodes", "ArrowRight", "Solved", {}),
    ],
    "stepper": [
        RUN,
        ({SAID: "The round emits"},),  # it opens at a cut
        ("press", "Moment", "Home", *["ArrowRight"] * CUTS[0], {STATE: "Solved"}),
        ({SAID: "nothing is cut"},),
        ("press", "Moment", "ArrowLeft", {SAID: "bonus", STATE: lacks("Solved")}),
        ("enter", "Step", {"=moment": CUTS[0]}),
        ({"svg[role=img][aria-label^='Caches by position.']": 1},),
    ],
    "bench": [
        viz.Bench(p=[0.5, 0.3, 0.2], q=[0.3, 0.5, 0.2]),
        ({OUTCOME: ("✓ emits p", "keeps 80 % of the drafts; no lossless rule keeps more")},),
        ("choose", "Rule", "Agree (sample and match)", {}),
        ({OUTCOME: "keeps 34 % of the drafts; a lossless rule can keep 80 %"},),
        ("choose", "Rule", "Recovered from p", {}),
        ({OUTCOME: "✗ does not emit p: total variation 0.100"},),
        ({"select[id$=rejected]": 0},),
    ],
    "bench of siblings": [
        viz.Bench(siblings=True),
        ("choose", "Sibling under test", "the second", {}),
        ({SAID: "After one rejection the bench shows the residual"},),
        ({SAID: "20.0 % of the first p"},),
        # the table shows the residual, the sliders keep the first p
        ({"tbody td:nth-child(2):has-text('1.000')": 1, "output:has-text('0.500')": 2},),
        ({STATE: "The second draw is accepted with probability 0.30"},),
        ("set", "q", [0, 0.8, 0.2], {}),
        ({STATE: "Solved: the whole residual is on tokens with q = 0"},),
    ],
    "explorer of a measured pair": [
        viz.Explorer(alpha=0.6, gamma=4, c=0.3, presets=[HERE | {"measured": 0.5}]),
        ({SAID: "The measured speedup of here is 0.50× at γ 4."},),
        ("choose", "Start from", "EnDe, t5-large, T=0", {}),
        ({SAID: ("1.70× at γ 7", lacks("here")), ".sdl-measured": 1},),
        ("set", "c", 0.3, {}),
        ("press", "c", "ArrowRight", {".sdl-measured": 0, SAID: lacks("measured")}),
    ],
    "explorer of pairs": [
        viz.Explorer.of_pairs(
            [HERE | {"source": "https://example.org/", "facts": [["T(1)", "7 ms"]]}]
        ),
        ({".sdl-explorer": "Predicted 1.05×, measured 1.00×: 5 % too high."},),
        ("open", "About this pair", {".sdl-explorer": ("here. We. source.", "7 ms")}),
        ({"a[href='https://example.org/']": 1},),
        ("press", "c", "Home", {STATE: "Solved with c = 0.00", ".sdl-measured": 1}),
        ("press", "alpha", "End", {STATE: "Move one slider only"}),
        ("set", "alpha", 0.6, {}),
        ("set", "c", 0.2, {}),
        ("set", "presets", [HERE | {"label": "mine", "c": 0.2}], {}),
        ({"select[id$=preset] option": 1, "select[id$=preset]": "mine"},),
        ({".sdl-explorer": "mine. We."},),
    ],
    "explorer": [
        viz.Explorer(),
        ({STATE: "Set c to 0.20 first"},),
        ("press", "c", *["ArrowRight"] * 10, {STATE: "Not yet"}),
        ("press", "alpha", *["ArrowRight"] * (round(100 * ALPHA) - 79), {}),
        ({STATE: "a smaller α still reaches 2×"},),
        ("press", "alpha", "ArrowLeft", {"=alpha": ALPHA, "=c": 0.2, "=gamma": 4}),
        ({STATE: f"Solved: α = {ALPHA:.2f}, with γ = {theory.optimal_gamma(ALPHA, 0.2)[0]}."},),
    ],
    "explorer of a published pair": [
        viz.Explorer(overhead=0.2),
        ("choose", "Start from", "EnDe, t5-small, T=0", {"=alpha": 0.75, "=gamma": 7, "=c": 0.02}),
        ({"=overhead": 0, "dl": (f"{theory.walltime_improvement(0.75, 7, 0.02):.2f}×", "3.40×")},),
        ("press", "gamma", "ArrowLeft", {"=gamma": 6, "dl": lacks("3.40×")}),
        ("choose", "Start from", "EnDe, t5-small, T=1", {"dl": "2.60×"}),
        ("choose", "Start from", "t5-small, l = 1", {"dl": lacks("measured speedup")}),  # as T=1
        ("choose", "Start from", "your own values", {"=gamma": 7}),
    ],
    "explorer's charts": [
        viz.Explorer(),
        ("drag", "Speedup by draft length", (9.5 / 24, 0.5), (9.5 / 24, 0.9), {"=gamma": 10}),
        ("drag", "Speedup by draft length", (2.5 / 24, 0.5), (20.5 / 24, 0.2), {"=gamma": 21}),
        ("drag", "Speedup by draft length", (0.5, 0.5), (1.1, 0.5), {"=gamma": 24}),
        ({"=alpha": 0.8, "=c": 0.1},),
        ("open", "The best speedup by α and c", {}),
        ("drag", "Best speedup by α and c", (0.1, 0.1), (0.5, 0.6), {SAID: ("α 0.6", "γ 24")}),
    ],
    "roofline": [
        viz.Roofline(),
        ({STATE: "Set the batch to 8"},),
        ("press", "batch", *["ArrowRight"] * 7, {STATE: "a longer pass would take no more time"}),
        ("press", "tokens", *["ArrowRight"] * FREE, {STATE: "Too many: arithmetic limits"}),
        ("press", "tokens", "ArrowLeft", {STATE: f"Solved: {FREE}.", "=tokens": FREE, "=batch": 8}),
        ("open", "The model and the chip", {}),
        ("press", "cache", "ArrowRight", "ArrowRight", {STATE: "Set the KV cache to 0"}),
    ],
    "roofline of a chip": [
        viz.Roofline(tokens=3),
        ("open", "The model and the chip", {}),
        ("choose", "Start from", "NVIDIA T4, fp16", {STATE: "Start from the worked example"}),
        ({"=bandwidth": 320e9, "=throughput": 65e12, "=tokens": 3},),
        ({":text('Figures from hmc-tech.com'):visible": 1},),
        ("choose", "Start from", "example, 70B", {"=bandwidth": 2e12, "=tokens": 1}),
        ({":text('Figures from'):visible": 0},),
        ("press", "bandwidth", "ArrowRight", {"option:checked:text-is('your own values')": 1}),
    ],
    "roofline's charts": [
        viz.Roofline(),
        (
            "drag",
            "Time of a pass by its tokens",
            (3.5 / 32, 0.5),
            (11.5 / 32, 0.2),
            {"=tokens": 12},
        ),
        ("drag", "The roofline", (0.2, 0.5), (1.9 / 5, 0.5), {"=tokens": round(10**0.9)}),
        ("drag", "The roofline", (0.2, 0.5), (0.99, 0.5), {"=tokens": 32, "=batch": 1}),
    ],
    "scoreboard": [
        viz.Scoreboard.of(boards.board(), {"draft × typical": 0.2}, setting=4),
        ("open", "The table of methods", {FIRST: "draft × typical"}),
        ("click", "memory", {FIRST: "copy"}),
        ("enter", "memory", {FIRST: "heads"}),
        ({"thead th[aria-sort=descending]": 1, STATE: "Choose a row"},),
        ("choose", "rules", "lossless", {"tbody": lacks("draft × typical")}),
        ("click", "heads", {STATE: "Another row"}),
        ({SAID: "heads, code, temperature 1: 1.20× (1.20 to 1.20)"},),
        ({SAID: "It needs 6.0 MB of memory after 3 minutes of training."},),
        ({".sdl-note": ("in bfloat16, in which it is fastest, it is 1.20×", "position 1 to 2")},),
        ("click", "copy", {STATE: "Solved"}),
        ("choose", "rules", "all rules", {}),
        ("choose", "plot against", "drift", {"svg .sdl-pick": 4}),
        ({"svg .sdl-pick[data-name='draft × typical']": 1},),
        ("choose", "text", 0, {"tbody tr": 3, "tbody tr.sdl-loses": "heads"}),
    ],
    "tree_explorer by keyboard": [
        TREE,
        ("focus", "[role=treeitem][aria-selected=true]", {}),
        ("keys", "Home ArrowRight Delete ArrowRight Delete", {STATE: "You may add 8 more"}),
        ({"=parents": []},),
        ("keys", "Delete", {SAID: "The root is"}),
        ("keys", "Enter Enter Enter ArrowRight Enter Enter Enter ArrowRight Enter", {}),
        ({STATE: "You may add 1 more", "[role=treeitem]:focus": "node 3"},),
        # the last node is node 2, above it is node 1
        ("keys", "ArrowLeft ArrowLeft End ArrowUp Enter", {STATE: "Solved"}),
        ({"=parents": [-1, -1, -1, 0, 0, 0, 3, 1]},),
        ("keys", "ArrowDown Enter", {STATE: "over the budget"}),
        ("enter", "Undo", {STATE: "Solved"}),
    ],
    "tree_explorer by mouse": [
        TREE,
        ("tap", "[role=treeitem] >> nth=2", {}),
        ({"[role=treeitem]:nth-child(3)[aria-selected=true]": 1},),
        ("tap", ".sdl-ghost", {"=parents": [*TREE.parents, 2], "[role=treeitem]": 10}),
        ({SAID: "Added under node 2. Node 8"},),
        ("click", "Remove", {"=parents": [-1, -1, 0, 0, 1, 1, 1]}),  # with its new child
        ("click", "Undo", {}),
        ("click", "Undo", {"=parents": TREE.parents}),
        ("click", "Show the best tree", {STATE: "you asked to see", "dl": f"{BEST:.3f}"}),
        ("click", "Reset", {STATE: "gives more"}),
    ],
    "tree_explorer's mask": [
        TREE,
        ("hover", "[role=treeitem]:has-text('node 5')", {}),
        ({SAID: "Node 5 “girl”, position +2, attends to the context, to node 1 above it,"},),
        ({".sdl-node.sdl-seen": 2, ".sdl-node.sdl-hidden-from": 6, ".sdl-cell-leak": 0},),
        ("click", "Naive causal mask", {"=mask_kind": "causal"}),
        ("hover", "[role=treeitem]:has-text('node 5')", {}),
        ({SAID: "node 5 attends to node 4, its cousin", ".sdl-node.sdl-leaked": 4},),
        # a leak has a mark, not a color alone
        (
            {
                ".sdl-cell-leak": len(leaks(TREE.parents)),
                ".sdl-cell-leak text": len(leaks(TREE.parents)),
            },
        ),
        ("set", "parents", [-1, 0, 1], {SAID: "Nothing leaks"}),
    ],
    "block_stepper": [
        BLOCKS,
        ({SAID: "Accept.", "del.sdl-rejected": 3, "del.sdl-unused": 3},),
        ({".sdl-verdict": 6, "tr:nth-child(1) .sdl-verdict": "committed"},),
        ({"tr:nth-child(2) .sdl-verdict": "✓ accepted"},),
        ({"tr:nth-child(3) .sdl-verdict": "✗ rejected"},),
        ({"tr:nth-child(4) .sdl-verdict": "– not verified"},),
        ("click", "Reset", {SAID: "Predict."}),
        ("press", "Moment", *["ArrowRight"] * 5, {SAID: "All 3 proposals agree"}),
        ("click", "Step", {STATE: "Solved", SAID: "Next prediction reused.", "=moment": 6}),
        ({"tr[aria-current]": "◆ row reused"},),
        ({"svg[aria-label*='one per token: 6. two per block: verify, then predict: 4']": 1},),
        ("enter", "Reset", {SAID: "Predict."}),
    ],
    "round": [
        ROUND,
        ({".sdl-round-ask strong": 1},),  # it opens at its first question
        ("press", "Moment", "Home", "ArrowRight", {SAID: "The draft model proposes"}),
        ("press", "Moment", "End", {SAID: "One pass of the target emitted"}),
        ("press", "Moment", "ArrowLeft", {"=moment": len(MOMENTS) - 2}),
        ("enter", "round 3", {"=moment": [each["round"] for each in MOMENTS].index(2)}),
        ("click", "Step", {SAID: "The draft model proposes"}),
    ],
    "round, asked": [
        ROUND,
        ("set", "moment", ASKED["accept"], {}),
        ("enter", "accept", {SAID: "Correct"}),
        ("set", "moment", ASKED["accept"], {}),
        ("click", "reject", {SAID: "You chose reject"}),
        ("set", "moment", ASKED["word"], {}),
        ("click", DRAFT, {SAID: "has no residual"}),
        ("set", "moment", ASKED["word"], {}),
        ("tap", f".sdl-pick >> nth={REJECTION['token']['word']}", {SAID: "Correct"}),
    ],
}
"""Name → the interactive, or its name in the gallery; then (what is done, {where: what is seen}) each."""


@pytest.mark.browser
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_reader_does_what_it_asks_for(used, name: str):
    widget, *steps = SCRIPTS[name]
    page = used(gallery.made(widget) if isinstance(widget, str) else widget)
    open_phone_folds(page)
    reader = Reader(page)
    for *action, seen in steps:
        if action:
            getattr(reader, action[0])(*action[1:])
        for where, what in seen.items():
            reader.sees(where, what)
