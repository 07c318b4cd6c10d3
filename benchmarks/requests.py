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

KINDS = ("question", "code", "edit", "json", "summary", "story")
REPEATED = 6
"""Words in a row that an answer may not contain twice."""

FACTS = {
    "What is the capital of France, and what is it known for?": "Paris",
    "Why is the sky blue?": "scatter",
    "What is photosynthesis?": "light",
    "Why does ice float on water?": "dens",
    "What causes the seasons of the year?": "tilt",
    "What is a volcano?": "magma|lava",
    "Why do leaves change color in autumn?": "chlorophyll",
    "What does the heart do?": "blood",
    "What is the largest planet of the solar system?": "Jupiter",
    "Who wrote Romeo and Juliet?": "Shakespeare",
    "How do plants drink water?": "root",
    "What is gravity?": "force",
    "Why do we have day and night?": "rota|spin",
    "What is a rainbow?": "light",
    "How does a magnet work?": "field|pole",
    "What is the water cycle?": "evaporat",
    "Why do we sleep?": "rest|brain|body",
    "What is an ecosystem?": "organism|living",
    "How do bees make honey?": "nectar",
    "What is electricity?": "charge|electron|energy",
}
"""Question → word that a right answer contains."""
FUNCTIONS = {
    "double(x)": "returns two times x",
    "square(x)": "returns x times x",
    "is_even(n)": "returns whether n is even",
    "add(a, b)": "returns the sum of a and b",
    "largest(numbers)": "returns the largest of the numbers",
    "average(numbers)": "returns the average of the numbers",
    "reverse(text)": "returns the text reversed",
    "count_vowels(text)": "returns the number of vowels in the text",
    "factorial(n)": "returns n factorial",
    "to_celsius(f)": "turns degrees Fahrenheit into degrees Celsius",
    "is_palindrome(text)": "returns whether the text reads the same backwards",
    "area_of_circle(r)": "returns the area of a circle with radius r",
    "first_word(text)": "returns the first word of the text",
    "count_words(text)": "returns the number of words in the text",
    "smallest(numbers)": "returns the smallest of the numbers",
    "is_prime(n)": "returns whether n is a prime number",
    "power(a, b)": "returns a to the power of b",
    "remove_spaces(text)": "returns the text without its spaces",
    "total(prices)": "returns the sum of the prices",
    "greet(name)": "returns a greeting with the name",
}
"""Function → what it does."""
OBJECTS = {
    "a book": "title author year",
    "a city": "name country population",
    "a person": "name age email",
    "a car": "make model year",
    "a movie": "title director year",
    "a recipe": "name ingredients steps",
    "a dog": "name breed age",
    "a song": "title artist album",
    "a country": "name capital language",
    "a student": "name age grade",
    "a product": "name price category",
    "a restaurant": "name address cuisine",
    "a flight": "from to duration",
    "a planet": "name diameter moons",
    "a house": "address rooms price",
    "a meeting": "date time place",
    "a computer": "brand memory price",
    "a flower": "name color season",
    "a river": "name length country",
    "a game": "name players rules",
}
"""Thing → keys of a JSON object that describes it."""
PASSAGES = (
    (
        "The library opens on Monday at nine. It has two floors and a small garden. On Monday"
        " evening a teacher reads stories to children in the garden.",
        "library",
    ),
    (
        "Anna has a red bicycle. She rides the bicycle to work every day, even in the rain. Last"
        " week the bicycle had a flat tire, and Anna had to walk.",
        "Anna",
    ),
    (
        "The bakery on our street sells bread and cake. The bread is fresh at six in the morning."
        " Many people stand in line for the bread before work.",
        "bakery",
    ),
    (
        "Our train leaves Berlin at noon. In Berlin we will meet two friends, and together we will"
        " travel to the sea. The train takes four hours.",
        "train",
    ),
    (
        "The cat sleeps on the chair near the window. When it rains, the cat watches the drops on"
        " the glass. In the evening the cat waits at the door.",
        "cat",
    ),
    (
        "The farmer planted forty apple trees in spring. The apple trees need much water in the"
        " first summer. In three years the farmer hopes to sell the first apples.",
        "tree",
    ),
    (
        "The museum shows old ships. The largest ship in the museum is thirty meters long and was"
        " built by hand. Visitors may walk on the ship on Sundays.",
        "ship",
    ),
    (
        "Peter wants to learn the piano. He practices the piano for one hour every morning. His"
        " neighbor likes the music and sometimes sings.",
        "Peter",
    ),
    (
        "The lake is cold in May. Some people swim in the lake all year, and they meet at seven in"
        " the morning. After the swim they drink hot tea.",
        "swim",
    ),
    (
        "Our school has a new kitchen. The cook makes lunch for two hundred pupils. Every Thursday"
        " the pupils may choose what the cook makes.",
        "cook|lunch|kitchen",
    ),
)
"""(passage of three sentences, subject that a summary must name)."""
HEROES = (
    *("a cat", "a robot", "a farmer", "a dragon", "a pirate", "a baker", "a lighthouse", "a fox"),
    *("two sisters", "an old clock", "a lost letter", "a king", "a teacher", "a snowman", "a bear"),
    *("a magic tree", "a small boat", "a train", "a rabbit", "a musician"),
)


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
        Request("question", f"{q} Answer in two sentences.", names(w)) for q, w in FACTS.items()
    ]
    code = [
        Request("code", f"Write a Python function {f} that {what}.", defines(f.partition("(")[0]))
        for f, what in FUNCTIONS.items()
    ]
    thing = "Describe {} as one JSON object with the keys {}. Answer with JSON only."
    objects = [
        Request(
            "json",
            thing.format(what, ", ".join(f'"{key}"' for key in keys.split())),
            is_object({*keys.split()}),
        )
        for what, keys in OBJECTS.items()
    ]
    edit = [
        Request("edit", f"{ask}\n\n{text}", shortened(text))
        for text, _ in PASSAGES
        for ask in (
            "Write this text once more, without its last sentence:",
            "Repeat the first two sentences of this text:",
        )
    ]
    summary = [
        Request("summary", f"{ask}\n\n{text}", shortens(text, subject))
        for text, subject in PASSAGES
        for ask in ("Summarize this text in one sentence:", "What is this text about?")
    ]
    story = [
        Request(
            "story", f"Tell a very short story about {hero}, in five sentences.", is_story(hero)
        )
        for hero in HEROES
    ]
    return [*question, *code, *edit, *objects, *summary, *story]


REQUESTS = _requests()
"""All requests, twenty per kind."""
