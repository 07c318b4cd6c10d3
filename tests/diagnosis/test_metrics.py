"""What engines print, read in the book's terms: lines and counters with their worked answers.

Every text is also given to the page's reader (`log_line.js`), whose answer must be the same.
"""

import json
import random
import re
from pathlib import Path

import pytest
from javascript import evaluate

from specdec_lite import theory
from specdec_lite.diagnosis import metrics

VLLM = (
    "INFO [metrics.py:101] SpecDecoding metrics: Mean acceptance length: {tau}, Accepted throughput:"
    " 8.90 tokens/s, Drafted throughput: 97.50 tokens/s, Accepted: {accepted} tokens, Drafted:"
    " {drafted} tokens, Per-position acceptance rate: {rates}, Avg Draft acceptance rate: {share}%"
)
LLAMA = (
    "slot print_timing: id  1 | task 0 | draft acceptance = 0.64479 (  167 accepted /   259"
    " generated), mean acceptance length =  2.92, acceptance rate per position = (0.805, 0.632,"
    " 0.483)\nstatistics     draft-eagle3: #calls(b,g,a) =    1     87     87, #gen drafts ="
    "     87, #acc drafts =    70, #gen tokens =    259, #acc tokens =   167"
)
COUNTERS = """# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 200.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 800.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 390.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 160.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 110.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 70.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="3"} 50.0
"""


def explain(text, gamma=None):
    """Return the library's reading, after the page's reader has given the same, errors included."""
    [page] = evaluate("log_line", [{"name": "explain", "args": [text, gamma]}])
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


def near(values, wanted, digits=2):
    assert [round(value, digits) for value in values] == list(wanted)


@pytest.mark.parametrize(
    ("rates", "tau", "profile"),
    [
        ("0.821, 0.609, 0.437", 2.87, (0.82, 0.74, 0.72)),
        ("0.58, 0.34, 0.22, 0.15, 0.11", 2.40, (0.58, 0.59, 0.65, 0.68, 0.73)),
        (
            "0.762, 0.616, 0.512, 0.425, 0.366, 0.311, 0.273, 0.237",
            4.50,
            (0.76, 0.81, 0.83, 0.83, 0.86, 0.85, 0.88, 0.87),
        ),
    ],
)
def test_a_line_of_vllm_holds_unconditional_rates(rates, tau, profile):
    gamma = rates.count(",") + 1
    accepted = round(1000 * sum(map(float, rates.split(","))))
    line = VLLM.format(
        tau=tau, accepted=accepted, drafted=1000 * gamma, rates=rates, share=100 * (tau - 1) / gamma
    )
    reading = explain(line)
    assert reading.tau == tau and reading.gamma == gamma and not reading.alpha_is_fitted
    near(reading.profile, profile)
    assert reading.drafted_acceptance < reading.alpha, "drafts behind a rejection are counted"
    assert theory.tokens_from_profile(reading.profile) == pytest.approx(tau, abs=0.01)
    assert not any("1 + Σ" in note for note in reading.notes)


def test_positions_that_are_never_accepted_are_named():
    line = VLLM.format(tau=1.9, accepted=90, drafted=400, rates="0.6, 0.3, 0.0, 0.0", share=22.5)
    assert any("from position 3 on" in note for note in explain(line).notes)


def test_a_length_that_its_own_rates_contradict_is_told():
    line = VLLM.format(tau=3.9, accepted=62, drafted=100, rates="0.6, 0.3, 0.1", share=33)
    assert any("1 + Σ rates by position = 2.00" in note for note in explain(line).notes)


def test_the_last_of_several_lines_counts():
    first = VLLM.format(tau=1.5, accepted=5, drafted=10, rates="0.5", share=50)
    last = VLLM.format(tau=1.8, accepted=8, drafted=10, rates="0.8", share=80)
    assert explain(first + "\n" + last).tau == 1.8


def test_counters_are_summed_over_labels():
    reading = explain(COUNTERS)
    assert reading.tau == pytest.approx(1 + 390 / 200) and reading.gamma == 4
    assert reading.rates == (0.8, 0.55, 0.35, 0.25)
    assert reading.drafted_acceptance == pytest.approx(390 / 800)
    twice = COUNTERS + COUNTERS.replace('engine="0"', 'engine="1"')
    assert explain(twice).tau == reading.tau and explain(twice).rates == reading.rates


def test_the_server_of_llama():
    reading = explain(LLAMA)
    assert reading.tau == 2.92 and reading.gamma == 3
    assert reading.drafted_acceptance == pytest.approx(167 / 259)
    assert 1 + 167 / 87 == pytest.approx(2.92, abs=0.005), "the bonus token is in it"
    near(reading.profile, (0.81, 0.79, 0.76))


def test_an_older_server_leaves_out_the_rounds():
    reading = explain("draft acceptance rate = 0.57576 (  171 accepted /   297 generated)")
    assert reading.tau is None and reading.alpha is None
    assert reading.drafted_acceptance == pytest.approx(171 / 297)
    assert "number of drafts" in reading.missing[0]
    newer = "draft acceptance = 0.57576 (171 accepted / 297 generated), mean len = 2.71"
    assert explain(newer).tau == 2.71


def test_cumulative_statistics_of_llama_are_not_mixed_with_a_request():
    """A request's accepted tokens, divided by the drafts of all requests, gave 2.75 for 3.12."""
    request = "draft acceptance = 0.70667 (  106 accepted /   150 generated)"
    statistics = (
        "statistics {}: #calls(b,g,a) = 2 137 137, #gen drafts = {}, #acc drafts = 9,"
        " #gen tokens = {}, #acc tokens = {}"
    )
    text = "\n".join(
        (request, statistics.format("draft", 100, 300, 200), statistics.format("ngram", 20, 40, 10))
    )
    reading = explain(text)
    assert reading.engine == "llama.cpp, server statistics"
    assert reading.tau == pytest.approx(1 + 210 / 120)
    assert reading.drafted_acceptance == pytest.approx(210 / 340)
    assert any("draft, ngram" in note for note in reading.notes)


def test_timings_of_llama_tell_the_passes():
    timings = {"timings": {"predicted_n": 200, "draft_n": 347, "draft_n_accepted": 65}}
    reading = explain("curl prints " + json.dumps(timings))
    assert reading.tau == pytest.approx(200 / 135)
    assert reading.drafted_acceptance == pytest.approx(65 / 347)
    rounds = {"draft_kind": "mtp", "draft_rounds": 30, "draft_n": 90, "draft_n_accepted": 81}
    mlx = explain(json.dumps(rounds | {"predicted_n": 999}))
    assert mlx.tau == pytest.approx(3.7) and mlx.engine == "mlx-vlm, timings"
    example = "n_drafted = 347\nn_predict = 200\nn_accept = 65"
    assert explain(example).tau == pytest.approx(reading.tau)
    limited = explain(example + "\nn_draft = 8")
    assert limited.gamma == pytest.approx(347 / 135)
    assert any("at most 8" in note for note in limited.notes)


def test_sglang_prints_a_length_and_the_rest_is_solved():
    line = "Decode batch. #running-req: 32, #token: 7352, accept len: 2.54, gen throughput: 39.33"
    reading = explain(line)
    assert reading.tau == 2.54 and reading.gamma is None and reading.alpha is None
    assert any("give gamma=" in text for text in reading.missing)
    solved = explain(line, gamma=4)
    assert solved.alpha_is_fitted
    assert theory.expected_tokens(solved.alpha, 4) == pytest.approx(2.54)


@pytest.mark.parametrize(
    ("rate", "meaning"), [(1.7 / 4, "accepted ÷ drafted"), (2.7 / 5, "(accepted + 1)")]
)
def test_a_rate_of_sglang_is_read_by_the_release_that_printed_it(rate, meaning):
    reading = explain(f"accept len: 2.70, accept rate: {rate:.3f}, gen throughput: 39.33")
    assert reading.gamma == 4 and any(meaning in note for note in reading.notes)
    assert reading.drafted_acceptance == pytest.approx(1.7 / 4)


def test_a_rate_of_sglang_that_fits_both_meanings_is_not_used():
    reading = explain("accept len: 2.54, accept rate: 0.51, gen throughput: 39.33")
    assert reading.gamma is None and any("give gamma=" in note for note in reading.notes)
    assert explain("accept len: 4.00, accept rate: 1.00").gamma == 3, "both meanings agree here"


@pytest.mark.parametrize("gamma", [3, 5])
def test_other_pages_of_sglang(gamma):
    page = (
        'sglang:spec_accept_length{model_name="m"} 2.6\n'
        f'sglang:spec_accept_rate{{model_name="m"}} {1.6 / gamma:.4f}\n'
    )
    reading = explain(page)
    assert reading.engine == "SGLang, metrics page" and reading.tau == 2.6
    assert reading.gamma == gamma
    meta = {"spec_verify_ct": 40, "completion_tokens": 100, "spec_accept_length": None}
    reading = explain(json.dumps({"meta_info": meta}), gamma)
    assert reading.tau == 2.5 and reading.engine == "SGLang, meta_info"
    bench = "Concurrency:        1.00\nAccept length:                           2.61      \n"
    assert explain(bench, gamma).tau == 2.61


def test_a_request_of_sglang_with_a_histogram():
    meta = {
        "spec_verify_ct": 43,
        "completion_tokens": 106,
        "spec_accept_length": 2.4651162790697674,
        "spec_num_correct_drafts": 63,
        "spec_num_proposed_drafts": 215,
        "spec_correct_drafts_histogram": [11, 14, 11, 4, 0, 3],
    }
    reading = explain(json.dumps(meta))
    assert reading.gamma == 5 and reading.drafted_acceptance == pytest.approx(63 / 215)
    assert 1 + sum(reading.rates) == pytest.approx(reading.tau) and not reading.alpha_is_fitted


def test_the_older_log_line_of_vllm():
    line = (
        "INFO metrics.py:455] Speculative metrics: Draft acceptance rate: 0.650, System efficiency:"
        " 0.580, Number of speculative tokens: 4, Number of accepted tokens: 260, Number of draft"
        " tokens: 400, Number of emitted tokens: 290."
    )
    reading = explain(line)
    assert reading.gamma == 4 and reading.tau == pytest.approx(2.9)
    assert reading.drafted_acceptance == pytest.approx(0.65)
    assert reading.alpha == reading.drafted_acceptance and not reading.alpha_is_fitted


def test_counters_with_an_exponent():
    page = COUNTERS.replace(" 200.0", " 1.5e+06").replace(" 800.0", " 6e+06")
    reading = explain(page.replace(" 390.0", " 2.805e+06"))
    assert reading.tau == pytest.approx(2.87) and reading.gamma == 4


def test_tensorrt_and_a_request_of_vllm():
    stats = {
        "numDraftTokens": 30,
        "numAcceptedTokens": 18,
        "numRequestsWithDraftTokens": 10,
        "acceptanceLength": 2.8,
    }
    reading = explain(json.dumps({"iter": 7, "specDecodingStats": stats}))
    assert reading.tau == 2.8 and reading.gamma == 3 and reading.alpha_is_fitted
    request = {"mean_acceptance_length": 2.1, "acceptance_histogram": [3, 4, 2, 1]}
    reading = explain(json.dumps({"metrics": {"speculative_decoding": request}}))
    near(reading.rates, (0.7, 0.3, 0.1), 9)
    near(reading.profile, (0.7, 0.43, 0.33))


def test_a_full_acceptance_is_alpha_one():
    assert explain("accept len: 5.00", gamma=4).alpha == 1.0


@pytest.mark.parametrize("text", ["", "  ", "tokens per second: 33", "{'a': 1}", None])
def test_what_cannot_be_read_names_what_can(text):
    with pytest.raises(ValueError, match="SpecDecoding metrics"):
        explain(text)


@pytest.mark.parametrize(
    "content",
    [
        {"timings": {"predicted_n": 20, "draft_n": None, "draft_n_accepted": 6}},
        {"specDecodingStats": {"numDraftTokens": 30, "numAcceptedTokens": None}},
    ],
)
def test_null_values_are_missing_values(content):
    assert explain(json.dumps(content)).drafted_acceptance is None


def test_values_that_are_no_numbers_and_deep_objects_are_refused():
    with pytest.raises(ValueError, match="drafted is 'many'"):
        explain('{"timings": {"predicted_n": 20, "draft_n": "many", "draft_n_accepted": 6}}')
    with pytest.raises(ValueError, match="text="):
        explain('{"a":' * 100_000)


def test_numbers_that_cannot_be_true_are_refused():
    with pytest.raises(ValueError, match="must be in"):
        explain("accept len: 2.5, accept rate: 1.31")
    with pytest.raises(ValueError, match="it is ≥ 1"):
        explain("accept len: 0.8", gamma=4)


def test_the_report_says_which_number_is_which():
    text = str(explain(LLAMA))
    assert "accepted ÷ tested" in text and "accepted ÷ drafted" in text and "2.92" in text
    assert explain(LLAMA).to_dict()["engine"] == "llama.cpp, server"


# What engines print in 2026 ----------------------------------------------------------------------

DSPARK = (
    "Decode batch, #running-req: 8, accept len: 2.10, accept rate: 0.16, cap len: 4.20, block accept"
    " len: 3.40, est uncap acc len: 3.30 [3.20, 3.40], cuda graph: True"
)


def test_a_capped_line_of_sglang_keeps_its_three_lengths_apart():
    reading = explain(DSPARK)
    assert reading.tau == 2.1 and reading.gamma == 7, "not the length of the whole block"
    assert theory.expected_tokens(reading.alpha, 7) == pytest.approx(3.4), "α is the whole block's"
    assert any("3.20 drafts per round were verified" in note for note in reading.notes)
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


def test_drafts_of_one_length_have_a_profile():
    rates = [0.8**i for i in range(1, 5)]
    line = VLLM.format(
        tau=round(1 + sum(rates), 2),
        accepted=round(1e5 * sum(rates)),
        drafted=400_000,
        rates=", ".join(f"{rate:.3f}" for rate in rates),
        share=round(25 * sum(rates), 1),
    )
    near(explain(line).profile, (0.8,) * 4)


def test_lines_without_acceptance_are_refused_with_the_reason():
    line = (
        "DiffusionDecoding metrics: Committed token throughput: 9.00 tokens/s, Committed: 9 tokens"
    )
    with pytest.raises(ValueError, match="denoising"):
        explain(line)


def test_a_request_of_tensorrt_has_its_own_name():
    metrics = {
        "acceptance_rate": 0.5,
        "total_accepted_draft_tokens": 30,
        "total_draft_tokens": 60,
        "num_spec_steps": 20,
        "acceptance_histogram": [8, 0, 6, 6],
        "num_spec_tokens": 3,
    }
    reading = explain(json.dumps({"choices": [{"speculative_decoding": metrics}]}))
    assert reading.engine == "TensorRT-LLM, metrics of a request"
    assert reading.tau == 2.5 and reading.gamma == 3 and reading.rates == (0.6, 0.6, 0.3)


def request_of_vllm(histogram, drafted):
    rounds, accepted = sum(histogram), sum(i * count for i, count in enumerate(histogram))
    return {
        "mean_acceptance_length": 1 + accepted / rounds,
        "draft_acceptance_rate": accepted / drafted,
        "acceptance_histogram": histogram,
        "num_spec_steps": rounds,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": len(histogram) - 1,
    }


def test_a_pooled_length_is_told_from_the_mean_over_requests():
    long, short = request_of_vllm([30, 10, 0, 0], 120), request_of_vllm([0, 0, 0, 2], 6)
    wrap = [{"metrics": {"speculative_decoding": each}} for each in (long, short)]
    lines = "\n".join(map(json.dumps, wrap))
    for text in (lines, json.dumps({"responses": wrap})):
        reading = explain(text)
        assert reading.tau == pytest.approx(1 + 16 / 42) and "pooled" in reading.definition
        assert any("mean of their lengths is 2.62" in note for note in reading.notes)
    assert "one request" in explain(json.dumps(wrap[0])).definition
    iterations = [
        {"numDraftTokens": 30, "numAcceptedTokens": n, "numRequestsWithDraftTokens": 10}
        for n in (18, 0)
    ]
    text = "\n".join(json.dumps({"specDecodingStats": each}) for each in iterations)
    assert explain(text).tau == pytest.approx(1 + 18 / 20)


def test_old_vllm_tests_all_drafts_and_no_note_says_the_opposite():
    line = (
        "Speculative metrics: Draft acceptance rate: 0.607, System efficiency: 0.510, Number of"
        " speculative tokens: 4, Number of accepted tokens: 51953, Number of draft tokens: 85588,"
        " Number of emitted tokens: 54566."
    )
    notes = explain(line).notes
    assert any("tests drafts after a rejection too" in note for note in notes)
    assert not any("never tested" in note for note in notes)


SPECULATION = {"acceptance_histogram": [0, 0, 0], "num_spec_steps": 0, "num_draft_tokens": 0}
NOTHING_DRAFTED = {
    "llama.cpp's server": "draft acceptance = -nan (    0 accepted /     0 generated), mean len =  1.00",
    "its older line": "draft acceptance rate = -nan ( 0 accepted / 0 generated)",
    "its line on Windows": "draft acceptance = -nan(ind) (    0 accepted /     0 generated)",
    "its statistics": "statistics draft: #calls(b,g,a) = 1 0 0, #gen drafts = 0, #acc drafts = 0, #gen"
    " tokens = 0, #acc tokens = 0",
    "its examples": "n_draft = 8\nn_predict = 128\nn_drafted = 0\nn_accept = 0\naccept = nan%",
    "its timings": json.dumps({"timings": {"predicted_n": 9, "draft_n": 0, "draft_n_accepted": 0}}),
    "vLLM's line": VLLM.format(tau="nan", accepted=0, drafted=0, rates="", share="nan"),
    "vLLM's counters": re.sub(r" [\d.]+$", " 0.0", COUNTERS, flags=re.MULTILINE),
    "vLLM's example": "num_drafts: 0\nnum_draft_tokens: 0\nnum_accepted_tokens: 0",
    "vLLM's benchmark": "Acceptance rate (%): 0.00\nAcceptance length: 1.00\nDrafts: 0\nDraft tokens:"
    " 0\nAccepted tokens: 0",
    "vLLM before version 1": "Speculative metrics: Draft acceptance rate: nan, Number of speculative"
    " tokens: 4, Number of accepted tokens: 0, Number of draft tokens: 0, Number of emitted tokens: 0",
    "a request of vLLM": json.dumps({"x": SPECULATION | {"mean_acceptance_length": 0.0}}),
    "TensorRT-LLM": json.dumps({"specDecodingStats": {"numDraftTokens": 0, "acceptanceLength": 0}}),
    "SGLang": json.dumps({"spec_verify_ct": 0, "spec_draft_token_num": 0, "completion_tokens": 9}),
}


@pytest.mark.parametrize("engine", NOTHING_DRAFTED)
def test_a_text_without_drafts_says_so(engine):
    reading = explain(NOTHING_DRAFTED[engine])
    assert reading.alpha is None and reading.drafted_acceptance is None
    assert reading.missing[0] == "drafts: nothing was drafted, so no rate follows"


def test_a_length_of_zero_after_drafts_is_refused():
    text = json.dumps({"specDecodingStats": {"numDraftTokens": 9, "acceptanceLength": 0}})
    with pytest.raises(ValueError, match="add 1 to a length without it"):
        explain(text)


def test_lines_of_two_periods_are_not_mixed():
    old = "accept len: 3.00, accept rate: 0.50, gen throughput: 9\n"
    assert explain(old + "accept len: 2.00, gen throughput: 9").drafted_acceptance is None


# What contradicts itself is refused or said ------------------------------------------------------


@pytest.mark.parametrize("gamma", [0, -1, 1.5, "3", float("nan"), 2000, [4], True])
def test_gamma_is_checked(gamma):
    with pytest.raises(ValueError, match="gamma="):
        metrics.explain("accept len: 2.54", gamma)


@pytest.mark.parametrize(
    ("text", "gamma", "words"),
    [
        ("accept len: 2.54", 1, "allows a length of 2"),
        ("[AR] AVERAGE: 2.41", 1, "allows a length of 2"),
        (LLAMA, 5, "3 rates by position"),
        ("accept len: 2.70, accept rate: 0.425", 3, "the text has γ = 4"),
        (json.dumps(request_of_vllm([1, 1], 90)), None, "drafted tokens per round"),
        ("accept len: 1e308, accept rate: 0.5", None, "must be at most"),
        ('{"draft_n_accepted": "x", "predicted_n": 5}', None, "accepted is 'x'"),
        ('{"spec_verify_ct": "x", "completion_tokens": 5}', None, "drafts is 'x'"),
        ('{"acceptance_histogram": [1, {}]}', None, "list of counts"),
        ("accept len: 0.8", 4, "add 1"),
        (
            "Speculative metrics: Number of speculative tokens: 999999999, Number of draft tokens: 9",
            None,
            "must be at most",
        ),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(text, gamma, words):
    with pytest.raises(ValueError, match=words):
        explain(text, gamma)


def test_a_printed_rate_that_is_not_its_own_ratio_is_said():
    line = VLLM.format(tau=2.0, accepted=100, drafted=200, rates="0.6, 0.4", share=80)
    assert any("is not accepted ÷ drafted" in note for note in explain(line).notes)
    right = VLLM.format(tau=2.0, accepted=100, drafted=200, rates="0.6, 0.4", share=50)
    assert not any("is not accepted" in note for note in explain(right).notes)


FORMATS = [
    VLLM.format(tau=2.4, accepted=140, drafted=500, rates="0.58, 0.34, 0.22, 0.15, 0.11", share=28),
    LLAMA,
    COUNTERS,
    DSPARK,
    "#questions: 80, Throughput: 378.57 token/s, Acceptance length: 5.39",
    "[AR] AVERAGE: 2.41",
    json.dumps(request_of_vllm([3, 4, 2, 1], 30)),
    json.dumps({"spec_verify_ct": 43, "completion_tokens": 106, "spec_accept_histogram": [11, 14]}),
    json.dumps({"timings": {"predicted_n": 200, "draft_n": 347, "draft_n_accepted": 65}}),
]


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
    pages = evaluate("log_line", [{"name": "explain", "args": [*case]} for case in cases])
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


@pytest.mark.parametrize(
    "text",
    [
        'vllm:spec_decode_num_accepted_tokens_per_pos{position="1"' * (SIZE // 57),
        "spec_decode_num_drafts{" * (SIZE // 23),
        "sglang:spec_accept_length{" * (SIZE // 26),
        json.dumps({"tokens": [0] * SIZE, "draft_n_accepted": 1, "draft_n": 3, "predicted_n": 5}),
        '{"a":' * (SIZE // 5),
        '{"a":' * (SIZE // 6) + "1" + "}" * (SIZE // 6),
        "{" * SIZE,
        "statistics " * (SIZE // 11),
        "accept len: " + "1" * SIZE,
        "SpecDecoding metrics: Per-position acceptance rate: " + "0.5, " * (SIZE // 5),
    ],
    ids=[
        "labels",
        "drafts",
        "gauges",
        "list",
        "nested",
        "deep",
        "braces",
        "words",
        "digits",
        "rates",
    ],
)
def test_large_texts_are_read_or_refused(text):
    """Texts whose reading took seconds to days when the work grew with their square or cube."""
    try:
        assert metrics.explain(text).engine
    except ValueError:
        pass
    [page] = evaluate("log_line", [{"name": "explain", "args": [text, None]}])
    assert page


def test_a_text_above_a_million_characters_is_refused():
    with pytest.raises(ValueError, match="at most 1000000"):
        explain("accept len: 2.5 " * 70_000)


LINES = json.loads((Path(__file__).parent / "lines.json").read_text("utf-8"))
"""Texts of engines, γ if it must be given, and their engine, τ, τ over all steps and γ."""


@pytest.mark.parametrize(("text", "given", "engine", "tau", "tau_all", "gamma"), LINES)
def test_a_line_of_an_engine(text, given, engine, tau, tau_all, gamma):
    reading = explain(text, given)
    found = (reading.engine, reading.tau, reading.tau_all, reading.gamma)
    assert found == (engine, *(v and pytest.approx(v, abs=1e-3) for v in (tau, tau_all, gamma)))
    assert ("over all steps" in str(reading)) == (tau_all is not None)
    if given:
        assert theory.expected_tokens(reading.alpha, given) == pytest.approx(tau)
