"""Chat prompts for SmolLM2 of six kinds, made from what every machine has: thousands, all distinct.

Templates, word lists, and passages and functions of the standard library are combined at random,
from a seed. Held-out prompts use words, documents and modules of their own (`corpus.HELD_OUT`) and
share no 50 tokens with the others. Another version of Python has other documents, and therefore
other prompts.
"""

import ast
import random
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from string import Formatter

from specdec_lite.checks import whole
from specdec_lite.texts.corpus import held_out_text, training_text
from specdec_lite.texts.smollm2_tasks import chat
from specdec_lite.training import smollm2_templates as templates

KINDS = ("question", "code", "edit", "json", "summary", "story")
GRAM = 50
"""Number of consecutive tokens that a held-out prompt and any other prompt never share."""
HELD_OUT_EVERY = 8
"""One entry in this many of each word list is for the held-out prompts alone."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A chat prompt.

    Attributes:
        kind: one of `KINDS`.
        text: the user's message.
        ids: tokens of the message with the chat template around it.
    """

    kind: str
    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the standard library.

    Attributes:
        name: its name.
        signature: its `def` line.
        summary: the first paragraph of its docstring.
        source: its source, without indentation.
    """

    name: str
    signature: str
    summary: str
    source: str


# Word lists -----------------------------------------------------------------------------------------


def split_list(text: str) -> list[str]:
    """Return the entries of a list that is written as one text with semicolons."""
    return [" ".join(entry.split()) for entry in text.split(";")]


def word_lists(held_out: bool) -> dict[str, list[str]]:
    """Return the lists that fill templates, by the name of their field.

    The words that make a prompt distinct are in one half only: training or held out.
    """
    divided = {
        "concept": templates.CONCEPTS,
        "plural": templates.PLURALS,
        "character": templates.CHARACTERS,
        "event": templates.EVENTS,
        "task": templates.TASKS,
        "object": templates.OBJECTS,
    }
    halves = {
        field: [
            word for i, word in enumerate(split_list(text)) if (i % HELD_OUT_EVERY == 0) == held_out
        ]
        for field, text in divided.items()
    }
    shared = {
        "key": templates.KEYS,
        "place": templates.PLACES,
        "method": templates.METHODS,
        "name": templates.NAMES,
        "city": templates.CITIES,
        "job": templates.JOBS,
        "language": templates.LANGUAGES,
        "number": "three; four; five; six; eight; ten",
    }
    ages = {"age": [str(age) for age in range(18, 80)]}
    return halves | {field: split_list(text) for field, text in shared.items()} | ages


def fill(template: str, lists: dict[str, list[str]], rng: random.Random) -> str:
    """Return a template with a random word in every field."""
    chosen: dict[str, str] = {}
    for _, field, _, _ in Formatter().parse(template):
        if field and field not in chosen:
            unused = [word for word in lists[field.rstrip("23")] if word not in chosen.values()]
            chosen[field] = rng.choice(unused)
    return template.format(**chosen)


# Passages and functions -----------------------------------------------------------------------------


@lru_cache
def documents(held_out: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return sources of the standard library, and Python's reference topics."""
    if held_out:
        texts = held_out_text()
        return (*texts["code"], *texts["data"]), tuple(texts["prose"])
    texts = training_text()
    return tuple(texts["library"]), tuple(texts["docs"])


@lru_cache
def documented_nodes(held_out: bool) -> tuple[tuple[ast.AST, str, str], ...]:
    """Return (node, docstring, source) of every documented module, class and function."""
    nodes = []
    for source in documents(held_out)[0]:
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                if doc := ast.get_docstring(node):
                    own = lines[getattr(node, "lineno", 1) - 1 : getattr(node, "end_lineno", 0)]
                    nodes.append((node, doc, textwrap.dedent("\n".join(own))))
    return tuple(nodes)


@lru_cache
def functions(held_out: bool) -> tuple[Function, ...]:
    """Return the functions with a docstring and fewer than 900 characters, each name once."""
    by_name: dict[str, Function] = {}
    for node, doc, source in documented_nodes(held_out):
        summary = " ".join(doc.split("\n\n")[0].split())
        fits = 80 < len(source) < 900 and 20 < len(summary) < 200
        if isinstance(node, ast.FunctionDef) and fits:
            signature = f"def {node.name}({ast.unparse(node.args)}):"
            by_name.setdefault(node.name, Function(node.name, signature, summary, source))
    return tuple(by_name[name] for name in sorted(by_name))


@lru_cache
def passages(held_out: bool) -> tuple[str, ...]:
    """Return paragraphs of 200 to 900 characters from the reference topics and docstrings."""
    sources = (*documents(held_out)[1], *(doc for _, doc, _ in documented_nodes(held_out)))
    paragraphs = (part for text in sources for part in re.split(r"\n\s*\n", text))
    joined = (" ".join(part.split()) for part in paragraphs)
    return tuple(dict.fromkeys(part for part in joined if is_prose(part)))


def is_prose(text: str) -> bool:
    """Return whether a paragraph has 200 to 900 characters, an end, and mostly letters."""
    letters = sum(char.isalpha() or char == " " for char in text)
    return 200 <= len(text) <= 900 and letters > 0.9 * len(text) and text[-1] in ".:"


# Prompts --------------------------------------------------------------------------------------------


def draw_messages(kind: str, held_out: bool, rng: random.Random) -> Iterator[str]:
    """Yield messages of a user without end; some occur twice."""
    lists = word_lists(held_out)
    from_lists = {
        "question": templates.QUESTIONS,
        "code": templates.CODES,
        "json": templates.JSONS,
        "story": templates.STORIES,
    }
    while True:
        if kind in from_lists and rng.random() < templates.SHARES.get(kind, 1.0):
            yield fill(rng.choice(split_list(from_lists[kind])), lists, rng)
        elif kind in ("question", "code"):
            yield message_about_function(kind, held_out, rng)
        elif kind == "edit" and rng.random() < 0.5:
            order = fill(rng.choice(split_list(templates.CODE_EDITS)), lists, rng)
            yield f"{order}\n\n```python\n{rng.choice(functions(held_out)).source}\n```"
        elif kind == "summary" and rng.random() < 0.2:
            source = rng.choice(functions(held_out)).source
            order = rng.choice(split_list(templates.EXPLANATIONS))
            yield f"{order}\n\n```python\n{source}\n```"
        else:
            orders = templates.TEXT_EDITS if kind == "edit" else templates.SUMMARIES
            order = rng.choice(split_list(orders))
            yield f"{order}\n\n{rng.choice(passages(held_out))}"


def message_about_function(kind: str, held_out: bool, rng: random.Random) -> str:
    """Return a message about a function of the standard library."""
    function = rng.choice(functions(held_out))
    if kind == "question":
        template = rng.choice(templates.ABOUT_FUNCTIONS)
        return template.format(name=function.name, says=function.summary)
    template = rng.choice(templates.FROM_DOCSTRINGS)
    return template.format(signature=function.signature, says=function.summary)


def draw_prompts(
    tokenizer, each: int, held_out: bool = False, seed: int = 0, longest: int = 320
) -> list[Prompt]:
    """Return distinct prompts, the same number of every kind, sorted by kind."""
    whole("each", each, 1)
    prompts = []
    for kind in KINDS:
        rng = random.Random(f"{seed} {kind} {held_out}")
        distinct = dict.fromkeys(islice(draw_messages(kind, held_out, rng), 20 * each))
        rows = (Prompt(kind, text, chat(tokenizer, text)) for text in distinct)
        short = list(islice((row for row in rows if len(row.ids) <= longest), each))
        if len(short) < each:
            raise ValueError(
                f"each={each}: must be at most {len(short)}, the number of {kind} prompts"
            )
        prompts += short
    return prompts


def equal_length_batches(
    prompts: Sequence[Prompt], size: int, least: int = 1, seed: int = 0
) -> list[list[Prompt]]:
    """Return batches of prompts of equal length, in random order.

    Since the order is random, the first batches are typical of all.
    """
    rng = random.Random(seed)
    shuffled = list(prompts)
    rng.shuffle(shuffled)
    by_length = defaultdict(list)
    for prompt in shuffled:
        by_length[len(prompt.ids)].append(prompt)
    parts = [
        group[start : start + size]
        for _, group in sorted(by_length.items())
        for start in range(0, len(group), size)
    ]
    batches = [part for part in parts if len(part) >= least]
    rng.shuffle(batches)
    return batches


def without_overlap(
    prompts: Sequence[Prompt], held_out: Sequence[Prompt], tokenizer
) -> list[Prompt]:
    """Return the prompts that share neither `GRAM` consecutive tokens nor a whole text with others.

    Only the users' messages are compared, since all prompts share the chat template.
    """
    excluded = {gram for prompt in held_out for gram in token_grams(tokenizer.encode(prompt.text))}
    return [
        prompt
        for prompt in prompts
        if excluded.isdisjoint(token_grams(tokenizer.encode(prompt.text)))
    ]


def token_grams(ids: Sequence[int]) -> set[tuple[int, ...]]:
    """Return all runs of `GRAM` consecutive tokens, or the whole text if it is shorter."""
    return {tuple(ids[start : start + GRAM]) for start in range(max(1, len(ids) - GRAM + 1))}
