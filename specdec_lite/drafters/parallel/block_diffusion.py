"""DFlash: fill a block of masks in one pass whose layers all read the target's states.

Source: Chen, Liang and Liu 2026, arXiv 2602.06036; for heads with a correction and a confidence
(DSpark), Cheng et al. 2026; for heads with a selector, see `block_parts`.
"""

from pathlib import Path

from specdec_lite import checks
from specdec_lite.drafters.eagle.published import is_published
from specdec_lite.drafters.heads.heads import check_size
from specdec_lite.drafters.heads.vocabulary import output_head
from specdec_lite.drafters.lengths import probability
from specdec_lite.drafters.parallel.block_head import BlockHead
from specdec_lite.drafters.parallel.block_session import BlockSession
from specdec_lite.drafters.parallel.parallel import check_correction
from specdec_lite.drafters.parallel.published_blocks import read_blocks
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import find_weights, load
from specdec_lite.speculation import Context, Drafter, Limits


class BlockDiffusionDrafter(Drafter):
    """Draft by filling the masks after the last token, all in one pass.

    Args:
        target: the model that decodes; its embeddings and vocabulary projection are used.
        head: block head trained on this target.
        gamma: draft length, 1 … block size − 1; None: block size − 1. The whole block is always
            filled, since its positions attend to each other; tokens beyond γ are not used. A head
            that also predicts from the last token of the text drafts up to its block size.
        least: draft a further token only while the head predicts that it is accepted with at least
            this probability; 0: draft γ tokens. Needs a head with a confidence part (DSpark).

    Raises:
        ValueError: if `least` is above 0 and the head has no confidence part.
    """

    def __init__(
        self, target: CausalLM, head: BlockHead, gamma: int | None = None, least: float = 0.0
    ):
        self.target = checks.model("target", target)
        self.head = checks.instance("head", head, BlockHead)
        check_size("head reads states", head.config.hidden_size, target)
        self.output_head = output_head(target, head.words)
        if head.correction is not None:
            check_correction(head.correction, self.output_head)
        self.gamma = checks.whole("gamma", head.most if gamma is None else gamma, 1, head.most)
        self.least = probability("least", least)
        if self.least and head.confidence is None:
            raise ValueError(f"least={least}: the head has no part that predicts acceptance")
        self.hidden_layers = head.layers

    @classmethod
    def from_pretrained(
        cls,
        target: CausalLM,
        path: str | Path | None = None,
        gamma: int | None = None,
        least: float = 0.0,
    ) -> "BlockDiffusionDrafter":
        """Load a trained head.

        Args:
            target: the model that decodes.
            path: file or folder of the head, ours or a published one (DFlash, DSpark, DFlash 2);
                None for the shipped one.
            gamma: as for the class.
            least: as for the class.
        """
        if is_published(path):
            return cls(target, read_blocks(str(path), target), gamma, least)
        head = load(find_weights("block_diffusion", target, path), target, BlockHead)
        return cls(target, head, gamma, least)

    def start(self, context: Context) -> BlockSession:
        return BlockSession(
            self.target, self.head, self.output_head, self.gamma, self.least, context
        )

    def check(self, target: CausalLM, positions: int) -> None:
        checks.own_target(self.target, target)

    def limits(self) -> Limits:
        return Limits.chain(self.gamma)
