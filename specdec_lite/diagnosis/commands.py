"""The command lines with which three engines serve a target with a draft model."""

from pathlib import Path
from shlex import quote


def engine_commands(target: str | Path, draft: str | Path, gamma: int) -> dict[str, str]:
    """Return the command of each engine that serves a target with a draft model.

    The options are those of vLLM 0.33.0, SGLang 0.5.23 and llama.cpp build 11434.

    Args:
        target: hub id or folder; llama.cpp gets a placeholder, since it reads GGUF files.
        draft: hub id or folder.
        gamma: drafted tokens per round; 0 for commands without a draft.
    """
    large, small = quote(str(target)), quote(str(draft))
    vllm = f"vllm serve {large}"
    sglang = f"python -m sglang.launch_server --model-path {large}"
    llama = "llama-server -m target.gguf"
    if gamma:
        vllm += (
            " --speculative-config "
            f'\'{{"method": "draft_model", "model": "{draft}", "num_speculative_tokens": {gamma}}}\''
        )
        sglang += (
            f" --speculative-algorithm STANDALONE --speculative-draft-model-path {small}"
            f" --speculative-num-steps {gamma} --speculative-eagle-topk 1"
            f" --speculative-num-draft-tokens {gamma + 1}"
        )
        llama += f" -md draft.gguf --spec-type draft-simple --spec-draft-n-max {gamma}"
    return {"vLLM": vllm, "SGLang": sglang, "llama.cpp": llama}
