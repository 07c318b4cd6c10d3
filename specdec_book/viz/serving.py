"""A server under load: latency and capacity with and without drafts, and the best γ."""

from collections.abc import Sequence
from dataclasses import asdict

import traitlets

from specdec_book.recordings import Recording, cards, measured
from specdec_book.viz.interactive import Interactive
from specdec_lite.simulation.estimate import FITTED, Hardware, Network
from specdec_lite.simulation.goodput import PassTimes

DENSE = Network(8.2e9, cache_bytes=147_456, layers=36)
LARGE = Network(32.8e9, cache_bytes=262_144, layers=64)
MIXTURE = Network(
    1.5e9,
    cache_bytes=98_304,
    experts=128,
    chosen=8,
    expert_parameters=3 * 768 * 2048 * 48,
    layers=48,
)
SMALL = Network(0.6e9, cache_bytes=114_688, layers=28)
HEAD = Network(0.73e9, cache_bytes=4096, layers=1)
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
    found = [(gpu, cards.times_or_none(gpu.data)) for gpu in recordings]
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
    pair("Qwen3-32B with an EAGLE-3 head", LARGE, HEAD),
    pair("Qwen3-30B-A3B, a mixture, with prompt lookup", MIXTURE, NOTHING),
]
MACHINES = [
    machine("H100: 80 GB, 3.35 TB/s, 989 Tflop/s", 80e9, Hardware(3.35e12, 989e12)),
    machine("H200: 141 GB, 4.8 TB/s, 989 Tflop/s", 141e9, Hardware(4.8e12, 989e12)),
    machine("RTX 4090: 24 GB, 1.01 TB/s, 165 Tflop/s", 24e9, Hardware(1.008e12, 165e12)),
]


class Serving(Interactive):
    """Menus for the models and the machine, sliders for the workload, and the resulting latency.

    Attributes:
        pairs: Pairs of models, as `pair` returns them.
        machines: Machines, as `machine` returns them.
        engine: What engines reach of a datasheet: the fields of `Engine`.
        tables: Measured times, as `table` returns them. The menu lists them after the pairs; for
            them, machine, context and experts have no effect.
        pair: Index in the menu of pairs and tables.
        machine: Index in the menu of machines.
        load: Load as a fraction of what plain decoding serves with all slots, 0.05 … 2.
        alpha: Acceptance rate, 0 … 1.
        gamma: Draft length, 0 … 8.
        slots: Largest batch, 1 … 256.
        context: Tokens of each sequence, 512 … 131072.
        experts: Experts that each token of the mixture uses, 1 … 32.
    """

    module = "serving"
    label = "A server under load: seconds per token, plain and drafted, and the best draft length"

    pairs = traitlets.List(default_value=PAIRS, minlen=1)
    machines = traitlets.List(default_value=MACHINES, minlen=1)
    engine = traitlets.Dict(asdict(FITTED))
    tables = traitlets.List()
    pair = traitlets.Int(0, min=0)
    machine = traitlets.Int(0, min=0)
    load = traitlets.Float(0.1, min=0.05, max=2)
    alpha = traitlets.Float(0.7, min=0, max=1)
    gamma = traitlets.Int(4, min=0, max=8)
    slots = traitlets.Int(256, min=1, max=256)
    context = traitlets.Int(512, min=512, max=131072)
    experts = traitlets.Int(8, min=1, max=32)

    @traitlets.validate("pair", "machine")
    def _in_menu(self, proposal):
        name, value = proposal["trait"].name, proposal["value"]
        count = len(self.machines if name == "machine" else [*self.pairs, *self.tables])
        if value >= count:
            raise traitlets.TraitError(
                f"{name}={value}: must be less than {count}, the length of its menu"
            )
        return value
