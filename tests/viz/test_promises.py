"""Interactive × promise: what each interactive of the book does, whatever it shows, as one matrix."""

import functools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import browser
import gallery
import pytest
import traitlets
from browsing import INTERACTIVES, accessibility_faults, pages_with, unfold
from chosen import one_in
from conftest import ROOT
from javascript import evaluate, formula
from mounting import bare_page, open_phone_folds, outside_the_frame, pause, says, settle
from specdec_site.assets import classic_script
from specdec_site.outputs import interactive_html

from specdec_book import recordings, viz
from specdec_book.viz.interactive import MIME, STATIC, Interactive, modules, parts, source

BOOK, PHONE = 870, 358
"""Widths of an interactive in the book, on a laptop (1366 px) and on a phone (390 px)."""
MOST = {BOOK: 640, PHONE: 800}
"""Heights that fit below the header, in px: of 700 on the laptop, of 844 on the phone."""
WITHOUT_TASK = {"advice", "log_line", "race", "round"}
"""They ask something else: a line to read, a request, whether a word is accepted."""
COSTS_ALONE = {"explorer", "payoff", "roofline", "serving"}
"""Modules that show costs and speeds, and no single token."""
NAMES = sorted(gallery.GALLERY)
MODULES = modules()
KINDS = [kind for name in viz.__all__ if isinstance(kind := getattr(viz, name), type)]
KINDS = [kind for kind in KINDS if issubclass(kind, Interactive) and kind is not Interactive]


@functools.cache
def shown(name: str, theme: str = "light") -> str:
    """Return the page of an interactive as it opens."""
    return bare_page(gallery.made(name), theme)


@pytest.fixture
def opened(new_page):
    def open_at(name: str, width: int, theme: str = "light", **options):
        # the page has two margins
        page = new_page(viewport={"width": width + 16, "height": 844}, **options)
        page.set_content(shown(name, theme))
        assert page.problems == []
        page.locator(".sdl-summary:not(:empty)").first.wait_for(state="attached")
        return page

    return open_at


# The module and its class -------------------------------------------------------------------------


@pytest.mark.parametrize("module", MODULES)
def test_modules_have_no_imports_and_no_foreign_names(module):
    text = source(module)
    text = re.sub(r"^const TABLE = .*", "", text)  # data: a link in it opens when it is clicked
    assert not re.search(r"^\s*import\b|\bimport\(|https?://(?!www\.w3\.org)", text, re.M)
    assert len(re.findall(r"^export\b", text, re.M)) == 1
    assert re.search(r"^export default \{", text, re.M)
    assert not re.search(r"[\"' ]sd-", text), "sd- belongs to sphinx-design"
    assert text.count('make("output"') == text.count(
        'make("output", { for: id, "aria-live": "off" })'
    ), "a slider announces its own value"
    for file in (*parts(module), STATIC / f"{module}.js"):
        own = "".join(file.read_text(encoding="utf-8").split())
        assert len(own) <= 20_000, f"{file.name} is too long to read in one sitting"
    assert evaluate(module, "", []) == [], "the kit and the module declare no name twice"


@pytest.mark.parametrize("name", NAMES)
def test_it_carries_its_state(name: str):
    widget = gallery.made(name)
    data, _ = widget._repr_mimebundle_()
    bundle = data[MIME]
    assert (bundle["module"], bundle["label"]) == (widget.module, widget.label)
    assert json.loads(json.dumps(bundle["state"])) == bundle["state"] == widget.state()
    assert bundle["state"].keys() <= {*widget.trait_names(sync=True)} and widget.label
    assert "application/vnd.jupyter.widget-view+json" in data and widget.label in data["text/plain"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_number_beyond_its_bounds_is_rejected_by_name(kind):
    for name, trait in kind.class_traits(sync=True).items():
        low, high = (getattr(trait, end, None) for end in ("min", "max"))
        step = 1 if isinstance(trait, traitlets.Int) else 1e-3
        beyond = [low - step] if low not in (None, float("-inf")) else []
        beyond += [high + max(step, 1e-3 * high)] if high not in (None, float("inf")) else []
        for value in beyond if isinstance(trait, traitlets.Int | traitlets.Float) else ():
            value = round(value) if isinstance(trait, traitlets.Int) else value
            with pytest.raises(traitlets.TraitError, match=name):
                trait.validate(kind.__new__(kind), value)


SKIPPED = dict(
    layers=4, group=1, rates="999" * 64, costs={"attention": 1.0, "mlp": 2.0, "head": 3.0}
)
WORDS = recordings.load("next-words").data["contexts"]
BAD = [
    (viz.TreeExplorer, {"parents": [0]}, r"parents\[0\]=0"),
    (viz.TreeExplorer, {"parents": [-1, 1]}, r"parents\[1\]=1"),
    (viz.TreeExplorer, {"parents": [-1, -2]}, r"parents\[1\]=-2"),
    (viz.TreeExplorer, {"parents": [-1] * 17}, "parents"),
    (viz.TreeExplorer, {"parents": [-1, 0, 1, 2, 3]}, "parents gives node 3"),
    (viz.TreeExplorer, {"parents": [-1] * 5}, "parents gives node -1"),
    (viz.TreeExplorer, {"parents": [-1, 0, 0], "accuracies": [[0.5]] * 2}, "parents gives node 0"),
    *(
        (viz.TreeExplorer, {"parents": [], "accuracies": rows}, "accuracies")
        for rows in ([], [[1.2]])
    ),
    (viz.TreeExplorer, {"parents": [], "accuracies": [[0.5]] * 7}, "accuracies"),
    (viz.TreeExplorer, {"parents": [], "accuracies": [[0.5], []]}, "accuracies.*must"),
    (viz.TreeExplorer, {"parents": [], "accuracies": [[0.2, 0.3]]}, "accuracies.*must"),
    (viz.TreeExplorer, {"parents": [], "accuracies": [[0.6, 0.6]]}, "accuracies.*must"),
    (viz.TreeExplorer, {"mask_kind": "none"}, "mask_kind"),
    (viz.Bench, {"p": [0.5, 0.5]}, "p"),
    (viz.Bench, {"p": [1.2, -0.2, 0]}, "p"),
    (viz.Bench, {"p": [0.25] * 4}, "p has 4 tokens"),
    (viz.Bench, {"q": [0.5, 0.4, 0.2]}, "q"),
    (viz.Bench, {"q": [0.1] * 10}, "q"),
    (viz.Bench, {"rule": "none"}, "rule"),
    (viz.Roofline, {"bytes_per_weight": 3}, "bytes_per_weight"),
    (viz.TreeBudget, {"rates": [0.1, 0.6]}, "must not increase"),
    (viz.TreeBudget, {"rates": [0.6, 0.5]}, "at most 1"),
    (viz.TreeBudget, {"ks": [2, 4], "times": [1.0, 2.0]}, "begin with 1"),
    (viz.TreeBudget, {"ks": [1, 4, 5]}, "times"),
    (viz.NextWord, {"contexts": WORDS, "context": len(WORDS)}, "contexts"),
    (viz.TreeGrowth, {"contexts": []}, "contexts"),
    (viz.Timelines, {"laws": [{"law": [["a", 1.2]]}, {"law": [["a", 1.0]]}]}, "laws.*must"),
    (viz.SecondWord, {"sees": 2}, "sees"),
    (viz.Scoreboard, {"fidelity": "all of them"}, "fidelity"),
    (viz.SkipSwitches, {"targets": {"tiny": SKIPPED}}, "192 digits of rates"),
    (viz.SkipSwitches, {"targets": {"tiny": SKIPPED | {"layers": 3}}, "target": "x"}, "target='x'"),
]
"""What no bound of a number says: (class, its traits, what the message names)."""


@pytest.mark.parametrize(
    "kind, traits, named", [pytest.param(*row, id=f"{row[0].__name__}-{row[2]}") for row in BAD]
)
def test_bad_state_is_rejected_by_name(kind, traits: dict, named: str):
    with pytest.raises(traitlets.TraitError, match=named):
        kind(**traits)


# In a browser -------------------------------------------------------------------------------------


def check_that_it_fits(page, width: int):
    """Question, controls and answer are in view together; on a phone the rest is in folds."""
    box = page.locator("section.sdl").bounding_box()
    assert box["width"] == width and box["height"] <= MOST[width]
    assert page.evaluate("document.documentElement.scrollWidth") <= width + 16


@pytest.mark.browser
@pytest.mark.parametrize("window, width", [(1366, BOOK), (390, PHONE)])
@pytest.mark.parametrize("page_name", pages_with(INTERACTIVES))
def test_the_interactives_of_a_page_fit_the_screen(open_page, page_name, window: int, width: int):
    """A page fills its interactives with data of its own."""
    page = open_page(page_name, window)
    unfold(page, "article details:not(.sdl *)")
    boxes = page.locator(f"{INTERACTIVES} section.sdl").all()
    heights = [(box.get_attribute("class"), box.bounding_box()["height"]) for box in boxes]
    assert heights and [(name, h) for name, h in heights if h > MOST[width]] == []


FOLDED = """() => [...document.querySelectorAll(".sdl-phone-fold[open] svg")].every(
  (svg) => svg.clientWidth > 0 && svg.childElementCount > 0)"""


@pytest.mark.browser
@pytest.mark.parametrize("name", one_in(4, NAMES))
def test_on_a_phone_it_fits_the_screen_and_the_rest_is_in_folds(opened, name: str):
    """It is readable there, in the dark too, and nothing plays for readers who want less motion."""
    page = opened(name, PHONE, "dark", reduced_motion="reduce")
    check_that_it_fits(page, PHONE)
    assert page.locator(".sdl-phone-fold[open]").count() == 0
    open_phone_folds(page)
    page.wait_for_function(FOLDED)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE + 16
    assert page.locator(".sdl-move").all_inner_texts() in ([], ["Step", "Reset"])
    assert accessibility_faults(page) == []


MARKS = """() => [...document.querySelectorAll(".sdl-toggle")]
  .map((node) => [node.ariaPressed, getComputedStyle(node, "::before").content])"""


@pytest.mark.browser
@pytest.mark.parametrize("name", NAMES)
def test_it_fits_the_screen_with_something_to_see_and_the_same_buttons(opened, name: str):
    """It shows at most three tiles; what plays has the buttons of every other one."""
    page = opened(name, BOOK)
    check_that_it_fits(page, BOOK)
    tiles = [text for text in page.locator(".sdl-readouts dd").all() if text.is_visible()]
    assert len(tiles) <= 3 and "–" not in [tile.inner_text() for tile in tiles]
    assert page.locator("section.sdl :is(svg *, td, dd, .sdl-race-pass, .sdl-token)").count() > 5
    module = name.split("_of_")[0]
    assert (page.locator(".sdl-task").count() == 1) != (module in WITHOUT_TASK)
    buttons = page.locator(".sdl-move").all_inner_texts()
    assert buttons in ([], ["Play", "Step", "Reset"], ["Pause", "Step", "Reset"])
    marks = page.evaluate(MARKS)
    assert all(("✓" in mark) == (pressed == "true") for pressed, mark in marks), "not color alone"
    others = page.locator("section.sdl .sdl-button:not(.sdl-move)").all_inner_texts()
    assert not {"Play", "Pause", "Step", "Back", "First", "Last"} & {*others}
    folds = page.locator(".sdl-phone-fold")
    assert page.locator(".sdl-phone-fold[open]").count() == folds.count()
    assert not any(fold.locator("> summary").is_visible() for fold in folds.all())
    colors = re.findall(r"var\(--sdl-([\w-]+)\)", page.locator("section.sdl").inner_html())
    sheet = (STATIC / "interactive.css").read_text(encoding="utf-8")
    assert {*colors} <= {*re.findall(r"--sdl-([\w-]+):", sheet)}
    assert module == "bench" or "bonus" not in colors, "the target's own token has one color"
    if module in COSTS_ALONE:
        assert "rejected" not in colors, "what is slower than plain decoding has its color"
    assert accessibility_faults(page) == []


FRAMED = {
    "payoff": [
        {"alpha": 0.0, "gamma": 16},
        {"alpha": 1.0, "gamma": 16, "pair": 2},
        {"batch": 256, "context": 131072, "pair": 3, "machine": 4},
        {"gamma": 1, "alpha": 0.3, "pair": 5, "machine": 1},
        {"pair": 8, "machine": 5},
        {"growth": 1.4, "draft_cost": 0.27, "gamma": 2},
    ],
    "serving": [
        {"alpha": 0.0, "gamma": 8, "load": 2.0},
        {"alpha": 1.0, "gamma": 8, "pair": 1},
        {"slots": 1, "pair": 3, "load": 0.05},
        {"pair": 3, "machine": 2, "context": 131072, "experts": 32},
    ],
    "roofline": [
        {"bandwidth": 1e9, "throughput": 1e16},
        {"bandwidth": 1e13, "throughput": 1e10, "cache": 1e11},
        {"parameters": 1e6},
        {"parameters": 1e12, "batch": 256, "tokens": 32},
    ],
    "scoreboard": [{"cost": "bytes"}, {"setting": 2}],
    "log_line": [{"text": each["text"]} for each in formula("log_line", "presets")],
    "explorer": [{"alpha": 1.0, "c": 0.0, "gamma": 24}],
}
"""Settings, one after the other, at which a drawing is as wide as it gets."""


@pytest.mark.browser
@pytest.mark.parametrize("name, width", one_in(2, [(n, w) for n in FRAMED for w in (BOOK, PHONE)]))
def test_its_drawing_stays_in_its_frame(opened, name: str, width: int):
    page = opened(name, width)
    open_phone_folds(page)
    for setting in FRAMED[name]:
        assert outside_the_frame(page, setting) == [], setting
    page.set_viewport_size({"width": BOOK + PHONE - width + 16, "height": 844})
    pause(page, 100)
    open_phone_folds(page)
    pause(page, 100)
    assert outside_the_frame(page, {}) == [], "it is drawn again after its width has changed"


DRAGGED = [
    ("payoff", "Speedup by batch", 0.95, "batch", 256),
    ("serving", "Time per token, by load", 0.84, "load", 1.2),
    ("next_word", "The line of length 1", 0.9, "u", 0.9),
    ("tree_budget", "Tokens per pass, and the speedup", 0.02, "nodes", 0),
]
"""Interactive, its drawing, a share of the drawing's width, and the value that a press there sets."""


@pytest.mark.browser
@pytest.mark.parametrize("name, drawing, share, trait, value", DRAGGED)
def test_a_press_on_its_drawing_sets_a_value(
    opened, name: str, drawing: str, share: float, trait: str, value: float
):
    page = opened(name, BOOK)
    box = page.get_by_role("img", name=drawing).bounding_box()
    page.mouse.click(box["x"] + share * box["width"], box["y"] + 50)
    assert page.evaluate("(name) => model.get(name)", trait) == pytest.approx(value, abs=0.06)


@pytest.mark.browser
@pytest.mark.parametrize("name", one_in(3, NAMES))
def test_its_sliders_reach_the_ends_of_their_numbers_and_no_key_is_heard(opened, name: str):
    page = opened(name, BOOK)
    page.evaluate("document.querySelectorAll('.sdl details').forEach((f) => { f.open = true; })")
    traits = type(gallery.made(name)).class_traits(sync=True)
    for slider in page.locator("input[type=range][data-name]:visible").all():
        name = slider.get_attribute("data-name")
        for key, end in (("Home", "min"), ("End", "max")):
            slider.press(key)
            bound = getattr(traits.get(name), end, None)
            if bound is not None and abs(bound) != float("inf") and name not in BY_DATA:
                now = page.evaluate("(name) => model.get(name)", name)
                assert now == pytest.approx(bound) or name in SHORTER, (name, key)
        slider.press("ArrowLeft")
    assert page.evaluate("heard") == [], "its keys must not reach the notebook"


BY_DATA = {"moment", "round", "budget", "nodes", "mask", "length"}
"""Sliders whose ends depend on what is shown."""
SHORTER = {"top_k", "cost", "draft"}
"""Sliders that leave out an end: 0 switches top-k off, and a program may set larger costs."""

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,"><title>t</title>
<script>{mount}</script><script>{module}</script><article>{words}</article>
<script>sdlMount(document.querySelector(".sdl-interactive"))</script></html>"""


@contextmanager
def published(folder: Path, widget: Interactive, words: str = "{widget}") -> Iterator[str]:
    """Serve a page with an interactive as the book has it, among words; yield its folder's address."""
    place = interactive_html(widget.module, widget.state(), widget.label)
    text = PAGE.format(
        mount=(ROOT / "site" / "static" / "interactives.js").read_text(encoding="utf-8"),
        module=classic_script(widget.module, source(widget.module)),
        words=words.format(widget=place),
    )
    (folder / "index.html").write_text(text, encoding="utf-8")
    with browser.served(folder) as address:
        yield address


SHARED = "section.sdl :is(input[type=range]:not([data-unshared]), select)"
CHANGE = """() => {
  const say = (node, value, event) => {
    node.value = value;
    node.dispatchEvent(new Event(event, { bubbles: true }));
  };
  for (const menu of document.querySelectorAll("section.sdl select")) {
    const other = [...menu.options].find(({ value }) => value && value !== menu.value);
    say(menu, (other ?? menu).value, "change");
  }
  for (const node of document.querySelectorAll("section.sdl input[type=range]:not([data-unshared])"))
    say(node, node.value === node.max ? node.min : node.max, "input");
}"""
VALUES = """(shared) => [...document.querySelectorAll(shared)]
  .map((node) => `${node.dataset.name ?? node.id} = ${node.value}`)"""


@pytest.mark.browser
@pytest.mark.parametrize("name", one_in(3, NAMES))
def test_its_link_restores_its_controls(new_page, tmp_path, name: str):
    with published(tmp_path, gallery.made(name)) as address:
        page = new_page((address,))
        page.goto(f"{address}index.html")
        settle(page)
        opening = page.evaluate(VALUES, SHARED)
        page.evaluate(CHANGE)
        page.locator(".sdl-share").click()
        changed, link = page.evaluate(VALUES, SHARED), page.evaluate("location.hash")
        again = new_page((address,))
        again.goto(f"{address}index.html{link}")
        settle(again)
        pause(again, 50)
        assert again.evaluate(VALUES, SHARED) == changed and (changed != opening or not opening)


@pytest.mark.browser
def test_a_handle_sets_its_interactive_every_time_and_opens_the_fold_around_it(new_page, tmp_path):
    """Words of the text that set an interactive beside them: links such as #explorer:gamma=20."""
    widget = viz.Explorer(alpha=0.8, gamma=4, c=0.2, finding="The ratio has a peak.")
    words = """<p><a href="#explorer:gamma=20">γ = 20</a> <a href="#explorer:gamma=2,alpha=0.5">few</a></p>
<details><summary>fold</summary>{widget}</details>"""
    with published(tmp_path, widget, words) as address:
        page = new_page((address,))
        page.goto(f"{address}index.html")
        settle(page)
        model = "document.querySelector('.sdl-interactive').sdlModel"
        for _ in range(2):  # the second time the address is the same
            page.get_by_text("γ = 20").press("Enter")
            assert page.evaluate(f"{model}.get('gamma')") == 20
            assert page.locator("details").first.get_attribute("open") == ""
            says(page, "[aria-live=polite]", "20")
            page.evaluate(f"{model}.set('gamma', 3)")
        page.get_by_text("few").click()
        assert page.evaluate(f"{model}.get('gamma')") == 2
        assert page.evaluate("location.hash") == "#explorer:gamma=2,alpha=0.5"
        page.get_by_text("The ratio has a peak.").wait_for()
