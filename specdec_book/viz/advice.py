"""The box of "You serve a model": six inputs, and one card that says what to run."""

import traitlets

from specdec_book.viz.interactive import Interactive
from specdec_lite.simulation.advice import INPUTS, TABLE

FIRST = TABLE["situations"][0]["inputs"]


def menu(name: str) -> traitlets.Enum:
    """Return the trait of a menu: one of its entries' keys."""
    keys = [each if isinstance(each, int) else each["key"] for each in INPUTS[name]]
    return traitlets.Enum(keys, FIRST[name])


class Advice(Interactive):
    """Six menus, the card that follows from them, and fields for one measured round."""

    module = "advice"
    label = "How to serve your target: six inputs, and one card of seven rows"

    target, machine, kind, engine = map(menu, ("target", "machine", "kind", "engine"))
    batch, context = map(menu, ("batch", "context"))  # concurrent requests, and tokens of each
    tau = traitlets.Float(0, min=0, max=17)  # of a measured round; 0 if there is none
    gamma = traitlets.Int(3, min=1, max=16)
    speedup = traitlets.Float(0, min=0, max=17)
    alpha = traitlets.Float(0, min=0, max=1)  # of the reader's own text; 0 if it is not known
