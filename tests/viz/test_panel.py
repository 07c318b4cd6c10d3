"""The control panel: its callbacks, its numbers, and its display on a page without a kernel."""

import math

import pytest
from letters import Letters, tiny
from scipy import stats

from specdec_book.viz.panel import ControlPanel, wilson_interval
from specdec_book.viz.trace import trace
from specdec_lite import generate
from specdec_lite.drafters import ModelDrafter
from specdec_lite.loading.pairs import Pair

PAIR = Pair(tiny(0), tiny(0, noise=0.15), Letters())
PROMPTS = {"greeting": "hello", "farewell": "goodbye"}


def panel(pairs=PAIR, prompts=PROMPTS, **settings) -> ControlPanel:
    return ControlPanel(pairs, prompts, **{"max_new_tokens": 24} | settings)


def test_the_run_button_decodes_with_the_chosen_settings():
    controls = panel()
    controls.prompt.value, controls.gamma.value, controls.temperature.value = "farewell", 2, 0.7
    controls.button.click()
    ids = Letters().encode("goodbye")
    output = generate(PAIR.target, ids, ModelDrafter(PAIR.draft, 2), 24, 0.7, seed=0)
    expected = trace(output, Letters(), "goodbye")
    assert controls.last_run.trace.passes == expected.passes and "α ≈" in controls.result.value
    assert controls.last_run.trace._repr_html_() in controls.result.value
    assert f"{output.stats.accepted} of {output.stats.tested} tests" in controls.last_run.rate
    assert controls.button.disabled is False


def test_the_speed_is_tokens_over_the_rounds_seconds():
    """A published mistake counts characters per second, the prompt's included."""
    run = panel().run()
    assert run.trace.stats.tokens == 24 and run.speed.startswith(
        f"{24 / run.trace.stats.seconds:.1f} tokens/s"
    )


def test_the_button_is_disabled_during_a_run():
    seen = []

    def loader():
        seen.append((controls.button.disabled, controls.result.value))
        return PAIR

    controls = panel({"late": loader})
    controls.button.click()
    controls.button.click()
    assert len(seen) == 1 and seen[0][0] is True and "Running" in seen[0][1], (
        "loaded once, while the button was disabled"
    )
    assert controls.last_run.pair == "late"


def test_gamma_zero_is_plain_decoding():
    controls = panel(gamma=0)
    assert controls.run().trace.stats.target_passes == 24
    assert (
        "plain decoding" in controls.last_run.summary and "α is unknown" in controls.last_run.rate
    )


@pytest.mark.parametrize(
    "prompts, pairs, words",
    [
        ({"long": "a" * 600}, PAIR, "ValueError: "),
        (PROMPTS, {"broken": lambda: 3}, "returned a int"),
        (
            PROMPTS,
            {"<gone>": lambda: (_ for _ in ()).throw(OSError("no <b>network</b>"))},
            "OSError: no &lt;b&gt;network&lt;/b&gt;",
        ),
    ],
)
def test_a_failed_run_shows_its_error_and_the_panel_still_works(prompts, pairs, words):
    controls = panel(pairs, prompts)
    assert controls.run() is None and controls.last_run is None
    assert 'role="alert"' in controls.result.value and words in controls.result.value
    assert controls.button.disabled is False
    assert words in controls._repr_mimebundle_()["text/html"], "the page says so too"


def test_a_page_without_a_kernel_gets_the_recorded_run():
    controls = panel()
    assert controls.last_run is None
    bundle = controls._repr_mimebundle_()
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == controls.view.model_id
    first = controls.last_run
    assert (
        first.trace._repr_html_() in bundle["text/html"]
        and "recorded run" in bundle["text/html"]
        and "<script" not in bundle["text/html"]
    )
    assert (
        bundle["text/plain"] == first.summary
        and "γ = 4" in first.summary
        and "tokens/s" in first.summary
    )
    assert (
        controls._repr_mimebundle_()["text/html"] == bundle["text/html"]
        and controls.last_run is first
    ), "showing it again runs nothing"


def test_site_prefers_the_recorded_run_to_a_view_without_a_kernel():
    from myst_nb.core.render import base_render_priority
    from specdec_site.outputs import Outputs

    priority = base_render_priority()["html"] | {
        mime: rank for _, mime, rank in Outputs.mime_priority_overrides
    }
    assert (
        min(panel()._repr_mimebundle_(), key=lambda mime: priority.get(mime, math.inf))
        == "text/html"
    )


@pytest.mark.parametrize("accepted, tested", [(0, 10), (10, 10), (7, 12), (120, 187), (1, 1)])
def test_interval_is_wilsons(accepted, tested):
    reference = stats.binomtest(accepted, tested).proportion_ci(method="wilson")
    assert wilson_interval(accepted, tested) == pytest.approx(
        (reference.low, reference.high), abs=1e-6
    )


@pytest.mark.parametrize(
    "bad, named",
    [
        ({"pairs": {}}, "pairs is empty"),
        ({"pairs": {"x": 3}}, "pairs"),
        ({"prompts": []}, "prompts"),
        ({"prompts": "text"}, "prompts is a str"),
        ({"prompts": ["a" * 70 + "b", "a" * 70 + "c"]}, "same 60 characters"),
        ({"prompts": ["good", ""]}, "prompts"),
        ({"gamma": 17}, "gamma=17"),
        ({"gamma": 2.0}, "gamma=2.0"),
        ({"temperature": -0.1}, "temperature=-0.1"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
    ],
)
def test_bad_input_is_named(bad, named):
    with pytest.raises((TypeError, ValueError), match=named):
        panel(**bad)


def test_one_pair_needs_no_menu():
    one = panel()
    assert one.pair not in one.view.children and one.run().summary.startswith("γ = 4")
    two = panel({"small": PAIR, "again": lambda: PAIR})
    two.pair.value = "again"
    assert two.view.children[0] is two.pair and two.run().summary.startswith("again, γ = 4")
    notes = [controls._repr_mimebundle_()["text/html"].split("</em>")[0] for controls in (one, two)]
    assert "choose a prompt, γ" in notes[0] and "choose a pair, a prompt, γ" in notes[1], (
        "the page promises the menus there are"
    )
