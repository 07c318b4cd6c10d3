"""120 short requests of six kinds, and the rule that decides which answers are worth showing.

A request passes if its answer does what the request asks, ends by itself, and repeats no six words
in a row. Whether it does what it asks is decided by code, not by taste: a named fact, a text without
its last sentence, keys of JSON, the name of a function, the subject of a summary or a story. (The
first requests of the kind "edit" replaced a word: SmolLM2-135M passed in 0 of 20.)
"""

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

KINDS = ("question", "code", "edit", "json", "summary", "story")
REPEATED = 6
"""Words in a row that an answer may not contain twice."""

WORDS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""What the requests are made of.

"facts": {question: word that a right answer contains}; "functions": {function: what it does};
"objects": {thing: keys of a JSON object that describes it}; "passages": [(passage of three
sentences, subject that a summary must name)]; "heroes": of stories.
"""


@dataclass(frozen=True, slots=True)
class Request:
    """A request with the test of its answer.

    Attributes:
        kind: One of KINDS.
        text: The whole request.
        follows: Whether an answer does what the request asks.
    """

    kind: str
    text: str
    follows: Callable[[str], bool]

    def passes(self, answer: str, ended: bool) -> bool:
        """Return whether an answer is worth showing."""
        return ended and not repeats(answer) and self.follows(answer)


def repeats(answer: str) -> bool:
    """Return whether an answer contains the same six words in a row twice."""
    words = re.findall(r"\w+", answer.lower())
    runs = [tuple(words[i : i + REPEATED]) for i in range(len(words) - REPEATED + 1)]
    return len(set(runs)) < len(runs)


def names(pattern: str) -> Callable[[str], bool]:
    """Return the test whether an answer contains a word that begins like the pattern."""
    return lambda answer: bool(re.search(rf"\b({pattern})", answer, re.IGNORECASE))


def fenced(answer: str) -> str:
    """Return the first block of code of an answer, or the answer if it has none."""
    block = re.search(r"```\w*\n(.*?)```", answer, re.DOTALL)
    return block[1] if block else answer


def defines(name: str) -> Callable[[str], bool]:
    """Return the test whether an answer is Python that defines a function with a result."""

    def follows(answer: str) -> bool:
        try:
            tree = ast.parse(fenced(answer))
        except (SyntaxError, ValueError):
            return False
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        return any(
            function.name == name and any(isinstance(n, ast.Return) for n in ast.walk(function))
            for function in functions
        )

    return follows


def is_object(keys: set[str]) -> Callable[[str], bool]:
    """Return the test whether an answer is a JSON object with these keys."""

    def follows(answer: str) -> bool:
        try:
            value = json.loads(fenced(answer))
        except ValueError:
            return False
        return isinstance(value, dict) and keys <= value.keys()

    return follows


def shortened(passage: str) -> Callable[[str], bool]:
    """Return the test whether an answer is a passage without its last sentence, as it stands."""
    expected = passage[: passage.rstrip(".").rindex(".") + 1]
    return lambda answer: " ".join(answer.split()) == expected


def shortens(passage: str, subject: str) -> Callable[[str], bool]:
    """Return the test whether an answer names the subject in fewer words than the passage has."""
    is_named = names(subject)
    return lambda answer: is_named(answer) and len(answer.split()) < len(passage.split())


def is_story(hero: str) -> Callable[[str], bool]:
    """Return the test whether an answer has three to eight sentences and names its hero."""
    is_named = names(hero.split()[-1].removesuffix("s"))
    return lambda answer: (
        is_named(answer) and 3 <= len(re.findall(r"[.!?](?=\W*(\s|$))", answer)) <= 8
    )


def _requests() -> list[Request]:
    """Return twenty requests per kind, in the order of KINDS."""
    question = [
        Request("question", f"{q} Answer in two sentences.", names(w))
        for q, w in WORDS["facts"].items()
    ]
    code = [
        Request("code", f"Write a Python function {f} that {what}.", defines(f.partition("(")[0]))
        for f, what in WORDS["functions"].items()
    ]
    thing = "Describe {} as one JSON object with the keys {}. Answer with JSON only."
    objects = [
        Request(
            "json",
            thing.format(what, ", ".join(f'"{key}"' for key in keys.split())),
            is_object({*keys.split()}),
        )
        for what, keys in WORDS["objects"].items()
    ]
    edit = [
        Request("edit", f"{ask}\n\n{text}", shortened(text))
        for text, _ in WORDS["passages"]
        for ask in (
            "Write this text once more, without its last sentence:",
            "Repeat the first two sentences of this text:",
        )
    ]
    summary = [
        Request("summary", f"{ask}\n\n{text}", shortens(text, subject))
        for text, subject in WORDS["passages"]
        for ask in ("Summarize this text in one sentence:", "What is this text about?")
    ]
    story = [
        Request(
            "story", f"Tell a very short story about {hero}, in five sentences.", is_story(hero)
        )
        for hero in WORDS["heroes"]
    ]
    return [*question, *code, *edit, *objects, *summary, *story]


REQUESTS = _requests()
"""All requests, twenty per kind."""
