"""The engines' command lines: every option is in the engine's own list, and γ is where it counts."""

import json
import shlex

import pytest
from conftest import ROOT

from specdec_lite.diagnosis.commands import METHODS, engine_commands

ENGINES = json.loads((ROOT / "benchmarks" / "engine_options.json").read_text("utf-8"))["engines"]
LISTS = {"SGLang": "sglang", "llama.cpp": "llama.cpp"}


def listed(engine: str) -> set[str]:
    """Return the options that an engine's list names."""
    lists = ENGINES[engine]
    return {*lists["options"], *lists["other"]}


@pytest.mark.parametrize("method", METHODS)
def test_every_option_is_in_the_engines_own_list(method):
    commands = engine_commands("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", 3, method)
    for name, engine in LISTS.items():
        words = shlex.split(commands[name])
        flags = {word for word in words if word.startswith(("-md", "--spec"))}
        assert flags <= listed(engine), flags - listed(engine)
        assert bool(flags) == (method != "suffix")
    algorithm, kind = METHODS[method]
    assert algorithm in [None, *ENGINES["sglang"]["methods"]]
    assert kind in [None, *ENGINES["llama.cpp"]["methods"]]
    config = json.loads(shlex.split(commands["vLLM"])[-1])
    assert config["method"] in ENGINES["vllm"]["methods"]
    assert {*config} - {"method"} <= {*ENGINES["vllm"]["options"]}
    assert ("model" in config) == (method not in ("mtp", "ngram", "suffix"))


def test_gamma_is_the_number_of_drafts_in_each_command():
    commands = engine_commands("my target", "draft", 3)
    assert json.loads(shlex.split(commands["vLLM"])[-1])["num_speculative_tokens"] == 3
    words = shlex.split(commands["SGLang"])
    assert words[words.index("--speculative-num-draft-tokens") + 1] == "4"  # it counts the root
    assert commands["llama.cpp"].endswith(" 3") and "'my target'" in commands["vLLM"]
    assert engine_commands("t", "", 3, "ngram")["llama.cpp"].endswith(" ngram-mod")


def test_without_a_draft_the_target_is_served_alone():
    for command in engine_commands("target", "draft", 0).values():
        assert "spec" not in command and "draft" not in command
