"""The self-test of a Hugging Face model when it is wrapped, and the keywords of its pass.

The self-test must find faults, must not mistake rounding for a fault, and must not change the model.
"""

import copy

import pytest
import torch
from architectures import tiny
from chosen import one_in
from heads_zoo import random_head
from models_zoo import FAMILIES, PROMPT, build, hugging_face, logits_of
from transformers import AutoModelForCausalLM

from specdec_lite import CausalLM, generate
from specdec_lite.drafters import EagleDrafter, ModelDrafter
from specdec_lite.engine import hugging_face as module, self_test
from specdec_lite.loading.pairs import SHIPPED
from specdec_lite.tree import TokenTree

Backend = module.HuggingFaceBackend
TREE = TokenTree([20, 21, 22, 23, 24, 25, 26], [-1, -1, 0, 0, 1, 2, 4])


@pytest.fixture(scope="module", params=["target", "draft"])
def trained(request):
    """Return a model of the shipped pair as transformers reads it, in bfloat16.

    This is the hardest case: in a trained model a fault changes the logits of a few tokens little,
    and in bfloat16 rounding changes them most.
    """
    folder = SHIPPED / request.param
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()


def test_a_trained_model_in_bfloat16_passes(trained):
    assert not CausalLM(trained).backend.by_path


MOVE = module.HuggingFaceStorage.move


def nothing(*args):
    pass


def spoil(self, start, rows):
    MOVE(self, start, rows)
    self._each(lambda x: x * torch.nan)


@pytest.mark.parametrize(
    "name, wrong, part",
    [
        ("cut", nothing, "a token after its cache was cut back"),
        ("move", nothing, "what follows a kept path"),
        ("move", spoil, "what follows a kept path"),
    ],
)
def test_a_fault_in_a_trained_model_is_found_and_named(trained, monkeypatch, name, wrong, part):
    monkeypatch.setattr(module.HuggingFaceStorage, name, wrong)
    with pytest.raises(ValueError, match=f"LlamaForCausalLM .* {part}.*cannot be decoded"):
        CausalLM(trained)


def test_a_gap_of_one_position_is_found_in_float32(trained, monkeypatch):
    """In bfloat16 it changes a trained model's logits by less than the tolerance."""
    positions = module.tree_positions
    shifted = lambda length, *args: positions(length, *args) + (length > 0)
    monkeypatch.setattr(module, "tree_positions", shifted)
    with pytest.raises(ValueError, match="LlamaForCausalLM .* a block"):
        CausalLM(copy.deepcopy(trained).float())


def by_rows(length, count, tree, device, cached=0):
    return torch.arange(length, length + count, device=device)


def in_order(length, count, tree, window, positions, cached=0):
    return torch.ones(count, length + count, dtype=torch.bool).tril(length)


@pytest.mark.parametrize("name, wrong", [("tree_positions", by_rows), ("visible", in_order)])
def test_a_model_that_misreads_a_tree_takes_it_path_by_path(trained, monkeypatch, name, wrong):
    monkeypatch.setattr(module, name, wrong)
    assert CausalLM(trained).backend.by_path


@pytest.mark.parametrize("family", one_in(3, ["Llama", "Mixtral", "Gemma2"], ["Llama"]))
def test_rounding_is_not_a_fault(family):
    """Every module of 32 layers rounds at random by up to half a unit of bfloat16.

    No order of summation rounds more. A tolerance made for float16 would reject all these models.
    """
    options = FAMILIES[family] | dict(num_hidden_layers=32, initializer_range=0.02)
    options.pop("layer_types", None)
    model = build(family, options).bfloat16()
    generator = torch.Generator().manual_seed(0)

    def round_at_random(part, args, out):
        if isinstance(out, torch.Tensor) and out.is_floating_point():
            noise = torch.rand(out.shape, generator=generator) - 0.5
            return (out * (1 + torch.finfo(torch.bfloat16).eps * noise)).bfloat16()

    for part in model.model.modules():
        part.register_forward_hook(round_at_random)
    backend = Backend(model)
    assert not backend.by_path
    errors = []
    with torch.no_grad():
        for _ in range(3):
            pairs = list(self_test.in_pieces(backend, torch.tensor(PROMPT[:5]), TREE))
            errors.append(max(self_test.deviations(pairs)))
    share = self_test.ROUNDINGS * torch.finfo(torch.bfloat16).eps
    assert 0.02 < min(errors) and max(errors) < share


def test_nan_weights_are_left_to_the_verdict():
    model = build("Llama", {})
    torch.nn.init.constant_(model.lm_head.weight, torch.nan)
    assert torch.isnan(logits_of(CausalLM(model), PROMPT)).all()


@pytest.mark.parametrize("low", [-torch.inf, torch.finfo(torch.float32).min])
def test_masked_tokens_are_not_compared(low):
    model = build("Llama", {})

    def mask(part, args, out):
        out.logits[..., 7:] = low
        return out

    model.register_forward_hook(mask)
    assert not CausalLM(model).backend.by_path


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_vocabulary_may_be_tiny(size, dtype):
    for seed in range(5):
        model = build("Llama", dict(vocab_size=size, pad_token_id=0, eos_token_id=0), seed)
        assert CausalLM(model.to(dtype)).vocab_size == size


def test_a_model_that_cannot_run_is_not_tested():
    with torch.device("meta"):
        model = CausalLM(build("Llama", {}))
    assert model.backend.by_path and model.num_layers == 2
    short = CausalLM(build("GPT2", dict(n_positions=8)))
    assert short.backend.by_path and short.score([1] * 8, short.new_cache()).logits.shape[1] == 8


class Stored(torch.nn.Module):
    """Returns what another module returns, and stores its weight in another form, or none."""

    def __init__(self, module, weight):
        super().__init__()
        self.module = [module]  # a list hides it from torch
        self.weight = weight if weight is None else torch.nn.Parameter(weight, requires_grad=False)

    def forward(self, x):
        return self.module[0](x)


PACKED = torch.zeros(768, 1, dtype=torch.uint8)


@pytest.mark.parametrize("weight", [None, PACKED, torch.zeros(48, 32)])  # the last: adapted
def test_a_head_is_read_by_what_it_returns(weight):
    model, plain = build("Llama", {}).double(), hugging_face("Llama")
    rows = model.lm_head.weight
    model.lm_head = Stored(model.lm_head, weight)
    target = CausalLM(model)
    assert target.vocab_size == 48 and not target.backend.by_path
    assert torch.equal(target.projection, rows)
    drafter = EagleDrafter(target, random_head(target, ids=torch.arange(0, 48, 2)), 3)
    for each in (drafter, ModelDrafter(plain, 3)):
        assert len(generate(target, PROMPT, each, 12, 1.0, seed=1).tokens) == 12
    with pytest.raises(ValueError, match="prompt_ids contains 700"):
        generate(target, [700])
    model.model.embed_tokens = Stored(model.model.embed_tokens, PACKED)
    assert CausalLM(model).dtype == torch.float64 and not CausalLM(model).backend.by_path


def test_an_out_of_memory_error_is_not_a_fault():
    model = build("Llama", {})

    def full(part, args, options):
        raise torch.OutOfMemoryError("out of memory")

    model.register_forward_pre_hook(full, with_kwargs=True)
    with pytest.raises(torch.OutOfMemoryError):
        CausalLM(model)


@pytest.mark.parametrize("kind", ["llama", "modernbert-decoder", "xglm", "reformer", "roberta"])
def test_the_self_test_changes_nothing(kind):
    """Weights, buffers, modes, gradients, attributes and the global generator stay the same.

    Reformer draws from the global generator in every pass.
    """
    model = tiny(kind).float().train()
    next(model.children()).eval()
    modes = [part.training for part in model.modules()]
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    attributes = [set(vars(part)) for part in model.modules()]
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    try:
        Backend(model)
    except ValueError:
        assert kind in ("reformer", "roberta")
    assert torch.equal(torch.rand(1), expected)
    assert [part.training for part in model.modules()] == modes
    assert [set(vars(part)) for part in model.modules()] == attributes
    after = dict(model.named_buffers())
    assert set(after) == set(buffers)
    assert all(torch.equal(buffers[name], after[name]) for name in buffers)
    assert not any(tensor.is_inference() for tensor in [*after.values(), *model.parameters()])
    assert all(weight.grad is None for weight in model.parameters())


# Nodes that are in the cache already ---------------------------------------------------------------


def test_a_tree_verified_path_by_path_is_fed_again():
    model = hugging_face("Bloom")
    cache = model.new_cache()
    model.score([*PROMPT, 19, 20, 21], cache, TokenTree([20, 21], [-1, -1]))
    tree = TokenTree([20, 21, 22], [-1, -1, 0])
    with pytest.raises(ValueError, match="cached=2: BloomForCausalLM"):
        model.score([22], cache, tree, cached=2)
    cache.crop(len(PROMPT))
    rows = model.score([19, 20, 21, 22], cache, tree).logits[0]
    assert torch.allclose(rows[[0, 1, 3]], logits_of(model, [*PROMPT, 19, 20, 22])[-3:], atol=1e-5)


def test_a_model_that_cannot_run_in_a_dtype_is_named_for_that():
    model = build("Mixtral", {}).double()
    model.config._experts_implementation = "grouped_mm"
    with pytest.raises(ValueError, match="torch.float64"):
        CausalLM(model)


@pytest.mark.parametrize("ids", [7, [7, 9]])
def test_a_wrapped_model_knows_its_end_of_text(ids):
    model = build("Llama", FAMILIES["Llama"])
    model.generation_config.eos_token_id = ids
    assert CausalLM(model).end_of_text == ((7,) if ids == 7 else (7, 9))
    model.generation_config.eos_token_id = model.config.eos_token_id = None
    assert CausalLM(model).end_of_text == ()
