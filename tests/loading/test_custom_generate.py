"""`model.generate` of transformers writes the same text with a drafter of ours as without."""

import models_zoo
import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from specdec_lite import CausalLM
from specdec_lite.drafters import ModelDrafter, PromptLookupDrafter
from specdec_lite.loading.custom_generate import SpeculativeGenerate

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


def test_a_stop_token_ends_the_text_as_in_transformers():
    model = model_of("Llama")
    free = model.generate(PROMPT, max_new_tokens=24, do_sample=False)
    stop = int(free[0, PROMPT.shape[1] + 6])
    settings = dict(max_new_tokens=24, do_sample=False, eos_token_id=stop)
    plain = model.generate(PROMPT, **settings)
    hook = SpeculativeGenerate(ModelDrafter(CausalLM(model), 4))
    assert model.generate(PROMPT, custom_generate=hook, **settings).tolist() == plain.tolist()
    assert plain.shape[1] < free.shape[1]


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 3}, "num_beams=3"),
        ({"do_sample": True, "num_return_sequences": 2}, "num_return_sequences=2"),
        ({"return_dict_in_generate": True}, "return_dict_in_generate"),
        ({"repetition_penalty": 1.3}, "RepetitionPenaltyLogitsProcessor"),
        ({"no_repeat_ngram_size": 2}, "NoRepeatNGramLogitsProcessor"),
        ({"do_sample": True, "min_p": 0.1}, "MinPLogitsWarper"),
        ({"logits_processor": [RepetitionPenaltyLogitsProcessor(1.2)]}, "RepetitionPenalty"),
        ({"max_time": 1.0}, "MaxTimeCriteria"),
    ],
)
def test_what_cannot_be_combined_is_refused_by_name(options, message):
    hook = SpeculativeGenerate(PromptLookupDrafter(4))
    with pytest.raises(ValueError, match=message):
        model_of("Llama").generate(
            PROMPT, custom_generate=hook, **{"max_new_tokens": 8, "do_sample": False} | options
        )


def test_batches_and_padding_are_refused():
    model, hook = model_of("Llama"), SpeculativeGenerate(PromptLookupDrafter(4))
    with pytest.raises(ValueError, match="generate_batch"):
        model.generate(PROMPT.repeat(2, 1), custom_generate=hook, max_new_tokens=4)
    mask = torch.ones_like(PROMPT)
    mask[0, 0] = 0
    with pytest.raises(ValueError, match="padding"):
        model.generate(PROMPT, attention_mask=mask, custom_generate=hook, max_new_tokens=4)
