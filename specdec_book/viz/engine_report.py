"""Tables of the recording of real engines."""

from IPython.display import Markdown

from specdec_book.recordings import Recording
from specdec_book.viz.tables import table
from specdec_lite import theory

NAMES = {"ours": "this library", "llama.cpp": "node-llama-cpp", "vllm": "vLLM"}
"""Engines by the names in the recordings. What ran llama.cpp's models was node-llama-cpp with its own
JavaScript predictors, not `llama-server`."""
METHODS = {
    "draft_model": "draft model",
    "lookup": "prompt lookup",
    "suffix": "suffix decoding",
    "eagle": "EAGLE-1",
    "eagle3": "EAGLE-3",
    "eagle, every token": "EAGLE-1 over the target's whole vocabulary",
}
"""Methods by the names in the recordings."""
TARGETS = {"pair": "The shipped pair", "smollm2": "SmolLM2"}
FORMATS = {"pair": "", "smollm2": " (node-llama-cpp: the file's own 4 bits)"}
"""Formats other than float32."""


def speeds(recording: Recording, model: str = "pair") -> Markdown:
    """Return the speeds and speedups on a target, one row for each method of each engine."""
    data = recording.data
    engines = data["engines"][model]
    timed = [row["tokens_per_second"]["processor"] for m in engines.values() for row in m.values()]
    batches = [str(batch) for batch in data["batches"] if any(str(batch) in each for each in timed)]
    rows = []
    for engine, methods in engines.items():
        order = sorted(methods, key=lambda method: (method != "plain", method))
        for method in order:
            row = methods[method]
            cells = [cell(row, batch) for batch in batches]
            rates = [number(row.get(name)) for name in ("tau", "alpha")]
            same = f"{row['texts'] - len(row['differences'])} of {row['texts']}"
            names = [NAMES.get(engine, engine), METHODS.get(method, method)]
            rows.append([*names, *cells, *rates, same])
    heads = ["engine", "method", *(f"batch {batch}" for batch in batches), "τ", "α"]
    heads += ["texts equal to this library's"]
    states = [state for part in data["state"].values() for state in part.values()]
    busiest = max(state["load_average"][0] for state in states)
    cores = len(states[0]["pins"])
    noun = "core" if cores == 1 else "cores"
    caption = (
        f"{TARGETS[model]}, greedy, float32, one thread{FORMATS[model]}, {data['prompts']} prompts"
        f" per turn or as many as the batch has rows, {data['new_tokens']} new tokens each. Tokens"
        " per second of processor time, the prefill included; × is over"
        " plain decoding of the same engine, with the 95 % interval over"
        f" {data['turns']} paired turns. {fastest(engines, batches[0])}. The load average"
        f" was at most {busiest:.1f} on {cores} {noun}"
    )
    return table(heads, rows, caption, source=recording.source)


def fastest(engines: dict, batch: str) -> str:
    """Return which row has the most tokens per second at a batch size, as a sentence."""
    speeds = {
        (engine, method): row["tokens_per_second"]["processor"].get(batch, 0.0)
        for engine, methods in engines.items()
        for method, row in methods.items()
    }
    engine, method = max(speeds, key=lambda key: speeds[key])
    name = NAMES.get(engine, engine)
    what = "a plain one" if method == "plain" else f"{METHODS.get(method, method)} in {name}"
    where = f" ({name}, {speeds[engine, method]:.0f} tokens/s)" if method == "plain" else ""
    return f"**The fastest row at batch {batch} is {what}{where}**"


def cell(row: dict, batch: str) -> str:
    """Return the speed at one batch size as text, after the speedup if the row is drafted."""
    speed = row["tokens_per_second"]["processor"]
    if batch not in speed:
        return "refused"
    if batch not in row.get("speedup", {}):
        return f"{speed[batch]:.0f} tokens/s"
    low, high = row["speedup"][batch]["interval"]
    text = f"{row['speedup'][batch]['value']:.2f}× [{low:.2f}, {high:.2f}]"
    tie = " tie" if low <= 1 <= high else ""
    return f"{text}{tie}, {speed[batch]:.0f} tokens/s"


def number(value: float | None) -> str:
    """Return a number with two decimals, or a dash for None."""
    return "–" if value is None else f"{value:.2f}"


def switches(data: dict) -> Markdown:
    """Return the settings with which each engine ran."""
    rows = [
        [NAMES.get(engine, engine), METHODS.get(method, method), f"`{text}`"]
        for engine, methods in data["switches"].items()
        for method, text in methods.items()
    ]
    caption = (
        "vLLM ran eagerly, without compiled graphs (`enforce_eager=True`), in float32 and without a"
        " prefix cache; transformers with a constant γ, not its own schedule. No engine's own"
        " default schedule was timed"
    )
    return table(["engine", "method", "settings"], rows, caption)


def load(data: dict) -> Markdown:
    """Return the latency per token, measured and simulated."""
    milliseconds, percent = "{:.1f}".format, "{:+.0%}".format
    rows = [
        (
            f"{row['load']:.0%}",
            row["gamma"],
            *(milliseconds(1e3 * row[name]) for name in ("measured", "simulated")),
            *(percent(row[name]) for name in ("error", "error_apart")),
        )
        for row in data["rows"]
    ]
    rounds = data["rounds"]
    costs = [
        f"{drafted / plain:.2f}"
        for drafted, plain in zip(rounds["draft_model"]["seconds"], rounds["plain"]["seconds"])
    ]
    heads = ["load, % of plain capacity", "γ", "vLLM, ms per token", "simulated", "error"]
    heads += ["error if prompts had steps of their own"]
    alphas = data["alphas"]
    tokens = sum(theory.expected_tokens(alpha, 4) for alpha in alphas) / len(alphas)
    caption = (
        f"Latency of {data['requests']} requests that arrive at random, waiting included; medians"
        f" of {data['turns']} runs. At most {data['batches'][-1]} requests run together. At batch"
        f" {', '.join(map(str, data['batches']))} a round costs {', '.join(costs)} plain steps,"
        f" prefill not included, and emits about {tokens:.1f} tokens, so drafts pay at every load."
        " The simulator is given the times of vLLM's rounds, the time that a prompt adds to a round,"
        f" and the α of each prompt ({min(alphas):.2f} … {max(alphas):.2f})"
    )
    return table(heads, rows, caption)
