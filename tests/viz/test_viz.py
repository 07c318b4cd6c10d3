"""The base class of the interactives, the theme, and the explorer's presets."""

import itertools
import re
from pathlib import Path

import gallery
import plotly.graph_objects as go
import pytest
from javascript import formula

from specdec_book.viz import Payoff, figure, theme
from specdec_book.viz.interactive import STATIC, modules
from specdec_book.viz.interactives import hundredths
from specdec_book.viz.payoff import MACHINES, PAIRS
from specdec_book.viz.trace import KINDS
from specdec_lite.diagnosis.metrics import explain

ROOT = Path(__file__).parents[2]


def test_explorer_presets_are_the_published_figures():
    presets = formula("explorer", "presets")
    first, lenient = presets[0], [each for each in presets if "l = " in each["label"]]
    assert first["label"] == "EnDe, t5-small, T=0" and len(presets) == 16
    numbers = [first[name] for name in ("gamma", "alpha", "c", "measured")]
    assert numbers == [7, 0.75, 0.02, 3.4]
    assert [each["alpha"] for each in lenient] == [0.62, 0.71, 0.76, 0.84]


def test_a_skipped_sets_rate_is_below_one_on_a_page():
    assert hundredths("999995994123004") == "9999991200"


def test_each_choice_of_the_calculator_can_be_chosen():
    assert Payoff.pair.max + 1 == len(PAIRS) and Payoff.machine.max + 1 == len(MACHINES)
    labels = [each["label"] for each in [*PAIRS, *MACHINES]]
    assert len(set(labels)) == len(labels) and all(labels)


def test_the_examples_of_log_lines_are_readable():
    for example in formula("log_line", "presets"):
        assert explain(example["text"], example.get("gamma")).alpha is not None


def test_figure_sets_theme_and_text_alternative():
    fig = figure(go.Figure(go.Scatter(x=[1], y=[1])), alt=" one point ")
    assert fig.layout.meta["alt"] == "one point"
    assert fig.layout.template.layout.colorway[0] == theme.PALETTE["one"]
    for bad in ("", "  ", None):
        with pytest.raises(ValueError, match="alt"):
            figure(go.Figure(), alt=bad)


def contrast(first: str, second: str) -> float:
    """Return the WCAG 2 contrast ratio of two #rrggbb colors."""

    def luminance(colour):
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def colours_of(css: str) -> dict[str, list[str]]:
    """Return a style sheet's own colors as {name: [light, dark]}."""
    return {
        name: pair
        for name, *pair in re.findall(r"--sdl-([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", css)
    }


def test_text_is_readable_in_both_themes():
    for colours in (theme.LIGHT, theme.DARK):
        assert contrast(colours["text"], colours["background"]) >= 7
    value = colours_of((STATIC / "interactive.css").read_text(encoding="utf-8"))
    for mode in (0, 1):
        for text, behind in (
            ("ink", "surface"),
            ("ink", "raised"),
            ("muted", "surface"),
            ("muted", "raised"),
            ("accent", "surface"),
            ("on-accent", "accent"),
        ):
            assert contrast(value[text][mode], value[behind][mode]) >= 4.5, (text, behind, mode)
        for mark in ("target", "accepted", "rejected", "recovered"):
            assert contrast(value[mark][mode], value["surface"][mode]) >= 3, (mark, mode)


def lines(css: str, drawn: str, by: str) -> dict[str, str]:
    """Return {selector: color of the line that the property `by` draws} for matching selectors."""
    rules = re.findall(
        r"^(\S[^{}]*) \{([^{}]*)\}", re.sub(r"/\*.*?\*/\n?", "", css, flags=re.S), re.M
    )
    return {
        selector: name
        for selector, body in rules
        if re.search(drawn, selector)
        for name in re.findall(rf"\b{by}: [^;]*var\(--sdl-([\w-]+)\)", body)
    }


def test_controls_and_states_have_contrast_in_both_themes():
    """Lines that alone show a control or a token's state have a contrast of 3 (WCAG 2.2, 1.4.11)."""
    css = (STATIC / "interactive.css").read_text(encoding="utf-8") + (
        ROOT / "site" / "live" / "live.css"
    ).read_text(encoding="utf-8")
    value = colours_of(css)
    controls = lines(
        css, r"textarea|select$|input|button|sdl-live-run|sdl-node", "border(?:-color)?"
    )
    fates = lines(
        css, rf"^\.sdl-fates \.sdl-({'|'.join({*KINDS, 'drafted', 'own'})})$", "border-bottom"
    )
    assert (
        len(controls) > 9 and len(fates) == len(KINDS) + 1
    )  # a token that was not tested is crossed out, not underlined
    assert value["control-line"] == [theme.LIGHT["line"], theme.DARK["line"]]
    for selector, name in (controls | fates).items():
        for mode, behind in itertools.product((0, 1), ("surface", "raised")):
            assert contrast(value[name][mode], value[behind][mode]) >= 3, (selector, name, behind)


def test_the_gallery_shows_every_interactive():
    assert {*gallery.GALLERY} >= {*modules()}
    page = gallery.page("/")
    for name, make in gallery.GALLERY.items():
        module = make().module
        assert name in page and module in modules()
        assert name == module or name.startswith(f"{module}_of_")
