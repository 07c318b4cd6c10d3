"""`model.generate` of transformers writes the same text with a drafter of ours as without."""

import models_zoo
import pytest
import torch
from registry import DRAFTERS
from transformers import RepetitionPenaltyLogitsProcessor, TopKLogitsWarper, TopPLogitsWarper

from specdec_lite import CausalLM
from specdec_lite.drafters import ModelDrafter, PromptLookupDrafter
from specdec_lite.loading.custom_generate import SpeculativeGenerate
from specdec_lite.sampling import Sampling

PROMPT = torch.tensor([models_zoo.PROMPT])


def model_of(family: str):
    return models_zoo.build(family, models_zoo.FAMILIES[family]).double()


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Gemma2", "GPT2"])
def test_greedy_text_equals_that_of_transformers(family):
    model = model_of(family)
    plain = model.generate(PROMPT, max_new_tokens=24, do_sample=False)
    for drafter in (PromptLookupDrafter(4), ModelDrafter(CausalLM(model), 3)):
        hook = SpeculativeGenerate(drafter)
        text = model.generate(PROMPT, custom_generate=hook, max_new_tokens=24, do_sample=False)
        assert text.tolist() == plain.tolist()
    assert hook.output.stats.acceptance_rate == 1, "its own target drafted"
    assert hook.output.stats.target_passes < 24


def test_sampling_follows_the_global_seed_and_the_processors():
    model = model_of("Llama")
    hook = SpeculativeGenerate(PromptLookupDrafter(4))
    settings = dict(max_new_tokens=16, do_sample=True, temperature=0.8, top_p=0.9)

    def sample(seed, **more):
        torch.manual_seed(seed)
        return model.generate(PROMPT, custom_generate=hook, **settings | more).tolist()

    assert sample(0, top_k=5) == sample(0, top_k=5) != sample(1, top_k=5)
    greedy = model.generate(PROMPT, max_new_tokens=16, do_sample=False).tolist()
    assert sample(3, top_k=1) == greedy, "one token is left"


def test_ties_are_cut_here_and_kept_in_transformers():
    """The exception that the docstring of `SpeculativeGenerate` states."""

    def both(logits, warper, **settings):
        theirs = warper(*settings.values())(None, logits[None].clone())[0]
        return Sampling(1.0, **settings)(logits), theirs.softmax(-1)

    tied, equal = torch.tensor([3.0, 2, 2, 2, 1, 0]), torch.zeros(4)
    ours, theirs = both(tied, TopKLogitsWarper, top_k=2)
    assert (ours > 0).tolist() == [True, True, False, False, False, False]
    assert (theirs > 0).tolist() == [True, True, True, True, False, False]
    ours, theirs = both(equal, TopPLogitsWarper, top_p=0.5)
    assert (ours > 0).tolist() == [True, True, False, False]
    assert (theirs > 0).tolist() == [False, False, True, True]
    different = torch.tensor([0.3, 2.0, -1.0, 1.1, 0.7])
    for warper, settings in ((TopKLogitsWarper, {"top_k": 2}), (TopPLogitsWarper, {"top_p": 0.7})):
        assert torch.allclose(*both(different, warper, **settings))


@pytest.mark.parametrize("cache", [None, "static"])
def test_a_model_may_prepare_what_the_loop_feeds(cache):
    """PEFT leaves such an attribute behind after prompt tuning; tests/arguments.txt has what adds."""
    model, hook = model_of("Llama"), SpeculativeGenerate(PromptLookupDrafter(4))
    own = model.prepare_inputs_for_generation
    model.prepare_inputs_for_generation = lambda *a, **k: own(*a, **k)
    settings = dict(max_new_tokens=8, do_sample=False, cache_implementation=cache)
    text = model.generate(PROMPT, custom_generate=hook, **settings)
    assert text.tolist() == model.generate(PROMPT, **settings).tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.6},
        {"no_repeat_ngram_size": 2},
        {"bad_words_ids": [[3], [5, 9]]},
        {"min_new_tokens": 9, "eos_token_id": [*range(0, 48, 2)]},
        {"suppress_tokens": [*range(20, 40)]},
        {"sequence_bias": [[[7], 4.0], [[7, 8], 5.0]]},
        {"prefix_allowed_tokens_fn": lambda batch, ids: [*range(len(ids) % 3, 48, 3)]},
        {"logits_processor": [RepetitionPenaltyLogitsProcessor(1.2)]},
        {"repetition_penalty": 1.6, "no_repeat_ngram_size": 3, "bad_words_ids": [[3]]},
    ],
    ids=lambda options: "+".join(options),
)
def test_penalties_and_constraints_follow_every_path(options):
    model = model_of("Llama")
    settings = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0, **options}
    plain = model.generate(PROMPT, **settings)
    assert plain.tolist() != model.generate(PROMPT, max_new_tokens=24, do_sample=False).tolist()
    for name in ("draft model", "Medusa heads, a sparse tree"):
        drafter = DRAFTERS[name](CausalLM(model))
        text = model.generate(PROMPT, custom_generate=SpeculativeGenerate(drafter), **settings)
        assert text.tolist() == plain.tolist()


def test_a_streamer_is_ended_after_an_error():
    model, got = model_of("Llama"), []

    class Streamer:
        put = staticmethod(lambda value: got.append(value))
        end = staticmethod(lambda: got.append("end"))

    class Broken(PromptLookupDrafter):
        def start(self, context):
            raise RuntimeError("broken")

    hook = SpeculativeGenerate(Broken(3), streamer=Streamer())
    with pytest.raises(RuntimeError, match="broken"):
        model.generate(PROMPT, custom_generate=hook, max_new_tokens=9, do_sample=False)
    assert got[-1] == "end"
