"""Count tokens per round of drafters without a model on SmolLM2, by kind of request.

    python -m benchmarks.lookup    # writes results/lookup.json; a quarter of an hour on two cores

The recording contains counts and no times. The target answers every request once, greedily, and
each answer is stored immediately. Every drafter that reads only tokens is then replayed on the
answers (`specdec_lite.measure.replay`). Token recycling reads the target's rows, so it decodes the
answers.
"""

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from tqdm import tqdm

from specdec_lite import CausalLM, generate, load_smollm2
from specdec_lite.drafters import (
    HashPoolDrafter,
    NgramDrafter,
    PromptLookupDrafter,
    ReferenceLookupDrafter,
    RestDrafter,
    SuffixDrafter,
    TokenRecyclingDrafter,
)
from specdec_lite.measure import stamps
from specdec_lite.measure.replay import replay
from specdec_lite.speculation import Drafter, Step
from specdec_lite.texts.smollm2_tasks import AGENT, HISTORY, TASKS, Task, chat

from .command import typed
from .smollm2 import STOP, array, counts

NODES = (4, 8, 16, 32)
"""Nodes of the trees and of the chains that they are compared with."""
GAMMAS = (1, 2, 4, 6, 8, 12, 16, 24)


def answer_tasks(
    target: CausalLM, tokenizer, tasks: Iterable[Task], new_tokens: int, path: Path
) -> list[dict]:
    """Return every task with its tokens and the target's greedy answer.

    Args:
        target: Model that answers.
        tokenizer: Its tokenizer.
        tasks: Requests.
        new_tokens: Most tokens per answer.
        path: File with one stored answer per line.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    stored = {row["text"]: row for row in map(json.loads, lines)}
    rows = []
    for task in tqdm(list(tasks), "answers"):
        row = stored.get(task.text)
        if row is None or row["new_tokens"] != new_tokens:
            prompt = chat(tokenizer, task.text)
            out = generate(target, prompt, None, new_tokens, stop_token_ids=(STOP,))
            row = {
                "kind": task.kind,
                "text": task.text,
                "new_tokens": new_tokens,
                "reference": id_text(tokenizer.encode(task.passage)),
                "prompt": id_text(prompt),
                "answer": id_text(out.tokens.tolist()),
            }
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        rows.append(row)
    return rows


def id_text(ids: Iterable[int]) -> str:
    """Return token ids as one text, which keeps a recording readable."""
    return " ".join(map(str, ids))


def pieces(tokenizer, rows: list[dict]) -> dict[str, str]:
    """Return the text of every token that occurs, so that a page needs no tokenizer.

    Args:
        tokenizer: Tokenizer of the answers.
        rows: Answers.
    """
    used = {token for row in rows for part in ("prompt", "answer") for token in ids(row[part])}
    return {str(token): tokenizer.decode([token]) for token in sorted(used)}


def ids(text: str) -> list[int]:
    """Return the token ids of a text of numbers."""
    return [int(token) for token in text.split()]


def count_rounds(steps: list[Step]) -> dict:
    """Return sums over some rounds, which can be added over answers.

    Args:
        steps: Rounds.
    """
    return {
        "tokens": sum(len(step.tokens) for step in steps),
        "rounds": len(steps),
        "drafted_rounds": sum(len(step.tree) > 0 for step in steps),
        "drafted_round_tokens": sum(len(step.tokens) for step in steps if len(step.tree)),
        "nodes": sum(len(step.tree) for step in steps),
        "accepted": sum(step.accepted for step in steps),
        "tested": sum(step.tested for step in steps),
    }


Make = Callable[[dict], Drafter]


def drafters(datastore: Callable[[], tuple]) -> dict[str, tuple[int | None, Make]]:
    """Return {label: (γ or nodes, function from an answer's row to a drafter)}.

    Args:
        datastore: Function that returns the suffix array and the n-gram counts; it is called once.
    """
    table: dict[str, tuple[int | None, Make]] = {}
    for gamma in GAMMAS:
        table |= {
            f"prompt lookup γ={gamma}": (gamma, lambda row, g=gamma: PromptLookupDrafter(g)),
            f"earliest γ={gamma}": (
                gamma,
                lambda row, g=gamma: PromptLookupDrafter(g, latest=False),
            ),
        }
    for n in (1, 2, 4, 5):
        table[f"prompt lookup n≤{n}"] = (8, lambda row, n=n: PromptLookupDrafter(8, n))
    for budget in NODES:
        table |= {
            f"suffix chain {budget}": (budget, lambda row, b=budget: SuffixDrafter(b)),
            f"suffix tree {budget}": (budget, lambda row, b=budget: SuffixDrafter(b, width=3)),
        }
    for n in (2, 4, 8):
        table[f"hash pool n={n}"] = (16, lambda row, n=n: HashPoolDrafter(16, n))
    array, counts = datastore()
    for budget in NODES:
        table |= {
            f"REST chain {budget}": (
                budget,
                lambda row, b=budget: RestDrafter(array, b, levels=b, width=1),
            ),
            f"REST tree {budget}": (budget, lambda row, b=budget: RestDrafter(array, b)),
        }
    table["n-gram γ=4"] = (4, lambda row: NgramDrafter(counts, 4))
    return table


def with_references(row: dict) -> Drafter:
    """Return prompt lookup with the request's passage as a reference."""
    return ReferenceLookupDrafter([ids(row["reference"])])


def memories(agent: list[dict], history: list[dict]) -> dict[str, Make]:
    """Return suffix decoding on an agent's turns, by the contents of its memory.

    The memory is empty, contains the earlier turns, or contains the measured answers (a leak).

    Args:
        agent: Measured turns.
        history: Earlier turns.
    """
    whole = lambda row: [*ids(row["prompt"]), *ids(row["answer"])]

    def trained(texts: list[dict]) -> SuffixDrafter:
        drafter = SuffixDrafter(16)
        for text in texts:
            drafter.learn(whole(text))
        return drafter

    cold, warm, leak = trained([]), trained(history), trained(agent)
    return {
        "suffix, cold": lambda row: cold,
        "suffix, warm": lambda row: warm,
        "suffix, answers leaked": lambda row: leak,
    }


def measure_drafter(
    rows: list[dict], name: str, size: int | None, steps: Callable[[dict], list[Step]]
) -> list[dict]:
    """Return one entry per answer.

    Args:
        rows: Answers.
        name: Label of the drafter.
        size: γ or number of nodes.
        steps: Function from an answer's row to the rounds.
    """
    return [
        {"drafter": name, "size": size, "kind": row["kind"], "answer": index}
        | count_rounds(steps(row))
        for index, row in enumerate(rows)
    ]


def main(arguments: list[str] | None = None, load=load_smollm2, datastore=None) -> Path:
    """Run the command line.

    Args:
        arguments: Arguments; None uses those of this process.
        load: Function that returns model and tokenizer.
        datastore: See `drafters`; None uses the library's own.

    Returns:
        Path of the recording.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lookup")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--each", type=int, default=6, help="requests per kind")
    parser.add_argument(
        "--recycling",
        type=int,
        nargs="*",
        default=NODES,
        help="nodes of the trees of token recycling",
    )
    parser.add_argument("--work", type=Path, default=Path(".work/lookup/answers.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("results/lookup.json"))
    options = parser.parse_args(arguments)
    target, tokenizer = load("cpu", "float32")
    datastore = datastore or (lambda: (array(tokenizer), counts(tokenizer)))
    ask = lambda tasks: answer_tasks(target, tokenizer, tasks, options.new_tokens, options.work)
    rows = ask([task for kind in TASKS.values() for task in kind[: options.each]])
    agent, history = ask(AGENT[: options.each]), ask(HISTORY[: options.each])
    size = target.vocab_size
    replay_on = lambda make: (
        lambda row: replay(make(row), ids(row["prompt"]), ids(row["answer"]), size)
    )
    entries = []
    for name, (budget, make) in tqdm(drafters(datastore).items(), "replays"):
        entries += measure_drafter([*rows, *agent], name, budget, replay_on(make))
    copied = [row for row in rows if row["reference"]]
    entries += measure_drafter(copied, "lookup in the passage", 8, replay_on(with_references))
    for name, make in memories(agent, history).items():
        entries += measure_drafter(agent, name, 16, replay_on(make))
    for budget in tqdm(options.recycling, "token recycling"):
        drafter = TokenRecyclingDrafter(target, budget)
        steps = lambda row: (
            generate(target, ids(row["prompt"]), drafter, len(ids(row["answer"]))).steps
        )
        entries += measure_drafter([*rows, *agent], f"recycling {budget}", budget, steps)
    stamp = stamps.stamp(
        "tokens per round of drafters without a model, SmolLM2-135M-Instruct, greedy",
        typed(parser, arguments),
    )
    return stamps.save(
        options.out,
        stamp,
        {
            "new_tokens": options.new_tokens,
            "vocab_size": size,
            "datastore_tokens": len(datastore()[0].text),
            "answers": [*rows, *agent],
            "history": history,
            "pieces": pieces(tokenizer, [*rows, *agent, *history]),
            "rows": entries,
        },
    )


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    print("written to", main())
