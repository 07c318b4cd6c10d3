"""Draft at a temperature of the draft's own."""

from dataclasses import replace

from specdec_lite.drafters.combined.wrapper import WrapperDrafter
from specdec_lite.sampling import Sampling
from specdec_lite.speculation import Context, Drafter


class TemperedDrafter(WrapperDrafter):
    """Draft at another temperature than the target's, with the target's top-k and top-p.

    At 0 the tokens are chosen (argmax); above 0 they are drawn, and the rows report the
    distributions they were drawn from. So every temperature is lossless; the acceptance differs.

    Args:
        inner: any drafter.
        temperature: temperature of the draft, ≥ 0.
    """

    def __init__(self, inner: Drafter, temperature: float = 0.0):
        super().__init__(inner)
        self.temperature = Sampling(temperature).temperature

    def inner_context(self, context: Context) -> Context:
        return replace(context, sampling=replace(context.sampling, temperature=self.temperature))
