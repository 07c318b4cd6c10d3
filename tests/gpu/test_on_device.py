"""Drafting and verifying on the device: the plain path's text, with one read per round."""

from dataclasses import replace
from operator import attrgetter
from unittest import mock

import pytest
import torch
from captures import replayed
from chance import RecordingRng
from chosen import one_in, one_of
from drafted_rows import altered
from models_zoo import PROMPT, native, perturbed, shipped

from specdec_lite import generate, speculation, stream
from specdec_lite.acceptance import Proposal, exact_match, speculative_sampling
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.models import CausalLM
from specdec_lite.gpu import graphs
from specdec_lite.gpu.graphs import StaticLM
from specdec_lite.gpu.on_device import DeviceDrafter, invert, on_device, verify_greedy
from specdec_lite.gpu.whole_draft import CapturedDrafter, DraftProgram
from specdec_lite.sampling import EnumeratingRng, SeededRng, invert as plain_invert
from specdec_lite.tree import TokenTree


def distributions(generator, rows, size, kind):
    """Return random distributions [rows, size]: smooth, with zeros, or nearly one-hot."""
    scale = {"smooth": 1.0, "zeros": 2.0, "sharp": 12.0}[kind]
    logits = torch.randn(rows, size, generator=generator) * scale
    if kind == "zeros":
        logits[torch.rand(rows, size, generator=generator) < 0.5] = -torch.inf
        logits[:, 0] = 0.0
    return logits.softmax(-1)


@pytest.mark.parametrize("kind", ["smooth", "zeros", "sharp"])
@pytest.mark.parametrize("size", [3, *one_of(__name__, [48, 2048])])
def test_the_vectorized_rule_equals_the_plain_one(kind, size):
    """400 random chains of 0 to 8 drafts have the same verdicts and use the same uniforms.

    In some chains p equals q, so that the residual is zero; in some the tokens are chosen, not drawn.
    """
    generator, seen = torch.Generator().manual_seed(size), set()
    for case in range(400):
        count = case % 9
        p, q = (distributions(generator, count + i, size, kind) for i in (1, 0))
        if case % 3 == 0:
            q = p[:count].clone()  # the residual is zero
        elif case % 3 == 1:
            q = (p[:count] + q) / 2
        uniforms = torch.rand(count, generator=generator).tolist()
        tokens = torch.tensor([*map(plain_invert, q, uniforms)], dtype=torch.long)
        proposal = Proposal(TokenTree.chain(tokens), q if count else None)
        if case % 5 == 4:
            proposal = Proposal(TokenTree.chain(p[:count].argmax(-1)))
        one, other = RecordingRng(case), RecordingRng(case)
        expected, verdict = speculative_sampling(proposal, p, one), on_device(proposal, p, other)
        assert verdict == expected and other.uniforms == one.uniforms
        seen.add((verdict.kind, min(len(verdict.path), 2)))
    assert {("recovered", 0), ("recovered", 1), ("bonus", 2), ("sampled", 0)} <= seen


def test_the_comparison_finds_a_broken_vectorized_rule():
    """The broken rule uses the wrong uniform for the recovered token."""
    generator, differ = torch.Generator().manual_seed(0), 0
    for case in range(60):
        p, q = distributions(generator, 3, 48, "smooth"), distributions(generator, 2, 48, "smooth")
        tokens = torch.tensor([plain_invert(row, 0.5) for row in q])
        proposal, rng = Proposal(TokenTree.chain(tokens), q), SeededRng(case)
        rng.uniform()
        differ += on_device(proposal, p, rng) != speculative_sampling(proposal, p, SeededRng(case))
    assert differ > 30


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inversion_equals_the_plain_one_at_the_edges(dtype):
    generator = torch.Generator().manual_seed(1)
    for _ in range(300):
        probs = distributions(generator, 1, 50, "zeros")[0].to(dtype)
        edges, some = probs.cumsum(-1), torch.rand(3, generator=generator).tolist()
        for uniform in [0.0, 1 - 2**-53, *some, (edges[7] / edges[-1]).item()]:
            token = invert(probs, torch.tensor([uniform], dtype=torch.float64))
            assert int(token) == plain_invert(probs, uniform) and probs[token] > 0


def test_greedy_verification_is_exact_match():
    generator = torch.Generator().manual_seed(2)
    for case in range(200):
        logits = torch.randn(case % 6 + 1, 4, generator=generator)
        tokens = torch.randint(4, (len(logits) - 1,), generator=generator)
        one_hot = torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        expected = exact_match(Proposal(TokenTree.chain(tokens)), one_hot, SeededRng(0))
        accepted, token, *_ = verify_greedy(tokens, logits)
        assert (int(accepted), int(token)) == (len(expected.path), expected.token)


SETTINGS = [(0.0, {}), (1.0, {}), (0.7, dict(top_p=0.8)), (1.3, dict(top_k=5))]
LENGTHS = [(gamma, *setting) for gamma in (1, 2, 4, 7) for setting in SETTINGS]
SAMPLE = pytest.mark.parametrize(
    "gamma, temperature, options", one_in(4, LENGTHS, ["4 0.0 {}", "4 1.0 {}"])
)


contents = attrgetter(*"tokens tree path token kind tests p q draft_passes drafted".split())
"""Everything in a step except its seconds."""


@SAMPLE
def test_one_seed_gives_one_text_step_by_step(temperature, options, gamma):
    target = native(dtype=torch.float32)
    draft = perturbed(target)
    for seed in range(4):
        more = options | {"seed": seed, "stop_token_ids": (9,)}
        plain, device = (
            generate(target, PROMPT, kind(draft, gamma), 40, temperature, rule=rule, **more)
            for kind, rule in ((ModelDrafter, None), (DeviceDrafter, on_device))
        )
        assert [contents(step) for step in plain.steps] == [contents(step) for step in device.steps]


@pytest.fixture
def capturing(monkeypatch):
    """Return a target, and a draft of static shapes whose runs are captured and replayed."""
    monkeypatch.setattr(graphs, "Capture", lambda device: replayed)
    target = native(dtype=torch.float32, window=12)
    draft = StaticLM(perturbed(target), 60, (1, 2))
    draft.backend.captures = True
    return target, draft


def whole_drafts(target, draft, gamma, temperature, **options):
    """Return the steps of three texts: drafted with one graph, and drafted plainly."""

    def steps(drafter, rule):
        for seed in range(3):
            more = options | {"rule": rule, "seed": seed}
            yield from stream(target, PROMPT, drafter, 40, temperature, **more)

    ways = (CapturedDrafter(draft, gamma), on_device), (ModelDrafter(draft, gamma), None)
    return [list(steps(*way)) for way in ways]


def alike(some, others):
    """Return whether two decodings are the same, with probabilities equal to rounding."""
    bare = lambda steps: [contents(replace(step, p=(), q=())) for step in steps]
    pairs = zip(some, others)
    return bare(some) == bare(others) and all(
        a.p + a.q == pytest.approx(b.p + b.q, rel=1e-4) for a, b in pairs
    )


@SAMPLE
def test_a_draft_in_one_graph_equals_the_plain_draft(capturing, gamma, temperature, options):
    """All steps are compared, also at the end, where a whole draft does not fit the capacity."""
    assert alike(*whole_drafts(*capturing, gamma, temperature, **options))
    (slots,) = capturing[1].backend.free.values()
    assert any(isinstance(program, DraftProgram) for program in slots[0].programs.values())


def test_the_comparison_finds_a_draft_with_a_wrong_mask(monkeypatch, capturing):
    monkeypatch.setattr(DraftProgram, "bias", lambda self, slots: self.table[slots - 1])
    assert not alike(*whole_drafts(*capturing, 4, 1.0))


def test_a_draft_of_another_temperature_is_captured_again(capturing):
    target, draft = capturing
    for temperature in (1.0, 0.5, 1.0):
        assert alike(*whole_drafts(target, draft, 3, temperature))
    (slots,) = draft.backend.free.values()
    assert sum(isinstance(program, DraftProgram) for program in slots[0].programs.values()) <= 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("temperature, options", SETTINGS, ids=str)
def test_a_draft_captured_on_a_gpu_equals_the_plain_draft(temperature, options):
    target = CausalLM(native(dtype=torch.float32).model.cuda())
    draft = StaticLM(CausalLM(perturbed(native(dtype=torch.float32)).model.cuda()), 96, (1, 2))
    assert draft.backend.captures
    assert alike(*whole_drafts(target, draft, 4, temperature, **options))


TARGET = native(dtype=torch.float32)
PADDED = native(dtype=torch.float32, vocab_size=52), native(seed=5, dtype=torch.float32)
WAYS = {
    "plain decoding": lambda: (TARGET, None, TARGET, None),
    "a plain draft": lambda: [TARGET, ModelDrafter(perturbed(TARGET), 3)] * 2,
    "padded vocabularies": lambda: (
        *(PADDED[0], ModelDrafter(PADDED[1], 3)),
        *(PADDED[0], DeviceDrafter(PADDED[1], 3)),
    ),
    "the shipped pair in fixed shapes": lambda: (
        *(shipped().target, ModelDrafter(shipped().draft, 4)),
        *(StaticLM(shipped().target, 256), DeviceDrafter(StaticLM(shipped().draft, 256), 4)),
    ),
}
"""Target and drafter of the plain path, then those of the rule on the device."""


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("way", WAYS)
def test_the_rule_writes_the_plain_text(way, temperature):
    target, plain, other, drafter = WAYS[way]()
    text = generate(target, PROMPT, plain, 60, temperature, seed=2).tokens
    ours = generate(other, PROMPT, drafter, 60, temperature, rule=on_device, seed=2).tokens
    assert torch.equal(text, ours)


def test_draft_equal_to_target_is_always_accepted():
    target = native(dtype=torch.float32)
    static = StaticLM(target, 400)
    out = generate(static, PROMPT, DeviceDrafter(static, 4), 300, 1.0, rule=on_device, seed=0)
    assert out.stats.acceptance_rate > 0.999 and out.stats.target_passes <= 61


def test_milliseconds_between_a_gpus_events_are_seconds_of_a_phase():
    """The virtual GPU checks that no event is read before the host has waited for the verdict."""
    first = mock.Mock(elapsed_time=lambda later: 1500.0 if later == "later" else 0.0)
    assert speculation.elapsed(first, "later") == 1.5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_phases_on_a_gpu_fit_into_the_round():
    target = CausalLM(native(dtype=torch.float32).model.cuda())
    for step in stream(target, PROMPT, DeviceDrafter(target, 3), 20, 1.0, rule=on_device, seed=0):
        assert step.drafting >= 0 and step.verifying > 0 and step.other >= 0


def test_a_draft_needs_a_source_of_chance_that_is_sent_in_advance():
    options = {"rule": on_device, "rng": EnumeratingRng()}
    rounds = stream(TARGET, PROMPT, DeviceDrafter(TARGET, 2), 8, 1.0, **options)
    with pytest.raises(TypeError, match="rng is a EnumeratingRng"):
        next(rounds)


def test_nan_logits_and_impossible_drafts_raise_errors(monkeypatch):
    monkeypatch.delenv("SPECDEC_CHECK")
    broken = native(seed=1, dtype=torch.float32)
    with torch.no_grad():
        broken.model.norm.weight.fill_(float("nan"))

    def decode(target, drafter, temperature=1.0):
        return generate(target, PROMPT, drafter, 8, temperature, rule=on_device, seed=0)

    for temperature in (0.0, 1.0):
        with pytest.raises(ValueError, match="NaN"):
            decode(broken, DeviceDrafter(TARGET, 2), temperature)
    score, rows = CausalLM.score, []

    def spoil(self, tokens, *others, **options):
        scores = score(self, tokens, *others, **options)
        if self is TARGET and scores.logits.shape[1] > 2:  # a round, not the prefill
            with torch.inference_mode():
                scores.logits[0, 1, 5] = float("nan")
            rows.append(1)
        return scores

    with monkeypatch.context() as patch, pytest.raises(ValueError, match="NaN"):
        patch.setattr(CausalLM, "score", spoil)
        decode(TARGET, DeviceDrafter(native(seed=1, dtype=torch.float32), 2))
    assert rows

    def lies(session, proposal, context):
        if proposal.probs is None:
            return proposal
        rows = proposal.probs.clone().scatter_(-1, proposal.tree.tokens[:, None], 0.0)
        return Proposal(proposal.tree, rows / rows.sum(-1, keepdim=True))

    undrawn = Proposal(TokenTree.chain([0]), torch.tensor([[0.0, 0.5, 0.5]]))
    for call, probability in (
        (lambda: decode(TARGET, altered(ModelDrafter(TARGET, 2), lies)), "0.0"),
        (lambda: on_device(undrawn, torch.tensor([[0.5, 0.25, 0.25]] * 2), SeededRng(0)), "0.0"),
        (lambda: decode(TARGET, DeviceDrafter(broken, 2)), "nan"),
    ):
        with pytest.raises(ValueError, match=f"probability {probability}"):
            call()
