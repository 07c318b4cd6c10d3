"""The skip switches: which sublayers of the target draft, and what that promises, from recorded
passes.
"""

import traitlets

from specdec_lite.viz.interactive import Interactive


class SkipSwitches(Interactive):
    """A switch for every attention and MLP of a target over α, c and the predicted speedup.

    layers: 1 … 8. rates: the acceptance of all 4^layers sets, three digits of permille each; the
    number of a set in binary says what it leaves out, attention and MLP of the first block the
    highest bits. costs: bytes of {"attention", "mlp", "head"}. mask: the set. Raises TraitError for
    rates of another length.
    """

    module = "skip_switches"
    label = (
        "Skip switches: acceptance, cost and predicted speedup of a draft without some sublayers"
    )

    layers = traitlets.Int(8, min=1, max=8).tag(sync=True)
    rates = traitlets.Unicode().tag(sync=True)
    costs = traitlets.Dict().tag(sync=True)
    mask = traitlets.Int(0, min=0).tag(sync=True)

    def __init__(self, **traits):
        super().__init__(**traits)
        if len(self.rates) != 3 * 4**self.layers:
            raise traitlets.TraitError(
                f"rates has {len(self.rates)} digits: must be 3 for each of {4**self.layers} sets"
            )
        missing = {"attention", "mlp", "head"} - set(self.costs)
        if missing:
            raise traitlets.TraitError(f"costs lacks {sorted(missing)}")
