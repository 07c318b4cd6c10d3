"""Requests to SmolLM2 for measurements: six kinds with six requests each, and an agent's turns.

All requests were written for this book. They differ from the requests that SmolLM2's heads were
trained on.
"""

from dataclasses import dataclass
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


QUESTIONS = """Why do ships made of steel float?
How does a refrigerator keep food cold?
Why are there leap years, and who decided on them?
What happens to an orchestra when the conductor leaves the stage?
How do people find out how old a tree is without cutting it down?
Why does bread dough have to rest before it is baked?"""

CODES = """Write a Python class Thermometer that stores readings and returns the highest of a day.
Write a Python function that reads a log file and returns the five slowest requests.
Write a Python function that turns a list of temperatures into a text chart of hash signs.
Write a Python class for a parking garage with entering, leaving and counting free places.
Write a Python script that sorts the photos of a folder into one folder for every month.
Write unit tests for a Python function `slugify(title)` that makes a web address of a title."""

JSONS = """List five bridges as a JSON array of objects with the keys "name", "city" and "length".
Give me a JSON object for a train timetable: six departures with "time", "to" and "platform".
Write a JSON array of four sensors, each with "id", "room", "unit" and a list of three "values".
Describe a chess club as JSON: its "name", its "members" with "name" and "rank", its "meetings".
Write a JSON array with one object a weekday: "day", "opens", "closes" and "staff".
Return a JSON list of six exercises for the back, with "title", "minutes" and "level"."""

STORIES = """Write a story about a tram driver who finds a stop that is on no map.
Tell me a story about two sisters who share one pair of winter boots.
Write the first page of a story in which a clock in a station begins to run backwards.
Tell a story about a mason who hides a letter in a wall.
Write a story about a cook who has lost the sense of taste.
Tell me a story in which it rains for forty days in a town of umbrella makers."""

LETTER = """Dear neighbours, on Saturday the 14th the water in our house will be turned off from
nine in the morning until about one in the afternoon. A pipe in the cellar has to be replaced, and
the plumber needs the whole system to be empty for it. Please fill a few bottles the evening before
and do not start a washing machine on that morning. The heating is not affected. If you need help
carrying water, ring at the first floor on the left. We are sorry for the trouble. The house
committee"""

REPORT = """The night ferry left the harbour forty minutes late because a lorry had broken down on
the ramp. The crew used the time to check the second engine, which had been noisy on the way here.
They found a loose bolt, tightened it and wrote it into the book. The crossing itself was calm. At
two in the morning the lights of the coast appeared, and at half past four the ferry was moored.
Nobody was hurt, and all but three of the passengers caught their trains."""

MINUTES = """The garden club met on Tuesday with eleven members present. The new tool shed will cost
more than planned, since the old floor is rotten and has to be taken out. The treasurer proposed to
build the shed this year and to buy the mower next year, and all but one agreed. The seed exchange
will be held on the first Sunday in March in the school hall. Two members offered to bring tables.
The next meeting is on the second Tuesday of the month."""

FUNCTION = """```python
def average_price(items):
    total = 0
    count = 0
    for item in items:
        if item["price"] is not None:
            total = total + item["price"]
            count = count + 1
    if count == 0:
        return 0
    return total / count
```"""

BOX = """```python
class Box:
    def __init__(self, width, height, depth):
        self.width = width
        self.height = height
        self.depth = depth

    def volume(self):
        return self.width * self.height * self.depth

    def surface(self):
        front = self.width * self.height
        side = self.height * self.depth
        top = self.width * self.depth
        return 2 * (front + side + top)
```"""

COUNTER = """```python
def count_visits(lines):
    visits = {}
    for line in lines:
        name, page = line.split(",")
        if page not in visits:
            visits[page] = 0
        visits[page] = visits[page] + 1
    for page in sorted(visits):
        print(page, visits[page])
    return visits
```"""

MARSH = """For two hundred years the marsh at the mouth of the river was thought to be useless. It
was drained in the last century, and potatoes were grown where reeds had stood. Then the floods
came higher every decade, because the water had nowhere to go. Twelve years ago the town bought the
land back, broke the dykes in three places and let the river in. The first summer it stank. The
third summer the birds returned, and last winter, for the first time in forty years, no cellar in
the lower town was wet."""

MUSEUM = """The museum of locks has one room and nine hundred exhibits. Its founder, a locksmith,
collected what his customers brought to him when they had lost the key: chests, diaries, a cash
box from a sunken ship. He never forced one open. Every lock was picked, drawn and described on a
card, and the cards are the real treasure, for they show how each maker thought. Visitors may try
their hand at six of the simpler locks. The record, four minutes, is held by a girl of eleven."""

SCHOOL = """When the school moved its first lesson from eight to nine, teachers expected that pupils
would simply go to bed an hour later. That is not what happened. Over one year the pupils slept
thirty-four minutes more on school nights, came late less often, and had slightly better marks in
the first lesson, but the same marks in all the others. Parents who start work early were unhappy,
and a room with breakfast was opened for their children at half past seven."""

KITE = """The kite festival was nearly called off, since there was no wind for three days. On the
fourth morning the flags on the pier began to move, and by noon more than two hundred kites were in
the air. The prize for the largest went to a team of nurses, whose whale was twenty metres long.
The prize for the smallest went to a retired engineer, whose kite was made of a single postage
stamp and flew on a hair."""

BICYCLES = """A repair shop for bicycles in the station lends out its tools for nothing. People may
mend their own wheels at one of four stands, and somebody always stands by who knows how. The shop
lives on what is paid for spare parts and on a small sum from the railway, which counted fewer
abandoned bicycles in front of the station. Last year six thousand people came, one in five for the
first time."""

LIBRARY = """The village library is a cupboard beside the bus stop. Whoever takes a book leaves one,
and nobody keeps a list. In the first year the cupboard was emptied twice by a dealer, after which
the driver of the morning bus began to look after it. He knows who reads what. He has put a
notebook inside, in which readers write one sentence about each book, and the notebook is now taken
home more often than the books are."""

EDITS = (
    ("Correct nothing, but replace Saturday by Sunday everywhere in this text:", LETTER),
    ("Rewrite this text and change only the ferry into a train:", REPORT),
    ("Copy this text, with every number written in digits:", MINUTES),
    ("Rename the variable `total` to `price_sum` and return the whole function:", FUNCTION),
    ("Add a docstring to every method and return the whole class:", BOX),
    ("Return this function with the printing taken out:", COUNTER),
)
SUMMARIES = (
    ("Summarise this text in three sentences:", MARSH),
    ("Summarise the following text:", MUSEUM),
    ("What does this text say? Answer in a short paragraph:", SCHOOL),
    ("Retell the most important points of this text:", KITE),
    ("Write a summary of this text for a newsletter:", BICYCLES),
    ("Summarise this text and say what is unusual about it:", LIBRARY),
)

REPLY = "Write a short and polite reply of our support team to {}"
TICKETS = (
    "Ms Aydin, whose lamp flickers in the evening.",
    "Mr Brandt, whose radio loses its stations every night.",
    "Ms Castellano, whose kettle turns itself off too early.",
    "Mr Dvorak, whose fan makes a noise like a cricket.",
    "Ms Eriksen, whose scale shows two kilograms when it is empty.",
    "Mr Farouk, whose doorbell rings when the neighbour comes home.",
    "Ms Grabowski, whose toaster leaves one side of the bread white.",
    "Mr Haddad, whose watch runs ten minutes fast after a day.",
    "Ms Ivanova, whose heater smells of plastic.",
    "Mr Jensen, whose camera saves all pictures upside down.",
    "Ms Kovacs, whose mixer stops when she opens a window.",
    "Mr Lindqvist, whose printer pulls in two sheets at once.",
)


def _tasks() -> dict[str, tuple[Task, ...]]:
    """Return {kind: tasks}, in the order of KINDS."""
    lines = {"question": QUESTIONS, "code": CODES, "json": JSONS, "story": STORIES}
    passages = {"edit": EDITS, "summary": SUMMARIES}
    tasks = {kind: tuple(Task(kind, t) for t in text.splitlines()) for kind, text in lines.items()}
    for kind, pairs in passages.items():
        tasks[kind] = tuple(Task(kind, instruction, unwrap(text)) for instruction, text in pairs)
    return {kind: tasks[kind] for kind in KINDS}


def unwrap(passage: str) -> str:
    """Return prose in one line, and code unchanged."""
    return passage if passage.startswith("```") else " ".join(passage.split())


TASKS = _tasks()
"""{kind: six tasks}, in the order of KINDS."""
HISTORY, AGENT = (
    tuple(Task("agent", REPLY.format(ticket)) for ticket in half)
    for half in (TICKETS[:6], TICKETS[6:])
)
"""Turns of one agent that answers customers: six that a drafter may learn from, and six to measure."""


def chat(tokenizer: "PreTrainedTokenizerBase", text: str) -> tuple[int, ...]:
    """Return the token ids of a user's first message, up to the start of the answer."""
    messages = [{"role": "user", "content": text}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    return tuple(ids)  # pyright: ignore[reportReturnType]
