"""The page book/serve.md: its command lines are valid, and its numbers equal the library's."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from benchmarks.start_checks import option
from specdec_book import recordings
from specdec_book.recordings import forecasts
from specdec_lite import theory
from specdec_lite.diagnosis.metrics import explain
from specdec_lite.simulation import advice, sizes
from specdec_lite.simulation.estimate import GENERATIONS, bench_times, estimate, from_times

PAGE = (Path(__file__).parents[2] / "book" / "serve.md").read_text("utf-8")
TEXT = " ".join(PAGE.split())
CHECK = r"(?:build )?[\d.rc]+, (?:parsed|listed|from documentation)"
MARK = re.compile(rf"\*\*[\w.-]+ ({CHECK}(?:; {CHECK})*)\.\*\*$")
LINES = PAGE.split("## 4. Paste a line")[1].split("## 5.")[0]
SITUATIONS = PAGE.split("## 1. Find your situation")[1].split("## 2.")[0]
BLOCKS = [
    block
    for block in re.findall(r"([^\n]+)\n\n```(bash|yaml)\n(.*?)```", SITUATIONS + LINES, re.S)
    if not block[2].startswith(("llama-bench", "python -m specdec_lite"))
]


def split_command(body: str) -> list[str]:
    """Split a command as a shell does, which drops a backslash at the end of a line."""
    return shlex.split(body.replace("\\\n", ""))


def commands(name: str) -> list[list[str]]:
    """Return the arguments of every command on the page that begins with `name`.

    A variable before a command is left out.
    """
    split = [split_command(body) for _, kind, body in BLOCKS if kind == "bash"]
    split = [words[1:] if words[0].startswith("SGLANG_") else words for words in split]
    return [words for words in split if " ".join(words).startswith(name)]


# The command lines ------------------------------------------------------------------------------


@pytest.mark.parametrize("block", BLOCKS, ids=[body.split("\n")[0][:30] for *_, body in BLOCKS])
def test_every_line_states_its_version_and_whether_it_was_parsed(block):
    before, kind, _ = block
    mark = MARK.search(before)
    assert mark, before
    assert ("from documentation" in mark[1]) == (kind == "yaml")


def test_every_engine_has_a_line():
    counts = [len(commands(name)) for name in ("vllm serve", "python -m sglang", "llama-server")]
    assert counts == [9, 5, 3] and sum(kind == "yaml" for _, kind, _ in BLOCKS) == 1


FOLDS = re.findall(r"````\{dropdown\} (.*?)\n(.*?)````\n", SITUATIONS, re.S)


def test_each_situation_has_the_seven_rows_in_one_order():
    titles = [each["title"] for each in advice.TABLE["situations"]]
    cards = {title: body for title, body in FOLDS if title in titles}
    assert list(cards) == titles and len(titles) == 9
    for title, body in cards.items():
        rows = re.findall(r"^\*\*(.+?)\.\*\*", body, re.M)
        assert rows == advice.ROWS, title
        assert body.count("\n1. ") == body.count("\n3. ") == 1, title
        gain = re.search(r"\*\*Gain\.\*\*(.*)", body)[1]
        assert "Published: " in gain and ("](https://" in gain or "obody has published" in gain)


def test_an_input_outside_the_menus_is_named():
    wrong = {"target": "gpt-2", "kind": "poem", "engine": "ollama", "batch": 513, "context": 0}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"^{name}={value!r}: must be"):
            advice.card(advice.TABLE["situations"][0]["inputs"] | {name: value})


def test_a_card_promises_no_gain_for_an_acceptance_that_nobody_measured():
    inputs = advice.TABLE["situations"][0]["inputs"]
    gain = lambda **more: dict(advice.card(inputs | more))["Gain"]
    coin = {"tau": 3.5, "gamma": 3, "speedup": 1.5}
    assert "**pays**" in gain(alpha=0.65) and "**pays**" in gain(**coin, alpha=0.8)
    for text in (gain(), gain(**coin)):
        assert "**pays**" not in text and "assumed, not measured" in text
    gamma, least = re.search(r"γ = (\d).*at least ([\d.]+)", gain()).groups()
    load = *advice.networks(advice.state_of(inputs)), float(least), int(gamma), 32, 1024
    assert estimate(*load, engine=GENERATIONS["vllm"]).low == pytest.approx(1, abs=0.01)


def test_every_expert_must_fit_and_an_unstated_length_is_called_unstated():
    inputs = advice.TABLE["situations"][1]["inputs"]
    assert "# no line" in dict(advice.card(inputs | {"machine": "rtx-4090"}))["Line"]
    unknown = {"target": "qwen3-32b", "context": 32768, "kind": "chat"}
    do = dict(advice.card(inputs | unknown))["Do this"]
    assert "not stated" in do and "longer than" not in do


def test_a_card_names_the_batches_up_to_which_the_band_promises_a_gain():
    inputs = advice.TABLE["situations"][0]["inputs"]
    gamma, last = map(int, re.search(r"γ = (\d), the band lies above 1 up to (\d+)", TEXT).groups())
    known = advice.networks(advice.state_of(inputs))
    at = lambda batch: estimate(*known, 0.65, gamma, batch, 1024, engine=GENERATIONS["vllm"])
    assert at(last).low >= 1 > at(last + 1).low
    gain = dict(advice.card(inputs | {"batch": 256}))["Gain"]
    assert "drafts nothing at 256" in gain and "at 64 requests" in gain, "the line drafts below 65"
    state = advice.state_of(advice.TABLE["situations"][3]["inputs"]) | {"use": "ngram"}
    load = *advice.networks(state), None, 4, state["batch"], state["context"]
    e = estimate(*load, tau=1.0, engine=GENERATIONS["vllm"])
    assert f"is below {e.break_even:.2f} by the sizes, or {1 / e.low:.2f} at the band's" in TEXT


def test_the_sizes_of_the_box_are_the_librarys():
    table = advice.TABLE
    for name, network in table["networks"]["target"].items():
        assert network == asdict(sizes.MODELS[name])
    for kind, heads in (("eagle3", sizes.EAGLE3), ("dspark", sizes.DSPARK)):
        assert table["networks"][kind] == {n: asdict(heads[n]) for n in table["networks"][kind]}
    assert table["cards"] == {name: asdict(sizes.CARDS[name]) for name in table["cards"]}
    assert table["engines"] == {name: asdict(each) for name, each in GENERATIONS.items()}


def test_the_schedules_of_vllm_fall_to_zero():
    options = [option(words, "--speculative-config") for words in commands("vllm")]
    configs = [json.loads(each) for each in options if each]
    assert all({"method", "num_speculative_tokens"} <= config.keys() for config in configs)
    key = "num_speculative_tokens_per_batch_size"
    schedules = [(each[key], each["num_speculative_tokens"]) for each in configs if key in each]
    assert len(schedules) == 4
    for entries, gamma in schedules:
        begins, ends, lengths = zip(*entries, strict=True)
        assert begins == (1, *(end + 1 for end in ends[:-1])), "no gap, no overlap"
        assert lengths[0] == gamma and lengths[-1] == 0
        assert [*lengths] == sorted(lengths, reverse=True)


def test_draft_tokens_of_sglang_include_the_root():
    chains = [words for words in commands("python -m sglang") if "DFLASH" not in words]
    for words in chains:
        steps = int(option(words, "--speculative-num-steps"))
        assert option(words, "--speculative-eagle-topk") == "1"
        assert int(option(words, "--speculative-num-draft-tokens")) == steps + 1
        has_path = option(words, "--speculative-draft-model-path") is not None
        assert has_path == (option(words, "--speculative-algorithm") == "EAGLE3")
    assert len(chains) == 4
    assert "so 4 means γ = 3" in TEXT


def test_tensorrt_llm_schedules_upper_limits():
    config = next(yaml.safe_load(body) for _, kind, body in BLOCKS if kind == "yaml")
    draft = config["speculative_config"]
    lengths = list(draft["draft_len_schedule"].values())
    assert lengths == sorted(lengths, reverse=True) and lengths[0] == draft["max_draft_len"]
    assert "max_concurrency" not in draft
    phrases = [f"{length} up to {limit}" for limit, length in draft["draft_len_schedule"].items()]
    assert phrases[1] in TEXT and phrases[2] in TEXT


def test_explain_prints_what_the_page_shows():
    body = re.search(r"```bash\n(python -m specdec_lite explain .*?)```", PAGE, re.S)[1]
    reading = explain(split_command(body)[4])
    assert f"τ = {reading.tau}, γ = {reading.gamma:.0f} and α = " in TEXT
    assert f"α = {reading.alpha:.3f}" in TEXT
    assert f"{reading.drafted_acceptance:.1%}".replace("%", " %") in TEXT
    assert f"the cost is 1.6, you gain {reading.tau / 1.6:.2f}×" in TEXT and reading.tau < 2.5


# The numbers --------------------------------------------------------------------------------------


def row(name: str) -> tuple[float, str]:
    """Return (measured, forecast) of the table row that begins with `name`."""
    matches = re.findall(rf"^\| {re.escape(name)}[^|]*\| ([\d.]+) \| (.+?) \|$", PAGE, re.M)
    assert len(matches) == 1, (name, matches)
    return float(matches[0][0]), matches[0][1]


FORECASTS = {
    "Medusa-2, Vicuna-7B": ("medusa2024_table1", "Vicuna-7B", "MT-bench", 1),
    "Medusa-2, Vicuna-33B": ("medusa2024_table1", "Vicuna-33B", "MT-bench", 1),
    "EAGLE-3, Llama-3.1-8B": ("eagle3_table2", "EAGLE-3", "GSM8K", 1),
    "EAGLE-3, Qwen3-8B": ("angelslim_qwen3", "Qwen3-8B", "HumanEval", 1),
    "EAGLE-3, Qwen3-32B": ("angelslim_qwen3", "Qwen3-32B", "MT-bench", 1),
    "EAGLE-3, Qwen3-30B-A3B": ("angelslim_qwen3", "Qwen3-30B-A3B", "MT-bench", 1),
    "MTP, Hy3-295B-A21B, 4 requests": ("angelspec_hy3", "MTP-3", "MT-bench", 4),
    "MTP, Hy3-295B-A21B, 64 requests": ("angelspec_hy3", "MTP-3", "LiveCodeBench", 64),
}
"""Row of the table → source, setting, text and batch of its forecast."""


@pytest.mark.parametrize("name", FORECASTS)
def test_a_row_of_the_table_equals_its_forecast(name: str):
    every = {(e.source, e.setting, e.workload, e.batch): e for e in forecasts.all_forecasts()}
    each = every[FORECASTS[name]]
    assert row(name) == (round(each.measured, 2), f"{each.predicted:.2f}")


def test_ceilings():
    source = forecasts.entry("deepseek_v3_mtp")
    low, high = (theory.expected_tokens(alpha, source["gamma"]) for alpha in source["alpha"])
    assert row("MTP, DeepSeek-V3") == (source["speedup"], f"≤ {low:.2f}–{high:.2f}")
    each = forecasts.records("trtllm_ngram")[0]
    assert row("n-gram, Llama-4-Scout") == (round(each["speedup"], 2), f"≤ {each['tau']:.2f}")


def of_forecasts() -> Iterator[str]:
    """Yield what the page says of all forecasts, and of the worst of two sources."""
    every = forecasts.all_forecasts()
    yield f"All {len(every)} forecasts miss by {forecasts.median_error(every):.1%} at the median"
    yield f"{forecasts.within(every, 0.1)} lie within 10 %"
    plain = [r["plain tokens/s"] for r in forecasts.records("angelspec_hy3") if r["batch"] == 64]
    yield f"differs by {max(plain) / min(plain) - 1:.0%}"
    for source in ("angelslim_qwen3", "angelspec_hy3"):
        group = forecasts.transferred_costs(source)
        each = max(group, key=lambda each: abs(each.error))
        assert {"Qwen3-8B", "LiveCodeBench"} & {each.setting, each.workload}
        yield f"{each.workload} (worst of {len(group)})"


def of_costs() -> Iterator[str]:
    """Yield what the page says of the costs of a round, in plain passes."""
    costs: dict[bool, list[float]] = {True: [], False: []}
    for each in forecasts.records("angelslim_qwen3"):
        costs[each["setting"].endswith("A3B")].append(each["tau"] / each["speedup"])
    mixture, dense = (f"{min(group):.2f} to {max(group):.2f}" for group in costs.values())
    yield f"{dense} plain passes"
    yield f"{mixture} for Qwen3-30B-A3B"
    rows = forecasts.records("consumer_draft_model")
    assert len(rows) == 6
    for each in rows:
        gain, cost = each["speedup"], each["tau"] / each["speedup"]
        yield f"| {each['setting']}, {each['model']} | {cost:.1f} | {gain:.2f}× |"
    taus = [each["tau"] for each in rows]
    yield f"τ is {min(taus):.2f} to {max(taus):.2f} in all rows"
    most = from_times(bench_times({1: 156.56, 4: 470.48}), 0.65, 3)  # llama.cpp 15802, RTX 3090
    yield f"T(4) = {most.break_even:.2f} T(1)"
    yield f"most {most.speedup:.2f}×"


def of_experts() -> Iterator[str]:
    """Yield what the page says of experts in host memory, of which two drafts gain most, and of load."""
    gains = {each["gamma"]: each["speedup"] for each in forecasts.records("llama_cpp_laptop_mtp")}
    one, two, three, four = (f"{gains[gamma]:.2f}×" for gamma in sorted(gains))
    yield f"{one}, {two}, {three} and {four} with 1 to 4 drafts"
    assert max(gains, key=gains.get) == 2
    rows = [r for r in forecasts.records("angelspec_hy3") if r["setting"] == "MTP-3"]
    load = {r["batch"]: f"{r['speedup']:.2f}×" for r in rows if r["workload"] == "GSM8K"}
    yield f"gains {load[4]} at 4 requests and {load[64]} at 64"


def of_speedups_without_a_length() -> Iterator[str]:
    yield " and ".join(f"{each['speedup']:.2f}×" for each in forecasts.records("sglang_eagle"))
    source, (draft,) = forecasts.entry("gptfast_70b"), forecasts.records("gptfast_70b")
    c = draft["plain tokens/s"] / source["draft tokens/s"]
    tau = draft["speedup"] * (1 + source["gamma"] * c)
    alpha = theory.implied_alpha(tau, source["gamma"])
    needs = f"which needs τ = {tau:.2f} at its c of {c:.3f} (α = {alpha:.2f})"
    yield f"{draft['speedup']:.2f}×, {needs.replace(' 0.', ' .')}"
    best, least = (each["speedup"] for each in forecasts.records("specdecode_bench_ends"))
    yield f"{best}× for Llama-3-70B on four cards at batch 1"
    yield f"and {least}× for Llama-3.1-8B at batch 128"
    yield f"8 B200, {forecasts.entry('trtllm_deepseek_r1_mtp')['speedup']}×"
    low, high = forecasts.entry("redhat_gpt_oss")["range"]
    yield f"{low:.2f}× to {high:.2f}×"
    sources = recordings.published("gpu_speedups")["entries"].values()
    assert len([s for s in sources if s["card"][:3] == s["engine"][:3] == "not"]) == 2
    yield "two state neither"


@pytest.mark.parametrize(
    "quotes", [of_forecasts, of_costs, of_experts, of_speedups_without_a_length]
)
def test_the_page_states_the_numbers_of_its_sources(quotes):
    texts = [re.sub(r"(?<=\d)%", " %", text) for text in quotes()]
    assert texts and [text for text in texts if text not in TEXT] == []


def test_the_lines_link_to_their_documentation():
    for part in LINES.split("\n### ")[1:]:
        assert "](https://" in part, part.split("\n")[0]


def test_tables_fit_a_phone():
    heads = re.findall(r"^(\|.+\|)\n\|[-|]+\|$", PAGE, re.M)
    assert len(heads) == 8 and all(head.count("|") <= 4 for head in heads)
    code = re.findall(r"```\w+\n(.*?)```", PAGE, re.S)
    assert max(len(line) for body in code for line in body.splitlines()) <= 66
