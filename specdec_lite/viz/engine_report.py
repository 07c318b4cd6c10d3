"""What a recording of real engines says, as tables.

What lives here: the tables of a chapter. What does not: how they are measured (`benchmarks.engines`).
"""

from IPython.display import Markdown

from specdec_lite.measure.results import Recording
from specdec_lite.viz.tables import table

NAMES = {"ours": "this library"}


def report(recording: Recording) -> list[Markdown]:
    """Speeds and acceptance, what was refused, how it was switched on; SmolLM2's head by position; the
    simulator beside vLLM. A part that was not measured is left out.
    """
    data = recording.data
    tables = [speeds(recording), switches(data), refusals(data)]
    if "smollm2" in data["engines"]:
        tables.append(positions(data["engines"]["smollm2"]))
    if "load" in data:
        tables.append(load(data["load"]))
    return tables


def speeds(recording: Recording) -> Markdown:
    """The shipped pair: a row for each method of each engine."""
    data = recording.data
    batches = [str(batch) for batch in data["batches"]]
    rows = []
    for engine, methods in data["engines"]["pair"].items():
        order = sorted(methods, key=lambda method: (method != "plain", method))
        for method in order:
            row = methods[method]
            speed = row["tokens_per_second"]["processor"]
            cells = [cell(speed, row.get("speedup", {}), batch) for batch in batches]
            rates = [shown(row.get(name)) for name in ("tau", "alpha", "drafted_acceptance")]
            same = f"{row['texts'] - len(row['differences'])} of {row['texts']}"
            rows.append([NAMES.get(engine, engine), method, *cells, *rates, same])
    heads = ["engine", "method", *(f"batch {batch}" for batch in batches), "τ", "α"]
    heads += ["accepted ÷ drafted", "texts as ours"]
    states = [each for part in data["state"].values() for each in part.values()]
    busiest = max(each["load_average"][0] for each in states)
    cores = len(states[0]["pins"])
    noun = "core" if cores == 1 else "cores"
    caption = (
        "The shipped pair, greedy, float32, one thread: tokens a second of the processor, and beside"
        f" them × over plain in the same engine, median of {data['turns']} paired turns. The machine"
        f" was shared (load average up to {busiest:.0f} on {cores} {noun}). {recording.source}"
    )
    return table(heads, rows, caption)


def cell(speed: dict, speedup: dict, batch: str) -> str:
    if batch not in speed:
        return "refused"
    gain = f" ({speedup[batch]['value']:.2f}×)" if batch in speedup else ""
    return f"{speed[batch]:.0f}{gain}"


def shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def switches(data: dict) -> Markdown:
    """What each engine was told, word for word."""
    rows = [
        [NAMES.get(engine, engine), method, f"`{text}`"]
        for engine, methods in data["switches"].items()
        for method, text in methods.items()
    ]
    return table(["engine", "method", "how it was switched on here"], rows)


def refusals(data: dict) -> Markdown:
    """What engines would not do, and what they said."""
    rows = [[name, said] for name, said in data["refused"].items()]
    for engine, methods in data["engines"]["pair"].items():
        for method, row in methods.items():
            for batch, said in row["refused"].items():
                rows.append([f"{engine} pair {method}, batch {batch}", said])
    rows = [[what, f"``{' '.join(said.split())}``"] for what, said in rows]
    return table(["refused", "what it said"], rows)


def positions(engines: dict) -> Markdown:
    """Acceptance by position of the exported heads: of all drafts."""
    rows = [
        [NAMES.get(engine, engine), method, *map(shown, row["rates"]), shown(row["tau"])]
        for engine, methods in engines.items()
        for method, row in methods.items()
        if row.get("rates")
    ]
    count = len(rows[0]) - 3
    caption = "The same heads of SmolLM2, exported, on the same greedy prompts"
    heads = ["engine", "head", *(f"position {place + 1}" for place in range(count)), "τ"]
    return table(heads, rows, caption)


def load(found: dict) -> Markdown:
    """Latency a token, measured and foreseen."""
    rows = [
        [
            f"{row['load']:.0%}",
            row["gamma"],
            f"{1e3 * row['measured']:.1f}",
            f"{1e3 * row['simulated']:.1f}",
            f"{row['error']:+.0%}",
            f"{row['error_apart']:+.0%}",
        ]
        for row in found["rows"]
    ]
    heads = ["load, of the plain capacity", "γ", "vLLM, ms a token", "simulated", "error"]
    heads += ["error, were a prompt a step of its own"]
    alphas = found["alphas"]
    caption = (
        f"{found['requests']} requests that arrive by chance, waiting included; medians of"
        f" {found['turns']} turns. The simulator knows vLLM's rounds at batch 1, 2, 4 and 8, what a"
        f" prompt adds to one, and each prompt's α ({min(alphas):.2f} … {max(alphas):.2f})"
    )
    return table(heads, rows, caption)
