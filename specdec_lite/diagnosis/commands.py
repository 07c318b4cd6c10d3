"""The command lines with which three engines serve a target with drafts."""

import json
from pathlib import Path
from shlex import quote

METHODS = {
    "draft_model": ("STANDALONE", "draft-simple"),
    "eagle3": ("EAGLE3", "draft-eagle3"),
    "dspark": ("DSPARK", "draft-dspark"),
    "dflash": ("DFLASH", "draft-dflash"),
    "mtp": ("NEXTN", "draft-mtp"),
    "ngram": ("NGRAM", "ngram-mod"),
    "suffix": (None, None),
}
"""vLLM's name of a method → SGLang's and llama.cpp's; None: the engine lacks it."""
WITHOUT_WEIGHTS = ("mtp", "ngram", "suffix")


def engine_commands(
    target: str | Path, draft: str | Path, gamma: int, method: str = "draft_model"
) -> dict[str, str]:
    """Return the command of each engine that serves a target with drafts.

    The options are those of vLLM 0.33.0, SGLang 0.5.23 and llama.cpp build 11434. An engine that lacks
    the method serves without it.

    Args:
        target: hub id or folder; llama.cpp gets a placeholder, since it reads GGUF files.
        draft: hub id or folder; unused by methods without weights of their own.
        gamma: drafted tokens per round; 0 for commands without a draft.
        method: a key of METHODS.

    Raises:
        ValueError: the method is unknown.
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r}: must be one of {', '.join(METHODS)}")
    algorithm, kind = METHODS[method]
    vllm = f"vllm serve {quote(str(target))}"
    sglang = f"python -m sglang.launch_server --model-path {quote(str(target))}"
    llama = "llama-server -m target.gguf"
    if not gamma:
        return {"vLLM": vllm, "SGLang": sglang, "llama.cpp": llama}
    config: dict = {"method": method}
    if method not in WITHOUT_WEIGHTS:
        config["model"] = str(draft)
        llama += " -md draft.gguf"
    config["num_speculative_tokens"] = gamma
    vllm += f" --speculative-config {quote(json.dumps(config))}"
    if algorithm:
        sglang += f" --speculative-algorithm {algorithm}"
        if method not in WITHOUT_WEIGHTS:
            sglang += f" --speculative-draft-model-path {quote(str(draft))}"
        if method in ("draft_model", "eagle3", "mtp"):
            sglang += f" --speculative-num-steps {gamma} --speculative-eagle-topk 1"
        if method not in ("dspark", "dflash"):  # whose checkpoints state the block
            sglang += f" --speculative-num-draft-tokens {gamma + 1}"
    if kind:
        llama += f" --spec-type {kind}" + f" --spec-draft-n-max {gamma}" * (method != "ngram")
    return {"vLLM": vllm, "SGLang": sglang, "llama.cpp": llama}
