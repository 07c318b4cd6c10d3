"""What interactives replay: their recordings and counts against the library's own runs."""

import random
from functools import partial
from itertools import product

import pytest
from javascript import evaluate, formula
from letters import Letters, tiny
from mounting import bare_page, pause, says
from test_formulas import differences
from torch.special import entr

from specdec_book.viz.interactives import (
    BlockStepper,
    JacobiGrid,
    Lookup,
    Stepper,
    StopExplorer,
    record_blocks,
    record_grid,
)
from specdec_lite import generate
from specdec_lite.decoding import stream
from specdec_lite.drafters import JacobiDrafter, ModelDrafter, PromptLookupDrafter
from specdec_lite.drafters.lengths import Confidence, Constant, Entropy, Heuristic, Length
from specdec_lite.measure.replay import replay
from specdec_lite.proposal import Step

PROMPT = Letters().encode("hello")
TARGET, DRAFT = tiny(0), tiny(0, noise=0.15)

# The block stepper --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run():
    output = generate(TARGET, PROMPT, ModelDrafter(DRAFT, 3), max_new_tokens=60)
    assert {step.accepted for step in output.steps} >= {0, 1, 3}, (
        "the run must hold whole blocks, parts and rejections at once"
    )
    return output


@pytest.fixture(scope="module")
def blocks(run):
    return BlockStepper(prompt="hello", k=4, rounds=record_blocks(run, Letters(), PROMPT))


def block_moments(rounds: list[dict]) -> list[dict]:
    return formula("block_stepper", "moments", rounds)


def block_counts(rounds: list[dict]) -> list[dict]:
    count = len(block_moments(rounds))
    return evaluate("block_stepper", "counts", [[rounds, at] for at in range(count)])


def test_blocks_equal_the_run_and_greedy_decoding(run, blocks):
    plain = generate(TARGET, PROMPT, max_new_tokens=60)
    rounds = blocks.rounds
    emitted = [[*block["drafts"][: block["accepted"]], block["token"]] for block in rounds]
    text = Letters().decode(run.tokens.tolist())
    assert "".join(map("".join, emitted)) == text == Letters().decode(plain.tokens.tolist())
    roots = [block["root"] for block in rounds]
    assert roots == [Letters().decode(PROMPT[-1:]), *(words[-1] for words in emitted[:-1])]
    at = len(PROMPT)
    for block, step in zip(rounds, run.steps, strict=True):
        assert block["context"] == at
        follows = text[at - len(PROMPT) :]
        # a rejected proposal really differs from the text that greedy decoding writes
        agrees = [draft == letter for draft, letter in zip(block["drafts"], follows)]
        assert block["accepted"] == [*agrees, False].index(False)
        at += len(step.tokens)


def test_counts_at_every_moment(run, blocks):
    moments, counts = block_moments(blocks.rounds), block_counts(blocks.rounds)
    kinds = ["predict", *["verify", "accept", "reuse"] * len(run.steps)]
    assert [moment["kind"] for moment in moments] == kinds
    tokens = 0
    for at, (moment, count) in enumerate(zip(moments, counts, strict=True)):
        accepted = blocks.rounds[moment["round"]]["accepted"]
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
    assert block_moments(rounds)[-1] == {"round": len(rounds) - 1, "kind": "accept"}
    assert block_counts(rounds)[-1]["plain"] == stopped.stats.tokens == len(stopped.tokens)


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


def test_the_first_blocks_are_shown_after_the_end_of_the_prompt(run, blocks):
    shown = BlockStepper.record(run, Letters(), PROMPT * 100, 4)
    assert len(shown.prompt) < 250 and len(shown.rounds) == 13 < len(blocks.rounds)


@pytest.mark.browser
@pytest.mark.parametrize("motion, moving", [("no-preference", 1), ("reduce", 0)])
def test_the_rows_of_the_next_block_slide_up(blocks, mounted, motion, moving):
    page = mounted(blocks, reduced_motion=motion)
    at = next(i for i, each in enumerate(block_moments(blocks.rounds)) if each["round"] == 1)
    page.evaluate("at => model.set('moment', at - 1)", at)
    page.evaluate("() => { slides = 0; document.querySelector('tbody').animate = () => slides++; }")
    page.get_by_role("button", name="Step").click()
    assert page.evaluate("[model.get('moment'), slides]") == [at, moving]


@pytest.mark.browser
def test_plays_and_pauses(blocks, new_page):
    page = new_page()
    page.clock.install()
    page.set_content(bare_page(blocks, "light"))
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
    page.evaluate(f"model.set('moment', {len(block_moments(blocks.rounds)) - 2})")
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(5000)
    page.get_by_role("button", name="Play").wait_for()


# The Jacobi grid ----------------------------------------------------------------------------------


GREEDY = generate(TARGET, PROMPT, max_new_tokens=10).tokens.tolist()
STARTS = {"the prompt": None, "the text, one letter changed": [*GREEDY[:4], 0, *GREEDY[5:9]]}
OUTS = {
    name: generate(TARGET, PROMPT, JacobiDrafter(9, guess), 10) for name, guess in STARTS.items()
}


@pytest.fixture(scope="module")
def grid():
    runs = [{"start": name, "rows": record_grid(out, Letters())} for name, out in OUTS.items()]
    return JacobiGrid(prompt="hello", runs=runs)


def test_cells_equal_the_run(grid):
    for run, out in zip(grid.runs, OUTS.values()):
        rows, count = run["rows"], len(out.steps)
        of = lambda name, *given: formula("jacobi_grid", name, rows, *given)
        gains = of("gains")
        assert "".join(of("text", count)) == Letters().decode(GREEDY) and of("total") == 10
        assert gains == [len(step.tokens) for step in out.steps]
        finals = evaluate("jacobi_grid", "final", [[rows, i] for i in range(count + 1)])
        assert finals == [sum(gains[:i]) for i in range(count + 1)]
        each = evaluate("jacobi_grid", "cells", [[rows, i, count] for i in range(count + 1)])
        for cells, step, final in zip(each, out.steps, finals):
            states = [cell["fate"] for cell in cells]
            assert len(cells) == 10 and states[:final] == ["final"] * final
            assert states.count("accepted") == step.accepted
            guesses = [cell["text"] for cell in cells[final : final + len(step.tree)]]
            assert "".join(guesses) == Letters().decode(step.tree.tokens.tolist())
    assert len(OUTS["the text, one letter changed"].steps) < len(OUTS["the prompt"].steps)


@pytest.mark.browser
def test_a_step_scrolls_to_the_next_position_and_moves_nothing(grid, mounted):
    page = mounted(grid, 240)  # narrower than its ten columns
    measured = """() => {
      const grid = document.querySelector(".sdl-scroll").getBoundingClientRect();
      const next = document.querySelector("[aria-current] .sdl-drafted")?.getBoundingClientRect();
      const root = document.querySelector(".sdl").getBoundingClientRect();
      return [root.height, grid.height, !next || (next.left > grid.left && next.right < grid.right)];
    }"""
    found = []
    for moment in range(len(OUTS["the prompt"].steps) + 1):
        page.evaluate(f"model.set('moment', {moment})")
        pause(page, 200)
        found.append(page.evaluate(measured))
    assert {tuple(row) for row in found} == {(*found[0][:2], True)}


# The stop explorer --------------------------------------------------------------------------------


COUNT = 40
STOPPING = {"length": 3, "threshold": 0.6, "nats": 0.8, "cost": 0.1}
POLICIES = {
    "constant": Constant(3),
    "heuristic": Heuristic(8, 3),
    "confidence": Confidence(8, 0.6),
    "entropy": Entropy(8, 0.8),
}


class RecordingLength(Length):
    """A length policy that never stops and records (q, entropy) of every drafted token."""

    looks = True

    def __init__(self):
        super().__init__(8)
        self.records: list[tuple[float, float]] = []

    def go_on(self, row, token):
        self.records.append((row[token].item(), entr(row).sum().item()))
        return True


@pytest.fixture(scope="module")
def drafts():
    """What a draft of eight tokens would be at each position of a greedy text."""
    text = generate(TARGET, PROMPT, max_new_tokens=COUNT).tokens.tolist()
    places = []
    for position in range(COUNT):
        policy = RecordingLength()
        step = next(stream(TARGET, [*PROMPT, *text[:position]], ModelDrafter(DRAFT, policy), 9))
        q, h = ([round(number, 4) for number in column] for column in zip(*policy.records))
        places.append({"q": q, "h": h, "right": step.accepted})
    return StopExplorer(prompt="hello", words=[*Letters().decode(text)], places=places)


stops = partial(formula, "stop_explorer")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policys_rounds_equal_the_librarys(drafts, policy):
    out = generate(TARGET, PROMPT, ModelDrafter(DRAFT, POLICIES[policy]), COUNT)
    rounds = stops("rounds", drafts.places, policy, STOPPING)
    assert [(r["drafted"], r["accepted"]) for r in rounds] == [
        (len(step.tree), step.accepted) for step in out.steps
    ]
    passes, drafted = len(out.steps), out.stats.drafted
    assert len({len(step.tree) for step in out.steps}) > 1 or policy == "constant"
    speed = stops("speed", drafts.places, policy, STOPPING)
    assert speed == pytest.approx(COUNT / (passes + 0.1 * drafted))


def test_the_oracle_beats_every_policy(drafts):
    for cost in (0.02, 0.1, 0.4):
        settings = STOPPING | {"cost": cost}
        oracle = stops("speed", drafts.places, "oracle", settings)
        assert all(stops("speed", drafts.places, policy, settings) <= oracle for policy in POLICIES)
        best = stops("bestConstant", drafts.places, cost)
        assert best["speed"] == max(
            stops("speed", drafts.places, "constant", settings | {"length": length})
            for length in range(1, 9)
        )


# The round stepper --------------------------------------------------------------------------------


STEPPER = Stepper.load()


def step_moments(rounds: list[dict]) -> list[dict]:
    return formula("stepper", "moments", rounds)


def test_the_recorded_uniforms_decide_the_rounds():
    for record in STEPPER.rounds:
        for i, draft in enumerate(record["drafts"]):
            assert (draft["tested"] is None) == (i > record["accepted"])
            if draft["tested"] is not None:
                assert (draft["tested"] < draft["p"] / draft["q"]) == (i < record["accepted"])


def test_the_run_contains_the_answer_to_the_task():
    rounds = STEPPER.rounds
    full = [i for i, each in enumerate(rounds[:-1]) if each["accepted"] == len(each["drafts"])]
    assert full and rounds[full[0] + 1]["draft_cache"] == rounds[full[0] + 1]["context"] - 2
    assert 30 <= len(step_moments(rounds)) <= 50, "about forty moments"


def test_every_round_has_all_its_moments_with_the_lengths_of_both_caches():
    """The draft was never fed its last token; both caches are cut to what was accepted."""
    shown = step_moments(STEPPER.rounds)
    for at, record in enumerate(STEPPER.rounds):
        mine = [moment for moment in shown if moment["round"] == at]
        count, accepted = len(record["drafts"]), record["accepted"]
        tested = sum(draft["tested"] is not None for draft in record["drafts"])
        kinds = [*["draft"] * count, "verify", *["test"] * tested, "token", "cut"]
        assert [moment["kind"] for moment in mine] == kinds
        cut, before = mine[-1], record["context"]
        assert mine[count]["target"] == before + count and cut["target"] == before + accepted
        assert [m["draft"] for m in mine[:count]] == [before + i for i in range(count)]
        assert cut["target"] - cut["draft"] == (accepted == count)
        for following in STEPPER.rounds[at + 1 : at + 2]:
            assert following["context"] == before + accepted + 1
            assert following["draft_cache"] == cut["draft"]


# The lookup explorer ------------------------------------------------------------------------------


DRAWS = random.Random(4)
REQUEST = [DRAWS.randrange(5) for _ in range(30)]
ANSWER = [*REQUEST[4:20], *(DRAWS.randrange(5) for _ in range(10)), *REQUEST[2:24]]
IDS, START = [*REQUEST, *ANSWER], len(REQUEST)
SETTINGS = [*product(range(1, 6), range(1, 17), (True, False))]


@pytest.fixture(scope="module")
def explorer():
    return Lookup.of({"copy": (REQUEST, ANSWER), "none": ([1], [2, 3])}, Letters())


@pytest.fixture(scope="module")
def replayed():
    """The rounds of the library's drafter at every setting."""
    drafter = lambda n, gamma, latest: PromptLookupDrafter(gamma, n, latest=latest)
    return [replay(drafter(*setting), REQUEST, ANSWER, 24) for setting in SETTINGS]


def lookup_counts(steps: list[Step]) -> dict:
    drafting = [len(step.tokens) for step in steps if len(step.tree)]
    return {
        "rounds": len(steps),
        "tokens": len(ANSWER),
        "tau": len(ANSWER) / len(steps),
        "tauDrafting": sum(drafting) / len(drafting),
        "wasted": sum(len(step.tree) - step.accepted for step in steps),
        "empty": len(steps) - len(drafting),
    }


def is_allowed(count: dict) -> bool:
    return count["wasted"] <= count["tokens"]


def test_rounds_and_counts_equal_the_drafters(replayed):
    found = evaluate("lookup", "rounds", [[IDS, START, *setting] for setting in SETTINGS])
    for rounds, steps in zip(found, replayed, strict=True):
        at = START
        for shown, step in zip(rounds, steps, strict=True):
            copied = IDS[shown["source"] :][: shown["drafted"]]
            assert copied == step.tree.tokens.tolist()
            assert (shown["at"], shown["accepted"]) == (at, step.accepted)
            at += len(step.tokens)
    given = evaluate("lookup", "counts", [[rounds] for rounds in found])
    assert differences(given, [lookup_counts(steps) for steps in replayed]) == []
    best = max(count["tau"] for count in map(lookup_counts, replayed) if is_allowed(count))
    assert formula("lookup", "best", IDS, START, 1) == pytest.approx(best)


def test_widget_carries_its_texts_and_rejects_empty_ones(explorer):
    text = explorer.texts[0]
    assert text["ids"] == IDS and text["start"] == START
    assert "".join(text["tokens"]) == Letters().decode(IDS)
    with pytest.raises(ValueError, match="'a'=0"):
        Lookup.of({"a": ([1], [])}, Letters())


SEEN = """() => [...document.querySelectorAll(".sdl-lookup-text")].every((pane) => {
  const frame = pane.getBoundingClientRect();
  const marked = [...pane.querySelectorAll(".sdl-source, .sdl-here")].slice(0, 1);
  return marked.every((word) => {
    const { top, bottom } = word.getClientRects()[0];
    return top >= frame.top && bottom <= frame.bottom;
  });
})"""


@pytest.mark.browser
def test_used_by_keyboard_and_mouse(explorer, used):
    page = used(explorer)
    page.get_by_label("Round", exact=True).focus()
    page.keyboard.press("Home")
    says(page, ".sdl-summary", "Round 1")
    rounds = formula("lookup", "rounds", IDS, START, 3, 8, True)
    for number, found in enumerate(rounds):
        page.evaluate(f"model.set('round', {number})")
        assert page.locator(".sdl-arc").count() == (found["drafted"] > 0), "this round's alone"
        assert page.evaluate(SEEN) is True, "the copy and its source are in view"
    page.evaluate("model.set('round', 0)")
    page.get_by_label("Round", exact=True).focus()
    page.keyboard.press("ArrowRight")
    says(page, ".sdl-summary", "Round 2")
    page.get_by_label("γ").focus()
    page.keyboard.press("Home")
    assert page.evaluate("model.get('gamma')") == 1
    page.get_by_label("Occurrence to copy").select_option("earliest")
    assert page.evaluate("model.get('latest')") is False
    page.locator(".sdl-lookup-text .sdl-token").last.click()
    last = len(formula("lookup", "rounds", IDS, START, 3, 1, False))
    says(page, ".sdl-summary", f"Round {last}")
    page.get_by_label("Text", exact=True).select_option("none")
    says(page, ".sdl-summary", "without a draft")


@pytest.mark.browser
def test_only_the_best_setting_solves_the_task(explorer, replayed, mounted):
    page = mounted(explorer)
    found = [*map(lookup_counts, replayed)]
    best = max(count["tau"] for count in found if is_allowed(count))
    solves = [is_allowed(count) and count["tau"] >= best - 1e-9 for count in found]
    for solved in (True, False):
        chosen = dict(zip(("n", "gamma", "latest"), SETTINGS[solves.index(solved)]))
        page.evaluate("(s) => Object.entries(s).forEach((pair) => model.set(...pair))", chosen)
        pause(page, 400)
        assert ("Solved" in page.locator(".sdl-task-state").inner_text()) == solved
