"""Processors of logits: on every path, under every rule, and against plain decoding by enumeration."""

import copy
import json
import math
from itertools import product

import pytest
import torch
from chosen import one_in
from models_zoo import PROMPT, native
from registry import DRAFTERS
from text_laws import TINY, distance, exact_text_law, own_text_law
from transformers import AddedToken

from specdec_lite import drafters as d, generate, generate_batch, load_pair, processors as p
from specdec_lite.acceptance import block_verification, sample_and_match
from specdec_lite.engine.cache import Scores
from specdec_lite.grammar import Grammar, token_texts
from specdec_lite.sampling import Sampling

V = 3
PROCESSORS = {
    "repetition": p.RepetitionPenalty(1.7),
    "presence": p.PresencePenalty(0.8, prompt_length=2, frequency=0.3),
    "min-p": p.MinP(0.4),
    "forbidden": p.ForbiddenWords([[1, 1], [2, 0, 1]]),
}


def tiny():
    return native(seed=5, vocab_size=V, **TINY | {"num_layers": 2})


@pytest.mark.parametrize(
    "name, temperature", one_in(3, product([*PROCESSORS, "all"], [0.0, 1.0]), ["all 1.0"])
)
def test_a_draft_keeps_the_distribution_of_plain_decoding_with_the_processor(name, temperature):
    chosen = [*PROCESSORS.values()] if name == "all" else [PROCESSORS[name]]
    target, sampling = tiny(), Sampling(temperature)
    own = own_text_law(target, sampling, 3, chosen)
    without = own_text_law(target, sampling, 3)
    assert temperature == 0 or distance(own, without) > 0.01  # the processor matters
    draft = DRAFTERS["draft model"](target)
    for drafter, rule in (
        *((None, None), (d.PromptLookupDrafter(3, 1), None), (draft, None)),
        *((draft, sample_and_match), (draft, block_verification)),
    ):
        assert distance(exact_text_law(target, drafter, sampling, 3, rule, chosen), own) < 1e-10


def test_a_processor_of_the_roots_prefix_alone_is_caught(monkeypatch):
    """The broken twin: all nodes of a round get what follows the committed text."""

    def of_the_root(processors, prefix, tree, scores):
        rows = scores.logits[0]
        for processor in processors:
            rows = torch.stack([processor(prefix, row) for row in rows])
        return Scores(rows[None], scores.hidden)

    monkeypatch.setattr("specdec_lite.speculation.process_scores", of_the_root)
    target, chosen = tiny(), [PROCESSORS["repetition"]]
    text = exact_text_law(target, DRAFTERS["draft model"](target), Sampling(), 3, None, chosen)
    assert distance(text, own_text_law(target, Sampling(), 3, chosen)) > 0.01


def test_penalties_match_transformers():
    from transformers import NoBadWordsLogitsProcessor, RepetitionPenaltyLogitsProcessor
    from transformers.generation.logits_process import MinPLogitsWarper

    ids, logits = torch.tensor([4, 1, 7, 1]), torch.randn(12)
    pairs = [
        (p.RepetitionPenalty(1.3), RepetitionPenaltyLogitsProcessor(1.3)),
        (p.MinP(0.2), MinPLogitsWarper(0.2)),
        (
            p.ForbiddenWords([[5], [7, 1, 2], [3, 1, 2], [3, 6]]),
            NoBadWordsLogitsProcessor([[5], [7, 1, 2], [3, 1, 2], [3, 6]], 11),
        ),
    ]
    for ours, theirs in pairs:
        assert torch.allclose(ours(ids, logits), theirs(ids[None], logits[None].clone())[0])


def test_presence_and_frequency_of_what_was_generated_are_subtracted():
    penalty = p.PresencePenalty(0.5, prompt_length=2, frequency=0.25)
    after = penalty(torch.tensor([0, 1, 2, 1, 2]), torch.zeros(4))
    assert after.tolist() == [0, -0.75, -1.0, 0]


def test_min_p_compares_probabilities_at_the_temperature():
    logits = torch.tensor([2.0, 1.0, 0.0])
    for share, temperature in product((0.3, 1.0), (0.5, 1.0, 2.0)):
        probs = (logits / temperature).softmax(-1)
        kept = p.MinP(share, temperature)(torch.tensor([0]), logits) > -math.inf
        assert kept.tolist() == (probs >= share * probs.max()).tolist()


@pytest.mark.parametrize(
    ("processors", "message"),
    [
        (lambda ids, logits: logits[:2], "must be logits of shape"),
        (lambda ids, logits: None, "returned NoneType"),
        (lambda ids, logits: torch.full_like(logits, -math.inf), "forbids every token"),
    ],
)
def test_what_is_no_processor_is_named(processors, message):
    with pytest.raises((TypeError, ValueError), match=message):
        generate(native(), PROMPT, None, 4, processors=processors)


def test_logprobs_end_with_the_text_and_are_there_only_if_asked_for():
    target = native()
    assert len(generate(target, PROMPT, None, 4).logprobs) == 0
    options = {"stop_token_ids": range(8), "logprobs": True}
    stopped = generate(target, PROMPT, DRAFTERS["draft model"](target), 12, **options)
    assert len(stopped.logprobs) == len(stopped.tokens)
    (row,) = generate_batch(target, [PROMPT], None, 6, logprobs=True)
    assert len(row.logprobs) == 6


def test_several_samples_of_a_prompt():
    target = native()
    outputs = generate_batch(target, [PROMPT, [1]], None, 8, 1.0, seeds=range(6), n=3)
    for i, output in enumerate(outputs):
        alone = generate(target, [PROMPT, [1]][i // 3], None, 8, 1.0, seed=i)
        assert output.tokens.tolist() == alone.tokens.tolist()


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "adult": {"type": "boolean"},
        "likes": {"enum": ["rain", "snow"]},
    },
    "required": ["name", "adult", "likes"],
}


@pytest.fixture(scope="module")
def pair():
    return load_pair(device="cpu", dtype="float32")


PAIR_DRAFTS = {
    "plain": lambda pair: None,
    "draft model": lambda pair: d.ModelDrafter(pair.draft, 4),
    "lookup": lambda pair: d.PromptLookupDrafter(4),
    "EAGLE": lambda pair: d.EagleDrafter.from_pretrained(pair.target),
    "a tree": lambda pair: d.MedusaDrafter.from_pretrained(pair.target),
    "recycling": lambda pair: d.TokenRecyclingDrafter(pair.target),
}


@pytest.fixture(scope="module")
def person(pair) -> tuple:
    """A prompt, and the grammar of what follows it, up to the tokenizer's own end of text."""
    prompt = pair.tokenizer.encode("A person as JSON:\n")
    return prompt, Grammar.json(SCHEMA, pair.tokenizer, len(prompt))


@pytest.mark.parametrize("seeds", [2, pytest.param(17, marks=pytest.mark.registry)])
@pytest.mark.parametrize("name", PAIR_DRAFTS)
def test_json_is_valid_with_every_draft(pair, person, name, seeds):
    prompt, grammar = person
    end = pair.target.end_of_text[0]
    drafter, texts = PAIR_DRAFTS[name](pair), set()
    for seed in range(seeds):
        options = {"seed": seed, "stop_token_ids": end, "processors": grammar}
        tokens = generate(pair.target, prompt, drafter, 160, 1.0, **options).tokens.tolist()
        assert tokens[-1] == end
        value = json.loads(pair.tokenizer.decode(tokens[:-1]))
        assert set(value) == {"name", "adult", "likes"} and isinstance(value["adult"], bool)
        texts.add(str(value))
    assert len(texts) > seeds / 2


def test_a_grammar_that_ends_inside_a_block(pair):
    """Greedy text equals plain decoding where the draft continues after the grammar's end."""
    prompt = pair.tokenizer.encode("Yes or no? ")
    end = pair.target.end_of_text[0]
    grammar = Grammar("(yes|no)", pair.tokenizer, len(prompt), end)
    for make in PAIR_DRAFTS.values():
        output = generate(
            pair.target, prompt, make(pair), 12, stop_token_ids=end, processors=grammar
        )
        assert pair.tokenizer.decode(output.tokens[:-1]) in ("yes", "no")
        assert output.tokens[-1] == end
    # Without a stop the grammar has ended, and allows nothing but its end.
    text = generate(pair.target, prompt, None, 12, processors=grammar).tokens.tolist()
    assert set(text[text.index(end) :]) == {end}


def test_texts_of_tokens_are_how_they_continue_a_text(pair):
    texts = token_texts(pair.tokenizer)
    ids = pair.tokenizer.encode("The old man walked to the harbour")
    assert "".join(texts[token] for token in ids) == "The old man walked to the harbour"
    assert texts[pair.target.end_of_text[0]] == "" and "\ufffd" not in "".join(texts)


def test_tokens_that_were_added_to_a_tokenizer_are_no_text_of_a_grammar(pair):
    """Those of a chat template, which "." would match, and those that the model does not have."""
    tokenizer, size = copy.deepcopy(pair.tokenizer), pair.target.vocab_size
    tokenizer.add_tokens([AddedToken("<|turn|>", special=True), "beyond"])
    assert token_texts(tokenizer)[size:] == ["", "beyond"]
    grammar = Grammar(".{3,9}", tokenizer, 0, end := pair.target.end_of_text[0])
    allowed = grammar(torch.tensor([]), torch.zeros(size)).isfinite()
    assert 0 < allowed.sum() < size and not allowed[end]


def test_an_expression_that_cannot_be_matched_is_named(pair):
    with pytest.raises(ValueError, match="expression="):
        Grammar("(unclosed", pair.tokenizer, 0, 0)
