"""Count tokens per round of drafters without a model on SmolLM2, by kind of request.

    python -m benchmarks run model-free-tokens    # a quarter of an hour on two cores

The recording contains counts and no times. The target answers every request once, greedily.
Every drafter that reads only tokens is then replayed on the
answers (`specdec_lite.measure.replay`). Token recycling reads the target's rows, so it decodes the
answers.
"""

from collections.abc import Callable, Iterable
from functools import cached_property

from specdec_lite import CausalLM, generate
from specdec_lite.drafters import (
    HashPoolDrafter,
    NgramDrafter,
    PromptLookupDrafter,
    ReferenceLookupDrafter,
    RestDrafter,
    SuffixDrafter,
    TokenRecyclingDrafter,
)
from specdec_lite.measure.replay import replay
from specdec_lite.speculation import Drafter, Step
from specdec_lite.texts.smollm2_tasks import AGENT, HISTORY, TASKS, Task, chat

from .smollm2 import STOP, OnSmolLM2, array, counts

NODES = (4, 8, 16, 32)
"""Nodes of the trees and of the chains that they are compared with."""
GAMMAS = (1, 2, 4, 6, 8, 12, 16, 24)


def answer(target: CausalLM, tokenizer, task: Task, new_tokens: int) -> dict:
    """Return a task with its tokens and the target's greedy answer."""
    prompt = chat(tokenizer, task.text)
    out = generate(target, prompt, None, new_tokens, stop_token_ids=(STOP,))
    return {
        "kind": task.kind,
        "text": task.text,
        "new_tokens": new_tokens,
        "reference": id_text(tokenizer.encode(task.passage)),
        "prompt": id_text(prompt),
        "answer": id_text(out.tokens.tolist()),
    }


def id_text(ids: Iterable[int]) -> str:
    """Return token ids as one text, which keeps a recording readable."""
    return " ".join(map(str, ids))


def pieces(tokenizer, rows: list[dict]) -> dict[str, str]:
    """Return the text of every token that occurs, so that a page needs no tokenizer."""
    used = {token for row in rows for part in ("prompt", "answer") for token in ids(row[part])}
    return {str(token): tokenizer.decode([token]) for token in sorted(used)}


def ids(text: str) -> list[int]:
    """Return the token ids of a text of numbers."""
    return [int(token) for token in text.split()]


def count_rounds(steps: list[Step]) -> dict:
    """Return sums over some rounds, which can be added over answers."""
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
    """Return {label: (γ or nodes, function from an answer's row to a drafter)}."""
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
    for budget in NODES:
        table |= {
            f"REST chain {budget}": (
                budget,
                lambda row, b=budget: RestDrafter(datastore()[0], b, levels=b, width=1),
            ),
            f"REST tree {budget}": (budget, lambda row, b=budget: RestDrafter(datastore()[0], b)),
        }
    table["n-gram γ=4"] = (4, lambda row: NgramDrafter(datastore()[1], 4))
    return table


def with_references(row: dict) -> Drafter:
    """Return prompt lookup with the request's passage as a reference."""
    return ReferenceLookupDrafter([ids(row["reference"])])


def memories(agent: list[dict], history: list[dict]) -> dict[str, Make]:
    """Return suffix decoding on an agent's turns, by the contents of its memory.

    The memory is empty, contains the earlier turns, or contains the measured answers (a leak).
    """
    whole = lambda row: [*ids(row["prompt"]), *ids(row["answer"])]

    def trained(texts: list[dict]) -> SuffixDrafter:
        drafter = SuffixDrafter(16)
        for text in texts:
            drafter.learn(whole(text))
        return drafter

    cold, warm, leak = trained([]), trained(history), trained(agent)
    return {
        MEMORIES[0]: lambda row: cold,
        "suffix, warm": lambda row: warm,
        "suffix, answers leaked": lambda row: leak,
    }


def measure_drafter(
    rows: list[dict], name: str, size: int | None, steps: Callable[[dict], list[Step]]
) -> list[dict]:
    """Return one entry per answer."""
    return [
        {"drafter": name, "size": size, "kind": row["kind"], "answer": index}
        | count_rounds(steps(row))
        for index, row in enumerate(rows)
    ]


IN_PASSAGE = "lookup in the passage"
MEMORIES = ("suffix, cold", "suffix, warm", "suffix, answers leaked")


class ModelFreeTokens(OnSmolLM2):
    """The parts are the answers, then the drafters that are replayed on them."""

    name = "model-free-tokens"
    what = "tokens per round of drafters without a model, SmolLM2-135M-Instruct, greedy"
    time = "15 minutes"
    quick = "--new-tokens 4 --each 1 --recycling 4".split()

    @classmethod
    def add_options(cls, parser):
        parser.add_argument("--new-tokens", type=int, default=128)
        parser.add_argument("--each", type=int, default=6, help="requests per kind")
        parser.add_argument(
            "--recycling",
            type=int,
            nargs="*",
            default=NODES,
            help="nodes of the trees of token recycling",
        )

    @cached_property
    def datastore(self) -> tuple:
        """The suffix array and the n-gram counts."""
        return array(self.model[1]), counts(self.model[1])

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """The requests by the names of their parts."""
        kinds = {**TASKS, "agent": AGENT, "history": HISTORY}
        return {
            f"answer: {kind} {number}": task
            for kind, tasks in kinds.items()
            for number, task in enumerate(tasks[: self.options.each])
        }

    @cached_property
    def drafters(self) -> dict[str, tuple[int | None, Make]]:
        """The drafters that read only tokens."""
        return drafters(lambda: self.datastore)

    def answers(self, *kinds: str) -> list[dict]:
        """Return the answers to requests of some kinds."""
        wanted = [f"answer: {kind} " for kind in kinds or TASKS]
        return [self.rows[part] for part in self.tasks if any(part.startswith(w) for w in wanted)]

    def parts(self):
        recycling = [f"recycling {nodes}" for nodes in self.options.recycling]
        return [*self.tasks, *self.drafters, IN_PASSAGE, *MEMORIES, *recycling]

    def run(self, part):
        target, tokenizer = self.model
        if part in self.tasks:
            return answer(target, tokenizer, self.tasks[part], self.options.new_tokens)
        rows, agent = self.answers(), self.answers("agent")
        replay_on = lambda make: (
            lambda row: replay(make(row), ids(row["prompt"]), ids(row["answer"]), target.vocab_size)
        )
        if part in self.drafters:
            size, make = self.drafters[part]
            return measure_drafter([*rows, *agent], part, size, replay_on(make))
        if part == IN_PASSAGE:
            copied = [row for row in rows if row["reference"]]
            return measure_drafter(copied, part, 8, replay_on(with_references))
        if part in MEMORIES:
            make = memories(agent, self.answers("history"))[part]
            return measure_drafter(agent, part, 16, replay_on(make))
        nodes = int(part.split()[1])
        drafter = TokenRecyclingDrafter(target, nodes)
        steps = lambda row: (
            generate(
                target, ids(row["prompt"]), drafter, len(ids(row["answer"])), stop_token_ids=()
            ).steps
        )
        return measure_drafter([*rows, *agent], part, nodes, steps)

    def summarise(self, rows):
        answers, history = self.answers(*TASKS, "agent"), self.answers("history")
        target, tokenizer = self.model
        return {
            "new_tokens": self.options.new_tokens,
            "vocab_size": target.vocab_size,
            "datastore_tokens": len(self.datastore[0].text),
            "answers": answers,
            "history": history,
            "pieces": pieces(tokenizer, [*answers, *history]),
            "rows": [row for part in rows if part not in self.tasks for row in rows[part]],
        }

    def restore(self, data):
        order = [part for part in self.tasks if not part.startswith("answer: history")]
        rows = dict(zip(order, data["answers"]))
        rows |= dict(zip([part for part in self.tasks if part not in order], data["history"]))
        for row in data["rows"]:
            rows.setdefault(row["drafter"], []).append(row)
        return rows
