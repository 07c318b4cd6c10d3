"""The panel that measures a pair: its button, its numbers, and its display without a kernel."""

import math
from unittest.mock import Mock

import numpy as np
import pytest
from letters import Letters, tiny

from specdec_book.recordings import measured
from specdec_book.viz import panel as panels
from specdec_book.viz.interactive import MIME
from specdec_book.viz.panel import OWN, Candidate, PairPanel, rates_by_position
from specdec_lite import generate, theory
from specdec_lite.drafters import ModelDrafter
from specdec_lite.loading.pairs import Pair

PAIR = Pair(tiny(0), tiny(0, noise=0.15), Letters())
PROMPTS = {"greeting": "hello", "farewell": "goodbye"}
PRESETS = [measured.preset("elsewhere", "another pair", 1.5, 3, "by others", alpha=0.7, c=0.1)]


@pytest.fixture(autouse=True)
def few_turns(monkeypatch):
    monkeypatch.setattr(panels, "TURNS", 4)


def panel(pairs=None, prompts=PROMPTS, **settings) -> PairPanel:
    return PairPanel(
        pairs or {"a pair": PAIR}, prompts, PRESETS, **{"max_new_tokens": 12} | settings
    )


def test_the_button_measures_and_puts_the_pair_into_the_explorer():
    controls = panel()
    controls.prompt.value, controls.gamma.value, controls.temperature.value = "goodbye", 2, 0.7
    assert controls.text.value == "goodbye"
    controls.button.click()
    explorer = controls.explorer
    preset, *others = explorer.presets
    assert others == PRESETS and preset["label"] == "a pair, T = 0.7, γ = 2"
    for name in ("alpha", "gamma", "c", "step_cost", "overhead", "plain_overhead"):
        assert getattr(explorer, name) == preset[name], name
    assert 'class="sdl sdl-fates sdl-trace"' in controls.result.value
    assert controls.button.disabled is False
    facts = dict(preset["facts"])
    assert {"T(1)", "T(3) ÷ T(1)", "a draft pass alone ÷ T(1)", "α by position"} <= facts.keys()
    assert "4 paired turns" in preset["by"]


def test_a_target_that_drafts_for_itself_is_accepted_and_its_prediction_adds_up():
    controls = panel({"itself": Pair(PAIR.target, PAIR.target, Letters())}, gamma=3)
    (preset,) = controls.measure()
    assert preset["alpha"] == 1 and dict(preset["facts"])["α by position"] == "1.00, 1.00, 1.00"
    assert preset["c"] > 0.3, "a draft pass costs about as much as a target pass"


@pytest.mark.parametrize("verify", [0.97, 1.08, 1.7])
def test_the_predicted_speedup_is_tau_over_the_cost_of_the_round(verify):
    """o takes what v and c leave of the round, so no cost is lost."""
    parts = {"draft": 1.2, "verify": 0.9, "other": 0.5, "plain": 1.3}
    costs = measured.costs_of(parts, verify, 4)
    assert costs["overhead"] >= 0
    whole = theory.corrected_improvement(
        3.0, 4, costs["c"], 1 + 4 * costs["step_cost"], costs["overhead"], costs["plain_overhead"]
    )
    assert whole == pytest.approx(3.0 * 1.3 / (1.2 + 0.9 + 0.5))


def test_rates_by_position_count_only_tested_drafts():
    steps = generate(PAIR.target, [1, 2], ModelDrafter(PAIR.draft, 3), 60, 1.0, seed=1).steps
    rates = rates_by_position(steps)
    first = [step for step in steps if step.drafted]
    assert rates[0] == np.mean([step.accepted > 0 for step in first])
    second = [step for step in steps if step.drafted > 1 and step.accepted > 0]
    assert rates[1] == np.mean([step.accepted > 1 for step in second])


def test_a_candidate_brings_its_own_drafter_and_encoding():
    drafter = Mock(side_effect=lambda gamma: ModelDrafter(PAIR.draft, gamma))
    own = Candidate(PAIR.target, drafter, Letters().encode, Letters())
    assert panel({"mine": lambda: own}, gamma=3).measure()[0]["gamma"] == 3
    drafter.assert_called_once_with(3)


def test_the_button_is_disabled_and_the_progress_visible_during_a_measurement():
    seen = []

    def loader():
        seen.append((controls.button.disabled, controls.progress.layout.visibility))
        return PAIR

    controls = panel({"late": loader})
    controls.button.click()
    controls.button.click()
    assert seen == [(True, "visible")], "loaded once"
    assert controls.progress.layout.visibility == "hidden"


@pytest.mark.parametrize(
    "prompts, pairs, words",
    [
        ({"long": "a" * 600}, {"a pair": PAIR}, "ValueError: "),
        (PROMPTS, {"broken": lambda: 3}, "AttributeError: "),
        (PROMPTS, {"<gone>": Mock(side_effect=OSError("no <b>"))}, "OSError: no &lt;b&gt;"),
    ],
)
def test_a_failed_measurement_shows_its_error_and_the_panel_still_works(prompts, pairs, words):
    controls = panel(pairs, prompts)
    assert not controls.measure()
    assert 'role="alert"' in controls.result.value and words in controls.result.value
    assert controls.button.disabled is False and controls.explorer.presets == PRESETS


def test_a_pair_of_ones_own_is_named_by_its_two_models(monkeypatch):
    asked = []
    monkeypatch.setattr(panels, "load_pair", lambda *names: asked.append(names) or PAIR)
    controls = panel()
    assert all(field.layout.display == "none" for field in controls.own)
    controls.pair.value = OWN
    assert all(field.layout.display is None for field in controls.own)
    assert not controls.measure() and "give a target and a draft" in controls.result.value
    controls.own[0].value, controls.own[1].value = " large ", "small"
    assert controls.measure()[0]["label"].startswith("large with small, ")
    assert asked == [("large", "small")]


def test_a_page_without_a_kernel_gets_the_explorer_with_the_recorded_pairs():
    controls = panel()
    bundle = controls._repr_mimebundle_()
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == controls.view.model_id
    state = bundle[MIME]["state"]
    assert state["presets"] == PRESETS and state["levers"] is True and state["gamma"] == 3
    assert not controls.result.value, "showing it measures nothing"


def test_site_prefers_the_explorer_to_a_view_without_a_kernel():
    from myst_nb.core.render import base_render_priority
    from specdec_site.outputs import Outputs

    priority = base_render_priority()["html"] | {
        mime: rank for _, mime, rank in Outputs.mime_priority_overrides
    }
    bundle = panel()._repr_mimebundle_()
    assert min(bundle, key=lambda mime: priority.get(mime, math.inf)) == MIME
