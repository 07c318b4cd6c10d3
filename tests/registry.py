"""What the invariants run over: one line for every drafter and every rule. A new method enters
here, and nowhere else.
"""

from pathlib import Path

import broken
import torch
from broken import grow
from models_zoo import GrownDrafter, TreeDrafter, Wrapped, perturbed, two_drawn, two_likeliest

from specdec_lite import acceptance as a
from specdec_lite.acceptance import draw_chain
from specdec_lite.drafters import (
    BlockwiseDrafter,
    CascadeDrafter,
    EarlyExitDrafter,
    MedusaDrafter,
    ModelDrafter,
    SparseCacheDrafter,
)
from specdec_lite.drafters.heads import Heads
from specdec_lite.drafters.lengths import Confidence, Heuristic
from specdec_lite.engine.models import CausalLM
from specdec_lite.gpu.on_device import DeviceDrafter
from specdec_lite.tree import TokenTree


def heads(target: CausalLM, count: int = 3) -> Heads:
    """Extra heads with random weights: useless drafts, but never harmful ones."""
    made, generator = Heads(target.hidden_size, count), torch.Generator().manual_seed(5)
    torch.nn.init.normal_(made.down, std=0.3, generator=generator)
    torch.nn.init.normal_(made.up, std=0.3, generator=generator)
    return made.to(target.dtype).requires_grad_(False)


def printed() -> type:
    """The drafter that CONTRIBUTING.md shows, as it stands there."""
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = text.split("## Add a method")[1].split("```python\n")[1].split("```")[0]
    scope: dict = {}
    exec(code, scope)
    return scope["EchoDrafter"]


# Drafters: name → a drafter for a target, of depth 2 or 3. Each is a class of
# specdec_lite.drafters, or a tree that one could draft.
DRAFTERS = {
    "draft model": lambda target: ModelDrafter(perturbed(target), 3),
    "the target as its own draft": lambda target: ModelDrafter(target, 3),
    "blockwise heads, drawn": lambda target: BlockwiseDrafter(target, heads(target), 4),
    "blockwise heads, chosen": lambda target: BlockwiseDrafter(
        target, heads(target), 3, draft_temperature=0.0
    ),
    "Medusa heads, a sparse tree": lambda target: MedusaDrafter(
        target, heads(target, 2), TokenTree([0, 1, 0, 2, 0], [-1, -1, 0, -1, 1])
    ),
    "draft model that stops when unsure": lambda target: ModelDrafter(
        perturbed(target), Confidence(3, 0.6)
    ),
    "draft model of changing length": lambda target: ModelDrafter(
        perturbed(target), Heuristic(3, first=1)
    ),
    "the drafter of CONTRIBUTING.md": lambda target: printed()(3),
    "a wrapped drafter": lambda target: Wrapped(ModelDrafter(perturbed(target), 2)),
    "a cascade": lambda target: CascadeDrafter(
        perturbed(target), ModelDrafter(perturbed(target, 0.25, seed=4), 2), 3
    ),
    "a cascade over heads": lambda target: CascadeDrafter(
        middle := perturbed(target), BlockwiseDrafter(middle, heads(middle), 3), 3
    ),
    "early exit": lambda target: EarlyExitDrafter(target, 1, 3, reuse=False),
    "early exit whose layers are not run again": lambda target: EarlyExitDrafter(target, 1, 3),
    "the target on sinks and a window": lambda target: SparseCacheDrafter(target, 1, 3, 3),
    "a tree grown over cached nodes, chosen": lambda target: GrownDrafter(
        perturbed(target), two_likeliest
    ),
    "a tree drawn level by level over cached nodes": lambda target: GrownDrafter(
        perturbed(target), two_drawn
    ),
    "a tree of chosen tokens": lambda target: TreeDrafter(
        perturbed(target), grow(broken.chosen(2)), 2
    ),
    "a tree drawn with replacement, equal nodes merged": lambda target: TreeDrafter(
        perturbed(target), grow(broken.with_replacement(2), merge="nodes"), 2
    ),
    "a tree drawn without replacement": lambda target: TreeDrafter(
        perturbed(target), grow(broken.without_replacement(2)), 2
    ),
    "a tree drawn, then chosen": lambda target: TreeDrafter(
        perturbed(target), grow(broken.mixed(2)), 2
    ),
}

# Drafters that use a part of the target's layers or of its cache.
NATIVE_ONLY = {
    "early exit",
    "early exit whose layers are not run again",
    "the target on sinks and a window",
}

# Drafters that send their chance ahead as uniforms, so no law of theirs can be enumerated; each is
# a drafter above, draw by draw (test_on_device).
SEEDED_DRAFTERS = {
    "draft model, its tokens left on the device": lambda target: DeviceDrafter(perturbed(target), 3)
}

# Ways to draft, for exact laws: name → (propose, γ).
CHAINS = {"chain, drawn": (draw_chain, 2), "chain, chosen": (grow(broken.chosen(1)), 2)}
TREES = {
    "tree, chosen": (grow(broken.chosen(2)), 1),
    "tree, drawn with replacement": (grow(broken.with_replacement(2)), 1),
    "tree, equal nodes merged": (grow(broken.with_replacement(2), merge="nodes"), 1),
    "tree, drawn without replacement": (grow(broken.without_replacement(2)), 1),
    "tree, drawn then chosen": (grow(broken.mixed(2)), 1),
}
# Rules: each with the ways of drafting that it judges.
RULES = {
    rule.name: (rule, ways)
    for rule, ways in (
        (a.speculative_sampling, CHAINS | TREES),
        (a.sample_and_match, CHAINS | TREES),
        (a.block_verification, CHAINS),
        (a.exact_match, CHAINS | TREES),
        (a.lenient(1.0), CHAINS | TREES),
        (a.lenient_scaled(1.0), CHAINS | TREES),
        (a.rejection_sampling, CHAINS),
        (a.lenient(0.6), CHAINS | TREES),
        (a.lenient_scaled(0.6), CHAINS | TREES),
        (a.lenient_argmax(0.6), CHAINS | TREES),
        (a.typical(), CHAINS | TREES),
        (a.top_k_match(2), CHAINS | TREES),
        (a.distance_match(1), CHAINS | TREES),
    )
}
