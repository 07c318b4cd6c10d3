"""Run what stops or changes a server at its start, for the lines of "You serve a model", without one.

The functions that decide are cut out of the engines' own files and executed on the lines' settings and
on the lengths that `advice.json` states for targets and heads. `engine_parsers` stores the results
beside the parsed lines in `engine_options.json`, where a test compares them with what the page says.
"""

import ast
import json
import re
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

from specdec_lite.simulation.advice import INPUTS

POSITIONS = {
    draft["repo"]: draft["positions"]
    for target in INPUTS["target"]
    for draft in target["drafts"]
    if "positions" in draft
}
"""Head → its `max_position_embeddings`, where a source states it."""
CONTEXTS = {target["repo"]: target["context"] for target in INPUTS["target"]}
"""Target → its context."""
ASYNC_ON_V1 = ("eagle", "eagle3", "mtp", "ngram_gpu", "draft_model", "dspark", "dflash")
"""Methods with async scheduling on vLLM's V1 runner: config/vllm.py, `v1_async_sched_incompat`."""


def cut(file: Path, name: str, **names):
    """Return a function of a source file, compiled alone; `names` are what it needs."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            node.decorator_list, node.returns = [], None
            for argument in node.args.args:
                argument.annotation = None
            space = {"logger": MagicMock(), **names}
            exec(compile(ast.Module([node], []), str(file), "exec"), space)  # noqa: S102
            return space[name]
    raise ValueError(f"name={name!r}: {file} has no such function")


def option(words: list[str], name: str) -> str | None:
    """Return the value of a command's option; None if the command does not have it."""
    return words[words.index(name) + 1] if name in words else None


def vllm_start(source: Path, words: list[str]) -> dict:
    """Return runner, async scheduling, schedule and positions of a line of vLLM."""
    config = json.loads(option(words, "--speculative-config") or "null")
    if config is None:
        return {"drafts": "none"}
    file, method = source / "vllm/config/vllm.py", config["method"]
    spec = SimpleNamespace(
        method=method,
        parallel_drafting=config.get("parallel_drafting", False),
        use_heterogeneous_vocab=config.get("use_heterogeneous_vocab", False),
        num_speculative_tokens=config["num_speculative_tokens"],
        num_speculative_tokens_per_batch_size=config.get("num_speculative_tokens_per_batch_size"),
    )
    spec.uses_dynamic_speculative_decoding = lambda: (
        spec.num_speculative_tokens_per_batch_size is not None
    )
    parallel = SimpleNamespace(
        distributed_executor_backend="mp", pipeline_parallel_size=1, use_ubatching=False
    )
    self = SimpleNamespace(speculative_config=spec, parallel_config=parallel)
    unsupported = cut(file, "_get_v2_model_runner_unsupported_features")(self)
    self.use_v2_model_runner = not unsupported
    had = spec.uses_dynamic_speculative_decoding()
    cut(file, "_maybe_disable_dynamic_sd_for_v1")(self)
    kept = spec.uses_dynamic_speculative_decoding()
    found = {
        "runner": "V1" if unsupported else "V2",
        "async": not unsupported or method in ASYNC_ON_V1,
        "schedule": ("kept" if kept else "dropped") if had else "none",
    }
    if positions := POSITIONS.get(config.get("model", "")):
        draft = SimpleNamespace(max_position_embeddings=positions)
        raised = cut(
            source / "vllm/config/speculative.py",
            "_maybe_override_draft_max_position_embeddings",
            _rope_only_sizes_cache=lambda _: True,
        )
        raised(draft, CONTEXTS[words[2]])
        found["positions"] = f"{positions} raised to {draft.max_position_embeddings}"
    return found


def sglang_start(source: Path, words: list[str]) -> dict:
    """Return whether a line of SGLang starts: its head's positions against the target's context."""
    positions = POSITIONS.get(option(words, "--speculative-draft-model-path") or "")
    if positions is None:
        return {"starts": "no stated length"}
    override = f"{words[0]}" == "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
    envs = MagicMock()
    envs.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN.get = lambda: override
    derive = cut(
        source / "sglang/srt/configs/model_config.py",
        "_derive_context_length",
        get_context_length=lambda config: positions,
        envs=envs,
        is_in_ci=lambda: False,
    )
    model = MagicMock(is_draft_model=True)
    try:
        derive(model, CONTEXTS[option(words, "--model-path") or ""])
    except ValueError as error:
        return {"starts": f"stops: {re.sub(r' This may lead.*', '', str(error))}"}
    return {"starts": "yes, with the variable" if override else "yes"}


STARTS = {"vllm": vllm_start, "sglang": sglang_start}
"""Engine → (folder of its sources, words of a line) → what happens at its start."""
