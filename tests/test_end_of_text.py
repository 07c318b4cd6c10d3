"""Decoding stops at the target's own end of text unless it is given other stop tokens."""

import copy

import torch
from models_zoo import PROMPT, build, native, perturbed, shipped

from specdec_lite import CausalLM, drafters as d, generate, generate_batch, stream
from specdec_lite.gpu.graphs import StaticLM
from specdec_lite.loading.custom_generate import SpeculativeGenerate
from specdec_lite.options import prepare

LONG = generate(native(), PROMPT, None, 24, stop_token_ids=()).tokens.tolist()
LAST = next(i for i in range(9, 24) if LONG[i] not in LONG[:i])
"""The position of a token that the text has not had before: in the middle of a draft."""


def ending(target=None) -> CausalLM:
    """Return a target whose end of text is the token at `LAST`."""
    target = CausalLM((native() if target is None else target).model)
    target.end_of_text = (LONG[LAST],)
    return target


def test_every_way_to_decode_has_this_default():
    target = ending()
    drafter = d.ModelDrafter(perturbed(target), 4)
    streamed = [t for step in stream(target, PROMPT, drafter, 24) for t in step.tokens]
    batch = generate_batch(target, [PROMPT, PROMPT[:4]], drafter, 24)
    assert streamed == batch[0].tokens.tolist() == LONG[: LAST + 1]
    whole = generate_batch(target, [PROMPT], drafter, 24, stop_token_ids=())[0]
    assert whole.tokens.tolist() == LONG
    for stops in (LONG[2], [LONG[2]], torch.tensor([LONG[2]])):  # given ids replace the target's
        assert generate(target, PROMPT, drafter, 24, stop_token_ids=stops).stats.tokens == 3


def test_a_target_that_states_no_end_has_none():
    assert native().end_of_text == () and prepare(native(), PROMPT).stops == frozenset()
    text = generate(native(), PROMPT, None, 24).tokens.tolist()
    assert text == LONG
    target = ending()
    target.end_of_text = (target.vocab_size, 10**6)  # ids that a configuration states wrongly
    assert generate(target, PROMPT, None, 24).tokens.tolist() == LONG


def test_a_model_that_is_wrapped_again_keeps_its_end():
    target = shipped().target
    assert target.end_of_text
    for again in (CausalLM(target.model), CausalLM(copy.deepcopy(target.model)), StaticLM(target)):
        assert again.end_of_text == target.end_of_text


def test_a_hugging_face_model_ends_where_its_generate_ends_it():
    model = build("Llama", {}).double()
    ids = torch.tensor([PROMPT])
    free = model.generate(ids, max_new_tokens=24, do_sample=False)[0, len(PROMPT) :].tolist()
    last = next(i for i in range(6, 24) if free[i] not in free[:i])
    model.generation_config.eos_token_id = model.config.eos_token_id = [free[last], 99]
    target = CausalLM(model)
    drafter = d.ModelDrafter(target, 4)
    theirs = model.generate(ids, max_new_tokens=24, do_sample=False)[0, len(PROMPT) :].tolist()
    assert theirs == free[: last + 1]
    assert generate(target, PROMPT, drafter, 24).tokens.tolist() == theirs
    assert generate_batch(target, [PROMPT], drafter, 24)[0].tokens.tolist() == theirs
    hook = SpeculativeGenerate(drafter)
    text = model.generate(ids, custom_generate=hook, max_new_tokens=24, do_sample=False)
    assert text[0, len(PROMPT) :].tolist() == theirs
