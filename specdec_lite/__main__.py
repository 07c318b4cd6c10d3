"""The command line: `diagnose` measures whether a draft pays, `explain` reads an engine's output,
`estimate` says how to serve a target, `schedule` prints draft lengths by batch, `gpu` measures a GPU.
"""

import argparse
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_lite.gpu.plan import launch

if TYPE_CHECKING:
    from specdec_lite.diagnosis.metrics import Reading
    from specdec_lite.diagnosis.verdict import Diagnosis

SHIPPED = "shipped"
PROMPTS = (".jsonl", ".JSONL")
MOST_PROMPTS = 24
"""The most prompts of a file that are measured; each takes some seconds."""


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m specdec_lite", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    pair = commands.add_parser(
        "diagnose",
        help="measure whether a draft pays for a target on this machine, and name what decides it",
    )
    pair.add_argument("target", help=f"a hub id, a folder, or {SHIPPED!r}")
    pair.add_argument("draft", help=f"a hub id, a folder, or {SHIPPED!r}")
    pair.add_argument(
        "--text", type=Path, nargs="+", default=[], help="files that you serve; .jsonl: of prompts"
    )
    pair.add_argument("--gamma", type=int, default=4, help="drafted tokens per round")
    pair.add_argument("--new-tokens", type=int, default=64, help="of every run of the loop")
    pair.add_argument("--temperature", type=float, default=0.0)
    pair.add_argument("--device", default="auto")
    pair.add_argument("--dtype", default="auto")
    pair.add_argument("--json", action="store_true", help="print JSON, for an issue tracker")
    line = commands.add_parser("explain", help="read what an engine printed, in the book's terms")
    line.add_argument("text", nargs="?", help="a log line, counters or JSON; default: stdin")
    line.add_argument("--gamma", type=int, help="drafted tokens per round, if the text has none")
    line.add_argument("--json", action="store_true")
    for name, words in (
        ("estimate", "say how to serve a target with drafts: seven rows, with their gain and band"),
        ("schedule", "print the draft length by batch, in vLLM's and in SGLang's form"),
    ):
        add_situation(commands.add_parser(name, help=words))
    card = commands.add_parser("gpu", help="measure a GPU in five minutes, and write a recording")
    launch.add_options(card)
    return parser


def add_situation(parser: argparse.ArgumentParser) -> None:
    """Add the six inputs of a card, and those of a measured round."""
    parser.add_argument("target", help="a target of the page's menu, such as llama-70b")
    parser.add_argument("draft", help="auto: the method that the card recommends; or its name")
    parser.add_argument("machine", help="hardware of the page's menu, as 4-h100")
    parser.add_argument("--batch", type=int, default=1, help="concurrent requests")
    parser.add_argument("--context", type=int, default=1024, help="tokens of each request")
    parser.add_argument("--kind", default="chat", help="kind of output of the page's menu")
    parser.add_argument("--engine", default="vllm", help="vllm, sglang or llama.cpp")
    parser.add_argument("--alpha", type=float, help="acceptance rate of your text (see explain)")
    parser.add_argument("--tau", type=float, help="tokens per round of a measured round")
    parser.add_argument("--speedup", type=float, help="drafted ÷ plain tokens/s of that round")
    parser.add_argument("--gamma", type=int, default=3, help="drafted tokens of that round")


def situation(options: argparse.Namespace) -> str:
    """Return the card of a situation, or its schedule in two forms."""
    from specdec_lite.simulation import advice

    inputs = {name: value for name, value in vars(options).items() if name != "command"}
    draft = inputs.pop("draft")
    method = advice.state_of(inputs)["method"]
    if draft not in ("auto", method):
        raise ValueError(f"draft={draft!r}: must be auto or {method}, the target's own on the page")
    if options.command == "estimate":
        return "\n\n".join(f"{row}\n{text}" for row, text in advice.card(inputs))
    rows = [dict(advice.card(inputs | {"engine": name})) for name in ("vllm", "sglang")]
    return "\n".join(each[advice.ROWS[4]] for each in rows)


def texts_of(files: list[Path]) -> dict[str, list[str]] | None:
    """Return {file as given: its texts}, one per line of a .jsonl; None if there are no files."""
    texts = {}
    for file in files:
        if file.suffix.lower() == ".json":
            raise ValueError(f"--text {file}: must be .jsonl with a prompt per line, or .txt")
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"--text {file}: must be a file of UTF-8 text ({error})") from None
        texts[str(file)] = prompts_of(file, text) if file.suffix in PROMPTS else [text]
        if not "".join(texts[str(file)]).strip():
            raise ValueError(f"--text {file}: is empty")
    return texts or None


def prompts_of(file: Path, lines: str) -> list[str]:
    """Return the first turn or the prompt of each line, as Spec-Bench and MT-bench store them."""
    prompts = []
    for number, line in enumerate(lines.split("\n"), 1):  # a string may hold other ends of lines
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            turns = row["turns"] if "turns" in row else [row["prompt"]]
            if not isinstance(turns, list) or not isinstance(turns[0], str):
                raise TypeError
            prompts.append(turns[0])
        except (ValueError, KeyError, IndexError, TypeError):
            raise ValueError(
                f"--text {file}: line {number} must be an object with turns or a prompt, which are text"
            ) from None
    return prompts


def ids_of(name: str, texts: list[str], tokenizer) -> list[list[int]]:
    """Return the ids of a file's texts, of prompts in the chat template; print what is left out."""
    from specdec_lite.diagnosis.diagnose import LEAST, READ
    from specdec_lite.texts.smollm2_tasks import chat

    some = texts[:: -(-len(texts) // MOST_PROMPTS)]  # from the whole file, which may have sections
    rows = [[*chat(tokenizer, t)] if name.endswith(PROMPTS) else tokenizer.encode(t) for t in some]
    rows = [row for row in rows if len(row) >= LEAST] or rows
    if len(rows) < len(texts):
        what = f"{len(rows)} of {len(texts):,} prompts, those of at least {LEAST} tokens"
        print(f"--text {name}: read {what}", file=sys.stderr)
    if (longest := max(map(len, rows))) > READ:
        print(f"--text {name}: read {READ} of {longest:,} tokens", file=sys.stderr)
    return rows


def run(options: argparse.Namespace) -> "Diagnosis | Reading | str":
    """Run a command and return what it finds."""
    # Each command imports what it needs: `explain` needs no torch.
    if options.command == "explain":
        from specdec_lite.diagnosis.metrics import explain

        return explain(sys.stdin.read() if options.text is None else options.text, options.gamma)
    if options.command in ("estimate", "schedule"):
        return situation(options)
    from specdec_lite.diagnosis.diagnose import diagnose
    from specdec_lite.drafters import ModelDrafter
    from specdec_lite.loading.pairs import load_pair

    texts = texts_of(options.text)
    if (options.target == SHIPPED) != (options.draft == SHIPPED):
        raise ValueError(f"{SHIPPED!r} names a target and its draft: give it for both")
    names = () if options.target == SHIPPED else (options.target, options.draft)
    pair = load_pair(*names, device=options.device, dtype=options.dtype)
    rows = {name: ids_of(name, each, pair.tokenizer) for name, each in (texts or {}).items()}
    return diagnose(
        pair.target,
        ModelDrafter(pair.draft, options.gamma),
        rows or None,
        options.new_tokens,
        options.temperature,
        tokenizer=pair.tokenizer,
        progress=sys.stderr.isatty(),
    )


def measure_gpu(options: argparse.Namespace, words: list[str]) -> int:
    """Run the plan of a GPU, or start a process that runs it; return the exit status."""
    if not options.worker:
        return launch.main(options, words)
    from specdec_lite.gpu.plan.run import run_steps

    return run_steps(options)


def main(arguments: list[str] | None = None) -> None:
    """Run a command and print what it finds."""
    parser = command_line()
    options = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a locale without τ gets \u03c4, and no traceback
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if options.command == "gpu":
            sys.exit(measure_gpu(options, sys.argv[1:] if arguments is None else arguments))
        result = run(options)
    except (ValueError, TypeError, OSError, MemoryError) as error:
        parser.exit(2, f"{parser.prog} {options.command}: {error}\n")
    if not isinstance(result, str) and options.json:
        print(json.dumps(result.to_dict(), indent=1, ensure_ascii=False))
    else:
        print(result)


if __name__ == "__main__":
    main()
