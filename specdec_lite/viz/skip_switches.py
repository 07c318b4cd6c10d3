"""The skip switches: which sublayers of the target draft, and what that promises, from recorded
passes.
"""

import traitlets

from specdec_lite.viz.interactive import Interactive


def hundredths(rates: str) -> str:
    """Rates of three digits each as rates of two; .995 and more are .99, as only the whole target is
    always accepted.
    """
    parts = (int(rates[place : place + 3]) for place in range(0, len(rates), 3))
    return "".join(f"{min(99, round(rate / 10)):02d}" for rate in parts)


class SkipSwitches(Interactive):
    """A switch for every attention and MLP of a target over α, c and the predicted speedup.

    targets: {name: {"layers", "group", "rates", "costs"}}. layers: pairs of switches, 1 … 8, each
    of `group` neighbouring blocks. rates: the acceptance of all 4^layers sets, three digits of
    permille each, of which a page gets the hundredths; the number of a set in binary says what it
    leaves out, attention and MLP of the first pair the highest bits. costs: bytes of {"attention",
    "mlp", "head"}, the first two of a whole pair. target: the name shown, the first by default.
    mask: the set. Raises TraitError for what is missing, and for rates of another length.
    """

    module = "skip_switches"
    label = (
        "Skip switches: acceptance, cost and predicted speedup of a draft without some sublayers"
    )

    targets = traitlets.Dict().tag(sync=True)
    target = traitlets.Unicode().tag(sync=True)
    mask = traitlets.Int(0, min=0).tag(sync=True)

    def __init__(self, targets: dict[str, dict], **traits):
        for name, each in targets.items():
            missing = {"layers", "group", "rates", "costs"} - set(each)
            missing |= {"attention", "mlp", "head"} - set(each.get("costs", ()))
            if missing:
                raise traitlets.TraitError(f"targets[{name!r}] lacks {sorted(missing)}")
            sets = 4 ** each["layers"]
            if len(each["rates"]) != 3 * sets or not 1 <= each["layers"] <= 8:
                raise traitlets.TraitError(
                    f"targets[{name!r}] has {each['layers']} layers and {len(each['rates'])} digits"
                    f" of rates: must be 1 … 8, and 3 for each of {sets} sets"
                )
        targets = {
            name: each | {"rates": hundredths(each["rates"])} for name, each in targets.items()
        }
        super().__init__(targets=targets, **{"target": next(iter(targets), "")} | traits)
        if self.target not in targets:
            raise traitlets.TraitError(f"target={self.target!r}: must be one of {list(targets)}")
