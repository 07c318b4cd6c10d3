"""The base class of the interactives, the theme, and the explorer's JavaScript against Python."""

import itertools
import json
import re
from pathlib import Path

import gallery
import plotly.graph_objects as go
import pytest
import traitlets
from javascript import evaluate

from specdec_book.viz import Explorer, Interactive, figure, theme
from specdec_book.viz.interactive import MIME, STATIC, modules, parts, source
from specdec_book.viz.trace import KINDS
from specdec_lite import theory

ROOT = Path(__file__).parents[2]
MODULES = modules()


GRID = list(
    itertools.product(
        [0, 0.05, 0.3, 0.5, 0.77, 0.9, 0.99, 1],
        [1, 2, 3, 5, 8, 24],
        [0, 0.02, 0.1, 0.3, 0.9, 1, 1.2],
    )
)
FORMULAS = {
    "expectedTokens": (lambda a, g, c: [a, g], lambda a, g, c: theory.expected_tokens(a, g)),
    "walltimeImprovement": (lambda a, g, c: [a, g, c], theory.walltime_improvement),
    "operationsFactor": (lambda a, g, c: [a, g, c], theory.operations_factor),
    "draftedAcceptance": (lambda a, g, c: [a, g], lambda a, g, c: theory.drafted_acceptance(a, g)),
    "guaranteedImprovement": (
        lambda a, g, c: [a, c],
        lambda a, g, c: theory.guaranteed_improvement(a, c),
    ),
    "draftingShare": (
        lambda a, g, c: [g, c, 1.3, 0.1],
        lambda a, g, c: theory.drafting_share(g, c, 1.3, 0.1),
    ),
    "correctedImprovement": (
        lambda a, g, c: [1 + a, g, c, 1.3, 0.1],
        lambda a, g, c: theory.corrected_improvement(1 + a, g, c, 1.3, 0.1),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_explorer_formulas_equal_pythons(name):
    arguments, reference = FORMULAS[name]
    given = evaluate("explorer", [{"name": name, "args": arguments(*point)} for point in GRID])
    assert given == pytest.approx([reference(*point) for point in GRID], rel=1e-12)


def test_explorer_optimum_equals_pythons():
    points = sorted({(a, c) for a, _, c in GRID})
    given = evaluate("explorer", [{"name": "optimalGamma", "args": [a, c, 24]} for a, c in points])
    for (a, c), (gamma, improvement) in zip(points, given):
        right_gamma, right = theory.optimal_gamma(a, c, max_gamma=24)
        assert improvement == pytest.approx(right, rel=1e-12)
        assert gamma == right_gamma or theory.walltime_improvement(a, gamma, c) == pytest.approx(
            right, rel=1e-12
        )


def test_explorer_presets_are_the_published_figures():
    published = json.loads((ROOT / "results" / "published.json").read_text(encoding="utf-8"))
    (presets,) = evaluate("explorer", [{"name": "presets", "args": []}])
    table = [
        (f"{task}, {draft}, T={t}", gamma, alpha, c, measured)
        for task, draft, t, gamma, alpha, c, _, measured in published["leviathan2023_table2"][
            "rows"
        ]
    ]
    shown = [
        (p["label"], p["gamma"], p["alpha"], p["c"], p["measured"])
        for p in presets
        if "measured" in p
    ]
    assert shown == table
    lenient = next(
        rates
        for draft, *rates in published["leviathan2023_lenience_alpha"]["rows"]
        if draft == "t5-small"
    )
    assert [p["alpha"] for p in presets if "l = " in p["label"]] == lenient


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
        own = file.read_text(encoding="utf-8")
        assert len("".join(own.split())) <= 20_000, (
            f"{file.name} is too long to read in one sitting"
        )
    assert evaluate(module, []) == [], "the kit and the module declare no name twice"


COSTS_ALONE = {"explorer", "payoff", "roofline", "serving"}
"""Modules that show costs and speeds, and no single token."""


@pytest.mark.parametrize("module", MODULES)
def test_a_modules_colors_are_the_sheets_and_mean_one_thing(module):
    """Target, draft, accepted, the target's own token and plain decoding have a color each."""
    own = (STATIC / f"{module}.js").read_text(encoding="utf-8")
    sheet = (STATIC / "interactive.css").read_text(encoding="utf-8")
    used = set(re.findall(r"var\(--sdl-([\w-]+)\)", own))
    assert used <= set(re.findall(r"--sdl-([\w-]+):", sheet))
    assert not used & {"bonus"}, "the target's own token has one color, that of a recovered one"
    if module in COSTS_ALONE:
        assert not used & {"rejected"}, (
            "what is slower than plain decoding has plain decoding's color"
        )


def test_the_explorer_carries_its_state():
    explorer = Explorer(alpha=0.7, gamma=3, presets=[{"label": "measured", "alpha": 0.7}])
    data, _ = explorer._repr_mimebundle_()
    assert data[MIME]["module"] == "explorer" and data[MIME]["label"]
    assert set(data[MIME]["state"]) == {
        "alpha",
        "gamma",
        "c",
        "c_hat",
        "step_cost",
        "overhead",
        "plain_overhead",
        "presets",
        "levers",
    }
    assert data[MIME]["state"]["alpha"] == 0.7 and json.dumps(data[MIME])
    assert "application/vnd.jupyter.widget-view+json" in data and "Explorer" in data["text/plain"]


@pytest.mark.parametrize("bad", [{"alpha": 1.2}, {"gamma": 0}, {"gamma": 25}, {"c": -0.1}])
def test_the_explorer_rejects_values_outside_its_sliders(bad):
    with pytest.raises(traitlets.TraitError, match=next(iter(bad))):
        Explorer(**bad)


def test_the_explorers_bounds_equal_the_modules():
    text = source("explorer")
    limits = {
        "alpha": (0, 1),
        "gamma": (1, 24),
        "c": (0, 1.2),
        "c_hat": (0, 1.2),
        "step_cost": (0, 0.5),
        "overhead": (0, 2),
        "plain_overhead": (0, 2),
    }
    constants = dict(re.findall(r"^const (MAX_\w+) = ([\d.]+);", text, re.M))
    for name, (low, high) in limits.items():
        least, most = re.search(
            rf'name: "{name}"[^}}]*?\bmin: ([\d.]+),\s+max: ([\w.]+),', text
        ).groups()
        assert (float(least), float(constants.get(most, most))) == (low, high)
        trait = Explorer.class_traits()[name]
        assert (trait.min, trait.max) == (low, high)


def test_the_source_is_the_kit_and_the_module():
    assert Explorer.module in MODULES
    kit, own = [(STATIC / f"{name}.js").read_text(encoding="utf-8") for name in ("kit", "explorer")]
    assert Explorer._esm == f"{kit}\n{own}"
    assert "color-scheme: dark" in Interactive.__subclasses__()[0]._css


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
    assert {*gallery.GALLERY} >= {*MODULES}
    page = gallery.page("/")
    for name, make in gallery.GALLERY.items():
        module = make().module
        assert name in page and module in MODULES
        assert name == module or name.startswith(f"{module}_of_")
