"""The passes of the book's two models that chapters quote: T(k), and the share of a pass that is
reading weights. They come from the recording `book-models`.
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


def passes(model: str) -> Passes:
    """Return the passes of "pair" (the shipped target) or "smollm2", in float32."""
    data = recordings.load("book-models").data
    row = next(row for row in data["passes"] if (row["model"], row["dtype"]) == (model, "float32"))
    seconds = {int(k): middle for k, (_, middle, _) in row["seconds"].items()}
    sizes = (row[name] for name in ("weight_bytes", "cache_bytes"))
    bandwidth = data["profile"]["bandwidth"]
    return Passes(MODELS[model], row["parameters"], seconds, *sizes, bandwidth)


def source() -> str:
    """One line for a caption: where all of these figures come from."""
    return recordings.load("book-models").source
