"""A diagnosis: every fault on purpose is named, a sound pair has none, and bad input is refused."""

import json
import math
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from broken_drafts import (
    ArgmaxDrafter,
    LostBehindTheFirst,
    NearSightedDraft,
    OnePlaceForAllRows,
    ShiftedTarget,
    StaleDrafter,
    TemplateBlindDraft,
)
from conftest import ROOT
from models_zoo import shipped

from specdec_lite import TokenTree, __main__ as command, diagnose, theory
from specdec_lite.diagnosis import report, verdict
from specdec_lite.diagnosis.faults import faults
from specdec_lite.diagnosis.measuring import Loop, Measured
from specdec_lite.drafters import EagleDrafter, ModelDrafter


def encode(text: str) -> list[int]:
    """Return the tokens of the shipped pair, whose copies are broken below."""
    return shipped().tokenizer.encode(text)


def texts(count=2, **more):
    from specdec_lite.texts.corpus import evaluation_prompts

    domains = {
        name: [encode(row["text"])[:120] for row in rows[:count]]
        for name, rows in evaluation_prompts().items()
    }
    return {**domains, **more}


def named(found):
    return [fault.name for fault in found.faults]


@pytest.fixture(scope="module")
def concluded():
    """What was measured of a sound pair, and its diagnosis."""
    measured = []

    def conclude(found, *rest):
        measured.append(found)
        return verdict.conclude(found, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("specdec_lite.diagnosis.diagnose"), "conclude", conclude)
        made = diagnose(
            shipped().target, ModelDrafter(shipped().draft), texts(1), max_new_tokens=32
        )
    return measured[0], made


@pytest.fixture(scope="module")
def sound(concluded):
    return concluded[1]


@pytest.mark.slow
def test_a_sound_pair_has_no_fault(sound):
    assert not named(sound) and sound.same_text == 1
    assert sound.verdict in ("pays", "even", "hurts", "disturbed") and sound.setting["levels"] == 4
    low, high = sound.speedup["interval"]
    assert low <= sound.speedup["value"] <= high
    assert ("no verdict" in sound.reason) == (sound.verdict == "disturbed")


def test_the_verdict_is_the_side_of_one_on_which_the_interval_lies():
    assert verdict.sign(1.1, 1.4) == "pays" and verdict.sign(0.6, 0.9) == "hurts"
    assert verdict.sign(0.9, 1.2) == verdict.sign(1.0, 1.2) == "even"


STEADY = np.array([[1.0, 1.05], [0.9, 1.0]])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"passes": {1: 1.0, 2: 1.17, 5: 0.80, 9: 1.61}}, "a pass over 5 tokens took 0.80"),
        ({"batches": {1: 0.79, 4: 1.2}}, "at a batch of 1"),
        ({"plain": STEADY * [[1.0, 1.8]]}, "the same plain run took"),
        ({"seconds": STEADY * [[1.0, 1.8]]}, "the same drafted run took"),
        ({"speedup": 1.4, "predicted": 0.24}, "its own rounds forecast 0.24"),
    ],
)
def test_times_that_contradict_each_other_give_no_verdict(concluded, change, words):
    def phrases(
        plain=STEADY, seconds=STEADY, passes=None, batches=None, speedup=1.4, predicted=1.5
    ):
        loop = replace(concluded[0].loop, plain=plain, seconds=seconds)
        passes = passes or {1: 1.0, 2: 0.9, 5: 1.1}
        return verdict.disturbances(loop, passes, batches or {1: 1.05}, speedup, predicted)

    assert phrases() == [], "quiet times have a verdict"
    first, *_, last = phrases(**change)
    assert words in first and last.startswith("no verdict")


def test_disturbed_times_replace_the_verdict(concluded):
    measured, _ = concluded
    times = {k: 0.5 if k == 5 else 1.0 for k in measured.alone}
    found = verdict.conclude(replace(measured, alone=times), shipped().target, {"code": 1})
    assert found.verdict == "disturbed" and "5 tokens" in found.reason
    assert str(found).startswith("disturbed: ") and found.best_gamma == 0
    loop = replace(measured.loop, accepted=0 * measured.loop.accepted, count=measured.loop.rounds)
    found = verdict.conclude(
        replace(measured, alone=times, loop=loop), shipped().target, {"code": 1}
    )
    assert found.verdict == "hurts" and found.best_gamma == 0, "no draft was ever accepted"


def worked(draft=0.4, verify=1.2, other=0.2, tokens=3, nodes=4, levels=4):
    """Return what follows from rounds with these costs in T(1) = 10 ms, beside steps of 1.1 T(1)."""
    parents = [*range(-1, levels - 1)] + [-1] * (nodes - levels)
    tree = TokenTree([0] * nodes, parents)
    step = SimpleNamespace(tree=tree, drafting=draft / 100, verifying=verify / 100)
    step.other, step.tests = other / 100, ()
    plain = SimpleNamespace(tree=TokenTree([], []), drafting=0, verifying=0.01, other=0.001)
    of = lambda value: np.full((2, 2), value, float)
    seconds = of((draft + verify + other) / 100 / tokens)
    counts = map(of, (2 * tokens, 2, 2 * tokens - 2, 5))
    loop = Loop(of(0.011), seconds, *counts, [step] * 8, [plain] * 8, [], 1.0)
    alone = {1: 0.01, 5: 0.012, 9: 0.016, 17: 0.024, "draft": 0.0009}
    values = torch.tensor([[0.8, 0.6], [0.9, 0.7], [1.0, 0.0]]).double()
    rows = {"code": [dict(zip(("drawn", "chosen", "greedy"), values))]}
    more = {"alone": alone, "batches": {1: 1.2, 4: 1.5, 16: 3.5}, "graphs": "no GPU"}
    measured = Measured(loop, 0.0, rows, {"shifted": 0.1}, **more)
    return verdict.conclude(measured, shipped().target, {"code": 2})


def test_what_is_reported_follows_from_the_parts():
    """τ = 3, α = .8, and a round costs 1.8 T(1), where a plain step costs 1.1."""
    found = worked()
    assert found.c_in_loop == pytest.approx(0.1) and found.c == pytest.approx(0.09)
    assert found.break_even == pytest.approx(1.8 / 1.1) and found.parts["verify"] == 1.2
    assert found.predicted == pytest.approx(3 * 1.1 / 1.8) == found.speedup["value"]
    rows = dict(report.rows(found))
    expected = {
        "measured": "γ = 4, temperature 0, float32 on cpu, 24 tokens",
        "speedup": "1.83, predicted 1.83",
        "τ, tokens per round": "3.00, break-even at 1.64",
        "a plain step, in T(1)": "1.10",
        "α, accepted ÷ tested": "0.80",
        "without decoding, code": "drawn 0.70, likeliest 0.80, greedy 0.50",
        "control, shifted": "0.10 (must be low)",
        "c, per drafted token": "0.100 in the loop, 0.090 alone",
        "in graphs": "not measured: no GPU",
        "T(1)": "10.00 ms",
        "T(k) ÷ T(1)": "1: 1.00, 5: 1.20, 9: 1.60, 17: 2.40",
        "the same by batch, γ + 1 tokens": "1: 1.20, 4: 1.50, 16: 3.50",
        "no draft can pay": "from a batch of 16, of those measured",
        "best γ": "4, 2.05",
        "break-even at α": "0.39",
        "break-even at c": "0.574",
        "texts equal to plain greedy": "100 %",
    }
    assert rows == expected
    assert dict(report.rows(worked(nodes=8)))["measured"].startswith("8 nodes on 4 levels")


@pytest.mark.parametrize(
    "costs, sign, best, begin",
    [
        ({}, "pays", 4, "a round emits 3.00 tokens at the cost of 1.64 plain steps; drafting"),
        ({"draft": 3.2}, "hurts", 0, "drafting costs 2.91 plain steps per round; a round"),
        ({"verify": 2.9, "draft": 0.8}, "hurts", 0, "verifying several tokens rather than one"),
        ({"other": 2.0}, "hurts", 7, "everything except drafting and verification costs 1.82"),
        ({"tokens": 1.2}, "hurts", 0, "acceptance: a round emits 1.20 tokens"),
        ({"nodes": 8}, "pays", 8, "a round emits 3.00 tokens"),
    ],
)
def test_the_deciding_term_is_named(costs, sign, best, begin):
    found = worked(**costs)
    assert (found.verdict, found.best_gamma) == (sign, best)
    assert found.reason.startswith(begin) and (found.alpha is None) == ("nodes" in costs)


def test_a_curve_finds_where_a_draft_breaks_even():
    curve = verdict.Curve({1: 1.0, 5: 1.2, 9: 1.6}, 1.0, 0.1, 0.1, 1.0)
    alpha = curve.needed(0.3, 4)["alpha"]
    assert curve.speedup(alpha, 4) == pytest.approx(1)
    assert curve.needed(0.01, 4)["c"] is None, "no draft is so cheap that this one pays"
    assert curve.speedup(0.8, 4, curve.needed(0.8, 4)["c"]) == pytest.approx(1)
    assert curve.best(0.0) == (0, 1.0)
    best, gain = curve.best(0.8)
    assert gain == max(curve.speedup(0.8, gamma) for gamma in range(1, 9)) and best > 1
    free = verdict.Curve({1: 1.0, 17: 1.0}, 1.0, 0.0, 0.0, 1.0)
    assert free.speedup(0.8, 4) == pytest.approx(theory.expected_tokens(0.8, 4))


def test_without_decoding_it_agrees_with_the_loop(concluded):
    measured, sound = concluded
    assert measured.parity == measured.in_batch == 1
    assert all(online == offline for online, offline, _ in measured.openings)
    assert measured.alone.keys() == {1, 2, 3, 5, 9, 17, "draft"}
    assert set(sound.offline) == {"code", "data", "prose"}
    for rates in sound.offline.values():
        assert rates["chosen"] <= 1 and rates["drawn"] > 0.3
    assert max(sound.controls.values()) < 0.5 * max(r["drawn"] for r in sound.offline.values())


def chats():
    text = encode("<|user|> def add(a, b):\n    return a + b\n" * 8)
    return texts(chat=[(encode("<|user|> ") + text)[:120]] * 2)


def long_texts():
    return {name: [sum(texts(4)[name], [])[:400]] for name in texts(4)}


def drafted(change):
    """Return the shipped target, and a drafter with a changed copy of the shipped draft."""
    return shipped().target, ModelDrafter(change(shipped().draft))


def verified(change):
    """Return a changed copy of the shipped target, and the shipped draft."""
    return change(shipped().target), ModelDrafter(shipped().draft)


FAULTS = {
    "stale": lambda: (shipped().target, StaleDrafter(shipped().draft), texts(1)),
    "depth": lambda: (shipped().target, LostBehindTheFirst(shipped().draft), texts(1)),
    "chosen": lambda: (shipped().target, ArgmaxDrafter(shipped().draft), texts(1)),
    "domain": lambda: (
        *drafted(lambda model: TemplateBlindDraft(model, encode("<|user|> "))),
        chats(),
    ),
    "context": lambda: (*drafted(lambda model: NearSightedDraft(model, 200)), long_texts()),
    "target": lambda: (*verified(ShiftedTarget), texts(1)),
    "batch": lambda: (*verified(OnePlaceForAllRows), texts(1)),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "stale")) for name in FAULTS]
)
def test_a_fault_on_purpose_is_named(name):
    found = diagnose(*FAULTS[name](), 32)
    first, *_ = found.faults
    assert first.name == name, "the fault itself, before what follows from it"
    assert found.same_text == 1 or name == "target", "verification hides it: the text is the same"
    assert name != "domain" or "'chat'" in first.description


@pytest.mark.slow
@pytest.mark.parametrize("make", [chats, long_texts])
def test_a_sound_pair_on_these_texts_has_no_fault(make):
    found = diagnose(*drafted(lambda model: model), make(), 16)
    assert not {"domain", "context"} & {*named(found)}


FIRST = lambda *opening, count=20: [opening] * count
DEEP = lambda later: [SimpleNamespace(tests=(1, 1), accepted=1 + (n < later)) for n in range(20)]
HALVES = lambda early, late, count=128: {
    "text": [torch.tensor([early, early - 0.01, late, late - 0.01]).repeat_interleave(count // 4)]
}
TEXT = HALVES(0.8, 0.8)
SEEN = [
    ("", {"parity": 1.0, "in_batch": 1.0}),
    ("", {"parity": 0.98, "in_batch": 0.98}),
    ("target", {"parity": 0.96, "in_batch": 0.5}),
    ("batch", {"parity": 1.0, "in_batch": 0.96}),
    ("comparison", {"offline": TEXT, "controls": {"shifted": 0.75}}),
    ("", {"offline": TEXT, "controls": {"shifted": 0.2}}),
    ("", {"offline": HALVES(0.12, 0.12), "controls": {"shifted": 0.12}}),
    ("stale", {"openings": FIRST(0.5, 0.6, 0.6)}),
    ("", {"openings": FIRST(0.56, 0.6, 0.6)}),
    ("", {"openings": FIRST(0.5, 0.6, 0.6, count=11)}),
    ("", {"openings": FIRST(0.5, 0.6, 0.5), "is_chosen": True}),
    ("stale", {"openings": FIRST(0.4, 0.6, 0.5), "is_chosen": True}),
    ("depth", {"steps": DEEP(2)}),
    ("", {"steps": DEEP(18)}),
    ("", {"steps": DEEP(2)[:11]}),
    ("chosen", {"sampled": FIRST(0.5, 0.8, 0.7), "is_chosen": True}),
    ("", {"sampled": FIRST(0.5, 0.8, 0.78), "is_chosen": True}),
    ("", {"sampled": FIRST(0.5, 0.8, 0.7)}),
    ("domain", {"offline": TEXT | {"code": [TEXT["text"][0] / 4]}}),
    ("", {"offline": TEXT | {"code": [TEXT["text"][0] * 0.7]}}),
    ("context", {"offline": HALVES(0.8, 0.5)}),
    ("", {"offline": HALVES(0.8, 0.7)}),
    ("", {"offline": HALVES(0.8, 0.5, 92)}),
]


@pytest.mark.parametrize("name, seen", SEEN)
def test_a_fault_is_concluded_from_what_shows_it_and_from_no_less(name, seen):
    loop = SimpleNamespace(steps=seen.get("steps", ()))
    texts = seen.get("offline", {}).items()
    rows = {domain: [{"drawn": row} for row in rows] for domain, rows in texts}
    rest = {field: value for field, value in seen.items() if field not in ("steps", "offline")}
    found = faults(Measured(loop, 0.0, rows, **rest))
    assert [fault.name for fault in found] == [name] * bool(name)
    assert all((ROOT / f"{fault.page}.ipynb").is_file() for fault in found)


@pytest.mark.slow
def test_a_drafter_without_a_model_is_measured_in_the_loop_alone():
    from registry import contributed_drafter

    found = diagnose(shipped().target, contributed_drafter()(3), texts(1), 16)
    assert found.offline == {} and found.controls == {} and found.c is None
    assert found.c_in_loop > 0 and found.verdict


@pytest.mark.slow
def test_a_drafter_that_reads_states_is_not_asked_about_a_text_alone():
    drafter = EagleDrafter.from_pretrained(shipped().target, 1)
    found = diagnose(shipped().target, drafter, texts(1), 16)
    assert found.offline == {} and found.controls == {} and not named(found)
    assert found.c > 0 and found.tau["value"] > 1


def test_the_report_is_text_a_page_and_json(sound):
    text = str(sound)
    assert text.startswith(sound.verdict) and "break-even" in text and "faults: none found" in text
    assert "sdl-diagnosis" in sound._repr_html_()
    stored = json.loads(json.dumps(sound.to_dict(), allow_nan=False))
    assert stored["verdict"] == sound.verdict and math.isfinite(stored["predicted"])


def test_the_command_line(capsys, tmp_path):
    command.main(["explain", "accept len: 2.50, gen", "--gamma", "4", "--json"])
    assert json.loads(capsys.readouterr().out)["tau"] == 2.5
    for arguments, message in [
        (["explain", "nothing"], "SpecDecoding metrics"),
        (["diagnose", "shipped", "elsewhere"], "give it for both"),
        (["diagnose", "shipped", "shipped", "--text", str(tmp_path / "none.txt")], "UTF-8 text"),
    ]:
        with pytest.raises(SystemExit):
            command.main(arguments)
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_line_reads_a_text(capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def mean(values):\n    return sum(values) / len(values)\n" * 99)
    command.main(["diagnose", "shipped", "shipped", "--text", str(file), "--new-tokens", "16"])
    printed = capsys.readouterr()
    assert "α, accepted ÷ tested" in printed.out and f"{file}: read 512 of" in printed.err


def test_every_file_is_read_as_what_it_is(tmp_path):
    """Two of one name, a byte order mark, and the prompts of Spec-Bench; other lines are refused."""
    for folder, text in (("a", "first"), ("b", "\ufeffsecond")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text(text, "utf-8")
    files = [tmp_path / "a" / "x.txt", tmp_path / "b" / "x.txt", tmp_path / "question.jsonl"]
    lines = '{"question_id": 81, "turns": ["one", "two"]}\n\n{"prompt": "th\u2028ree"}\n'
    files[2].write_bytes(f"\ufeff{lines}".replace("\n", "\r\n").encode())
    read = command.texts_of(files)
    assert [*read.values()] == [["first"], ["second"], ["one", "th\u2028ree"]]
    for row in ("{}", '{"turns": []}', '{"turns": "one"}', '{"prompt": ["one"]}', "[]", '"turns"'):
        files[2].write_text(f"\n{row}\n")
        with pytest.raises(ValueError, match="question.jsonl: line 2 must be an object with turns"):
            command.texts_of(files)
    with pytest.raises(ValueError, match="rows.json: must be .jsonl with a prompt per line"):
        command.texts_of([tmp_path / "rows.json"])


def test_prompts_are_read_in_the_chat_template_and_from_the_whole_file(capsys):
    chat = SimpleNamespace(encode=lambda text: [0] * len(text), chat_template="{{ messages }}")
    chat.apply_chat_template = lambda messages, **_: [1] * len(messages[0]["content"])
    texts = ["x" * (7 + number) for number in range(100)]
    rows = command.ids_of("question.jsonl", texts, chat)
    assert [len(row) for row in rows] == [*range(17, 107, 5)] and {*sum(rows, [])} == {1}
    assert f"read {len(rows)} of 100 prompts" in capsys.readouterr().err
    assert command.ids_of("a.txt", ["short"], chat) == [[0] * 5]  # which `diagnose` refuses
    chat.apply_chat_template = lambda *_, **__: 1 / 0
    with pytest.raises(ValueError, match="chat_template fails: division by zero"):
        command.ids_of("question.jsonl", texts, chat)


def test_a_single_text_has_no_interval():
    assert report.spread({"value": 3.2, "interval": [3.2, 3.2]}) == "3.20"
    assert report.spread({"value": 3.2, "interval": [3.1, 3.4]}) == "3.20 (3.10–3.40)"
