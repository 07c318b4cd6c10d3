"""The round stepper: its recording and its JavaScript against the run, and its use in a browser."""

import pytest
from browsing import accessibility_faults
from chosen import one_of
from javascript import formula
from letters import Letters, tiny
from mounting import says

from specdec_book.viz.chance import RecordingRng
from specdec_book.viz.stepper import Stepper, record_rounds
from specdec_lite import CausalLM
from specdec_lite.decoding import stream
from specdec_lite.drafters import ModelDrafter

PROMPT = "hello"


class Spy(CausalLM):
    """A model that records the length of its cache after every pass and every cut."""

    def new_cache(self, *arguments, **options):
        cache, lengths = super().new_cache(*arguments, **options), []
        self.lengths, crop = lengths, cache.crop

        def noting(length):
            crop(length)
            lengths.append(("cut", cache.length))

        cache.crop = noting
        return cache

    def score(self, tokens, cache, *arguments, **options):
        scores = super().score(tokens, cache, *arguments, **options)
        self.lengths.append(("pass", cache.length))
        return scores


@pytest.fixture(scope="module")
def run():
    target, draft = Spy(tiny(0).model), Spy(tiny(0, noise=0.15).model)
    ids, rng = Letters().encode(PROMPT), RecordingRng(3)
    steps = list(stream(target, ids, ModelDrafter(draft, 3), 60, 1.0, rng=rng))
    rounds = record_rounds(steps, rng.uniforms, len(ids), Letters())
    assert {r["accepted"] for r in rounds} >= {0, 3}, (
        "the run must hold a rejection at once and a fully accepted round"
    )
    return target, draft, steps, rounds, rng


def moments(rounds: list[dict]) -> list[dict]:
    return formula("stepper", "moments", rounds)


def test_the_recorded_uniforms_decide_the_rounds(run):
    _, _, steps, rounds, rng = run
    for step, record in zip(steps, rounds, strict=True):
        for i, draft in enumerate(record["drafts"]):
            assert (draft["tested"] is None) == (i > record["accepted"])
            if draft["tested"] is not None:
                assert (draft["tested"] < draft["p"] / draft["q"]) == (i < record["accepted"])
        assert "".join(d["text"] for d in record["drafts"][: record["accepted"]]) + record["token"][
            "text"
        ] == Letters().decode(step.tokens)
    used = [
        u
        for r in rounds
        for u in (
            *(d["drawn"] for d in r["drafts"]),
            *(d["tested"] for d in r["drafts"]),
            r["token"]["drawn"],
        )
    ]
    assert [u for u in used if u is not None] == rng.uniforms


def test_the_shipped_run_contains_the_answer_to_the_task():
    rounds = Stepper.load().rounds
    full = [i for i, each in enumerate(rounds[:-1]) if each["accepted"] == len(each["drafts"])]
    assert full and rounds[full[0] + 1]["draft_cache"] == rounds[full[0] + 1]["context"] - 2
    assert 30 <= len(moments(rounds)) <= 50, "about forty moments"


def test_moments_show_the_caches_real_lengths(run):
    target, draft, _, rounds, _ = run
    shown = moments(rounds)
    passes = [m["target"] for m in shown if m["kind"] == "verify"]
    assert passes == [length for kind, length in target.lengths if kind == "pass"][1:], (
        "the first pass is the prefill"
    )
    assert [m["target"] for m in shown if m["kind"] == "cut"] == [
        length for kind, length in target.lengths if kind == "cut"
    ]
    drafting = [m["draft"] for m in shown if m["kind"] == "draft"]
    assert drafting == [length for kind, length in draft.lengths if kind == "pass"][1:]
    cuts = [m["draft"] for m in shown if m["kind"] == "cut"]
    # A round reads the draft's cache, and so cuts what the round before left; the start cuts nothing.
    start, first, *later = [length for kind, length in draft.lengths if kind == "cut"]
    drafted = [record for record in rounds if record["drafts"]]
    assert (start, first) == (0, len(PROMPT) - 1) and cuts[: len(drafted) - 1] == later


def test_every_round_has_all_its_moments(run):
    rounds = run[3]
    shown = moments(rounds)
    for at, record in enumerate(rounds):
        drafts = len(record["drafts"])
        tested = sum(d["tested"] is not None for d in record["drafts"])
        assert [m["kind"] for m in shown if m["round"] == at] == ["draft"] * drafts + ["verify"] + [
            "test"
        ] * tested + ["token", "cut"]


def test_caches_differ_by_one_after_full_acceptance(run):
    rounds = run[3]
    drafted = [m for m in moments(rounds) if m["kind"] == "cut" and rounds[m["round"]]["drafts"]]
    for moment in drafted:
        record = rounds[moment["round"]]
        assert moment["target"] - moment["draft"] == (record["accepted"] == len(record["drafts"]))


def test_greedy_run_has_no_uniforms():
    widget = Stepper.record(
        tiny(0), tiny(0, 0.15), Letters(), PROMPT, gamma=3, max_new_tokens=20, temperature=0.0
    )
    assert all(d["drawn"] is d["tested"] is None for r in widget.rounds for d in r["drafts"])
    assert moments(widget.rounds)


def test_trees_and_uniforms_of_another_run_are_rejected(run):
    _, _, steps, _, rng = run
    with pytest.raises(ValueError, match="uniforms has"):
        record_rounds(steps, rng.uniforms[:5], len(PROMPT), Letters())
    with pytest.raises(ValueError, match="uniforms has 1"):
        record_rounds(steps, [0.5, *rng.uniforms], len(PROMPT), Letters())


def test_a_long_prompt_is_cut_and_all_rounds_are_kept():
    widget = Stepper.record(tiny(0), tiny(1), Letters(), "a" * 300, gamma=2, max_new_tokens=12)
    assert len(widget.prompt) < 250
    assert sum(r["accepted"] + 1 for r in widget.rounds) == 12


@pytest.mark.browser
@pytest.mark.parametrize("width", one_of(__name__, [1280, 390]))
def test_used_by_keyboard_and_mouse(run, mounted, width):
    rounds = run[3]
    page = mounted(Stepper(prompt=PROMPT, gamma=3, rounds=rounds), width)
    solving = next(
        i
        for i, m in enumerate(moments(rounds))
        if m["kind"] == "cut" and rounds[m["round"]]["accepted"] == 3
    )
    slider = page.locator("input[type=range]")
    says(page, ".sdl-summary", "The round emits")  # it opens at a cut
    slider.press("Home")
    for _ in range(solving):
        page.keyboard.press("ArrowRight")
    says(page, ".sdl-task-state", "Solved")
    says(page, ".sdl-summary", "nothing is cut")
    page.keyboard.press("ArrowLeft")
    says(page, ".sdl-summary", "bonus")
    assert "Solved" not in page.locator(".sdl-task-state").inner_text()
    page.get_by_role("button", name="Step").press("Enter")
    assert slider.input_value() == str(solving + 1)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert (
        page.locator("svg[role=img]").get_attribute("aria-label").startswith("Caches by position.")
    )
    assert accessibility_faults(page) == [] and "ArrowRight" not in page.evaluate("heard")
