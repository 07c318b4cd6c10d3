"""A server under load: latency and capacity with and without drafts, and the γ to choose."""

import traitlets

from specdec_lite.serving.estimate import Hardware, Network
from specdec_lite.serving.goodput import PassTimes, estimated
from specdec_lite.viz.interactive import Interactive

H100 = Hardware(3.35e12, 989e12, fixed=5e-4)
DENSE = Network(8.2e9, cache_bytes=147_456)
MIXTURE = Network(
    1.5e9, cache_bytes=98_304, experts=128, chosen=8, expert_parameters=3 * 768 * 2048 * 48
)
SMALL = Network(0.6e9, cache_bytes=114_688)
CONTEXT = 512


def table(label: str, times: PassTimes) -> dict:
    """A table as the module reads it."""
    return {
        "label": label,
        "batches": list(times.batches),
        "tokens": list(times.tokens),
        "seconds": [list(row) for row in times.seconds],
        "drafting": list(times.drafting),
    }


def on_h100(label: str, target: Network, draft: Network | None) -> dict:
    """Sizes and a datasheet, 512 tokens of context each, half a millisecond a pass on top."""
    one = lambda batch: 0.0 if draft is None else H100.seconds(draft, batch, 1, CONTEXT)
    seconds = lambda batch, k: H100.seconds(target, batch, k, CONTEXT)
    return table(label, estimated(seconds, one))


TABLES = [
    on_h100("Qwen3-8B with Qwen3-0.6B, one H100", DENSE, SMALL),
    on_h100("Qwen3-8B with prompt lookup, one H100", DENSE, None),
    on_h100("Qwen3-30B-A3B with prompt lookup, one H100", MIXTURE, None),
]


class Serving(Interactive):
    """A menu for the table T(B, k), sliders for load, α, γ and slots, and what becomes of latency.

    tables: what `table` returns, at least one; of a measured one too. pair: place in the menu.
    load: as a share of what plain decoding serves with all slots, .05 … 2. alpha: 0 … 1. gamma:
    0 … 8. slots: 1 … 256.
    """

    module = "serving"
    label = (
        "A server under load: seconds a token, plain and drafted, and the draft length to choose"
    )

    tables = traitlets.List(default_value=TABLES, minlen=1).tag(sync=True)
    pair = traitlets.Int(0, min=0).tag(sync=True)
    load = traitlets.Float(0.1, min=0.05, max=2).tag(sync=True)
    alpha = traitlets.Float(0.7, min=0, max=1).tag(sync=True)
    gamma = traitlets.Int(4, min=0, max=8).tag(sync=True)
    slots = traitlets.Int(256, min=1, max=256).tag(sync=True)

    @traitlets.validate("pair")
    def _in_menu(self, proposal):
        if proposal["value"] >= len(self.tables):
            raise traitlets.TraitError(
                f"pair={proposal['value']}: there are {len(self.tables)} tables"
            )
        return proposal["value"]
