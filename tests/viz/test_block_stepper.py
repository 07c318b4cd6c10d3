"""The block stepper: its recording and its counts against the run, and its use in a browser."""

import pytest
from javascript import evaluate, formula
from letters import Letters, tiny
from mounting import bare_page, says

from specdec_book.viz.interactives import BlockStepper, record_blocks
from specdec_lite import generate
from specdec_lite.drafters import ModelDrafter

PROMPT = Letters().encode("hello")
TARGET, DRAFT = tiny(0), tiny(0, noise=0.15)


@pytest.fixture(scope="module")
def run():
    output = generate(TARGET, PROMPT, ModelDrafter(DRAFT, 3), max_new_tokens=60)
    assert {step.accepted for step in output.steps} >= {0, 1, 3}, (
        "the run must hold whole blocks, parts and rejections at once"
    )
    return output


@pytest.fixture(scope="module")
def recorded(run):
    return BlockStepper(prompt="hello", k=4, rounds=record_blocks(run, Letters(), PROMPT))


def moments_of(rounds: list[dict]) -> list[dict]:
    return formula("block_stepper", "moments", rounds)


def counts_of(rounds: list[dict]) -> list[dict]:
    count = len(moments_of(rounds))
    return evaluate("block_stepper", "counts", [[rounds, at] for at in range(count)])


def test_blocks_equal_the_run_and_greedy_decoding(run, recorded):
    plain = generate(TARGET, PROMPT, max_new_tokens=60)
    emitted = [
        text
        for block in recorded.rounds
        for text in (*block["drafts"][: block["accepted"]], block["token"])
    ]
    assert (
        "".join(emitted)
        == Letters().decode(run.tokens.tolist())
        == Letters().decode(plain.tokens.tolist())
    )
    roots = [block["root"] for block in recorded.rounds]
    assert roots == [
        Letters().decode(PROMPT[-1:]),
        *(block["token"] for block in recorded.rounds[:-1]),
    ]
    assert [block["context"] for block in recorded.rounds] == [
        len(PROMPT) + sum(len(s.tokens) for s in run.steps[:i]) for i in range(len(run.steps))
    ]
    text, whole = Letters().decode(PROMPT), Letters().decode([*PROMPT, *run.tokens.tolist()])
    for block in (
        recorded.rounds
    ):  # a rejected proposal really differs from the text that greedy decoding writes
        at = block["context"]
        agrees = [whole[at + i : at + i + 1] == draft for i, draft in enumerate(block["drafts"])]
        assert block["accepted"] == (agrees.index(False) if False in agrees else len(agrees))
    assert whole.startswith(text)


def test_counts_at_every_moment(run, recorded):
    moments, counts = moments_of(recorded.rounds), counts_of(recorded.rounds)
    assert [m["kind"] for m in moments] == [
        "predict",
        *["verify", "accept", "reuse"] * len(run.steps),
    ]
    tokens = verified = predicted = 0
    for moment, count in zip(moments, counts, strict=True):
        block = recorded.rounds[moment["round"]]
        verified += moment["kind"] == "verify"
        predicted += moment["kind"] == "reuse"
        tokens += {"accept": block["accepted"], "reuse": 1}.get(moment["kind"], 0)
        assert count == {"merged": verified, "twoPass": verified + predicted, "plain": tokens}
    assert counts[-1] == {
        "merged": run.stats.target_passes,
        "twoPass": 2 * run.stats.target_passes,
        "plain": run.stats.tokens,
    }


def test_a_drafted_stop_token_ends_the_last_block(run):
    whole = next(i for i, step in enumerate(run.steps) if step.accepted == 3)
    stop = run.steps[whole].tokens[1]
    stopped = generate(
        TARGET, PROMPT, ModelDrafter(DRAFT, 3), max_new_tokens=60, stop_token_ids=[stop]
    )
    rounds = record_blocks(stopped, Letters(), PROMPT)
    if stopped.steps[-1].kind is not None:
        pytest.fail("this run was to end inside a block: choose another stop token")
    assert rounds[-1]["token"] is None
    assert moments_of(rounds)[-1] == {"round": len(rounds) - 1, "kind": "accept"}
    assert counts_of(rounds)[-1]["plain"] == stopped.stats.tokens == len(stopped.tokens)


def test_fates_follow_the_accepted_prefix():
    block = {"drafts": ["a", "b", "c"], "accepted": 1, "token": "x"}
    call = lambda kind, block: evaluate(
        "block_stepper", "fate", [[block, kind, i] for i in range(3)]
    )
    assert call("verify", block) == ["drafted"] * 3
    assert call("accept", block) == call("reuse", block) == ["accepted", "rejected", "unused"]
    assert call("accept", block | {"token": None}) == ["accepted", "unused", "unused"], (
        "nothing is rejected after a stop token"
    )


def test_the_first_blocks_are_shown_after_the_end_of_the_prompt(run, recorded):
    shown = BlockStepper.record(run, Letters(), PROMPT * 100, 4)
    assert len(shown.prompt) < 250 and len(shown.rounds) == 13 < len(recorded.rounds)


@pytest.mark.browser
def test_used_by_keyboard_and_mouse(recorded, used):
    page = used(recorded)
    moments = moments_of(recorded.rounds)
    solving = next(
        i
        for i, m in enumerate(moments)
        if m["kind"] == "reuse" and recorded.rounds[m["round"]]["accepted"] == 3
    )
    says(page, ".sdl-summary", "Accept.")  # it opens where drafts are accepted
    page.get_by_role("button", name="Reset").click()
    says(page, ".sdl-summary", "Predict.")
    page.get_by_label("Moment").focus()
    for _ in range(solving - 1):
        page.keyboard.press("ArrowRight")
    says(page, ".sdl-summary", "All 3 proposals agree")
    page.get_by_role("button", name="Step").click()
    says(page, ".sdl-task-state", "Solved")
    says(page, ".sdl-summary", "Next prediction reused.")
    assert page.get_by_label("Moment").input_value() == str(solving + 1)
    assert page.evaluate("model.get('moment')") == solving
    assert page.locator("tr[aria-current]").inner_text().count("◆ row reused") == 1
    counts = counts_of(recorded.rounds)[solving]
    shown = page.locator("svg[role=img]").get_attribute("aria-label")
    assert all(
        f": {counts[form]}" in part
        for form, part in zip(
            ("plain", "twoPass", "merged"), shown.split("far. ")[1].split(". "), strict=True
        )
    )
    page.get_by_role("button", name="Reset").press("Enter")
    says(page, ".sdl-summary", "Predict.")


@pytest.mark.browser
def test_states_are_readable_without_color(mounted):
    block = {"context": 1, "root": "a", "drafts": ["b", "c", "d"], "accepted": 1, "token": "x"}
    page = mounted(BlockStepper(prompt="a", k=4, rounds=[block], moment=2))
    words = page.locator(".sdl-verdict").all_inner_texts()
    assert words[:4] == ["committed", "✓ accepted", "✗ rejected", "– not verified"]
    lines = page.evaluate(
        """[...document.querySelectorAll('.sdl-legend .sdl-token')].map((token) => {
      const style = getComputedStyle(token);
      const { content } = getComputedStyle(token, '::before');
      return [style.borderBottomStyle, style.borderBottomWidth, style.textDecorationLine, content].join();
    })"""
    )
    assert len(lines) == len(set(lines)) == 5
    assert page.locator("del.sdl-rejected").count() >= 2
    assert page.locator("del.sdl-unused").count() >= 2


@pytest.mark.browser
@pytest.mark.parametrize("motion, moving", [("no-preference", 1), ("reduce", 0)])
def test_the_rows_of_the_next_block_slide_up(recorded, mounted, motion, moving):
    page = mounted(recorded, reduced_motion=motion)
    at = next(i for i, each in enumerate(moments_of(recorded.rounds)) if each["round"] == 1)
    page.evaluate("at => model.set('moment', at - 1)", at)
    page.evaluate("() => { slides = 0; document.querySelector('tbody').animate = () => slides++; }")
    page.get_by_role("button", name="Step").click()
    assert page.evaluate("[model.get('moment'), slides]") == [at, moving]


@pytest.mark.browser
def test_plays_and_pauses(recorded, new_page):
    page = new_page()
    page.clock.install()
    page.set_content(bare_page(recorded, "light"))
    at = "model.get('moment')"
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(5000)
    assert page.evaluate(at) >= 2
    page.get_by_role("button", name="Pause").click()
    stopped = page.evaluate(at)
    page.clock.run_for(5000)
    assert page.evaluate(at) == stopped and page.get_by_role("button", name="Play").is_visible()
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Step").click()
    assert page.get_by_role("button", name="Play").is_visible(), "stepping by hand stops playing"
    page.evaluate(f"model.set('moment', {len(moments_of(recorded.rounds)) - 2})")
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(5000)
    page.get_by_role("button", name="Play").wait_for()
