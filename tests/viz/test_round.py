"""One round as a picture: the recording decided again by the library's rule, its JavaScript against
both, and its use by keyboard, mouse and clock.
"""

import json

import pytest
import torch
from browsing import accessibility_faults
from javascript import evaluate
from letters import Letters, tiny
from mounting import bare_page, says

from specdec_lite import Proposal, TokenTree
from specdec_lite.acceptance import speculative_sampling
from specdec_lite.drafters import ModelDrafter
from specdec_lite.measure import results
from specdec_lite.sampling import SeededRng
from specdec_lite.viz import Round
from specdec_lite.viz.interactive import MIME

BOOK = results.load("round").data["rounds"]


class Given(SeededRng):
    """Chance from a list."""

    def __init__(self, uniforms):
        self.left = list(uniforms)

    def uniform(self):
        return self.left.pop(0)


def decided(record: dict) -> tuple[int, str]:
    """How many guesses stay, and the word that is added, by the library's own rule. Every place has
    ids of its own, in the order of its words, which decides what a uniform draws.
    """
    size = max(len(row["words"]) for row in record["rows"])

    def spread(place, masses):
        row = torch.zeros(size * len(record["rows"]), dtype=torch.float64)
        row[size * place : size * place + len(masses)] = torch.tensor(masses, dtype=torch.float64)
        return row

    target = torch.stack([spread(i, row["p"]) for i, row in enumerate(record["rows"])])
    tokens, parents, q, uniforms, parent = [], [], [], [], -1
    for place, row in enumerate(record["rows"]):
        first = len(tokens)
        for test in row["tests"]:
            tokens.append(size * place + test["word"])
            parents.append(parent)
            q.append(spread(place, test["q"]))
            uniforms += [test["u"]] * (test["u"] is not None)
        kept = [i for i, test in enumerate(row["tests"]) if test["kept"]]
        parent = first + kept[0] if kept else len(tokens) - 1
    rows = [target[0], *(target[token // size + 1] for token in tokens)]
    proposal = Proposal(TokenTree(tokens, parents), torch.stack(q))
    uniforms.append(record["token"]["u"])
    verdict = speculative_sampling(proposal, torch.stack(rows), Given(uniforms))
    place = len(verdict.path)
    return place, record["rows"][place]["words"][verdict.token - size * place]


def written(record: dict) -> tuple[int, str]:
    last = record["rows"][record["accepted"]]
    return record["accepted"], last["words"][record["token"]["word"]]


def replayed(rounds: list[dict]) -> list[tuple[int, str]]:
    verdicts = evaluate("round", [{"name": "verdict", "args": [each]} for each in rounds])
    return [
        (v["accepted"], each["rows"][v["accepted"]]["words"][v["word"]])
        for v, each in zip(verdicts, rounds, strict=True)
    ]


def moments(rounds: list[dict], dice: bool = True) -> list[dict]:
    return evaluate("round", [{"name": "moments", "args": [rounds, dice]}])[0]


@pytest.fixture(scope="module")
def run() -> Round:
    """Many rounds of two tiny models, with tests of every outcome."""
    target, draft = tiny(0), tiny(0, noise=0.15)
    widget = Round.record(target, ModelDrafter(draft, 3), Letters(), "hello", 60, seed=3)
    assert {each["accepted"] for each in widget.rounds} >= {0, 1, 3}
    return widget


# A node with two drawn children: the first is struck, the second tested against what it left of p.
FORK = {
    "before": "so",
    "context": 1,
    "rows": [
        {
            "words": [" a", " b", " c"],
            "p": [0.5, 0.3, 0.2],
            "tests": [
                {"word": 1, "q": [0.2, 0.6, 0.2], "u": 0.9, "kept": False},
                {"word": 0, "q": [0.5, 0.0, 0.5], "u": 0.99, "kept": True},
            ],
        },
        {"words": [" a", " b", " c"], "p": [0.1, 0.8, 0.1], "tests": []},
    ],
    "accepted": 1,
    "token": {"word": 1, "kind": "bonus", "u": 0.5},
    "caches": {"target": [0, 3, 2], "draft": None},
}


def test_the_books_rounds_are_what_the_rule_says_of_their_own_numbers():
    assert [decided(each) for each in BOOK] == [written(each) for each in BOOK] == replayed(BOOK)
    assert {each["accepted"] for each in BOOK} >= {0, 2, 4}
    size = (results.FOLDER / "round.json").stat().st_size
    assert size < 60_000


def test_a_changed_coin_is_noticed():
    record = json.loads(json.dumps(BOOK[1]))
    test = record["rows"][2]["tests"][0]
    test["q"] = [float(i == test["word"]) for i in range(len(test["q"]))]
    test["u"] = 0.99999
    record["rows"][3]["tests"][0]["u"] = None  # never reached
    assert decided(record) == replayed([record])[0] != written(record)


def test_rounds_of_many_seeds_are_decided_alike_in_both_languages(run):
    rounds = [each for each in run.rounds if each["rows"][0]["tests"]]
    assert [decided(each) for each in rounds] == [written(each) for each in rounds]
    assert replayed(rounds) == [written(each) for each in rounds]
    assert replayed([FORK]) == [decided(FORK)] == [written(FORK)]


def test_a_row_holds_all_the_chance_there_is(run):
    for row in (row for each in (*run.rounds, *BOOK) for row in each["rows"]):
        assert sum(row["p"]) == pytest.approx(1, abs=1e-4)
        assert all(sum(test["q"]) == pytest.approx(1, abs=1e-4) for test in row["tests"])
        assert len(set(row["words"])) == len(row["words"]), "two words that look alike"


def test_every_round_has_a_moment_for_everything_that_happens():
    shown = moments(BOOK)
    for at, each in enumerate(BOOK):
        tested = sum(test["kept"] is not None for row in each["rows"] for test in row["tests"])
        struck = ["overhang"] * (each["token"]["kind"] == "recovered")
        kinds = [
            "text",
            *["guess"] * 4,
            "pass",
            *["look", "coin"] * tested,
            *struck,
            "token",
            "cut",
        ]
        assert [m["kind"] for m in shown if m["round"] == at] == kinds


def test_cache_lengths_are_those_of_the_rounds_before_and_behind(run):
    for first, second in zip(run.rounds, run.rounds[1:]):
        for name in ("target", "draft"):
            assert first["caches"][name][2] == second["caches"][name][0]
    for each in (*run.rounds, *BOOK):
        guesses = sum(bool(row["tests"]) for row in each["rows"])
        assert each["caches"]["target"] == [
            each["context"] - 1,
            each["context"] + guesses,
            each["context"] + each["accepted"],
        ]


def test_a_greedy_round_has_no_coins_and_shows_soft_rows():
    widget = Round.record(
        tiny(0), ModelDrafter(tiny(0, 0.15), 3), Letters(), "hello", 40, temperature=0.0
    )
    assert widget.dice is False and replayed(widget.rounds) == [written(e) for e in widget.rounds]
    rows = [row for each in widget.rounds for row in each["rows"]]
    assert all(test["u"] is None for row in rows for test in row["tests"])
    assert max(len(row["p"]) for row in rows) > 2
    assert {m["kind"] for m in moments(widget.rounds, False)}.isdisjoint({"look", "overhang"})


def test_too_many_words_for_the_picture_are_refused():
    with pytest.raises(ValueError, match="top_k=6: must be a whole number in 1 … 5"):
        Round.record(tiny(0), ModelDrafter(tiny(1), 2), Letters(), "hello", top_k=6)


def test_widget_carries_its_recording():
    bundle = Round.recorded(plays=True)._repr_mimebundle_()[0][MIME]
    assert bundle["module"] == "round" and bundle["state"]["rounds"] == BOOK
    assert bundle["state"]["plays"] and "SmolLM2" in bundle["state"]["about"]


# In a browser --------------------------------------------------------------------------------------

SUMMARY = ".sdl-round .sdl-summary"


def first_of(kind: str, **wanted) -> int:
    return next(
        i
        for i, m in enumerate(moments(BOOK))
        if m["kind"] == kind and all(m[name] == value for name, value in wanted.items())
    )


@pytest.mark.browser
@pytest.mark.parametrize("width, height, theme", [(1366, 640, "light"), (390, 760, "dark")])
def test_fits_and_keeps_its_height_at_every_moment(mounted, width, height, theme):
    page = mounted(Round.recorded(), min(width, 790), theme)
    sizes = []
    for at in range(len(moments(BOOK))):
        page.evaluate(f"model.set('moment', {at})")
        sizes.append(page.locator(".sdl-round").bounding_box()["height"])
        assert page.locator(".sdl-round-main rect").count() > 2, "an empty stage"
    assert max(sizes) == min(sizes) and max(sizes) <= height
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    inside = page.evaluate(
        """[...document.querySelectorAll('.sdl-round-side')].every((box) =>
        box.scrollHeight <= box.getBoundingClientRect().height + 1)"""
    )
    assert inside and accessibility_faults(page) == []


@pytest.mark.browser
def test_the_rows_light_up_once_at_the_pass(mounted):
    page = mounted(Round.recorded(), 790)
    at = first_of("pass")
    page.evaluate(f"model.set('moment', {at})")
    assert page.locator(".sdl-lit").count() == len(BOOK[0]["rows"])
    rows = page.locator(".sdl-round-row svg").element_handles()
    page.evaluate(f"model.set('moment', {at + 1})")
    assert page.locator(".sdl-lit").count() == 0
    assert all(row.evaluate("(row) => row.isConnected") for row in rows), "drawn once a round"


@pytest.mark.browser
@pytest.mark.parametrize("width", [790, 390])
def test_stepped_and_scrubbed(mounted, width):
    page = mounted(Round.recorded(), width)
    at = lambda: page.evaluate("model.get('moment')")
    page.get_by_label("Moment").focus()
    page.keyboard.press("ArrowRight")
    says(page, SUMMARY, "The draft guesses")
    page.keyboard.press("End")
    says(page, SUMMARY, "from one pass of the target")
    page.get_by_role("button", name="back").click()
    assert at() == len(moments(BOOK)) - 2
    page.get_by_role("button", name="0 of 4 stay").press("Enter")
    assert at() == first_of("text", round=2)
    page.get_by_role("button", name="step").click()
    says(page, SUMMARY, "The draft guesses")
    assert "ArrowRight" not in page.evaluate("heard")


@pytest.mark.browser
def test_the_reader_decides(mounted):
    page = mounted(Round.recorded(), 790)
    shown = moments(BOOK)
    asked = evaluate("round", [{"name": "question", "args": [BOOK, m]} for m in shown])
    keep = asked.index("keep")
    test = BOOK[shown[keep]["round"]]["rows"][shown[keep]["row"]]["tests"][shown[keep]["test"]]
    page.evaluate(f"model.set('moment', {keep})")
    page.get_by_role("button", name="keep", exact=True).press("Enter")
    says(page, SUMMARY, "As you said" if test["kept"] else "You said keep")
    page.evaluate(f"model.set('moment', {keep})")
    page.get_by_role("button", name="strike", exact=True).click()
    says(page, SUMMARY, "You said strike" if test["kept"] else "As you said")
    word = asked.index("word")
    row = BOOK[shown[word]["round"]]["rows"][shown[word]["row"]]
    page.evaluate(f"model.set('moment', {word})")
    drafted = row["words"][row["tests"][0]["word"]].strip()
    page.get_by_role("button", name=drafted, exact=True).click()
    says(page, SUMMARY, "has no overhang")
    page.evaluate(f"model.set('moment', {word})")
    right = BOOK[shown[word]["round"]]["token"]["word"]
    page.locator(".sdl-pick").nth(right).click()
    says(page, SUMMARY, "As you said")


@pytest.mark.browser
def test_plays_by_itself_and_waits_where_the_reader_decides(new_page):
    page = new_page(viewport={"width": 790, "height": 800})
    page.clock.install()
    page.set_content(bare_page(Round.recorded(plays=True), "light"))
    page.get_by_role("button", name="Pause").wait_for()
    page.clock.run_for(120_000)
    asked = page.locator(".sdl-round-ask strong")
    assert asked.is_visible()
    stopped = page.evaluate("model.get('moment')")
    page.get_by_role("button", name="show me").click()
    page.clock.run_for(4000)
    assert page.evaluate("model.get('moment')") > stopped
    page.get_by_role("button", name="step").click()
    assert page.get_by_role("button", name="Play").is_visible(), "stepping by hand stops the clock"


@pytest.mark.browser
def test_without_its_parts_and_for_those_who_ask_for_less_motion(mounted):
    options = dict(dice=False, caches=False, asks=False, numbers=False, plays=True)
    page = mounted(Round.recorded(**options), 790, reduced_motion="reduce")
    page.evaluate("model.set('moment', 6)")
    assert page.get_by_role("button", name="Play").count() == 0
    assert page.locator(".sdl-round-cell").count() == 0
    assert page.locator("circle").count() == 0
    assert " | " not in page.locator(".sdl-round-main").inner_text()


@pytest.mark.browser
def test_a_node_with_several_children(mounted):
    page = mounted(Round(rounds=[FORK]), 790)
    says(page, SUMMARY, "target")
    words = []
    for at in range(len(moments([FORK]))):
        page.evaluate(f"model.set('moment', {at})")
        words.append(page.locator(SUMMARY).inner_text())
    told = " ".join(words)
    assert "guesses “b” or “a”" in told and "what is left of the target's bars" in told
    assert "“b” is struck" in told and "“a” stays" in told
