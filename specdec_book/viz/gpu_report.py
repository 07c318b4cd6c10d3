"""Tables of the recordings that `benchmarks.gpu` made on a GPU."""

from collections.abc import Callable, Iterable, Iterator

from specdec_book.recordings import Recording, spread
from specdec_book.viz.gpu_figures import figures
from specdec_book.viz.tables import table
from specdec_lite.loading.memory import gigabytes

Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""(title, header, lines)."""


def report(recordings: Iterable[Recording]) -> list:
    """Return the tables and figures of the recordings; print a sentence if there are none.

    Tiny runs and runs without captured graphs are left out.
    """
    groups: dict[tuple[str, str], list[Recording]] = {}
    for recording in recordings:
        if recording.data.get("graphs") and not recording.data.get("tiny"):
            key = (recording.machine, recording.data["dtype"])
            groups.setdefault(key, []).append(recording)
    parts: list = []
    for (machine, dtype), group in groups.items():
        about = f"{machine}, {dtype}; {group[0].source}"
        steps = {recording.data["step"]: recording.data for recording in group}
        parts += [
            table(header, lines, f"{title}. {about}") for title, header, lines in tables(steps)
        ]
        parts += figures(steps, machine)
    if not parts:
        print("results/ has no recording of a GPU yet; `make bench-gpu` records one.")
    return parts


def tables(steps: dict[str, dict]) -> Iterator[Table]:
    """Yield the tables of the steps that were recorded."""
    for build in (
        _captured,
        _first,
        _drafting,
        _passes,
        _texts,
        _rounds,
        _depth,
        _footprint,
        _longer,
    ):
        if result := build(steps):
            yield result


def _by_mode(rows: list[dict], modes: Iterable[str], name: str, number: Callable) -> tuple:
    cells = ({row["mode"]: row for row in rows}.get(mode) for mode in modes)
    return name, *(number(row) if row else "–" for row in cells)


def _captured(steps: dict) -> Table | None:
    if "captured" not in steps:
        return None
    rows = steps["captured"]["rows"]
    keys = dict.fromkeys((row["dtype"], row["attention"], row["after"]) for row in rows)
    lines = []
    for key in keys:
        part = [row for row in rows if (row["dtype"], row["attention"], row["after"]) == key]
        worst = max(part, key=lambda row: row["difference"])
        lines.append(
            (
                *key,
                f"{worst['difference']:.1e}",
                f"{worst['largest_logit']:.1f}",
                f"{worst['size']}",
            )
        )
    header = ("format", "attention", "after", "largest difference", "largest logit", "tokens")
    return "Passes with fixed shapes against passes with growing shapes", header, lines


def _first(steps: dict) -> Table | None:
    if "first-steps" not in steps:
        return None
    lines = []
    for row in steps["first-steps"]["rows"]:
        times = sorted(row["seconds"])
        usual = times[len(times) // 2]
        slow = sum(time > 3 * usual for time in times)
        lines.append(
            (
                row["attention"],
                f"{row['tokens']}",
                f"{1e3 * usual:.1f} ms",
                f"{1e3 * times[-1]:.1f} ms",
                f"{slow} of {len(times)}",
            )
        )
    header = ("attention", "tokens per step", "median", "slowest", "over three times the median")
    return "The first eager steps", header, lines


def _drafting(steps: dict) -> Table | None:
    if "kernels" not in steps:
        return None
    names = steps["kernels"]["attention_kernels"]
    lines = [
        (
            row["mode"],
            row["lane"],
            f"{len(row['operations'])}",
            f"{1e6 * row['busy']:.0f} µs",
            f"{row['shares']['gap']:.0%}",
            ", ".join(name[:40] for name in names.get(row["mode"], ())) or "–",
        )
        for row in steps["kernels"]["rows"]
    ]
    header = ("mode", "part", "operations", "busy", "gaps", "attention kernel")
    return "One pass of the draft, and one whole draft", header, lines


def _passes(steps: dict) -> Table | None:
    lines = []
    for data in (steps[name] for name in steps if name.startswith("passes-")):
        for row in data["rows"]:
            single = row["chains"]["1"]
            wide = ", ".join(f"{k}: {t / single:.2f}" for k, t in row["chains"].items() if k != "1")
            trees = ", ".join(f"{n}: {t / single:.2f}" for n, t in row["trees"].items())
            ms = f"{1e3 * single:.2f} ms"
            lines.append(
                (data["shape"], row["mode"], ms, f"{row['bandwidth_share']:.0%}", wide, trees)
            )
    header = ("weights", "passes", "T(1)", "bandwidth", "T(k)/T(1)", "trees, by nodes")
    return ("Passes of a target with random weights", header, lines) if lines else None


def _texts(steps: dict) -> Table | None:
    if "losslessness" not in steps:
        return None
    exact, lines = steps["losslessness"], []
    for dtype, apart in exact["one_against_many"].items():
        for mode in dict.fromkeys(row["mode"] for row in exact["rows"]):
            rows = [row for row in exact["rows"] if (row["mode"], row["dtype"]) == (mode, dtype)]
            gaps = [row["gap"] for row in rows if row["diverges_at"] is not None]
            count = f"{len(gaps)} of {len(rows)}"
            lines.append((dtype, mode, count, f"{max(gaps):.1e}" if gaps else "–", f"{apart:.1e}"))
    header = (
        *("format", "rounds", "texts that differ", "largest gap between the top two logits there"),
        "largest difference between one pass and single passes",
    )
    return "Greedy text against plain decoding", header, lines


def _rounds(steps: dict) -> Table | None:
    lines, modes = [], ()
    for data in (steps[name] for name in ("greedy", "sampled") if name in steps):
        rows, rates = data["rows"], data["tokens_per_second"]
        modes = tuple(row["mode"] for row in rows)
        at = f"T = {data['temperature']:g}: "
        lines += [
            _by_mode(rows, modes, at + what, number)
            for what, number in (
                ("α, τ", lambda row: f"{_number(row['alpha'])}, {row['tau']:.2f}"),
                (
                    "c in isolation, in the loop",
                    lambda r: _pair(r["alone"]["c"], r["rounds"]["c_in_loop"]),
                ),
                (
                    "T(γ+1)/T(1) in isolation, in the loop",
                    lambda r: _pair(r["alone"]["verify"], r["rounds"]["verify"]),
                ),
                ("rest of a round, in T(1)", lambda row: f"{row['rounds']['other']:.2f}"),
                (
                    "speedup predicted from isolated passes",
                    lambda row: f"{row['alone']['predicted']:.2f}×",
                ),
                (
                    "speedup predicted from the rounds",
                    lambda row: f"{row['rounds']['predicted']:.2f}×",
                ),
                ("measured speedup", lambda row: f"{spread(row['speedup'])}×"),
                ("tokens/s", lambda row: f"{rates['speculative ' + row['mode']]:.0f}"),
            )
        ]
        theirs = ", ".join(f"{n[3:]} {rate:.0f}" for n, rate in rates.items() if n.startswith("hf"))
        blank = ("",) * (len(modes) - 1)
        lines.append((f"{at}Hugging Face, tokens/s", theirs, *blank))
        lines += [(f"{at}{name}, not run", why, *blank) for name, why in data["not_run"].items()]
    return ("Rounds of the trained pair", ("quantity", *modes), lines) if lines else None


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _pair(first: float, second: float) -> str:
    return f"{first:.2f}, {second:.2f}"


def _depth(steps: dict) -> Table | None:
    lines = [
        (f"{row['draft']} draft, {row['layers']} layers", row["mode"], f"{row['c']:.2f}")
        for row in steps.get("depth", {"rows": ()})["rows"]
    ]
    lines += [
        (f"batch {row['batch']}", row["mode"], f"T(γ+1)/T(1) {row['verify'] / row['one']:.2f}")
        for row in steps.get("batches", {"rows": ()})["rows"]
    ]
    header = ("random weights", "passes", "c, or the cost of verification")
    return ("Depth of the draft, and batch size", header, lines) if lines else None


def _footprint(steps: dict) -> Table | None:
    if "footprint" not in steps:
        return None
    data = steps["footprint"]
    added, first = data["draft_bytes"], data["first_token"]
    share = sum(added.values()) / data["target_bytes"]
    lines = [
        ("the draft's weights", gigabytes(added["weights"])),
        ("its cache", gigabytes(added["cache"])),
        ("both, in percent of the target's weights", f"{share:.1%}"),
        ("time to the first token, plain", f"{1e3 * first['plain']:.1f} ms"),
        ("time to the first token, speculative", f"{1e3 * first['speculative']:.1f} ms"),
    ]
    return "Memory and time that the draft adds", ("quantity", "value"), lines


def _longer(steps: dict) -> Table | None:
    if "smollm2" not in steps:
        return None
    data = steps["smollm2"]
    lines = [
        (
            name,
            f"{data['steps'][name]}",
            f"{data['texts'][name]}",
            ", ".join(f"{x:.2f}" for x in data["greedy_agreement"][name]),
            f"{data['accepted_at_4'][name]:.2f}",
        )
        for name in ("shipped", "longer")
    ]
    header = ("head", "steps", "texts", "agreement by depth", "accepted of 4 drafts")
    return "A head for SmolLM2, trained for longer", header, lines
