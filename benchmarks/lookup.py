"""How many tokens a round drafters without a model give SmolLM2, by kind of request. No times.

    python -m benchmarks.lookup    # writes results/lookup.json; a quarter of an hour on two cores

The target answers every request once, greedily; an answer is kept as soon as it is there. Every
drafter that looks at tokens alone is then replayed on the answers (`specdec_lite.measure.replay`);
token recycling, which reads the target's rows, decodes them itself.
"""

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from tqdm import tqdm

from specdec_lite import CausalLM, generate, load_smollm2, results
from specdec_lite.drafters import (
    HashPoolDrafter,
    NgramDrafter,
    PromptLookupDrafter,
    RestDrafter,
    SuffixDrafter,
    TokenRecyclingDrafter,
)
from specdec_lite.loading.smollm2_tasks import AGENT, HISTORY, TASKS, Task, chat
from specdec_lite.measure.replay import replay
from specdec_lite.speculation import Drafter, Step

from .smollm2 import STOP, array, counts

NODES = (4, 8, 16, 32)
"""Nodes of the trees that stand beside chains of as many."""
GAMMAS = (1, 2, 4, 6, 8, 12, 16, 24)


def answered(
    target: CausalLM, tokenizer, tasks: Iterable[Task], new_tokens: int, path: Path
) -> list[dict]:
    """Every task with its tokens and the target's greedy answer. path: a line for each answer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    kept = {row["text"]: row for row in map(json.loads, lines)}
    rows = []
    for task in tqdm(list(tasks), "answers"):
        row = kept.get(task.text)
        if row is None or row["new_tokens"] != new_tokens:
            prompt = chat(tokenizer, task.text)
            out = generate(target, prompt, None, new_tokens, stop_token_ids=(STOP,))
            row = {
                "kind": task.kind,
                "text": task.text,
                "new_tokens": new_tokens,
                "reference": written(tokenizer.encode(task.passage)),
                "prompt": written(prompt),
                "answer": written(out.tokens.tolist()),
            }
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        rows.append(row)
    return rows


def written(ids: Iterable[int]) -> str:
    """Ids as one text, so that a recording stays readable."""
    return " ".join(map(str, ids))


def pieces(tokenizer, rows: list[dict]) -> dict[str, str]:
    """The text of every token that occurs, so that a page needs no tokenizer."""
    used = {token for row in rows for part in ("prompt", "answer") for token in ids(row[part])}
    return {str(token): tokenizer.decode([token]) for token in sorted(used)}


def ids(text: str) -> list[int]:
    return [int(token) for token in text.split()]


def counted(steps: list[Step]) -> dict:
    """What is counted of some rounds; sums, so that they can be added up over answers."""
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
    """{label: (γ or nodes, drafter for an answer's row)}: what is replayed on every answer.

    datastore: gives the suffix array and the n-gram counts of the library; asked once.
    """
    made: dict[str, tuple[int | None, Make]] = {}
    for gamma in GAMMAS:
        made |= {
            f"prompt lookup γ={gamma}": (gamma, lambda row, g=gamma: PromptLookupDrafter(g)),
            f"earliest γ={gamma}": (
                gamma,
                lambda row, g=gamma: PromptLookupDrafter(g, latest=False),
            ),
        }
    for n in (1, 2, 4, 5):
        made[f"prompt lookup n≤{n}"] = (8, lambda row, n=n: PromptLookupDrafter(8, n))
    for budget in NODES:
        made |= {
            f"suffix chain {budget}": (budget, lambda row, b=budget: SuffixDrafter(b)),
            f"suffix tree {budget}": (budget, lambda row, b=budget: SuffixDrafter(b, width=3)),
        }
    for n in (2, 4, 8):
        made[f"hash pool n={n}"] = (16, lambda row, n=n: HashPoolDrafter(16, n))
    array, counts = datastore()
    for budget in NODES:
        made |= {
            f"REST chain {budget}": (
                budget,
                lambda row, b=budget: RestDrafter(array, b, levels=b, width=1),
            ),
            f"REST tree {budget}": (budget, lambda row, b=budget: RestDrafter(array, b)),
        }
    made["n-gram γ=4"] = (4, lambda row: NgramDrafter(counts, 4))
    return made


def with_references(row: dict) -> Drafter:
    return PromptLookupDrafter(8, references=[ids(row["reference"])])


def memories(agent: list[dict], history: list[dict]) -> dict[str, Make]:
    """Suffix decoding on an agent's turns, by what its memory holds: nothing, the earlier turns, or,
    the trap, the very answers.
    """
    whole = lambda row: [*ids(row["prompt"]), *ids(row["answer"])]

    def taught(texts: list[dict]) -> SuffixDrafter:
        drafter = SuffixDrafter(16)
        for text in texts:
            drafter.learn(whole(text))
        return drafter

    cold, warm, leak = taught([]), taught(history), taught(agent)
    return {
        "suffix, cold": lambda row: cold,
        "suffix, warm": lambda row: warm,
        "suffix, answers leaked": lambda row: leak,
    }


def measured(
    rows: list[dict], name: str, size: int | None, steps: Callable[[dict], list[Step]]
) -> list[dict]:
    """One entry for every answer."""
    return [
        {"drafter": name, "size": size, "kind": row["kind"], "answer": place} | counted(steps(row))
        for place, row in enumerate(rows)
    ]


def main(arguments: list[str] | None = None, load=load_smollm2, datastore=None) -> Path:
    """The command line; returns the recording's path."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lookup")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--each", type=int, default=6, help="requests of a kind")
    parser.add_argument(
        "--recycling", type=int, nargs="*", default=NODES, help="nodes of its trees"
    )
    parser.add_argument("--work", type=Path, default=Path(".work/lookup/answers.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("results/lookup.json"))
    options = parser.parse_args(arguments)
    target, tokenizer = load("cpu", "float32")
    datastore = datastore or (lambda: (array(tokenizer), counts(tokenizer)))
    ask = lambda tasks: answered(target, tokenizer, tasks, options.new_tokens, options.work)
    rows = ask([task for kind in TASKS.values() for task in kind[: options.each]])
    agent, history = ask(AGENT[: options.each]), ask(HISTORY[: options.each])
    size = target.vocab_size
    play = lambda make: lambda row: replay(make(row), ids(row["prompt"]), ids(row["answer"]), size)
    entries = []
    for name, (budget, make) in tqdm(drafters(datastore).items(), "replays"):
        entries += measured([*rows, *agent], name, budget, play(make))
    copied = [row for row in rows if row["reference"]]
    entries += measured(copied, "lookup in the passage", 8, play(with_references))
    for name, make in memories(agent, history).items():
        entries += measured(agent, name, 16, play(make))
    for budget in tqdm(options.recycling, "token recycling"):
        drafter = TokenRecyclingDrafter(target, budget)
        steps = lambda row: (
            generate(target, ids(row["prompt"]), drafter, len(ids(row["answer"]))).steps
        )
        entries += measured([*rows, *agent], f"recycling {budget}", budget, steps)
    stamp = results.stamp(
        "tokens a round of drafters without a model, SmolLM2-135M-Instruct, greedy",
        "python -m benchmarks.lookup",
    )
    return results.save(
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
