"""Every causal language model type of transformers is decoded exactly or rejected with a reason.

The recorded table is compared with fresh results.
"""

import pytest
import torch
import transformers
from architectures import COMPOSITE, Finding, examine, tiny
from broken import chosen, grow
from matrix import ARCHITECTURES, recorded
from models_zoo import OPTIONS, PROMPT, TYPES, TreeDrafter, perturbed

from specdec_lite import CausalLM, generate
from specdec_lite.drafters import ModelDrafter

TABLE = {row["kind"]: Finding(**row) for row in recorded()["architectures"]}
EXACT = [kind for kind, finding in TABLE.items() if finding.outcome == "exact"]
# The daily sample: latent attention, mixtures of experts, windows, a decoder without position ids,
# chunks, and one type for each reason of rejection. The other types are tested every week.
EVERY_DAY = [
    "llama",
    "deepseek_v2",
    "olmoe",
    "modernbert-decoder",
    "cohere_compass_text",
    "bart",
    "llama4_text",
    "gemma4_text",
    "xglm",
    "moshi",
    "mamba",
    "lfm2_moe",
    "xlstm",
    "roberta",
    "xlnet",
    "openai-gpt",
    "cpmant",
    "glm_moe_dsa",
]


def test_the_recorded_table_has_every_type_of_this_transformers():
    assert recorded()["versions"]["transformers"] == transformers.__version__, (
        "run `python tests/matrix.py` to renew its recording"
    )
    assert set(TABLE) == set(TYPES)
    assert set(OPTIONS) | set(COMPOSITE) <= set(TYPES)
    assert set(COMPOSITE) == {k for k, f in TABLE.items() if f.outcome == "not tried"}
    assert {f.outcome for f in TABLE.values()} == set(ARCHITECTURES) and len(EXACT) > 100


@pytest.mark.parametrize("kind", EVERY_DAY)
def test_a_type_behaves_as_recorded(kind):
    assert examine(kind) == TABLE[kind]


@pytest.mark.weekly
@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind not in EVERY_DAY])
def test_every_type_behaves_as_recorded(kind):
    assert examine(kind) == TABLE[kind]


def test_every_rejection_has_a_reason():
    for finding in TABLE.values():
        if finding.outcome == "refused":
            reason = finding.reason
            assert "cut back" in reason or "cannot be decoded speculatively" in reason


def test_examining_a_type_finds_planted_faults(monkeypatch):
    """No self-test, a tree mask for a type that takes no positions, no mask: each is found."""
    backend = "specdec_lite.engine.hugging_face.HuggingFaceBackend"
    monkeypatch.setattr("specdec_lite.engine.hugging_face.self_test", lambda backend: None)
    with pytest.raises(AssertionError, match="roberta"):
        examine("roberta")
    init = CausalLM.__init__

    def by_mask(self, model):
        init(self, model)
        self.backend.by_path = False

    with monkeypatch.context() as patch, pytest.raises(AssertionError, match="bart is accepted"):
        patch.setattr(CausalLM, "__init__", by_mask)
        examine("bart")
    with monkeypatch.context() as patch, pytest.raises(AssertionError, match="llama is accepted"):
        patch.setattr(f"{backend}._mask", lambda *a: None)
        examine("llama")


# The weekly tests -------------------------------------------------------


@pytest.fixture(scope="module")
def target(request):
    return CausalLM(tiny(request.param))


DEEP = pytest.mark.parametrize("target", EXACT, indirect=True)


@pytest.mark.weekly
@DEEP
def test_greedy_text_of_every_type_with_chains_and_trees(target):
    draft, plain = perturbed(target), generate(target, PROMPT, max_new_tokens=18).tokens
    for drafter in [
        *(ModelDrafter(draft, gamma) for gamma in range(1, 9)),
        TreeDrafter(draft, grow(chosen(2)), depth=3),
    ]:
        assert torch.equal(generate(target, PROMPT, drafter, 18).tokens, plain)


@pytest.mark.weekly
@pytest.mark.parametrize("kind", EXACT)
def test_a_perfect_draft_of_every_type_is_accepted_in_300_rounds(kind):
    target = CausalLM(tiny(kind, positions=1024))
    drafter = ModelDrafter(target, 2)
    out = generate(target, PROMPT, drafter, 900, temperature=1.0, seed=0, stop_token_ids=())
    assert out.stats.acceptance_rate == 1.0
    assert (out.stats.target_passes, out.stats.tested) == (300, 600)
