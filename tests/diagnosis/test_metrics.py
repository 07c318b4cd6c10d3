"""What engines print, read in the book's terms: lines and counters with their worked answers.

Every text is also given to the page's reader (`log_line.js`), whose answer must be the same.
"""

import json
import random
import re
from pathlib import Path

import pytest
from javascript import evaluate, formula

from specdec_lite import theory
from specdec_lite.diagnosis import metrics

VLLM = (
    "INFO [metrics.py:101] SpecDecoding metrics: Mean acceptance length: {tau}, Accepted throughput:"
    " 8.90 tokens/s, Drafted throughput: 97.50 tokens/s, Accepted: {accepted} tokens, Drafted:"
    " {drafted} tokens, Per-position acceptance rate: {rates}, Avg Draft acceptance rate: {share}%"
)
LINES = json.loads((Path(__file__).parent / "lines.json").read_text("utf-8"))
"""Texts of engines, γ if it must be given, and what is read, or why it is refused."""
FORMATS = [row["text"] for row in LINES if "reads" in row]


def explain(text, gamma=None):
    """Return the library's reading, after the page's reader has given the same, errors included."""
    page = formula("log_line", "explain", text, gamma)
    try:
        reading = metrics.explain(text, gamma)
    except ValueError as error:
        assert str(error).endswith(page["error"].removeprefix("text")), (str(error), page)
        raise
    ours = reading.to_dict()
    assert page.keys() == ours.keys()
    for name, value in ours.items():
        value = list(value) if isinstance(value, tuple) else value
        same = isinstance(value, (str, bool)) or value is None or name in ("missing", "notes")
        assert page[name] == (value if same else pytest.approx(value, abs=1e-9)), name
    return reading


@pytest.mark.parametrize("line", LINES, ids=lambda line: str(line["text"])[:40])
def test_a_line_of_an_engine(line):
    text, given = line["text"], line.get("gamma")
    if "refused" in line:
        with pytest.raises(ValueError, match=re.escape(line["refused"])):
            explain(text, given)
        return
    reading, reads = explain(text, given), line["reads"]
    for name, value in reads.items():
        wanted = pytest.approx(value, abs=6e-3 if name == "profile" else 1e-6)
        same = value is None or isinstance(value, (str, bool))
        assert getattr(reading, name) == (value if same else wanted), name
    for word in line.get("notes", ()):
        assert any(word in note for note in reading.notes)
    assert not any(word in note for word in line.get("not", ()) for note in reading.notes)
    assert line.get("definition", "") in reading.definition
    assert not line.get("missing") or line["missing"] in reading.missing[0]
    report = str(reading)
    assert ("over all steps" in report) == (reading.tau_all is not None)
    assert "accepted ÷ tested" in report and "accepted ÷ drafted" in report
    for value in (reading.tau, reading.alpha, reading.drafted_acceptance):
        assert metrics.number_text(value) in report
    if given and reading.alpha_is_fitted:
        assert theory.expected_tokens(reading.alpha, given) == pytest.approx(reading.tau)
    if "profile" in reads and not reading.alpha_is_fitted:
        assert reading.drafted_acceptance is None or reading.drafted_acceptance < reading.alpha
        assert theory.tokens_from_profile(reading.profile) == pytest.approx(reading.tau, abs=0.03)


def test_a_capped_line_of_sglang_keeps_its_lengths_apart():
    """Not the length of what was verified, but of the whole block, tells about α."""
    [block] = [row["text"] for row in LINES if "block accept len" in str(row["text"])]
    assert theory.expected_tokens(explain(block).alpha, 7) == pytest.approx(3.4)
    capped = explain("accept len: 2.10, accept rate: 0.16, cap len: 4.20, gen throughput: 9")
    below, above = (theory.expected_tokens(capped.alpha, gamma) for gamma in (3, 4))
    assert below < 2.1 < above, "unverified drafts are no evidence about α"


@pytest.mark.parametrize("long", [3, 4, 6, 12])
def test_drafts_of_varying_length_are_noted_and_give_no_profile(long):
    """Half of the drafts have `long` tokens, half have 2; each token is accepted with α = .8."""
    rates = [0.8**i if i <= 2 else 0.5 * 0.8**i for i in range(1, long + 1)]
    drafts = 100_000
    line = VLLM.format(
        tau=round(1 + sum(rates), 2),
        accepted=round(drafts * sum(rates)),
        drafted=drafts * (2 + long) // 2,
        rates=", ".join(f"{rate:.3f}" for rate in rates),
        share=round(200 * sum(rates) / (2 + long), 1),
    )
    reading = explain(line)
    assert reading.gamma == pytest.approx((2 + long) / 2, rel=0.01) and reading.profile == ()
    assert reading.alpha_is_fitted and reading.alpha == pytest.approx(0.8, abs=0.06)
    assert any("position 1" in note for note in reading.notes)
    naive = theory.conditional_acceptance(rates)[1]
    assert abs(reading.alpha - 0.8) < abs(naive - 0.8), "better than accepted ÷ tested of the rates"


def changed(text: str, rng: random.Random) -> str:
    """Return a text with some numbers replaced, characters cut out, or another text behind it."""
    for _ in range(rng.randint(1, 3)):
        numbers = list(re.finditer(r"\d+(?:\.\d+)?", text))
        if numbers and rng.random() < 0.7:
            match = rng.choice(numbers)
            value = rng.choice(
                [str(rng.randint(0, 9)), f"{3 * rng.random():.3f}", "2000", "nan", ""]
            )
            text = text[: match.start()] + value + text[match.end() :]
        elif rng.random() < 0.6:
            begin = rng.randrange(len(text))
            text = text[:begin] + text[begin + rng.randint(1, 12) :]
        else:
            text += "\n" + rng.choice(FORMATS)
    return text


def test_the_page_reads_changed_texts_as_the_library_does():
    rng = random.Random(0)
    cases = [(changed(rng.choice(FORMATS), rng), rng.choice([None, 3, 5])) for _ in range(300)]
    pages = evaluate("log_line", "explain", cases)
    read = 0
    for (text, gamma), page in zip(cases, pages):
        try:
            ours = metrics.explain(text, gamma).to_dict()
        except ValueError:
            assert "error" in page, text
            continue
        read += 1
        for name in ("tau", "gamma", "alpha", "drafted_acceptance"):
            assert page[name] == pytest.approx(ours[name], abs=1e-9), (text, name)
        assert page["notes"] == list(ours["notes"]) and page["missing"] == list(ours["missing"])
    assert 50 < read < 250, "some are read, some refused"


SIZE = 150_000


LARGE = {
    "labels": 'vllm:spec_decode_num_accepted_tokens_per_pos{position="1"' * (SIZE // 57),
    "drafts": "spec_decode_num_drafts{" * (SIZE // 23),
    "gauges": "sglang:spec_accept_length{" * (SIZE // 26),
    "list": json.dumps(
        {"tokens": [0] * SIZE, "draft_n_accepted": 1, "draft_n": 3, "predicted_n": 5}
    ),
    "nested": '{"a":' * (SIZE // 5),
    "deep": '{"a":' * (SIZE // 6) + "1" + "}" * (SIZE // 6),
    "braces": "{" * SIZE,
    "words": "statistics " * (SIZE // 11),
    "digits": "accept len: " + "1" * SIZE,
    "rates": "SpecDecoding metrics: Per-position acceptance rate: " + "0.5, " * (SIZE // 5),
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_large_texts_are_read_or_refused(text):
    """Texts whose reading took seconds to days when the work grew with their square or cube."""
    try:
        assert metrics.explain(text).engine
    except ValueError:
        pass
    assert formula("log_line", "explain", text, None)


def test_a_text_above_a_million_characters_is_refused():
    with pytest.raises(ValueError, match="at most 1000000"):
        explain("accept len: 2.5 " * 70_000)
