"""The block stepper: its recording and its counts against the run, and how it plays."""

import pytest
from javascript import evaluate, formula
from letters import Letters, tiny
from mounting import bare_page

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
    blocks = recorded.rounds
    emitted = [[*block["drafts"][: block["accepted"]], block["token"]] for block in blocks]
    text = Letters().decode(run.tokens.tolist())
    assert "".join(map("".join, emitted)) == text == Letters().decode(plain.tokens.tolist())
    roots = [block["root"] for block in blocks]
    assert roots == [Letters().decode(PROMPT[-1:]), *(words[-1] for words in emitted[:-1])]
    at = len(PROMPT)
    for block, step in zip(blocks, run.steps, strict=True):
        assert block["context"] == at
        follows = text[at - len(PROMPT) :]
        # a rejected proposal really differs from the text that greedy decoding writes
        agrees = [draft == letter for draft, letter in zip(block["drafts"], follows)]
        assert block["accepted"] == [*agrees, False].index(False)
        at += len(step.tokens)


def test_counts_at_every_moment(run, recorded):
    moments, counts = moments_of(recorded.rounds), counts_of(recorded.rounds)
    kinds = ["predict", *["verify", "accept", "reuse"] * len(run.steps)]
    assert [moment["kind"] for moment in moments] == kinds
    tokens = 0
    for at, (moment, count) in enumerate(zip(moments, counts, strict=True)):
        accepted = recorded.rounds[moment["round"]]["accepted"]
        tokens += {"accept": accepted, "reuse": 1}.get(moment["kind"], 0)
        verified, predicted = (kinds[: at + 1].count(kind) for kind in ("verify", "reuse"))
        assert count == {"merged": verified, "twoPass": verified + predicted, "plain": tokens}
    passes = run.stats.target_passes
    assert count == {"merged": passes, "twoPass": 2 * passes, "plain": run.stats.tokens}


def test_a_drafted_stop_token_ends_the_last_block(run):
    whole = next(i for i, step in enumerate(run.steps) if step.accepted == 3)
    stop = run.steps[whole].tokens[1]
    stopped = generate(TARGET, PROMPT, ModelDrafter(DRAFT, 3), 60, stop_token_ids=[stop])
    rounds = record_blocks(stopped, Letters(), PROMPT)
    if stopped.steps[-1].kind is not None:
        pytest.fail("this run was to end inside a block: choose another stop token")
    assert rounds[-1]["token"] is None
    assert moments_of(rounds)[-1] == {"round": len(rounds) - 1, "kind": "accept"}
    assert counts_of(rounds)[-1]["plain"] == stopped.stats.tokens == len(stopped.tokens)


def test_fates_follow_the_accepted_prefix():
    """After a drafted stop token nothing is rejected."""
    fates = {
        ("verify", "x"): ["drafted"] * 3,
        ("accept", "x"): ["accepted", "rejected", "unused"],
        ("reuse", "x"): ["accepted", "rejected", "unused"],
        ("accept", None): ["accepted", "unused", "unused"],
    }
    for (kind, token), expected in fates.items():
        block = {"drafts": ["a", "b", "c"], "accepted": 1, "token": token}
        calls = [[block, kind, i] for i in range(3)]
        assert evaluate("block_stepper", "fate", calls) == expected


def test_the_first_blocks_are_shown_after_the_end_of_the_prompt(run, recorded):
    shown = BlockStepper.record(run, Letters(), PROMPT * 100, 4)
    assert len(shown.prompt) < 250 and len(shown.rounds) == 13 < len(recorded.rounds)


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
