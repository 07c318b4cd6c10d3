"""DFlash: fill a block of masks in one pass whose layers all read the target's states.

Source: Chen, Liang and Liu 2026, arXiv 2602.06036; for heads with a correction, Cheng et al. 2026.
"""

from pathlib import Path

from specdec_lite import checks
from specdec_lite.drafters.eagle.published import is_published, read_blocks
from specdec_lite.drafters.heads.heads import check_size
from specdec_lite.drafters.heads.vocabulary import output_head
from specdec_lite.drafters.parallel.block_head import BlockHead
from specdec_lite.drafters.parallel.block_session import BlockSession
from specdec_lite.drafters.parallel.parallel import check_correction
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.weights import find_weights, load
from specdec_lite.speculation import Context, Drafter, Limits


class BlockDiffusionDrafter(Drafter):
    """Draft by filling the masks after the last token, all in one pass.

    Args:
        target: the model that decodes; its embeddings and vocabulary projection are used.
        head: block head trained on this target.
        gamma: draft length, 1 … block size − 1; None: block size − 1. The whole block is always
            filled, since its positions attend to each other; tokens beyond γ are not used.
    """

    def __init__(self, target: CausalLM, head: BlockHead, gamma: int | None = None):
        self.target = checks.model("target", target)
        self.head = checks.instance("head", head, BlockHead)
        check_size("head reads states", head.config.hidden_size, target)
        self.output_head = output_head(target, head.words)
        if head.correction is not None:
            check_correction(head.correction, self.output_head)
        most = head.size - 1
        self.gamma = checks.whole("gamma", most if gamma is None else gamma, 1, most)
        self.hidden_layers = head.layers

    @classmethod
    def from_pretrained(
        cls, target: CausalLM, path: str | Path | None = None, gamma: int | None = None
    ) -> "BlockDiffusionDrafter":
        """Load a trained head.

        Args:
            target: the model that decodes.
            path: file or folder of the head, ours or a published one; None for the shipped one.
            gamma: as for the class.
        """
        if is_published(path):
            return cls(target, read_blocks(str(path), target), gamma)
        head = load(find_weights("block_diffusion", target, path), target, BlockHead)
        return cls(target, head, gamma)

    def start(self, context: Context) -> BlockSession:
        return BlockSession(self.target, self.head, self.output_head, self.gamma, context)

    def check(self, target: CausalLM, positions: int) -> None:
        checks.own_target(self.target, target)

    def limits(self) -> Limits:
        return Limits.chain(self.gamma)
