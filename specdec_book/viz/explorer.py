"""The α–γ–c explorer: the predicted speedup of speculative decoding."""

from collections.abc import Sequence

import traitlets

from specdec_book.viz.interactive import Interactive


class Explorer(Interactive):
    """Sliders for α, γ and c over the speedup curve, its optimum and its break-even region.

    Attributes:
        alpha: Acceptance rate, [0, 1].
        gamma: Draft length, 1 … 24.
        c: Time of one draft pass over one target pass, [0, 1.2].
        c_hat: Operations of one draft pass over one target pass, [0, 1.2].
        step_cost: Extra time per verified token: T(k)/T(1) = 1 + step_cost·(k − 1), [0, 0.5].
        overhead: Time of everything else in a round over T(1), [0, 2].
        plain_overhead: Time of everything else in a plain step over T(1), [0, 2].
        presets: {"label", "group", any of the numbers above} each, listed in the menu after the
            paper's own. A preset with "measured" (a speedup) is drawn as a square at its gamma. With
            `levers` it also has "by" (who measured), "source" (an address) and "facts" ([name, text]).
        levers: Whether the presets are measured pairs alone: the square stays while sliders move, and
            the task asks which slider raises the prediction.
    """

    module = "explorer"
    label = "Explorer: speedup by draft length, for any acceptance rate α and draft cost c"

    alpha = traitlets.Float(0.8, min=0, max=1)
    gamma = traitlets.Int(4, min=1, max=24)
    c = traitlets.Float(0.1, min=0, max=1.2)
    c_hat = traitlets.Float(0.1, min=0, max=1.2)
    step_cost = traitlets.Float(0.0, min=0, max=0.5)
    overhead = traitlets.Float(0.0, min=0, max=2)
    plain_overhead = traitlets.Float(0.0, min=0, max=2)
    levers = traitlets.Bool(False)
    presets = traitlets.List(traitlets.Dict())

    @classmethod
    def of_pairs(cls, presets: Sequence[dict]) -> "Explorer":
        """Return the explorer of measured pairs, with the first one chosen."""
        start = {name: presets[0][name] for name in cls.class_trait_names() if name in presets[0]}
        return cls(levers=True, presets=list(presets), **start)
