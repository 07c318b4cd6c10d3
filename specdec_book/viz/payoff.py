"""Will it pay: the cost of a round against the plain passes that it replaces, on real hardware."""

import traitlets

from specdec_book.viz.interactive import Interactive


class Payoff(Interactive):
    """Menus for a pair and a machine, sliders for the workload, and the predicted speedup.

    Attributes:
        pair: Index in the module's menu of pairs.
        machine: Index in the module's menu of machines.
        alpha: Acceptance rate, 0 … 1.
        gamma: Draft length, 1 … 16.
        batch: Sequences in a pass, 1 … 256.
        context: Tokens of each sequence, 0 … 131072.
        layer: Shortest time of a layer in microseconds, 0 … 100.
        price: Price of the machine per hour, in dollars, 0.1 … 10.
    """

    module = "payoff"
    label = "Will it pay: the cost of a round in plain passes, against the tokens that it emits"

    pair = traitlets.Int(0, min=0, max=5).tag(sync=True)
    machine = traitlets.Int(0, min=0, max=3).tag(sync=True)
    alpha = traitlets.Float(0.7, min=0, max=1).tag(sync=True)
    gamma = traitlets.Int(4, min=1, max=16).tag(sync=True)
    batch = traitlets.Int(1, min=1, max=256).tag(sync=True)
    context = traitlets.Int(1024, min=0, max=131072).tag(sync=True)
    layer = traitlets.Float(25, min=0, max=100).tag(sync=True)
    price = traitlets.Float(3, min=0.1, max=10).tag(sync=True)
