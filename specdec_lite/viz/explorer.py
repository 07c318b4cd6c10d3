"""The α–γ–c explorer: what a draft is worth, before anything is run."""

import traitlets

from specdec_lite.viz.interactive import Interactive


class Explorer(Interactive):
    """Sliders for α, γ and c over the speedup curve, with the optimum, the break-even region and
    the costs' share.

    alpha: [0, 1]; gamma: 1 … 24; c: [0, 1.2]; c_hat: draft/target arithmetic, [0, 1.2]; step_cost:
    extra time per verified token, T(k)/T(1) = 1 + step_cost·(k − 1), [0, 0.2]; overhead: all else
    of a round over T(1), [0, 0.5]. presets: list of {"label", "group", and any of the numbers
    above}, offered in a menu after the paper's own; one that also has "measured", a speedup, is
    drawn as a square at its gamma.
    """

    module = "explorer"
    label = "Explorer: speedup by draft length, for any acceptance rate α and draft cost c"

    alpha = traitlets.Float(0.8, min=0, max=1).tag(sync=True)
    gamma = traitlets.Int(4, min=1, max=24).tag(sync=True)
    c = traitlets.Float(0.1, min=0, max=1.2).tag(sync=True)
    c_hat = traitlets.Float(0.1, min=0, max=1.2).tag(sync=True)
    step_cost = traitlets.Float(0.0, min=0, max=0.2).tag(sync=True)
    overhead = traitlets.Float(0.0, min=0, max=0.5).tag(sync=True)
    presets = traitlets.List(traitlets.Dict()).tag(sync=True)
