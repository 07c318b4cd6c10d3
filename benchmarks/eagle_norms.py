"""Train the pair's one-block heads with and without norms, on the text or imitating the target.

    python -m benchmarks run eagle-norms      # an hour and a half

Equal steps, equal text, nearly equal sizes. It asks what makes the block of multi-token prediction
accept more than EAGLE-1's, and what EAGLE-3.1's norms change, also after more training. Rates
alone: the machine may be busy.
"""

from functools import cached_property

import torch
from torch import Tensor

from specdec_lite.drafters.eagle.feature_head import Eagle1Head, Eagle3Head, MtpHead, Pair
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import fingerprint
from specdec_lite.training.head_texts import Texts, pair_texts
from specdec_lite.training.unroll import RECIPES, Recipe

from .eagle import EagleAblations, rates, train_head


class NormedInputs(Eagle1Head):
    """EAGLE-1's block with the input norms of multi-token prediction."""

    def __init__(self, layers, vocab_size, **shape):
        super().__init__(layers, vocab_size, **shape)
        self.inputs = Pair(self.size, self.shape.norm_eps)

    def enter(self, embedded: Tensor, state: Tensor) -> Tensor:
        return self.fuse(self.inputs(torch.cat((embedded, state), -1)))


class Eagle31:
    """EAGLE-3.1: a norm for each fused state, and the normed output is fed back."""

    @staticmethod
    def for_target(target: CausalLM) -> Eagle3Head:
        """Build an untrained head."""
        return Eagle3Head.for_target(target, fc_norm=True, norm_output=True)


IMITATING, ON_TEXT = Recipe(distillation=1.0), RECIPES["mtp"]
HEADS = {
    "EAGLE-1, imitating": (Eagle1Head, IMITATING, False),
    "EAGLE-1, on text": (Eagle1Head, ON_TEXT, False),
    "normed inputs, imitating": (NormedInputs, IMITATING, False),
    "normed inputs, on text": (NormedInputs, ON_TEXT, False),
    "MTP, imitating": (MtpHead, IMITATING, False),
    "MTP, on text": (MtpHead, ON_TEXT, False),
    "EAGLE-3": (Eagle3Head, RECIPES["3"], False),
    "EAGLE-3.1": (Eagle31, RECIPES["3"], False),
}
MORE = 4
ON_MORE = {f"{name}, {MORE} × the text": HEADS[name] for name in ("EAGLE-3", "EAGLE-3.1")}
HEADS |= ON_MORE


class EagleNorms(EagleAblations):
    """The parts are the heads."""

    name = "eagle-norms"
    what = "norms and losses of one-block heads on the shipped target: rates of acceptance"
    time = "an hour and a half"
    unrelated = ("cache", "heads")

    @classmethod
    def add_options(cls, parser):
        super().add_options(parser)
        names = list(HEADS)
        parser.add_argument("--heads", nargs="+", choices=names, default=names, help="default: all")

    def parts(self):
        return [*self.options.heads]

    @cached_property
    def more_texts(self) -> Texts:
        """Many more training texts, and the same held-out texts."""
        if self.options.quick:
            return self.texts
        pair, options = self.pair, self.options
        more = pair_texts(pair.target, pair.tokenizer, options.cache, MORE * options.texts)
        return Texts(more.training, self.texts.held_out)

    def run(self, part):
        texts = self.more_texts if part in ON_MORE else self.texts
        head, inputs = train_head(part, self.pair.target, texts, self.options, HEADS)
        return rates(head, inputs, self.texts)

    def summarise(self, rows):
        return {
            "target": fingerprint(self.pair.target),
            "texts": self.options.texts,
            "epochs": self.options.epochs,
            "heads": rows,
        }

    def restore(self, data):
        return data["heads"]
