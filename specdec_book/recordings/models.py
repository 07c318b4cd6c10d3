"""The figures of the book's two models that several chapters quote: T(k), the share of a pass that
is reading weights, α, c and the best γ.

All come from one recording, results/book-models/ (`python -m benchmarks run book-models`); a chapter that
finds another value on the reader's machine says so beside it. What does not live here: any clock.
"""

from dataclasses import dataclass

from specdec_book import recordings

MODELS = {"pair": "the book's target", "smollm2": "SmolLM2"}


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes of one model on the recording's machine.

    seconds: {k: median}.
    weight_bytes, cache_bytes: what a pass reads. bandwidth: bytes the machine reads per second.
    """

    model: str
    dtype: str
    parameters: int
    seconds: dict[int, float]
    weight_bytes: int
    cache_bytes: int
    bandwidth: float

    @property
    def reading(self) -> float:
        """The share of T(1) that reading weights, keys and values takes at full bandwidth."""
        return (self.weight_bytes + self.cache_bytes) / self.bandwidth / self.seconds[1]

    def growth(self, k: int) -> float:
        """T(k) ÷ T(1)."""
        return self.seconds[k] / self.seconds[1]


@dataclass(frozen=True, slots=True)
class Drafting:
    """The shipped pair on one kind of text. speedup, tau, alpha, c: {γ: value}; c is a draft pass
    alone, in units of T(1). best: the γ of the largest speedup that nothing speaks against.
    """

    domain: str
    temperature: float
    turns: int
    speedup: dict[int, float]
    interval: dict[int, tuple[float, float]]
    tau: dict[int, float]
    alpha: dict[int, float]
    c: dict[int, float]
    best: int


def passes(model: str, dtype: str = "float32") -> Passes:
    """T(k) of "pair" (the shipped target) or "smollm2". ValueError for another model or format."""
    recording = recordings.load("book-models")
    for row in recording.data["passes"]:
        if (row["model"], row["dtype"]) == (model, dtype):
            times = {int(k): t for k, t in row["seconds"].items()}
            return Passes(
                model=MODELS[model],
                dtype=dtype,
                parameters=row["parameters"],
                seconds={k: t[1] for k, t in times.items()},
                weight_bytes=row["weight_bytes"],
                cache_bytes=row["cache_bytes"],
                bandwidth=recording.data["profile"]["bandwidth"],
            )
    there = ", ".join(f"{row['model']} {row['dtype']}" for row in recording.data["passes"])
    raise ValueError(f"model={model!r}, dtype={dtype!r}: not recorded; there are {there}")


def drafting(domain: str = "code", temperature: float = 1.0) -> Drafting:
    """What the shipped draft brings, in float32. ValueError for a setting that is not recorded."""
    rows = recordings.load("book-models").data["drafting"]
    for row in rows:
        if (row["domain"], row["temperature"]) == (domain, temperature):
            entries = {int(gamma): entry for gamma, entry in row["gammas"].items()}
            sound = {g: e["speedup"]["value"] for g, e in entries.items() if not e["flags"]}
            speedup = {g: entry["speedup"]["value"] for g, entry in entries.items()}
            return Drafting(
                domain=domain,
                temperature=temperature,
                turns=row["turns"],
                speedup=speedup,
                interval={g: tuple(entry["speedup"]["interval"]) for g, entry in entries.items()},
                tau={g: entry["tau"]["value"] for g, entry in entries.items()},
                alpha={g: entry["alpha"]["value"] for g, entry in entries.items()},
                c={g: entry["c"] for g, entry in entries.items()},
                best=max(sound or speedup, key=(sound or speedup).get),
            )
    there = ", ".join(f"{row['domain']} at T={row['temperature']:g}" for row in rows)
    raise ValueError(
        f"domain={domain!r}, temperature={temperature!r}: not recorded; there are {there}"
    )


def source() -> str:
    """One line for a caption: where all of these figures come from."""
    return recordings.load("book-models").source
