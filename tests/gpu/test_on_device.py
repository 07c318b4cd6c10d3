"""Drafting and judging on the device: the plain path's text under the same uniforms, and one read a
round.
"""

from dataclasses import replace

import pytest
import torch
from captures import replayed
from models_zoo import PROMPT, native, perturbed
from torch.utils._python_dispatch import TorchDispatchMode

from specdec_lite import generate, load_pair, speculation, stream
from specdec_lite.acceptance import Proposal, exact_match, sample_and_match, speculative_sampling
from specdec_lite.drafters import ModelDrafter
from specdec_lite.drafters.model import ModelSession
from specdec_lite.engine.models import CausalLM
from specdec_lite.gpu import graphs
from specdec_lite.gpu.graphs import StaticLM
from specdec_lite.gpu.on_device import DeviceDrafter, DeviceSession, invert, judge_greedy, on_device
from specdec_lite.gpu.whole_draft import CapturedDrafter, DraftProgram
from specdec_lite.sampling import EnumeratingRng, RecordingRng, SeededRng, invert as plain_invert
from specdec_lite.tree import TokenTree


def laws(generator, rows, size, kind):
    """Random distributions [rows, size]: smooth, with zeros, or nearly one-hot."""
    logits = (
        torch.randn(rows, size, generator=generator)
        * {"smooth": 1.0, "zeros": 2.0, "sharp": 12.0}[kind]
    )
    if kind == "zeros":
        logits[torch.rand(rows, size, generator=generator) < 0.5] = -torch.inf
        logits[:, 0] = 0.0
    return logits.softmax(-1)


@pytest.mark.parametrize("kind", ["smooth", "zeros", "sharp"])
@pytest.mark.parametrize("size", [3, 48, 2048])
def test_the_vectorised_rule_is_the_plain_one(kind, size):
    """400 random chains of 0 to 8 drafts: the same verdict, and as many uniforms used; some rows
    equal (a zero residual).
    """
    generator, seen = torch.Generator().manual_seed(size), set()
    for case in range(400):
        count = case % 9
        p, q = laws(generator, count + 1, size, kind), laws(generator, count, size, kind)
        if case % 3 == 0:
            q = p[:count].clone()  # nothing is left to recover from
        elif case % 3 == 1:
            q = (p[:count] + q) / 2
        tokens = torch.tensor(
            [plain_invert(row, torch.rand((), generator=generator).item()) for row in q],
            dtype=torch.long,
        )
        proposal = Proposal(TokenTree.chain(tokens), q if count else None)
        one, other = RecordingRng(case), RecordingRng(case)
        expected, found = speculative_sampling(proposal, p, one), on_device(proposal, p, other)
        assert found == expected and other.uniforms == one.uniforms
        seen.add((found.kind, min(len(found.path), 2)))
    assert {("recovered", 0), ("recovered", 1), ("bonus", 2), ("sampled", 0)} <= seen


def test_chosen_tokens_are_one_hot_draws():
    generator = torch.Generator().manual_seed(0)
    for case in range(200):
        p = laws(generator, 4, 6, "smooth")
        proposal = Proposal(TokenTree.chain(p[:3].argmax(-1)))
        one, other = RecordingRng(case), RecordingRng(case)
        assert (
            on_device(proposal, p, other) == speculative_sampling(proposal, p, one)
            and other.uniforms == one.uniforms
        )


def test_a_broken_vectorised_rule_would_be_seen():
    """The same comparison rejects a rule that takes the wrong uniform for the recovered token."""
    generator, differ = torch.Generator().manual_seed(0), 0
    for case in range(60):
        p, q = laws(generator, 3, 48, "smooth"), laws(generator, 2, 48, "smooth")
        tokens = torch.tensor([plain_invert(row, 0.5) for row in q])
        proposal, rng = Proposal(TokenTree.chain(tokens), q), SeededRng(case)
        rng.uniform()
        differ += on_device(proposal, p, rng) != speculative_sampling(proposal, p, SeededRng(case))
    assert differ > 30


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inversion_equals_the_plain_one_at_its_edges(dtype):
    generator = torch.Generator().manual_seed(1)
    for _ in range(300):
        probs = laws(generator, 1, 50, "zeros")[0].to(dtype)
        edges = probs.cumsum(-1)
        for uniform in [
            0.0,
            1 - 2**-53,
            *torch.rand(3, generator=generator).tolist(),
            (edges[7] / edges[-1]).item(),
        ]:
            token = invert(probs, torch.tensor([uniform], dtype=torch.float64))
            assert int(token) == plain_invert(probs, uniform) and probs[token] > 0


def test_greedy_judging_is_exact_match():
    generator = torch.Generator().manual_seed(2)
    for case in range(200):
        logits = torch.randn(case % 6 + 1, 4, generator=generator)
        tokens = torch.randint(4, (len(logits) - 1,), generator=generator)
        one_hot = torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        expected = exact_match(Proposal(TokenTree.chain(tokens)), one_hot, SeededRng(0))
        accepted, token, *_ = judge_greedy(tokens, logits)
        assert (int(accepted), int(token)) == (len(expected.path), expected.token)


SETTINGS = [(0.0, {}), (1.0, {}), (0.7, dict(top_p=0.8)), (1.3, dict(top_k=5))]


def told(step):
    """Everything a step says but its seconds."""
    return (
        step.tokens,
        step.tree,
        step.path,
        step.token,
        step.kind,
        step.tests,
        step.p,
        step.q,
        step.draft_passes,
        step.drafted,
    )


@pytest.mark.parametrize("temperature, options", SETTINGS, ids=str)
@pytest.mark.parametrize("gamma", [1, 2, 4, 7])
def test_one_seed_gives_one_text_step_by_step(temperature, options, gamma):
    target = native(dtype=torch.float32)
    draft = perturbed(target)
    for seed in range(4):
        plain, device = (
            generate(
                target,
                PROMPT,
                kind(draft, gamma),
                40,
                temperature,
                rule=rule,
                seed=seed,
                stop_token_ids=(9,),
                **options,
            )
            for kind, rule in ((ModelDrafter, None), (DeviceDrafter, on_device))
        )
        assert [told(step) for step in plain.steps] == [told(step) for step in device.steps]


@pytest.fixture
def capturing(monkeypatch):
    """A target, and a draft in static shapes whose runs are captured and replayed."""
    monkeypatch.setattr(graphs, "Capture", lambda device: replayed)
    target = native(dtype=torch.float32, window=12)
    draft = StaticLM(perturbed(target), 60, (1, 2))
    draft.backend.captures = True
    return target, draft


def whole_drafts(target, draft, gamma, temperature, **options):
    """(the steps of three texts, drafted with one graph; the same, drafted plainly)."""
    return (
        [
            step
            for seed in range(3)
            for step in stream(
                target, PROMPT, kind, 40, temperature, rule=rule, seed=seed, **options
            )
        ]
        for kind, rule in (
            (CapturedDrafter(draft, gamma), on_device),
            (ModelDrafter(draft, gamma), None),
        )
    )


def alike(some, others):
    """Whether two decodings say the same, probabilities to within rounding."""
    pairs = list(zip(some, others))
    chances = [(a.p + a.q, b.p + b.q) for a, b in pairs]
    return (
        len(some) == len(others)
        and all(told(replace(a, p=(), q=())) == told(replace(b, p=(), q=())) for a, b in pairs)
        and all(one == pytest.approx(other, rel=1e-4) for one, other in chances)
    )


@pytest.mark.parametrize("temperature, options", SETTINGS, ids=str)
@pytest.mark.parametrize("gamma", [1, 4, 7])
def test_a_draft_that_is_one_graph_is_the_plain_draft(capturing, gamma, temperature, options):
    """Step by step, up to the end of the text, where the capacity is too short for a whole draft."""
    assert alike(*whole_drafts(*capturing, gamma, temperature, **options))
    (slots,) = capturing[1].backend.free.values()
    assert any(isinstance(program, DraftProgram) for program in slots[0].programs.values())


def test_a_draft_at_the_wrong_place_would_be_seen(monkeypatch, capturing):
    monkeypatch.setattr(DraftProgram, "bias", lambda self, slots: self.table[slots - 1])
    assert not alike(*whole_drafts(*capturing, 4, 1.0))


def test_a_draft_of_another_vocabulary_or_temperature_is_captured_anew(capturing):
    target, draft = capturing
    for temperature in (1.0, 0.5, 1.0):
        assert alike(*whole_drafts(target, draft, 3, temperature))
    (slots,) = draft.backend.free.values()
    assert sum(isinstance(program, DraftProgram) for program in slots[0].programs.values()) <= 2
    with pytest.raises(TypeError, match="model is a CausalLM: must be a StaticLM"):
        CapturedDrafter(target, 2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("temperature, options", SETTINGS, ids=str)
def test_a_draft_captured_on_a_gpu_is_the_plain_draft(temperature, options):
    target = CausalLM(native(dtype=torch.float32).model.cuda())
    draft = StaticLM(CausalLM(perturbed(native(dtype=torch.float32)).model.cuda()), 96, (1, 2))
    assert draft.backend.captures
    assert alike(*whole_drafts(target, draft, 4, temperature, **options))


def test_recorded_uniforms_are_the_plain_paths():
    target = native(dtype=torch.float32)
    draft = perturbed(target, 0.3)
    one, other = RecordingRng(4), RecordingRng(4)
    plain = [told(s) for s in stream(target, PROMPT, ModelDrafter(draft, 3), 50, 1.0, rng=one)]
    assert [
        told(s)
        for s in stream(target, PROMPT, DeviceDrafter(draft, 3), 50, 1.0, rule=on_device, rng=other)
    ] == plain
    assert one.uniforms == other.uniforms


def test_plain_decoding_and_the_other_drafter_work_with_the_rule():
    target = native(dtype=torch.float32)
    for drafter in (None, ModelDrafter(perturbed(target), 3)):
        for temperature in (0.0, 1.0):
            assert torch.equal(
                generate(target, PROMPT, drafter, 30, temperature, rule=on_device, seed=1).tokens,
                generate(target, PROMPT, drafter, 30, temperature, seed=1).tokens,
            )


def test_padded_vocabularies():
    target = native(dtype=torch.float32, vocab_size=52)
    draft = native(seed=5, dtype=torch.float32, vocab_size=48)
    for temperature in (0.0, 1.0):
        assert torch.equal(
            generate(
                target, PROMPT, DeviceDrafter(draft, 3), 30, temperature, rule=on_device, seed=1
            ).tokens,
            generate(target, PROMPT, ModelDrafter(draft, 3), 30, temperature, seed=1).tokens,
        )


def test_draft_equal_to_target_is_always_accepted():
    target = native(dtype=torch.float32)
    static = StaticLM(target, 400)
    out = generate(static, PROMPT, DeviceDrafter(static, 4), 300, 1.0, rule=on_device, seed=0)
    assert out.stats.acceptance_rate > 0.999 and out.stats.target_passes <= 61


class Reads(TorchDispatchMode):
    """While `on`, counts what makes the host wait for a device: values read, and operations whose
    result has a size to read.
    """

    WAITING = {
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "unique",
        "_unique2",
        "equal",
        "is_nonzero",
    }

    def __init__(self, monkeypatch):
        super().__init__()
        self.count, self.on = 0, False
        for name in (
            "tolist",
            "item",
            "__int__",
            "__bool__",
            "__float__",
            "__index__",
            "cpu",
            "numpy",
        ):
            monkeypatch.setattr(torch.Tensor, name, self.once(getattr(torch.Tensor, name)))
        self.hosts_own(monkeypatch)
        for session in (ModelSession, DeviceSession):
            monkeypatch.setattr(session, "propose", self.starting(session.propose))
        monkeypatch.setattr(speculation, "verify", self.ending(speculation.verify))

    def once(self, method):
        def call(*args, **kwargs):
            on, self.on = self.on, False
            self.count += on
            try:
                return method(*args, **kwargs)
            finally:
                self.on = on

        return call

    def hosts_own(self, monkeypatch):
        """A uniform is drawn on the host: nobody waits for it."""
        uniform = SeededRng.uniform

        def call(rng):
            on, self.on = self.on, False
            drawn = uniform(rng)
            self.on = on
            return drawn

        monkeypatch.setattr(SeededRng, "uniform", call)

    def starting(self, propose):
        def call(*args):
            self.on = True
            return propose(*args)

        return call

    def ending(self, judge):
        def call(*args):
            try:
                return judge(*args)
            finally:
                self.on = False

        return call

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += self.on and func._schema.name.split("::")[1] in self.WAITING
        return func(*args, **(kwargs or {}))


def reads_in_rounds(monkeypatch, target, drafter, rule, temperature):
    """Reads from the first drafted token to the verdict, per round of a full draft."""
    with monkeypatch.context() as patch, Reads(patch) as reads:
        patch.delenv("SPECDEC_CHECK")
        counts, before = [], 0
        for step in stream(target, PROMPT, drafter, 40, temperature, rule=rule, seed=0):
            if step.draft_passes:
                counts.append(reads.count - before)
            before = reads.count
    return counts


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("static", [False, True])
def test_one_read_a_round(monkeypatch, temperature, static):
    """From the first draft pass to the verdict the host waits once; in the plain path, for every
    token.
    """
    target = native(dtype=torch.float32)
    models = target, perturbed(target)
    fixed = [StaticLM(model, 200) for model in models] if static else models
    device = reads_in_rounds(
        monkeypatch, fixed[0], DeviceDrafter(fixed[1], 4), on_device, temperature
    )
    plain = reads_in_rounds(monkeypatch, models[0], ModelDrafter(models[1], 4), None, temperature)
    assert len(device) > 4 and set(device) == {1}
    assert len(plain) > 4 and min(plain) > 4


@pytest.mark.parametrize("rule", [speculative_sampling, sample_and_match], ids=lambda r: r.name)
def test_a_plain_rule_reads_the_device_twice_a_test_at_most_and_twice_a_round(monkeypatch, rule):
    """One read of the round's own, one for the token that ends it; `sample_and_match` draws a token
    for each level, and needs no other."""
    target = native(dtype=torch.float32)
    verify = speculation.verify
    reads_of_rounds = []
    with monkeypatch.context() as patch, Reads(patch) as reads:
        patch.delenv("SPECDEC_CHECK")

        def counted(rule, proposal, scores, context):
            reads.count, reads.on = 0, True
            verdict = verify(rule, proposal, scores, context)
            reads.on = False
            reads_of_rounds.append((reads.count, verdict.tested, len(proposal.tree)))
            return verdict

        patch.setattr(speculation, "verify", counted)
        draft = ModelDrafter(perturbed(target), 4)
        generate(target, PROMPT, draft, 60, 1.0, rule=rule, seed=0)
    assert any(nodes for _, _, nodes in reads_of_rounds)
    own = 2  # the drafted tree's tokens, which lie on the host
    assert all(count <= 2 * tested + 2 + own for count, tested, _ in reads_of_rounds)


class Event:
    """Stands for a CUDA event: it can be read only when the host has waited, as it does when a
    round's verdict is read.
    """

    made: list["Event"] = []

    def __init__(self):
        self.passed, self.at = False, len(self.made)
        self.made.append(self)

    def elapsed_time(self, later):
        assert self.passed and later.passed, "read before the device had got there"
        return 1e-3 * (later.at - self.at)


@pytest.mark.parametrize(
    "drafter, rule", [(None, None), (ModelDrafter, None), (DeviceDrafter, on_device)], ids=str
)
def test_phases_are_read_after_the_verdict_and_never_waited_for(monkeypatch, drafter, rule):
    target = native(dtype=torch.float32)
    made = drafter and drafter(perturbed(target), 3)
    plain = [told(step) for step in stream(target, PROMPT, made, 20, 1.0, rule=rule, seed=0)]
    verify = speculation.verify

    def judged(*args):
        verdict = verify(*args)
        for event in Event.made:
            event.passed = True
        return verdict

    monkeypatch.setattr(Event, "made", [])
    monkeypatch.setattr(speculation, "now", lambda device: Event())
    monkeypatch.setattr(speculation, "verify", judged)
    steps = list(stream(target, PROMPT, made, 20, 1.0, rule=rule, seed=0))
    assert [told(step) for step in steps] == plain and len(Event.made) == 3 * len(steps)
    assert all(
        step.drafting == step.verifying == pytest.approx(1e-6) and step.other > 0 for step in steps
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_phases_on_a_gpu_fit_into_the_round():
    target = CausalLM(native(dtype=torch.float32).model.cuda())
    for step in stream(target, PROMPT, DeviceDrafter(target, 3), 20, 1.0, rule=on_device, seed=0):
        assert step.drafting >= 0 and step.verifying > 0 and step.other >= 0


def test_bad_use_is_refused():
    target = native(dtype=torch.float32)
    with pytest.raises(ValueError, match="on_device judges chains"):
        on_device(Proposal(TokenTree([1, 2], [-1, -1])), torch.full((3, 4), 0.25), SeededRng(0))
    with pytest.raises(TypeError, match="EnumeratingRng: .*SeededRng"):
        list(
            stream(
                target,
                PROMPT,
                DeviceDrafter(target, 2),
                8,
                1.0,
                rule=on_device,
                rng=EnumeratingRng(),
            )
        )
    with pytest.raises(TypeError, match="EnumeratingRng: .*SeededRng"):
        on_device(Proposal(TokenTree.chain([1])), torch.full((2, 4), 0.25), EnumeratingRng())


def test_nan_logits_and_impossible_drafts_are_flagged(monkeypatch):
    monkeypatch.delenv("SPECDEC_CHECK")
    target = native(dtype=torch.float32)
    broken = native(seed=1, dtype=torch.float32)
    with torch.no_grad():
        broken.model.norm.weight.fill_(float("nan"))
    for temperature in (0.0, 1.0):
        with pytest.raises(ValueError, match="hold NaN, infinity or no finite value"):
            generate(
                broken, PROMPT, DeviceDrafter(target, 2), 8, temperature, rule=on_device, seed=0
            )

    score, rows = CausalLM.score, []

    def spoilt(self, tokens, *others, **options):
        scores = score(self, tokens, *others, **options)
        if self is target and scores.logits.shape[1] > 2:  # a round, not the prefill
            with torch.inference_mode():
                scores.logits[0, 1, 5] = float("nan")
            rows.append(1)
        return scores

    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(ValueError, match="hold NaN, infinity or no finite value"),
    ):
        patch.setattr(CausalLM, "score", spoilt)
        generate(
            target,
            PROMPT,
            DeviceDrafter(native(seed=1, dtype=torch.float32), 2),
            8,
            1.0,
            rule=on_device,
            seed=0,
        )
    assert rows

    class Liar(ModelDrafter):
        def start(self, context):
            session = super().start(context)
            honest = session.propose

            def propose(context):
                made = honest(context)
                if made.probs is None:
                    return made
                rows = made.probs.clone().scatter_(-1, made.tree.tokens[:, None], 0.0)
                return Proposal(made.tree, rows / rows.sum(-1, keepdim=True))

            session.propose = propose
            return session

    with pytest.raises(ValueError, match="to which it gave probability 0.0"):
        generate(target, PROMPT, Liar(target, 2), 20, 1.0, rule=on_device, seed=0)
    with pytest.raises(ValueError, match="to which it gave probability 0.0"):
        on_device(
            Proposal(TokenTree.chain([0]), torch.tensor([[0.0, 0.5, 0.5]])),
            torch.tensor([[0.5, 0.25, 0.25]] * 2),
            SeededRng(0),
        )
    with pytest.raises(ValueError, match="to which it gave probability nan"):
        generate(target, PROMPT, DeviceDrafter(broken, 2), 8, 1.0, rule=on_device, seed=0)


def test_on_the_shipped_pair():
    pair = load_pair(device="cpu", dtype="float32")
    ids = pair.tokenizer.encode("def main():\n    for line in")
    static = [StaticLM(model, 256) for model in (pair.target, pair.draft)]
    for temperature in (0.0, 1.0):
        plain = generate(pair.target, ids, ModelDrafter(pair.draft, 4), 80, temperature, seed=2)
        fast = generate(
            static[0], ids, DeviceDrafter(static[1], 4), 80, temperature, rule=on_device, seed=2
        )
        assert torch.equal(plain.tokens, fast.tokens)
