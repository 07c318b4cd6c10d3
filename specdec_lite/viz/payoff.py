"""Will it pay: a round's costs against the plain passes that it replaces, on real hardware."""

import traitlets

from specdec_lite.viz.interactive import Interactive


class Payoff(Interactive):
    """Menus for a pair and a machine, sliders for what changes from day to day, and the verdict.

    pair, machine: places in the module's menus. alpha: 0 … 1; gamma: 1 … 16; batch: 1 … 256;
    context: tokens, 0 … 131072; fixed: milliseconds a pass takes beside reading and arithmetic, 0 …
    2.
    """

    module = "payoff"
    label = "Will it pay: a round's costs in plain passes, against the tokens that it emits"

    pair = traitlets.Int(0, min=0, max=5).tag(sync=True)
    machine = traitlets.Int(0, min=0, max=3).tag(sync=True)
    alpha = traitlets.Float(0.7, min=0, max=1).tag(sync=True)
    gamma = traitlets.Int(4, min=1, max=16).tag(sync=True)
    batch = traitlets.Int(1, min=1, max=256).tag(sync=True)
    context = traitlets.Int(1024, min=0, max=131072).tag(sync=True)
    fixed = traitlets.Float(0.2, min=0, max=2).tag(sync=True)
