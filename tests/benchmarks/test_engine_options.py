"""The engines' option lists: how they are read, the tables made of them, and the pages' lines."""

import json
import re
import shlex

import numpy as np
import pytest

from benchmarks import engine_options as made
from specdec_book import recordings

OPTIONS = json.loads(made.PATH.read_text("utf-8"))
ENGINES = OPTIONS["engines"]
SERVE = (made.ROOT / "book" / "serve.md").read_text("utf-8")
LATER = {"extract_hidden_states"}
"""Names that an engine lists among its methods and that draft nothing."""

VLLM = """
MTPModelTypes = Literal["deepseek_mtp", "mtp"]
Eagle = Literal["eagle", MTPModelTypes]
SpeculativeMethod = Literal["ngram", Eagle]
RejectionSampleMethod = Literal["standard", "fly"]
DraftSampleMethod = Literal["greedy"]
class SpeculativeConfig:
    model: str | None = None
    target: SkipValidation[ModelConfig] = None
"""
ARGUMENTS = 'group.add_argument("--speculative-config", **kwargs)'
ARG_CPP = """
add_opt(common_arg({"--spec-draft-n-max"}, "N", "number", [](int value) {}));
add_opt(common_arg({"-m", "--model"}, "FNAME", "model", [](int value) {}));
add_opt(common_arg({"--draft", "--draft-max"}, "N", "removed", [](int v) { arg_removed("x"); }));
"""


def source(**files):
    """Return a function that gives the text of a file by a part of its path; "" for others."""
    return lambda path: next((text for name, text in files.items() if name in path), "")


def test_the_lists_of_vllm_are_read_from_its_source():
    lists = made.read_vllm(source(speculative=VLLM, arg_utils=ARGUMENTS))
    assert lists["methods"] == ["eagle", "mtp", "ngram"] and lists["options"] == ["model"]
    assert lists["names of mtp"] == ["deepseek_mtp"] and lists["other"] == ["--speculative-config"]
    assert lists["values"]["rejection_sample_method"] == ["standard", "fly"]


def test_removed_flags_of_llama_server_are_told_from_the_others():
    lists = made.read_llama(
        source(speculative='{"none", COMMON_SPECULATIVE_TYPE_NONE}, {"ngram-mod", '
               "COMMON_SPECULATIVE_TYPE_NGRAM_MOD}", arg=ARG_CPP)
    )  # fmt: skip
    assert lists["methods"] == ["ngram-mod"] and lists["removed"] == ["--draft", "--draft-max"]
    assert lists["options"] == ["--spec-draft-n-max"] and "-m" in lists["other"]


def test_flags_of_sglang_have_their_aliases_and_no_help_texts():
    spec = """
class Spec:
    speculative_num_steps: A[Optional[int], Arg(help="see --other", aliases=["--steps"])] = None
    _inner: A[int, "not a flag"] = 1
    hidden: A[int, Arg(no_cli=True)] = 1
"""
    enum = "class SpeculativeAlgorithm(Enum):\n    EAGLE = auto()\n    NONE = auto()\n"
    lists = made.read_sglang(source(**{"spec_info.py": enum, "fields/spec.py": spec}))
    assert lists["methods"] == ["EAGLE", "NEXTN"]
    assert lists["options"] == ["--speculative-num-steps", "--steps"]


@pytest.mark.parametrize("name", made.PAGES)
def test_the_tables_on_the_pages_are_those_of_the_lists(name):
    page = (made.ROOT / name).read_text("utf-8")
    assert page == made.with_blocks(page, made.blocks(OPTIONS)), (
        "run: python -m benchmarks.engine_options"
    )


def test_a_changed_list_changes_the_table():
    changed = json.loads(json.dumps(OPTIONS))
    changed["engines"]["vllm"]["methods"].remove("dspark")
    assert made.blocks(changed)["engine-methods"] != made.blocks(OPTIONS)["engine-methods"]


def test_every_method_that_an_engine_lists_has_a_row():
    for engine in ("vllm", "sglang", "llama.cpp", "tensorrt-llm"):
        rows = {name for names in made.METHODS.values() for name in names.get(engine, ())}
        assert set(ENGINES[engine]["methods"]) - LATER <= rows, engine


# The command lines of the page -------------------------------------------------------------------


def test_every_flag_and_type_of_llama_server_is_listed():
    """The two other engines' own parsers accepted their lines, keys and values: see below."""
    engine, entry = made.ENGINES["llama.cpp"], ENGINES["llama.cpp"]
    lines = engine.lines()
    types = {name for line in lines for name in line[line.index("--spec-type") + 1].split(",")}
    assert types <= set(entry["methods"]) and len(types) >= 3
    assert len(lines) >= 3 and engine.flags() <= {*entry["options"], *entry["other"]}
    removed = set(entry["removed"])
    assert removed and not any(removed & set(line) for line in lines)


def test_every_algorithm_of_sglang_is_listed():
    """Its parser takes any word there."""
    lines = made.ENGINES["sglang"].lines()
    algorithms = {line[line.index("--speculative-algorithm") + 1] for line in lines}
    assert algorithms <= set(ENGINES["sglang"]["methods"]) and len(algorithms) >= 3


joined = lambda body: shlex.join(shlex.split(body.replace("\\\n", "")))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_line_is_marked_as_parsed_if_the_parser_accepted_it(engine):
    parsed, command = OPTIONS["parsed"][engine], made.ENGINES[engine].command
    assert parsed["version"] == ENGINES[engine]["version"]
    blocks = re.findall(r"([^\n]+)\n\n```bash\n(.*?)```", SERVE, re.S)
    marked = [(before, joined(body)) for before, body in blocks if command in body]
    assert len(marked) == len(parsed["lines"]) >= 4
    for before, line in marked:
        assert f"{parsed['version']}, parsed.**" in before and line in parsed["lines"], line


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_what_happens_at_start_is_stated_beside_the_line(engine):
    """The results are those of `benchmarks.start_checks`, which runs the engines' own functions."""
    parsed = OPTIONS["parsed"][engine]
    after = dict(re.findall(r"```bash\n(.*?)```\n\n\*At start:\* ([^\n]*)", SERVE, re.S))
    stated = {joined(body): text for body, text in after.items()}
    assert len(parsed["starts"]) == len(parsed["lines"])
    for line, found in zip(parsed["lines"], parsed["starts"]):
        assert not found.get("starts", "").startswith("stops"), (line, found)
        text = stated.get(line, "")
        if text and "runner" in found:
            assert f"{found['runner']} runner" in text and found["async"] == ("async" in text)
            assert ("schedule kept" in text) == (found["schedule"] == "kept")
        assert ("positions" in found) <= (not text or "raises" in text)
    v1 = [line for line, f in zip(parsed["lines"], parsed["starts"]) if f.get("runner") == "V1"]
    assert all("suffix" in line for line in v1) and "fall back to the V1 model runner" in SERVE
    with_variable = [f for f in parsed["starts"] if f.get("starts") == "yes, with the variable"]
    assert len(with_variable) == (3 if engine == "sglang" else 0)


def test_names_in_the_text_are_listed():
    """Every quoted key, flag or variable of an engine on the page is in an engine's list."""
    names = {name for engine in ENGINES for name in made.listed(OPTIONS, engine)}
    names |= {name for entry in ENGINES.values() for name in entry.get("other") or ()}
    names |= {name for entry in ENGINES.values() for name in entry.get("removed") or ()}
    prose = re.sub(r"```.*?```", "", SERVE, flags=re.S)
    quoted = set(re.findall(r"`\"?((?:--spec|--speculative|SGLANG_)[\w-]+)", prose))
    quoted |= set(re.findall(r"`\"(\w+)\":", prose))
    assert len(quoted) > 10 and quoted - names == set()


def test_the_stored_lists_name_their_source_and_date():
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", OPTIONS["date"])
    assert all(entry["version"] and entry["source"] for entry in ENGINES.values())


@pytest.mark.parametrize("name", recordings.names("engines"))
def test_recorded_engines_agree_with_ours(name):
    """A text may differ from ours only at a near-tie.

    Other engines count drafts past the end of a text, which this library does not draft. The rates
    of later positions may therefore differ in texts of 24 tokens.
    """
    data = recordings.load(name).data
    for engine, methods in data["engines"]["pair"].items():
        for method, row in methods.items():
            assert all(each["gap"] < 1e-3 for each in row["differences"]), (engine, method)
    mine, theirs = (data["engines"]["pair"][side] for side in ("ours", "vllm"))
    own = {"plain", "lookup", "suffix"}  # each engine implements these differently
    for method in {*mine} & {*theirs} - own:
        assert mine[method]["rates"][0] == pytest.approx(theirs[method]["rates"][0], abs=0.05)
        assert np.allclose(mine[method]["rates"], theirs[method]["rates"], atol=0.1), method
    for row in data["load"]["rows"]:  # as chapter 17 states
        assert abs(row["error"]) < 0.15 and row["error_apart"] > row["error"]
