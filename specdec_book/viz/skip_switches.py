"""The skip switches: the sublayers that a self-draft keeps, and the predicted speedup."""

import traitlets

from specdec_book.viz.interactive import Interactive


def hundredths(rates: str) -> str:
    """Return rates of three digits each as rates of two digits each.

    0.995 and more become 0.99: only the whole target is always accepted.
    """
    parts = (int(rates[start : start + 3]) for start in range(0, len(rates), 3))
    return "".join(f"{min(99, round(rate / 10)):02d}" for rate in parts)


class SkipSwitches(Interactive):
    """A switch for every attention and MLP of a target, with α, c and the predicted speedup.

    A set of skipped sublayers is a binary number; the highest two bits are the attention and the
    MLP of the first pair.

    Attributes:
        targets: {"layers", "group", "rates", "costs"} by name. "layers": number of pairs of
            switches, 1 … 8. "group": neighboring blocks per pair. "rates": acceptance rates of all
            4^layers sets, permilles of three digits each (the page gets hundredths). "costs": bytes
            of the "attention" and the "mlp" of one pair and of the "head".
        target: Name of the target on display; default: the first.
        mask: The set of skipped sublayers.
    """

    module = "skip_switches"
    label = (
        "Skip switches: acceptance, cost and predicted speedup of a draft without some sublayers"
    )

    targets = traitlets.Dict()
    target = traitlets.Unicode()
    mask = traitlets.Int(0, min=0)

    def __init__(self, targets: dict[str, dict], **traits):
        for name, each in targets.items():
            missing = {"layers", "group", "rates", "costs"} - set(each)
            missing |= {"attention", "mlp", "head"} - set(each.get("costs", ()))
            if missing:
                raise traitlets.TraitError(
                    f"targets[{name!r}] has no {sorted(missing)}: must have all of them"
                )
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
