"""What a drafter cannot be made with, or cannot draft for, is refused by name before a model runs."""

import pytest
import torch
from features_zoo import random_head
from heads_zoo import random_blocks, random_correction, random_heads, random_speculator
from models_zoo import PROMPT, VOCABULARY, hugging_face, native
from registry import Letters, exit_head
from text_laws import TINY

from specdec_lite import CausalLM, TokenTree, drafters as d, stream
from specdec_lite.drafters import automatic
from specdec_lite.drafters.heads import Heads, HydraHeads
from specdec_lite.drafters.lengths import Confidence, Entropy, Heuristic, Optimal, Predicted
from specdec_lite.drafters.self_drafts import Chunks, LookaheadRows
from specdec_lite.drafters.trees import balanced, best_shape, fastest_shape, sibling_rates

TARGET = native(num_layers=4)
HEADS = random_heads(TARGET)
OTHER, SMALL = native(seed=3, num_layers=4), native(seed=3, vocab_size=40)
BARE = TARGET.model  # a module that is not wrapped
PAIR = TokenTree([0, 1, 0, 2, 0], [-1, -1, 0, -1, 1])
TOY = (0.6, 0.3)


def learnt(drafter, *ids):
    drafter.learn(ids)
    return drafter


def each(make, *values, **options):
    """Return the calls of a class with one wrong option each; the message names option and value."""
    named = [(name, value) for name, several in options.items() for value in several]
    return [
        (lambda n=name, v=value: make(*values, **{n: v}), f"{name}={value!r}")
        for name, value in named
    ]


MAKES = [
    *each(d.ModelDrafter, TARGET, gamma=[0, -1, 2.0, "4", None, True]),
    *each(d.BlockwiseDrafter, TARGET, HEADS, k=[0, -1, 5, 2.0, "2", None]),
    *each(d.HashPoolDrafter, gamma=[0], n=[0], slots=[0]),
    *each(d.LookaheadDrafter, window=[0], ngram=[1], guesses=[0]),
    *each(d.PromptLookupDrafter, gamma=[0], max_ngram=[0], min_ngram=[4]),
    *each(d.SuffixDrafter, gamma=[0], depth=[0], factor=[-1.0], least=[0.0], width=[0]),
    *each(
        d.RestDrafter.from_text,
        [1, 2, 3],
        nodes=[0],
        levels=[0],
        max_ngram=[17],
        min_ngram=[9],
        most=[0],
    ),
    *each(d.NgramDrafter.from_text, [0, 1, 2, 0, 1], 3, n=[0], gamma=[0]),
    *each(d.JacobiDrafter, gamma=[0]),
    *each(d.SparseCacheDrafter, TARGET, sinks=[-1], window=[0], gamma=[0]),
    *each(d.EarlyExitDrafter, TARGET, layers=[0, 4]),
    *each(d.QuantizedDrafter, TARGET, bits=[1, 9]),
    *each(d.BanditDrafter, [d.JacobiDrafter(2)], c=[-1], discount=[1.5], weight=[0]),
    *each(d.TokenRecyclingDrafter, TARGET, nodes=[0]),
    *each(d.SequoiaDrafter, TARGET, nodes=[0]),
    *each(d.SpecExecDrafter, TARGET, width=[0]),
    *each(d.OnlineDrafter, TARGET, every=[0], learning_rate=[-1]),
    *each(d.TextMatchDrafter, TARGET, Letters("a"), Letters("a"), most=[0]),
    *each(Entropy, 4, threshold=[-1]),
    *each(Confidence, 4, threshold=[1.5]),
    *each(Heuristic, 4, first=[5]),
    *each(Optimal, 4, c=[-0.1]),
    *each(Optimal, 4, 0.1, alpha=[2], memory=[-1]),
    *each(Predicted, 4, (1, 2, 3, 4), risk=[2]),
    (lambda: Predicted(4, (1, 2)), "must be 4 numbers"),
    (lambda: automatic(TARGET, passes=()), "passes"),
    (lambda: automatic(TARGET, passes=(1.0, 0.0)), "passes"),
    (lambda: d.BanditDrafter([]), "drafters"),
    *(
        (lambda p=p: d.BanditDrafter([d.JacobiDrafter(2)], priors=p), "priors")
        for p in ([1, 2], [-1])
    ),
    (lambda: d.ModelDrafter(BARE), "model is a Transformer"),
    (lambda: d.BlockwiseDrafter(BARE, HEADS), "target is a Transformer"),
    (lambda: d.BlockwiseDrafter(TARGET, "heads"), "heads is a str"),
    (lambda: d.BlockwiseDrafter(TARGET, Heads(16, 3)), "size 16"),
    (lambda: d.BlockwiseDrafter(TARGET, HEADS, 2, -1), "temperature=-1"),
    (lambda: d.BlockwiseDrafter.from_pretrained(BARE), "target is a Transformer"),
    (
        lambda: d.BlockwiseDrafter(native(dtype=torch.bfloat16), Heads(32, 3), k=4),
        r"heads are torch.float32 on cpu, the target is torch.bfloat16 on cpu: .*heads.to\(",
    ),
    (lambda: d.MedusaDrafter(TARGET, HEADS, TokenTree.chain([0] * 4)), "tree has 4 levels"),
    (
        lambda: d.MedusaDrafter(TARGET, HEADS, TokenTree([VOCABULARY], [-1])),
        f"must be in 0 … {VOCABULARY - 1}",
    ),
    (lambda: d.MedusaDrafter(TARGET, HEADS, TokenTree([-1], [-1])), "tree holds ranks -1"),
    (lambda: d.MedusaDrafter(BARE, HEADS, PAIR), "target is a Transformer"),
    (lambda: d.MedusaDrafter(TARGET, TARGET, PAIR), "heads is a CausalLM"),
    (lambda: d.MedusaDrafter(TARGET, HEADS, [0, 0]), "tree is a list"),
    (lambda: d.MedusaDrafter.from_pretrained("target"), "target is a str"),
    (lambda: d.MedusaDrafter(native(**TINY), HEADS, PAIR), "size 32"),
    (
        lambda: d.EagleDrafter(TARGET, random_head(TARGET, ids=torch.tensor([3, 4])), PAIR),
        "ranks 0 … 2",
    ),
    (lambda: d.NgramDrafter.from_text([0], 3), "n=3"),
    (lambda: d.NgramDrafter.from_text([0, 1, 2, 0, 1], 2), "ids holds 2"),
    (lambda: d.NgramDrafter.from_text([0, 1, 2, 0, 1], 3, draft_temperature=-1), "temperature=-1"),
    (lambda: d.ReferenceLookupDrafter([[1, -2]]), "references"),
    (lambda: d.ReferenceLookupDrafter([[0.5]]), "references"),
    (lambda: d.TokenRecyclingDrafter(TARGET, shape=TokenTree([8], [-1])), "shape's ranks=8"),
    (lambda: d.TokenRecyclingDrafter(BARE), "target is a Transformer"),
    (lambda: d.EarlyExitDrafter(hugging_face("Llama"), 1), "target wraps a .*Llama"),
    (lambda: d.EarlyExitDrafter(BARE, 1), "target is a Transformer"),
    (lambda: d.EarlyExitDrafter(TARGET, 1, adapter=exit_head(TARGET, 2)), "layers=1: "),
    (lambda: d.EarlyExitDrafter.from_pretrained(TARGET), "nothing ships for it"),
    (lambda: d.LayerSkipDrafter(TARGET, [(4, "mlp")]), "skip's block=4"),
    (lambda: d.LayerSkipDrafter(TARGET, [(0, "norm")]), "skip holds 'norm'"),
    (lambda: d.PassDrafter(TARGET, LookaheadRows(7, 2)), "size 7"),
    (lambda: Chunks([0], 4, 8), "budget=4"),
    (lambda: d.SparseCacheDrafter(TARGET, select=Chunks([4])), "select's layer=4"),
    (lambda: d.CascadeDrafter(TARGET, TARGET), "inner is a CausalLM"),
    (lambda: d.CascadeDrafter(TARGET, d.ModelDrafter(TARGET), 0), "gamma=0"),
    (lambda: best_shape((0.6, 0.6), 4), "at most 1 in all"),
    (lambda: best_shape((), 4), "one share for each sibling"),
    (lambda: best_shape((-0.1,), 4), r"rates\[0\]=-0.1"),
    (lambda: best_shape(TOY, -1), "nodes=-1"),
    (lambda: fastest_shape(TOY, {2: 1.0}), r"must give T\(1\)"),
    (lambda: fastest_shape(TOY, {1: 0.0}), "above 0"),
    (lambda: sibling_rates([], 2), "nothing to measure"),
    (lambda: balanced([2, 0]), "widths=0"),
    (lambda: d.MergedDrafter([]), "drafters is empty"),
    (lambda: d.MergedDrafter([TARGET]), r"drafters\[0\] is a CausalLM"),
    (lambda: d.FixedTreeDrafter(TARGET, [2, 2]), "tree is a list"),
    (lambda: d.SpecExecDrafter(BARE), "draft is a Transformer"),
    (lambda: d.BlockDiffusionDrafter(TARGET, random_blocks(TARGET), 4), "gamma=4"),
    (lambda: d.BlockDiffusionDrafter(TARGET, TARGET), "head is a CausalLM"),
    (lambda: d.MarkovDrafter(TARGET, HEADS, random_correction(SMALL)), "40 tokens"),
    (lambda: d.MarkovDrafter(TARGET, HEADS, TARGET), "correction is a CausalLM"),
    (lambda: d.PardDrafter(TARGET, 3, 48), r"mask_id=48"),
    (lambda: d.HydraDrafter(TARGET, HydraHeads(64, 2)), "size 64"),
    (lambda: d.MlpSpeculatorDrafter(TARGET, random_speculator(SMALL)), "speculator"),
    (lambda: d.EagleDrafter.from_pretrained(TARGET, 4), "version=4"),
    (lambda: d.EagleDrafter(TARGET, TARGET), "head is a CausalLM"),
    (lambda: d.EagleDrafter(TARGET, random_head(native(**TINY))), "size 16"),
    (lambda: d.ConfidenceTree(nodes=0), "nodes=0"),
    (lambda: d.TextMatchDrafter(TARGET, Letters("a"), None), "tokenizer is a NoneType"),
    (
        lambda: d.TextMatchDrafter(TARGET, Letters("a"), Letters("a"), Confidence(3, 0.4)),
        "looks at no probabilities",
    ),
    (lambda: d.TemperedDrafter(d.ModelDrafter(TARGET), -1), "temperature=-1"),
    (lambda: d.TemperedDrafter(TARGET), "inner is a CausalLM"),
]
DRAFTS_FOR = [
    (lambda: learnt(d.HashPoolDrafter(n=1), 1, 48), "learnt token 48"),
    (lambda: learnt(d.SuffixDrafter(), 50), "learnt token 50"),
    (lambda: d.JacobiDrafter(4, [3, 48]), "guess=48"),
    (lambda: d.NgramDrafter.from_text([0, 1, 2, 0, 1], 3), "3 tokens"),
    (lambda: d.ReferenceLookupDrafter([torch.tensor([3, 48])]), "references holds 48"),
    (lambda: d.RestDrafter.from_text([1, 48]), "ids holds 48"),
    (lambda: d.TokenRecyclingDrafter(OTHER), "another target"),
    (lambda: d.EarlyExitDrafter(OTHER, 2), "another target"),
    (lambda: d.SparseCacheDrafter(OTHER), "another target"),
    (lambda: d.MergedDrafter([d.JacobiDrafter(2), d.EarlyExitDrafter(OTHER, 2)]), "another target"),
    (lambda: d.CascadeDrafter(SMALL, d.ModelDrafter(SMALL)), "40 tokens"),
    (
        lambda: d.CascadeDrafter(TARGET, d.ModelDrafter(native(max_positions=16), 2)),
        "drafter's context length of 16",
    ),
]


@pytest.mark.parametrize("make, message", MAKES, ids=[message for _, message in MAKES])
def test_a_drafter_cannot_be_made_with(make, message, monkeypatch):
    monkeypatch.setattr(CausalLM, "score", lambda *a, **k: pytest.fail("a model ran"))
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize("make, message", DRAFTS_FOR, ids=[message for _, message in DRAFTS_FOR])
def test_a_drafter_cannot_draft_for_another_target(make, message, monkeypatch):
    drafter = make()
    monkeypatch.setattr(CausalLM, "score", lambda *a, **k: pytest.fail("a model ran"))
    with pytest.raises(ValueError, match=message):
        stream(TARGET, PROMPT, drafter)


def test_heads_of_the_targets_own_dtype_are_taken():
    target = native(dtype=torch.bfloat16)
    d.BlockwiseDrafter(target, Heads(32, 3).to(target.device, target.dtype), k=4)
