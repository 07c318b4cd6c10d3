"""Will it pay: the cost of a round against the plain steps that it replaces, with a band."""

from dataclasses import asdict, replace

from traitlets import Dict, Float, Int, List, Unicode

from specdec_book.recordings import cards as recorded, measured
from specdec_book.viz.interactive import Interactive
from specdec_book.viz.serving import NOTHING, machine, pair
from specdec_lite.simulation.estimate import BENCH, FITTED, Hardware
from specdec_lite.simulation.sizes import CARDS, EAGLE3, MODELS


def cards(label: str, memory: float, hardware: Hardware, fitted: bool = True) -> dict:
    """Return a machine for the menu; `fitted`: whether the fit covers such machines."""
    return machine(label, memory, hardware) | {"fitted": fitted}


def own_machines() -> list[dict]:
    """Return the reader's own GPUs, with the speeds that `python -m specdec_lite gpu` measured."""
    found = []
    for gpu in measured.own_gpus():
        speeds = gpu.data["steps"].get("card", {})
        if {"read_bandwidth", "peak", "memory_bytes"} <= speeds.keys():
            label = f"{measured.title(gpu)}, {speeds['memory_bytes'] / 1e9:.0f} GB"
            found.append(cards(label, speeds["memory_bytes"], recorded.hardware(gpu.data)))
    return found


LARGE, MIXTURE, SMALL = MODELS["Qwen3-32B"], MODELS["Qwen3-30B-A3B"], MODELS["Qwen3-0.6B"]
PAIRS = [
    pair("Qwen3-32B with Qwen3-0.6B", LARGE, SMALL),
    pair("Qwen3-32B with an EAGLE-3 head", LARGE, EAGLE3["Qwen3-32B"]),
    pair("Qwen3-32B with prompt lookup", LARGE, NOTHING),
    pair("Qwen3-30B-A3B (experts) with Qwen3-0.6B", MIXTURE, SMALL),
    pair("Qwen3-30B-A3B (experts) with an EAGLE-3 head", MIXTURE, EAGLE3["Qwen3-30B-A3B"]),
    pair("Qwen3-30B-A3B (experts) with prompt lookup", MIXTURE, NOTHING),
    pair("Llama-3.1-8B with an EAGLE-3 head", MODELS["Llama-3.1-8B"], EAGLE3["Llama-3.1-8B"]),
    pair("Llama-3.3-70B with an EAGLE-3 head", MODELS["Llama-3-70B"], EAGLE3["Llama-3-70B"]),
    pair(
        "Llama-3.1-8B with Llama-3.2-1B, both 4-bit",
        *(replace(MODELS[name], bytes_per_weight=0.5) for name in ("Llama-3.1-8B", "Llama-3.2-1B")),
    ),
]
MACHINES = [
    cards("H100, 80 GB", 80e9, CARDS["H100"]),
    cards("4 × H100, tensor parallel", 320e9, replace(CARDS["H100"], gpus=4)),
    cards("H200, 141 GB", 141e9, CARDS["H200"]),
    cards("A100, 80 GB", 80e9, CARDS["A100"]),
    cards("RTX 4090, 24 GB", 24e9, CARDS["RTX 4090"]),
    cards("laptop, 32 GB", 32e9, Hardware(100e9, 5e12), fitted=False),
    *own_machines(),
]


class Payoff(Interactive):
    """Menus for a pair and a machine, sliders for the workload, and the speedup with its band.

    The fields of a measured run count if its τ is above 0.
    """

    module = "payoff"
    label = "Will it pay: the cost of a round in plain steps, against the tokens that it emits"

    pairs = List(default_value=PAIRS, minlen=1)
    machines = List(default_value=MACHINES, minlen=1)
    engine = Dict(asdict(FITTED))  # what engines reach of a datasheet
    command = Unicode(BENCH)  # which measures T(k) of a backend
    pair = Int(0, min=0, max=len(PAIRS) - 1)
    machine = Int(0, min=0, max=len(MACHINES) - 1)
    alpha = Float(0.7, min=0, max=1)
    gamma = Int(4, min=1, max=16)
    batch = Int(1, min=1, max=256)  # sequences in a pass
    context = Int(1024, min=0, max=131072)  # tokens of each sequence
    price = Float(3, min=0.1, max=30)  # of the machine, in dollars per hour
    measured_tau = Float(0, min=0, max=17)
    measured_gamma = Int(4, min=1, max=16)
    measured_batch = Int(1, min=1, max=256)
    plain_rate = Float(0, min=0)  # tokens per second without drafts
    drafted_rate = Float(0, min=0)
    growth = Float(0, min=0, max=100)  # T(γ + 1) ÷ T(1) of a backend, for 4-bit weights and laptops
    draft_cost = Float(0, min=0, max=100)  # time of a draft pass ÷ T(1) there
