"""Texts for the shipped pair to continue, in six kinds that correspond to those of `smollm2_tasks`.

The pair was trained on Python's sources and manual and follows no instructions. Each text is
therefore the beginning of a document:

- question: an interpreter session that ends with an expression;
- code: held-out source code;
- edit: a function, a comment that states the change, and the first line of the new version;
- json: the beginning of a JSON document;
- summary: a function and the opening quotes of its docstring;
- prose: held-out text of the manual, in place of the stories of `smollm2_tasks`.

The held-out texts come from `corpus`; all other texts were written for this book.
"""

from specdec_lite.texts.corpus import evaluation_prompts

SHARES = "wave"
"""A held-out module whose documentation is repeated in another module of the corpus."""
KINDS = ("question", "code", "edit", "json", "summary", "prose")

SESSIONS = (
    """>>> ferries = ["Anna", "Berta", "Clara", "Dora"]
>>> len(ferries)
4
>>> ferries[0]
'Anna'
>>> [name.upper() for name in ferries]
['ANNA', 'BERTA', 'CLARA', 'DORA']
>>> ferries.index("Clara")
2
>>> ferries[-1]
""",
    """>>> depth = {"harbour": 9, "channel": 14, "bay": 6}
>>> depth["bay"]
6
>>> sorted(depth)
['bay', 'channel', 'harbour']
>>> max(depth.values())
14
>>> depth["river"] = 3
>>> len(depth)
4
>>> sum(depth.values())
""",
    """>>> line = "  two sails, one mast  "
>>> line.strip()
'two sails, one mast'
>>> line.strip().split(", ")
['two sails', 'one mast']
>>> line.count("s")
3
>>> line.strip().replace("one", "three")
'two sails, three mast'
>>> line.strip().split()
""",
    """>>> tides = [3, 1, 4, 1, 5]
>>> tides.sort()
>>> tides
[1, 1, 3, 4, 5]
>>> tides.pop()
5
>>> tides
[1, 1, 3, 4]
>>> tides.append(9)
>>> tides
""",
    """>>> crew = {"cook", "pilot"}
>>> "pilot" in crew
True
>>> crew.add("smith")
>>> len(crew)
3
>>> crew.discard("cook")
>>> sorted(crew)
['pilot', 'smith']
>>> "cook" in crew
""",
    """>>> 17 // 5
3
>>> 17 % 5
2
>>> divmod(17, 5)
(3, 2)
>>> divmod(23, 4)
(5, 3)
>>> abs(-23)
23
>>> divmod(31, 6)
""",
)

FUNCTIONS = (
    """def heaviest(crates):
    result = None
    for crate in crates:
        if crate.empty:
            continue
        if result is None or crate.weight > result.weight:
            result = crate
    return result
""",
    """def berths_left(berths, ships):
    taken = set()
    for ship in ships:
        if ship.berth in berths:
            taken.add(ship.berth)
    return [berth for berth in berths if berth not in taken]
""",
    """def mean_depth(soundings, least=0):
    total = 0
    count = 0
    for depth in soundings:
        if depth > least:
            total += depth
            count += 1
    if not count:
        raise ValueError("no sounding is deep enough")
    return total / count
""",
    """def parse_signal(text):
    flags = {}
    for part in text.split(";"):
        name, sep, value = part.partition("=")
        if not sep:
            raise ValueError("flag without a value: %r" % part)
        flags[name.strip()] = value.strip()
    return flags
""",
    """def longest_calm(winds, limit=3):
    best = 0
    current = 0
    for wind in winds:
        if wind < limit:
            current += 1
            best = max(best, current)
        else:
            current = 0
    return best
""",
    """def write_manifest(cargo, stream):
    stream.write("name,tons\\n")
    for name in sorted(cargo):
        tons = cargo[name]
        if tons < 0:
            raise ValueError("negative tons: %s" % name)
        stream.write("%s,%d\\n" % (name, tons))
    stream.flush()
""",
)
CHANGES = (
    ("result", "heavy"),
    ("taken", "used"),
    ("total", "tally"),
    ("flags", "found"),
    ("current", "run"),
    ("tons", "load"),
)
"""(variable to rename, its new name) for each function."""

OBJECTS = (
    """[
    {"name": "Skagen", "height": 46, "built": 1858, "lit": true},
    {"name": "Alte Weser", "height": 38, "built": 1964, "lit": true},
    {"name": "Roter Sand", "height": 52, "built": 1885, "lit": false},
    {"name": "Kiel",""",
    """{
    "ship": "Marigold",
    "cargo": [
        {"item": "tea", "tons": 12, "port": "Bremen"},
        {"item": "timber", "tons": 40, "port": "Riga"},
        {"item": "salt",""",
    """{
    "departures": [
        {"time": "06:10", "pier": 2, "to": "Juist"},
        {"time": "07:45", "pier": 1, "to": "Borkum"},
        {"time": "09:20", "pier": 2, "to": "Juist"},
        {""",
    """[
    {"id": 1, "unit": "bar", "values": [1.01, 1.02, 1.01]},
    {"id": 2, "unit": "knots", "values": [11.5, 12.0, 14.5]},
    {"id": 3, "unit": "metres", "values": [2.5, 2.5,""",
    """{
    "harbour": "Vegesack",
    "open": true,
    "pilots": ["Ahlers", "Brandt", "Claussen"],
    "depths": {"north": 9, "south": 7, "basin": 6},
    "cranes": [""",
    """[
    {"day": "Monday", "high": "03:12", "low": "09:25"},
    {"day": "Tuesday", "high": "04:01", "low": "10:14"},
    {"day": "Wednesday", "high": "04:50", "low": "11:03"},
    {"day": "Thursday",""",
)


def edit(source: str, old: str, new: str) -> str:
    """Return a function and the beginning of its version with a renamed variable.

    Args:
        source: source code of the function.
        old: name of the variable.
        new: its new name.
    """
    head = source.splitlines()[0]
    return f"{source}\n\n# The same function, {old!r} renamed to {new!r}:\n\n{head}\n"


def summary(source: str) -> str:
    """Return a function and the opening quotes of its docstring.

    Args:
        source: source code of the function.
    """
    name = source.removeprefix("def ").partition("(")[0]
    return f'{source}\n\n{name}.__doc__ = """'


def tasks() -> dict[str, list[str]]:
    """Return {kind: at least six texts}, in the order of KINDS."""
    held_out = {
        kind: [row["text"] for row in rows if row["source"] != SHARES]
        for kind, rows in evaluation_prompts().items()
    }
    texts = {
        "question": list(SESSIONS),
        "code": held_out["code"],
        "edit": [edit(source, *names) for source, names in zip(FUNCTIONS, CHANGES)],
        "json": list(OBJECTS),
        "summary": [summary(source) for source in FUNCTIONS],
        "prose": held_out["prose"],
    }
    return {kind: texts[kind] for kind in KINDS}
