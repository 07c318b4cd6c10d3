"""The self-test that judges a Hugging Face model when it is wrapped: what it sees, what it must not
mistake for a fault, and that it leaves nothing behind. Beside it the pass's own keywords.
"""

import copy
import inspect

import pytest
import torch
from architectures import tiny
from models_zoo import FAMILIES, PROMPT, WINDOW, build, hugging_face, logits_of
from transformers import AutoModelForCausalLM

from specdec_lite import CausalLM
from specdec_lite.engine import hugging_face as module
from specdec_lite.loading.pairs import SHIPPED
from specdec_lite.tree import TokenTree

Backend = module.HuggingFaceBackend
TREE = TokenTree([20, 21, 22, 23, 24, 25, 26], [-1, -1, 0, 0, 1, 2, 4])


@pytest.fixture(scope="module", params=["target", "draft"])
def trained(request):
    """Half of the shipped pair as transformers reads it, in bfloat16: a fault changes little of
    what a trained model says about a few tokens, and rounding changes most there.
    """
    folder = SHIPPED / request.param
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()


def test_a_trained_model_in_bfloat16_is_sound(trained):
    assert not CausalLM(trained).backend.by_path


def shifted(monkeypatch):
    positions = module.tree_positions
    monkeypatch.setattr(
        module,
        "tree_positions",
        lambda length, *args, **options: positions(length, *args, **options) + (length > 0),
    )


def stale(monkeypatch):
    monkeypatch.setattr(module.HuggingFaceStorage, "move", lambda *args: None)


def uncut(monkeypatch):
    monkeypatch.setattr(module.HuggingFaceStorage, "cut", lambda *args: None)


def invented(monkeypatch):
    move = module.HuggingFaceStorage.move

    def spoil(self, start, rows):
        move(self, start, rows)
        self._each(lambda x: x * torch.nan)

    monkeypatch.setattr(module.HuggingFaceStorage, "move", spoil)


@pytest.mark.parametrize(
    "fault, part",
    [
        (uncut, "a token after its cache was cut back"),
        (stale, "what follows a kept path"),
        (invented, "what follows a kept path"),
    ],
)
def test_a_fault_is_seen_and_named_in_a_trained_model_too(trained, monkeypatch, fault, part):
    fault(monkeypatch)
    with pytest.raises(ValueError, match=f"LlamaForCausalLM .* {part}.*cannot be decoded"):
        CausalLM(trained)


def test_a_gap_of_one_position_is_seen_where_rounding_is_finer(trained, monkeypatch):
    """In bfloat16 it changes a trained model's logits by less than rounding may."""
    shifted(monkeypatch)
    with pytest.raises(
        ValueError, match="LlamaForCausalLM .* a block of tokens.*cannot be decoded"
    ):
        CausalLM(copy.deepcopy(trained).float())


def by_rows(length, count, tree, device, cached=0):
    return torch.arange(length, length + count, device=device)


def in_order(length, count, tree, window, positions, cached=0):
    return torch.ones(count, length + count, dtype=torch.bool).tril(length)


@pytest.mark.parametrize("name, wrong", [("tree_positions", by_rows), ("visible", in_order)])
def test_a_model_that_misreads_a_tree_is_given_it_path_by_path(trained, monkeypatch, name, wrong):
    monkeypatch.setattr(module, name, wrong)
    assert CausalLM(trained).backend.by_path


@pytest.mark.parametrize("family", ["Llama", "Mixtral", "Gemma2"])
def test_rounding_is_no_fault(family):
    """Thirty-two layers, each module of which rounds at random by up to half a unit of bfloat16:
    more than any order of summing does. A tolerance fit for float16
    would refuse all of them.
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
            pairs = list(module.in_pieces(backend, torch.tensor(PROMPT[:5]), TREE))
            errors.append(max(module.deviations(pairs)))
    share = module.ROUNDINGS * torch.finfo(torch.bfloat16).eps
    assert 0.02 < min(errors) and max(errors) < share


def test_weights_that_are_not_numbers_are_left_to_the_verdict():
    model = build("Llama", {})
    torch.nn.init.constant_(model.lm_head.weight, torch.nan)
    assert torch.isnan(logits_of(CausalLM(model), PROMPT)).all()


@pytest.mark.parametrize("low", [-torch.inf, torch.finfo(torch.float32).min])
def test_tokens_that_a_model_masks_say_nothing(low):
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


def test_what_cannot_run_here_is_not_judged():
    with torch.device("meta"):
        model = CausalLM(build("Llama", {}))
    assert model.backend.by_path and model.num_layers == 2
    short = CausalLM(build("GPT2", dict(n_embd=32, n_layer=2, n_head=4, max_position_embeddings=8)))
    assert short.backend.by_path and short.score([1] * 8, short.new_cache()).logits.shape[1] == 8


def test_memory_that_runs_out_is_not_taken_for_a_fault():
    model = build("Llama", {})

    def full(part, args, options):
        raise torch.OutOfMemoryError("out of memory")

    model.register_forward_pre_hook(full, with_kwargs=True)
    with pytest.raises(torch.OutOfMemoryError):
        CausalLM(model)


@pytest.mark.parametrize("kind", ["llama", "modernbert-decoder", "xglm", "reformer", "roberta"])
def test_the_self_test_leaves_nothing_behind(kind):
    """No weight, buffer, mode, gradient or attribute, and no step of the global generator (Reformer
    draws from it in every pass).
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


# Nodes that are in the cache already --------------------------------------------------------------

takes_cached = pytest.mark.skipif(
    "cached" not in inspect.signature(CausalLM.score).parameters,
    reason="CausalLM.score does not take `cached` yet",
)
LEVELS = TokenTree(range(20, 36), [-1, -1, *range(14)])  # two paths of eight nodes, interleaved
ENDS = (2, 5, 10, 16)  # nodes up to where each feeding ends


@takes_cached
@pytest.mark.parametrize("root", [True, False], ids=["root with the nodes", "root before them"])
@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Mistral"])
def test_a_tree_fed_level_by_level_gives_the_logits_of_one_pass(family, root):
    """The window of Gemma2's and Mistral's layers is shorter than a path, along which a cached node's
    slot is not its position.
    """
    model = hugging_face(family)
    assert int(LEVELS.depth.max()) >= WINDOW
    whole = model.new_cache()
    model.score(PROMPT, whole)
    expected = model.score([19, *LEVELS.tokens.tolist()], whole, LEVELS).logits[0]
    cache = model.new_cache()
    model.score(PROMPT, cache)
    rows = [] if root else [model.score([19], cache).logits[0]]
    done = 0
    for end in ENDS:
        tree = LEVELS.prune(range(end))[0]
        fed = tree.tokens[done:].tolist()
        fed = [19, *fed] if root and not done else fed
        rows.append(model.score(fed, cache, tree, cached=done).logits[0])
        done = end
    assert torch.allclose(torch.cat(rows), expected, atol=1e-5) and cache.length == whole.length
    for kept in (cache, whole):
        kept.keep((0, 2, 4, 6))
    ours, theirs = (model.score([5, 6], kept).logits[0] for kept in (cache, whole))
    text = [*PROMPT, 19, 21, 23, 25, 5, 6]
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert torch.allclose(ours, logits_of(model, text)[-2:], atol=1e-5)


@takes_cached
def test_a_tree_that_goes_path_by_path_is_fed_again():
    model = hugging_face("Bloom")
    cache = model.new_cache()
    model.score([*PROMPT, 19, 20, 21], cache, TokenTree([20, 21], [-1, -1]))
    tree = TokenTree([20, 21, 22], [-1, -1, 0])
    with pytest.raises(ValueError, match="cached=2: BloomForCausalLM .*feed the whole tree again"):
        model.score([22], cache, tree, cached=2)
    cache.crop(len(PROMPT))
    rows = model.score([19, 20, 21, 22], cache, tree).logits[0]
    assert torch.allclose(rows[[0, 1, 3]], logits_of(model, [*PROMPT, 19, 20, 22])[-3:], atol=1e-5)


def test_keywords_that_a_model_cannot_honour_are_refused_by_name():
    llama, bloom = hugging_face("Llama"), hugging_face("Bloom")
    tokens, tree = torch.tensor([[22]]), TokenTree([20, 22], [-1, -1])
    with pytest.raises(ValueError, match="states begins behind block 1.*only native models"):
        llama.backend.score(
            tokens, llama.new_cache(), None, (), False, states=(1, torch.zeros(1, 1, 32))
        )
    with pytest.raises(ValueError, match="cached=1: BloomForCausalLM .*feed the whole tree again"):
        bloom.backend.score(tokens, bloom.new_cache(), tree, (), False, cached=1)
