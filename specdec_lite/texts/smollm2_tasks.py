"""Requests to SmolLM2 for measurements: six kinds with six requests each, and an agent's turns.

All requests were written for this book; smollm2_tasks.json has them. They differ from the
requests that SmolLM2's heads were trained on.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KINDS = ("question", "code", "edit", "json", "summary", "story")


@dataclass(frozen=True, slots=True)
class Task:
    """A request.

    Attributes:
        kind: one of KINDS, or "agent".
        instruction: what the model should do.
        passage: text that the instruction refers to; empty if there is none.
    """

    kind: str
    instruction: str
    passage: str = ""

    @property
    def text(self) -> str:
        """The whole request: instruction and passage."""
        return f"{self.instruction}\n\n{self.passage}" if self.passage else self.instruction


def _read() -> dict[str, tuple[Task, ...]]:
    """Return {kind: tasks}: an entry of the file is an instruction, or one with its passage."""
    path = Path(__file__).with_suffix(".json")
    stored = json.loads(path.read_text(encoding="utf-8"))
    parts = {kind: [[e] if isinstance(e, str) else e for e in es] for kind, es in stored.items()}
    return {
        kind: tuple(Task(kind if kind in KINDS else "agent", *part) for part in rows)
        for kind, rows in parts.items()
    }


_STORED = _read()
TASKS = {kind: _STORED[kind] for kind in KINDS}
"""{kind: six tasks}, in the order of KINDS."""
HISTORY, AGENT = _STORED["history"], _STORED["agent"]
"""Turns of one agent that answers customers: six that a drafter may learn from, and six to measure."""


def chat(tokenizer: "PreTrainedTokenizerBase", *texts: str) -> tuple[int, ...]:
    """Return the ids of a chat up to the start of the answer, in the tokenizer's template.

    The user and the assistant take turns, and the user has the last word. A tokenizer without a
    chat template encodes this last text alone.
    """
    if not getattr(tokenizer, "chat_template", None):
        return tuple(tokenizer.encode(texts[-1]))
    turns = [{"role": ("user", "assistant")[i % 2], "content": t} for i, t in enumerate(texts)]
    try:
        ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    except Exception as error:  # whatever the template raises, or its errors in Jinja's language
        raise ValueError(f"the tokenizer's chat_template fails: {error}") from error
    return tuple(ids)  # pyright: ignore[reportReturnType]
