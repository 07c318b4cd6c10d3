"""Packed weights: the same products, and never those of weights that have changed since."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from models_zoo import PROMPT, native

from specdec_lite import CausalLM, generate, load_pair
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine import linear
from specdec_lite.engine.linear import (
    LIMIT,
    SMALL,
    Linear,
    can_pack,
    is_packed,
    layers,
    pack,
    unpack,
    worth_packing,
)
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.training.loop import next_token_loss
from specdec_lite.training.pair import distillation_loss

BIG = SMALL // 4 // 512  # rows of a float32 matrix [·, 512] that is just worth packing
FORMATS = {torch.float32: 1e-6, torch.bfloat16: 2**-8}
pytestmark = pytest.mark.skipif(
    not worth_packing(torch.empty(BIG, 512)), reason="needs an x86 processor and oneDNN"
)


def layer(dtype=torch.float32, bias=False, rows=BIG) -> Linear:
    torch.manual_seed(0)
    return Linear(512, rows, bias=bias).to(dtype).requires_grad_(False)


def wide() -> CausalLM:
    """A model of which all matrices but "down" are just worth packing in float32."""
    torch.manual_seed(0)
    return CausalLM(
        Transformer(
            TransformerConfig(
                BIG,
                512,
                intermediate_size=256,
                num_layers=2,
                num_heads=8,
                num_kv_heads=8,
                head_size=64,
            )
        ).requires_grad_(False)
    )


@torch.inference_mode()
def decoded(layer: Linear, x: torch.Tensor) -> torch.Tensor:
    return layer(x)


def plain(layer: Linear, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, layer.weight, layer.bias)


@pytest.mark.parametrize(
    "shape",
    [(512,), (1, 512), (1, 1, 512), (1, 5, 512), (3, 2, 512), (1, 130, 512), (1, 0, 512)],
    ids=str,
)
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_a_packed_product_is_the_plain_one_to_within_rounding(dtype, bias, shape):
    ours = layer(dtype, bias)
    if not worth_packing(ours.weight):
        pytest.skip("a processor without bfloat16")
    ours.pack()
    x = torch.randn(shape).to(dtype)
    found, expected = decoded(ours, x), plain(ours, x)
    assert (
        ours.packed is not None and found.dtype == expected.dtype and found.shape == expected.shape
    )
    assert (
        not x.numel() or (found - expected).abs().max() <= 4 * FORMATS[dtype] * expected.abs().max()
    )


def test_rows_cut_from_a_longer_block_are_multiplied_as_they_stand():
    ours, x = layer(), torch.randn(1, 6, 512)
    ours.pack()
    torch.testing.assert_close(decoded(ours, x[:, -1:]), plain(ours, x)[:, -1:])
    torch.testing.assert_close(
        decoded(ours, x.expand(2, 6, 512).transpose(0, 1)),
        plain(ours, x.expand(2, 6, 512)).transpose(0, 1),
    )


def test_the_copy_is_read_in_inference_mode_and_nowhere_else():
    ours, x = layer(), torch.randn(1, 512)
    ours.pack()
    ours.packed = torch.ops.mkldnn._reorder_linear_weight(
        2 * ours.weight.detach(), 8
    )  # another matrix, so that it shows
    torch.testing.assert_close(decoded(ours, x), 2 * plain(ours, x))
    with torch.no_grad():
        assert torch.equal(ours(x), plain(ours, x))
    ours.requires_grad_(True)(x).sum().backward()
    assert ours.weight.grad is not None


def doubled(ours: Linear) -> None:
    with torch.no_grad():
        ours.weight.mul_(2.0)


def loaded(ours: Linear) -> None:
    ours.load_state_dict({"weight": torch.randn(ours.weight.shape)})


def trained(ours: Linear) -> None:
    optimizer = torch.optim.SGD(ours.requires_grad_(True).parameters(), lr=1.0)
    ours(torch.randn(4, 512)).square().sum().backward()
    optimizer.step()


def trained_fused(ours: Linear) -> None:
    """Such an optimiser changes weights in place without raising their version."""
    optimizer = torch.optim.AdamW(ours.requires_grad_(True).parameters(), lr=1.0, fused=True)
    ours(torch.randn(4, 512)).square().sum().backward()
    optimizer.step()


def trained_compiled(ours: Linear) -> None:
    optimizer = torch.optim.AdamW(ours.requires_grad_(True).parameters(), lr=1.0, fused=True)
    torch.compile(lambda x: ours(x).square().sum(), backend="eager", fullgraph=True)(
        torch.randn(4, 512)
    ).backward()
    optimizer.step()
    ours.requires_grad_(False)


def replaced(ours: Linear) -> None:
    ours.weight = torch.nn.Parameter(torch.randn(ours.weight.shape))


def cut(ours: Linear) -> None:
    ours.weight = torch.nn.Parameter(ours.weight.detach()[:300])


def turned(ours: Linear) -> None:
    ours.weight = torch.nn.Parameter(ours.weight.detach().t())


@pytest.mark.parametrize(
    "change", [doubled, loaded, trained, trained_fused, trained_compiled, replaced, cut, turned]
)
def test_changed_weights_are_never_multiplied_from_an_old_copy(change, monkeypatch):
    """The broken variant, which does not look whether the weights are still the same, gives the old
    products.
    """
    ours, x = layer(), torch.randn(1, 512)
    ours.pack()
    old = decoded(ours, x)
    change(ours)
    new = plain(ours, x).detach()
    assert old.shape != new.shape or not torch.allclose(old, new, rtol=1e-3, atol=1e-3)
    close = dict(rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(decoded(ours, x), new, **close)
    ours.requires_grad_(False)
    monkeypatch.setattr(Linear, "_is_current", lambda self: True)
    torch.testing.assert_close(decoded(ours, x), old, **close)
    monkeypatch.undo()
    ours.pack()
    assert ours._is_current() == worth_packing(ours.weight)
    torch.testing.assert_close(decoded(ours, x), new, **close)


def test_weights_in_training_are_multiplied_as_they_are_between_their_gradient_and_their_step():
    ours, x = layer(), torch.randn(1, 512)
    ours.pack()
    optimizer = torch.optim.AdamW(ours.requires_grad_(True).parameters(), lr=1.0, fused=True)
    ours(x).sum().backward()
    ours.pack()  # a look at the model, before the step
    optimizer.step()
    assert torch.equal(decoded(ours, x), plain(ours, x))


def test_weights_that_keep_no_count_of_their_changes_are_multiplied_as_they_are():
    model = wide()
    with torch.inference_mode():
        model.model.load_state_dict(
            {name: 2 * weight for name, weight in model.model.state_dict().items()}, assign=True
        )
        expected = model.model(torch.tensor([PROMPT]))
    assert torch.allclose(model.score(PROMPT, model.new_cache()).logits, expected, atol=1e-4)


def test_a_move_to_where_a_layer_is_keeps_its_copy_and_a_wrong_width_has_pytorchs_own_error():
    ours = layer()
    ours.pack()
    copied = ours.packed
    assert ours.to("cpu").packed is copied
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        decoded(ours, torch.ones(1, 100))
    assert ours.to("meta").packed is ours.source is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_another_dtype_takes_the_plain_product_until_it_is_packed_again(dtype):
    ours, x = layer(), torch.randn(1, 512)
    ours.pack()
    ours.to(dtype)
    assert ours.packed is ours.source is None and torch.equal(
        decoded(ours, x.to(dtype)), plain(ours, x.to(dtype))
    )
    ours.to(torch.float32)  # rounded in bfloat16, perhaps at the address of the first
    assert torch.equal(decoded(ours, x), plain(ours, x))
    ours.pack()
    assert ours.packed is not None
    torch.testing.assert_close(decoded(ours, x), plain(ours, x).detach())


def test_other_weights_cannot_come_to_lie_where_the_packed_ones_lay():
    ours, x = layer(), torch.randn(1, 512)
    ours.pack()
    taken = ours.weight.data_ptr()
    for _ in range(20):
        ours.weight.data = torch.randn(ours.weight.shape)
        assert ours.weight.data_ptr() != taken and torch.equal(decoded(ours, x), plain(ours, x))


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"]
)
def test_a_copied_model_carries_no_packed_weights_of_another(again):
    ours, x = layer(), torch.randn(1, 512)
    ours.pack()
    other = again(ours)
    doubled(ours)
    assert other.packed is other.source is None and ours.packed is not None
    torch.testing.assert_close(2 * decoded(other, x), decoded(ours, x))
    assert set(ours.state_dict()) == {"weight"}


def test_what_is_not_worth_it_stays_plain():
    for ours in (layer(rows=BIG - 1), layer(torch.float64), layer(torch.float16)):
        ours.pack()
        assert ours.packed is None
    with torch.inference_mode():
        born = Linear(512, BIG)  # such weights keep no count of their changes
        born.pack()
        assert born.packed is None and torch.equal(
            born(torch.ones(1, 512)), plain(born, torch.ones(1, 512))
        )


@pytest.mark.parametrize(
    "changed",
    [
        ("platform", "machine", lambda: "arm64"),
        ("torch.backends.mkldnn", "is_available", lambda: False),
    ],
    ids=["arm", "no oneDNN"],
)
def test_elsewhere_nothing_is_packed_and_all_works(changed, monkeypatch):
    where, name, value = changed
    monkeypatch.setattr(f"{where}.{name}", value)
    can_pack.cache_clear()
    try:
        ours = wide()
        assert (
            not is_packed(ours.model)
            and ours.score(PROMPT, ours.new_cache()).logits.isfinite().all()
        )
    finally:
        monkeypatch.undo()
        can_pack.cache_clear()


def test_operators_that_a_later_pytorch_may_drop_are_asked_for_first(monkeypatch):
    monkeypatch.setattr(linear, "OPERATORS", (*linear.OPERATORS, "_gone"))
    can_pack.cache_clear()
    try:
        assert not worth_packing(torch.empty(BIG, 512))
    finally:
        monkeypatch.undo()
        can_pack.cache_clear()
    assert worth_packing(torch.empty(BIG, 512))


def test_autocast_and_another_dtype_are_left_to_pytorch():
    ours, x = layer(), torch.randn(1, 512)
    ours.pack()
    with torch.autocast("cpu", torch.bfloat16):
        assert decoded(ours, x).dtype == torch.bfloat16
    with pytest.raises(RuntimeError, match="same dtype"):
        decoded(ours, x.bfloat16())


def test_a_compiled_loss_is_one_graph():
    model = native(dtype=torch.float32).model.requires_grad_(True)
    assert (
        torch._dynamo.explain(next_token_loss(model))(torch.randint(0, 40, (2, 9))).graph_count == 1
    )
    teacher = wide().model
    assert (
        torch._dynamo.explain(
            distillation_loss(
                model, native(seed=1, dtype=torch.float32).model.requires_grad_(False)
            )
        )(torch.randint(0, 40, (2, 9))).graph_count
        == 1
    )
    with torch.inference_mode():
        assert torch._dynamo.explain(teacher)(torch.randint(0, 40, (2, 9))).graph_count == 1


def test_a_model_is_packed_when_it_is_wrapped_and_only_up_to_the_limit(monkeypatch):
    model = wide().model
    packed = {
        name
        for name, part in model.named_modules()
        if isinstance(part, Linear) and part.packed is not None
    }
    assert packed == {
        "head",
        *(f"blocks.{i}.{name}" for i in range(2) for name in ("qkv", "out", "gate_up")),
    }
    model = copy.deepcopy(model)
    monkeypatch.setattr(linear, "LIMIT", sum(weight.nbytes for weight in model.parameters()) - 1)
    assert not is_packed(CausalLM(model).model)
    monkeypatch.setattr(linear, "LIMIT", LIMIT)
    assert is_packed(CausalLM(model).model)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_shipped_pair_scores_and_writes_the_same_packed_and_plain(dtype):
    packed, bare = load_pair(dtype=dtype), load_pair(dtype=dtype)
    for model in (bare.target, bare.draft):
        unpack(model.model)
    assert is_packed(packed.target.model) == worth_packing(
        torch.empty(BIG, 512, dtype=packed.target.dtype)
    ) and not is_packed(bare.target.model)
    ids = packed.tokenizer.encode("def mean(values):\n    return")
    for name in ("target", "draft"):
        ours, theirs = getattr(packed, name), getattr(bare, name)
        caches = ours.new_cache(), theirs.new_cache()
        for block in (ids, [5], [6, 7, 8, 9, 10]):
            logits, expected = (
                m.score(block, c).logits.float() for m, c in zip((ours, theirs), caches)
            )
            assert (logits - expected).abs().max() < (1e-4 if dtype == "float32" else 0.5)
    if dtype == "float32":
        texts = [
            generate(pair.target, ids, ModelDrafter(pair.draft), max_new_tokens=48).tokens.tolist()
            for pair in (packed, bare)
        ]
        assert (
            texts[0] == texts[1] == generate(packed.target, ids, max_new_tokens=48).tokens.tolist()
        )


def test_packing_twice_keeps_the_copy_and_small_models_have_none():
    model = wide().model
    assert is_packed(model)
    before = [part.packed for part in layers(model)]
    pack(model)
    assert all(a is b for a, b in zip(before, (part.packed for part in layers(model))))
    unpack(model)
    assert not is_packed(model)
    tiny = native(dtype=torch.float32)
    assert (
        not is_packed(tiny.model) and tiny.score(PROMPT, tiny.new_cache()).logits.isfinite().all()
    )
