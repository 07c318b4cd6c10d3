"""What the public names refuse: the error begins with the argument, and no model has run before it.

The rows are in arguments.txt. The files of others are in drafters/test_published.py and loading/.
"""
# ruff: noqa: F401  (the rows name what is imported)

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from architectures import tiny
from heads_zoo import random_blocks, random_correction, random_head, random_heads, random_speculator
from letters import Letters
from models_zoo import PROMPT, Wrapped, build, hugging_face, native, perturbed

import specdec_lite
from specdec_lite import CausalLM, TokenTree, drafters, roofline, timing
from specdec_lite.diagnosis import commands, lossless, metrics
from specdec_lite.drafters import BlockwiseDrafter, MedusaDrafter, ModelDrafter, self_drafts, trees
from specdec_lite.drafters.heads import ExitHead, Heads, HydraHeads
from specdec_lite.drafters.ngrams import Counts, NgramModel, SuffixArray
from specdec_lite.engine.transformer import Transformer
from specdec_lite.gpu import graphs, on_device, whole_draft
from specdec_lite.gpu.graphs import StaticLM
from specdec_lite.grammar import Grammar
from specdec_lite.loading import checkpoints
from specdec_lite.loading.custom_generate import SpeculativeGenerate
from specdec_lite.measure import machine
from specdec_lite.proposal import Proposal
from specdec_lite.scheduling import FirstDrop
from specdec_lite.simulation import clock, estimate, goodput, simulate, sizes
from specdec_lite.texts import benchmark_prompts
from specdec_lite.training import Plan, anchors, draft, export

ROWS = (Path(__file__).parent / "arguments.txt").read_text("utf-8")


def elsewhere():
    """Return a model that reports another device."""
    model = native()
    model.device = torch.device("meta")
    return model


def heads_elsewhere():
    drafter = with_heads(native())
    drafter.target.device = torch.device("meta")
    return drafter


def with_heads(target):
    return BlockwiseDrafter(target, random_heads(target), 3)


def learnt(drafter, *ids):
    drafter.learn(ids)
    return drafter


def wide_tree():
    heads = Heads(STATIC.hidden_size, 3).to(STATIC.dtype)
    return MedusaDrafter(STATIC, heads, TokenTree([0, 1, 0, 0, 1], [-1, -1, 0, 1, 1]))


class Sees(Wrapped):
    """A drafter that needs a hidden state of no layer."""

    def __init__(self, inner):
        super().__init__(inner)
        self.hidden_layers = ("finl",)


def in_training():
    model = CausalLM(build("GPT2", {}))
    model.model.train()
    return model


def filled(model):
    """Return a cache of 5 tokens, of which the last pass fed 2."""
    cache = model.new_cache()
    model.score([1, 2, 3], cache)
    model.score([4, 5], cache)
    return cache


def score(cache, *arguments, **options):
    return (L if cache is OURS else LLAMA).score(arguments[0], cache, *arguments[1:], **options)


def measure(**change):
    drafter = ModelDrafter(native(num_layers=1, max_positions=64), 2)
    usual = dict(target=T, drafter=drafter, ks=(1, 2), context=8, new_tokens=4, prompt=[1, 2, 3])
    return timing.measure_costs(**usual | change)


def estimated(**change):
    usual = dict(target=DENSE, draft=SMALL, hardware=H100, alpha=0.8, gamma=4)
    return estimate.estimate(**usual | change)


def encoder_decoder():
    sizes = dict(vocab_size=32, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))


def hooked(model=None, ids=None, **options):
    """Call `model.generate` of transformers with our loop."""
    loop = SpeculativeGenerate(drafters.PromptLookupDrafter(4))
    usual = dict(max_new_tokens=8, do_sample=False, custom_generate=loop)
    return (model or LLAMA.model).generate(torch.tensor(ids or [P]), **usual | options)


def preparing(**change):
    """Return a model that changes what it prepares for its first pass, as a soft prompt does."""
    model = build("Llama", {})
    own = model.prepare_inputs_for_generation
    model.prepare_inputs_for_generation = lambda *ids, **given: own(*ids, **given) | change
    return model


def masked():
    sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    return transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=32, **sizes))


P, T = PROMPT, native()
D, L = perturbed(T), native(num_layers=3)
W = native(num_layers=8, dtype=torch.float32)
HEADS, FEWER = random_heads(L), native(seed=3, vocab_size=40)
LLAMA, STATIC = hugging_face("Llama"), StaticLM(native(dtype=torch.float32), 40, (1, 2, 5))
OURS, THEIRS, LONG = filled(L), filled(LLAMA), T.new_cache()
T.score([1] * 509, LONG)
SHORT, MISFIT = ModelDrafter(native(max_positions=73)), with_heads(native(hidden_size=48))
CHAIN_OF_3, PAIR = TokenTree.chain([1, 2, 3]), TokenTree([1, 2], [-1, -1])
DEEP, STATE = TokenTree([1, 2, 3, 4], [-1, -1, 0, 2]), torch.zeros(1, 1, 32)
SHAPE = TokenTree([0, 2, 1, 0], [-1, -1, 0, 2])
GUESSES = torch.tensor([[10, 11, 12], [20, 21, 22], [30, 31, 32]])
CHOSEN, QUARTERS = Proposal(TokenTree.chain([1])), torch.full((3, 4), 0.25)
MERGED = Proposal(TokenTree.chain([1]), torch.full((2, 2), 0.5), nodes=[0, 0])
SCHEDULE = FirstDrop(lambda rows, drafted: 1.0)
DENSE, SMALL = sizes.MODELS["Qwen3-32B"], sizes.MODELS["Qwen3-0.6B"]
HEAD, H100 = sizes.EAGLE3["Qwen3-32B"], sizes.CARDS["H100"]
TIMES = estimate.bench_times({1: 10.0, 2: 12.0})
TOY = goodput.estimated(lambda batch, k: max(1.0, batch * k / 64), lambda batch: 0.05)
PUBLIC = {name: getattr(room, name) for room in (specdec_lite, drafters) for name in room.__all__}
NAMES = PUBLIC | globals() | dict(nan=math.nan, inf=math.inf)


def each_row():
    """Return (call, beginning of the message) of every row, one for each of its alternatives."""
    for row in re.findall(r"^(.*) → (.*)$", ROWS, flags=re.M):
        groups = dict.fromkeys(re.findall(r"<[^<>]*\|[^<>]*>", row[0]))
        for chosen in itertools.product(*(group[1:-1].split("|") for group in groups)):
            call, message = row
            for group, choice in zip(groups, chosen):
                call = call.replace(group, choice)
            yield call, message.replace("<>", chosen[-1]) if chosen else message


@pytest.mark.parametrize("call, message", [*each_row()])
def test_the_argument_is_named_before_any_model_runs(call, message, monkeypatch):
    monkeypatch.setattr(Transformer, "forward", lambda *_, **__: pytest.fail("a model ran"))
    pattern = ".*".join(map(re.escape, re.split(r" ?\.\.\. ?", message)))
    with pytest.raises((ValueError, TypeError), match=f"(?s)^{pattern}"):
        eval(call, NAMES)
    assert [(cache.root, cache.length) for cache in (OURS, THEIRS)] == [(3, 5)] * 2
