"""A server under load: latency and capacity with and without drafts, and the best γ."""

from collections.abc import Sequence
from dataclasses import asdict

from traitlets import Dict, Float, Int, List, TraitError, validate

from specdec_book.recordings import Recording, cards, measured
from specdec_book.viz.interactive import Interactive
from specdec_lite.simulation.estimate import FITTED, Hardware, Network
from specdec_lite.simulation.goodput import PassTimes
from specdec_lite.simulation.sizes import CARDS, EAGLE3, MODELS

DENSE, MIXTURE, SMALL = (MODELS[f"Qwen3-{size}"] for size in ("8B", "30B-A3B", "0.6B"))
NOTHING = Network(0.0)


def table(label: str, times: PassTimes) -> dict:
    """Return a measured table in the form that the JavaScript module reads."""
    return {
        "label": label,
        "batches": list(times.batches),
        "tokens": list(times.tokens),
        "seconds": [list(row) for row in times.seconds],
        "drafting": list(times.drafting),
    }


def gpu_tables(recordings: Sequence[Recording]) -> list[dict]:
    """Return the measured times of GPUs as tables, of those whose run got far enough."""
    found = [(gpu, cards.pass_times(gpu.data)) for gpu in recordings]
    return [
        table(f"shape of {measured.shape_name(gpu)} with a head, {measured.title(gpu)}", times)
        for gpu, times in found
        if times is not None and times.largest_gamma and len(times.batches) > 1
    ]


def pair(label: str, target: Network, draft: Network) -> dict:
    """Return a pair of models in the form that the JavaScript module reads."""
    return {"label": label, "target": asdict(target), "draft": asdict(draft)}


def machine(label: str, memory: float, hardware: Hardware) -> dict:
    """Return a machine in the form that the JavaScript module reads."""
    return {"label": label, "memory": memory} | asdict(hardware)


PAIRS = [
    pair("Qwen3-8B with Qwen3-0.6B", DENSE, SMALL),
    pair("Qwen3-8B with prompt lookup", DENSE, NOTHING),
    pair("Qwen3-32B with an EAGLE-3 head", MODELS["Qwen3-32B"], EAGLE3["Qwen3-32B"]),
    pair("Qwen3-30B-A3B, a mixture, with prompt lookup", MIXTURE, NOTHING),
]
MACHINES = [
    machine("H100: 80 GB, 3.35 TB/s, 989 Tflop/s", 80e9, CARDS["H100"]),
    machine("H200: 141 GB, 4.8 TB/s, 989 Tflop/s", 141e9, CARDS["H200"]),
    machine("RTX 4090: 24 GB, 1.01 TB/s, 165 Tflop/s", 24e9, CARDS["RTX 4090"]),
]


class Serving(Interactive):
    """Menus for the models and the machine, sliders for the workload, and the resulting latency.

    For a pair of `tables`, machine, context and experts have no effect.
    """

    module = "serving"
    label = "A server under load: seconds per token, plain and drafted, and the best draft length"

    pairs = List(default_value=PAIRS, minlen=1)
    machines = List(default_value=MACHINES, minlen=1)
    engine = Dict(asdict(FITTED))  # what engines reach of a datasheet
    tables = List()  # measured times, as `table` returns them, listed after the pairs
    pair = Int(0, min=0)  # index in the menu of pairs and tables
    machine = Int(0, min=0)
    load = Float(0.1, min=0.05, max=2)  # as a fraction of what plain decoding serves with all slots
    alpha = Float(0.7, min=0, max=1)
    gamma = Int(4, min=0, max=8)
    slots = Int(256, min=1, max=256)  # largest batch
    context = Int(512, min=512, max=131072)  # tokens of each sequence
    experts = Int(8, min=1, max=32)  # experts that each token of the mixture uses

    @validate("pair", "machine")
    def _in_menu(self, proposal):
        name, value = proposal["trait"].name, proposal["value"]
        count = len(self.machines if name == "machine" else [*self.pairs, *self.tables])
        if value >= count:
            raise TraitError(f"{name}={value}: must be less than {count}, the length of its menu")
        return value
