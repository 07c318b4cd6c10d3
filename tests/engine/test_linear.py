"""Packed layers give the plain products, and never those of weights that have changed since."""

import copy
import operator
import pickle

import pytest
import torch
import torch.nn.functional as F
from models_zoo import PROMPT, build, logits_in_chains, native
from torch import nn

from specdec_lite import CausalLM, generate, load_pair
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine import int4, linear
from specdec_lite.engine.linear import (
    LIMIT,
    SMALL,
    PackedLinear,
    can_pack,
    is_packed,
    pack,
    unpack,
    worth_packing,
)
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.training.loop import next_token_loss
from specdec_lite.training.pair import distillation_loss

BIG = SMALL // 4 // 512  # rows of a float32 matrix [·, 512] that is just worth packing
PACKED = {
    dtype: rounding
    for dtype, rounding in ((torch.float32, 1e-6), (torch.bfloat16, 2**-8))
    if worth_packing(torch.empty(BIG, 512, dtype=dtype))
}
"""Formats that are packed on this processor, and their rounding."""
pytestmark = [
    pytest.mark.numeric,
    pytest.mark.skipif(torch.float32 not in PACKED, reason="needs an x86 processor and oneDNN"),
]


@pytest.fixture(autouse=True)
def without_our_product(monkeypatch):
    """Layers in bfloat16 are packed only where there is no product of ours."""
    monkeypatch.setattr(int4, "product", lambda: None)


def layer(dtype=torch.float32, bias=False, rows=BIG) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(512, rows, bias=bias).to(dtype).requires_grad_(False)


def packed_layer(dtype=torch.float32, bias=False) -> PackedLinear:
    ours = pack(layer(dtype, bias))
    assert type(ours) is PackedLinear and is_packed(ours)
    return ours


def wide() -> Transformer:
    """Return a model whose matrices, except "down", are just worth packing in float32."""
    torch.manual_seed(0)
    config = TransformerConfig(
        BIG, 512, intermediate_size=256, num_layers=2, num_heads=8, num_kv_heads=8, head_size=64
    )
    return Transformer(config).requires_grad_(False)


@torch.inference_mode()
def infer(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    """Return the product in inference mode."""
    return layer(x)


def plain(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    """Return the product with the weights that the layer has now."""
    return F.linear(x, layer.weight, layer.bias)


SHAPES = [(512,), (1, 512), (1, 1, 512), (1, 2, 512), (2, 1, 512), (1, 5, 512), (3, 2, 512)]


@pytest.mark.parametrize("padded", [(), linear.FEW], ids=["no padding", "few rows padded"])
@pytest.mark.parametrize("shape", [*SHAPES, (1, 130, 512), (1, 0, 512)], ids=str)
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("dtype", PACKED, ids=str)
def test_a_packed_product_equals_the_plain_one_to_rounding(dtype, bias, shape, padded):
    ours = packed_layer(dtype, bias)
    ours.padded = frozenset(padded)
    x = torch.randn(shape).to(dtype)
    product, expected = infer(ours, x), plain(ours, x)
    assert is_packed(ours)
    assert product.dtype == expected.dtype and product.shape == expected.shape
    if x.numel():
        tolerance = 4 * PACKED[dtype] * expected.abs().max()
        assert (product - expected).abs().max() <= tolerance


def test_slices_of_a_longer_block_are_multiplied_without_a_copy():
    ours, x = packed_layer(), torch.randn(1, 6, 512)
    torch.testing.assert_close(infer(ours, x[:, -1:]), plain(ours, x)[:, -1:])
    torch.testing.assert_close(
        infer(ours, x.expand(2, 6, 512).transpose(0, 1)),
        plain(ours, x.expand(2, 6, 512)).transpose(0, 1),
    )


def test_the_packed_copy_is_used_in_inference_mode_only():
    ours, x = packed_layer(), torch.randn(1, 512)
    ours.packed = torch.ops.mkldnn._reorder_linear_weight(
        2 * ours.weight.detach(), 8
    )  # a different matrix, so that its use is visible
    torch.testing.assert_close(infer(ours, x), 2 * plain(ours, x))
    with torch.no_grad():
        assert torch.equal(ours(x), plain(ours, x))
    x.requires_grad_(True)
    ours(x).sum().backward()
    torch.testing.assert_close(x.grad, ours.weight.sum(0, keepdim=True))
    unpack(ours)
    assert type(ours) is nn.Linear and torch.equal(infer(ours, x), plain(ours, x))
    ours.requires_grad_(True)(x).sum().backward()
    assert ours.weight.grad is not None


def doubled(ours: nn.Linear) -> None:
    with torch.no_grad():
        ours.weight.mul_(2.0)


def loaded(ours: nn.Linear) -> None:
    ours.load_state_dict({"weight": torch.randn(ours.weight.shape)})


def trained(ours: nn.Linear) -> None:
    """Raise first: a fused optimizer changes weights in place without raising their version."""
    optimizer = torch.optim.AdamW(ours.requires_grad_(True).parameters(), lr=1.0, fused=True)
    with pytest.raises(RuntimeError, match="unpack"):
        ours(torch.randn(4, 512))
    unpack(ours)
    ours(torch.randn(4, 512)).square().sum().backward()
    optimizer.step()


def trained_and_frozen(ours: nn.Linear) -> None:
    trained(ours)
    ours.requires_grad_(False)


def trained_by_its_weight_alone(ours: nn.Linear) -> None:
    """Train as a tied embedding is trained: no loss runs the layer's own forward."""
    optimizer = torch.optim.AdamW(ours.requires_grad_(True).parameters(), lr=1.0, fused=True)
    ours.weight.square().sum().backward()
    optimizer.step()


def replaced(ours: nn.Linear) -> None:
    ours.weight = torch.nn.Parameter(torch.randn(ours.weight.shape))


def cut(ours: nn.Linear) -> None:
    ours.weight = torch.nn.Parameter(ours.weight.detach()[:300])


def transposed(ours: nn.Linear) -> None:
    ours.weight = torch.nn.Parameter(ours.weight.detach().t())


def assigned(ours: nn.Linear) -> None:
    weights = {"weight": torch.randn(ours.weight.shape)}
    ours.load_state_dict(weights, assign=True)


def loaded_in_inference(ours: nn.Linear) -> None:
    """Load inference tensors, which count no changes."""
    with torch.inference_mode():
        ours.load_state_dict({"weight": torch.randn(ours.weight.shape)}, assign=True)


def set_through_data(ours: nn.Linear) -> None:
    ours.weight.data = torch.randn(ours.weight.shape)


def rounded(ours: nn.Linear) -> None:
    with torch.no_grad():
        ours.weight.mul_(1.1)
    ours.to(torch.bfloat16).to(torch.float32)


CHANGES = [doubled, loaded, assigned, loaded_in_inference, set_through_data, rounded, replaced, cut]
CHANGES += [transposed, trained, trained_and_frozen, trained_by_its_weight_alone]


@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_are_never_multiplied_from_an_old_copy(change, monkeypatch):
    """A broken variant, which does not check for changes, returns the old products."""
    ours, x = packed_layer(), torch.randn(1, 512)
    broken = copy.deepcopy(ours)
    pack(broken)
    old = infer(ours, x)
    change(ours)
    new = plain(ours, x).detach()
    assert old.shape != new.shape or not torch.allclose(old, new, rtol=1e-3, atol=1e-3)
    close = dict(rtol=1e-4, atol=1e-3)
    assert not is_packed(ours) and torch.equal(infer(ours, x), new)
    assert type(ours) is nn.Linear and not vars(ours).keys() & {"packed", "source", "version"}
    with monkeypatch.context() as patched:
        patched.setattr(PackedLinear, "is_current", lambda self: True)
        if change not in (trained, trained_and_frozen):  # packed layers refuse to be trained
            change(broken)
            torch.testing.assert_close(infer(broken, x), old, **close)
    pack(broken)  # packs again because the old copy is outdated
    pack(ours.requires_grad_(False))
    assert is_packed(ours) == worth_packing(ours.weight)
    torch.testing.assert_close(infer(ours, x), new, **close)
    torch.testing.assert_close(infer(broken, x), plain(broken, x).detach(), **close)


def test_training_packed_weights_raises_compiled_or_not():
    ours, x = packed_layer(), torch.randn(4, 512)
    ours.requires_grad_(True)
    for forward in (ours, torch.compile(lambda x: ours(x).square().sum(), backend="eager")):
        with pytest.raises(RuntimeError, match="unpack"):
            forward(x)
    pack(ours)  # weights that are being trained are not packed
    assert type(ours) is nn.Linear
    optimizer = torch.optim.AdamW(ours.parameters(), lr=1.0, fused=True)
    ours(x).sum().backward()
    pack(ours)
    optimizer.step()
    assert torch.equal(infer(ours, x), plain(ours, x))


def test_weights_that_count_no_changes_are_multiplied_as_they_are():
    model = CausalLM(pack(wide()))
    with torch.inference_mode():
        model.model.load_state_dict(
            {name: 2 * weight for name, weight in model.model.state_dict().items()}, assign=True
        )
        expected = model.model(torch.tensor([PROMPT]))
    assert torch.allclose(model.score(PROMPT, model.new_cache()).logits, expected, atol=1e-4)


def test_a_layer_keeps_its_copy_on_its_device_and_loses_it_elsewhere():
    ours = packed_layer()
    copied = ours.packed
    assert ours.to("cpu").packed is copied and is_packed(ours)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        infer(ours, torch.ones(1, 100))
    assert not is_packed(ours.to("meta"))
    assert infer(ours, torch.ones(1, 512, device="meta")).device.type == "meta"
    assert type(ours) is nn.Linear


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_another_dtype_uses_the_plain_product_until_packed_again(dtype):
    ours, x = packed_layer(), torch.randn(1, 512)
    ours.to(dtype)
    assert not is_packed(ours) and torch.equal(infer(ours, x.to(dtype)), plain(ours, x.to(dtype)))
    ours.to(torch.float32)  # rounded in bfloat16, perhaps at the first one's address
    assert torch.equal(infer(ours, x), plain(ours, x))
    pack(ours)
    assert is_packed(ours)
    torch.testing.assert_close(infer(ours, x), plain(ours, x).detach())


def test_the_memory_of_packed_weights_is_not_reused():
    ours, x = packed_layer(), torch.randn(1, 512)
    taken = ours.weight.data_ptr()
    for _ in range(20):
        ours.weight.data = torch.randn(ours.weight.shape)
        assert ours.weight.data_ptr() != taken and not is_packed(ours)
    assert torch.equal(infer(ours, x), plain(ours, x))


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"]
)
def test_a_copied_layer_is_plain(again):
    ours, x = packed_layer(), torch.randn(1, 512)
    other = again(ours)
    assert type(other) is nn.Linear and is_packed(ours)
    assert vars(other).keys() == vars(layer()).keys()
    doubled(ours)
    torch.testing.assert_close(2 * infer(other, x), infer(ours, x))


def test_a_packed_layer_has_the_parameters_of_a_plain_one():
    ours, bare = packed_layer(bias=True), layer(bias=True)
    weight = ours.weight
    assert isinstance(ours, nn.Linear) and list(ours.parameters()) == [weight, ours.bias]
    assert ours.state_dict().keys() == bare.state_dict().keys()
    assert all(map(torch.equal, ours.state_dict().values(), bare.state_dict().values()))
    unpack(ours)
    assert ours.weight is weight and vars(ours).keys() == vars(bare).keys()


def test_tied_weights_stay_tied_and_a_model_is_packed_in_place():
    tied = wide()
    head = tied.head
    assert pack(tied) is tied and tied.head is head and type(head) is PackedLinear
    assert head.weight is tied.embedding.weight
    other = copy.deepcopy(tied)
    assert type(other.head) is nn.Linear and other.head.weight is other.embedding.weight
    assert unpack(tied) is tied
    assert type(head) is nn.Linear and head.weight is tied.embedding.weight


def test_layers_not_worth_packing_stay_plain():
    for ours in (layer(rows=BIG - 1), layer(torch.float64), layer(torch.float16)):
        pack(ours)
        assert type(ours) is nn.Linear
    with torch.inference_mode():
        uncounted = pack(nn.Linear(512, BIG))  # inference tensors count no changes
        x = torch.ones(1, 512)
        assert type(uncounted) is nn.Linear and torch.equal(uncounted(x), plain(uncounted, x))


@pytest.mark.parametrize(
    "changed",
    [
        ("platform", "machine", lambda: "arm64"),
        ("torch.backends.mkldnn", "is_available", lambda: False),
    ],
    ids=["arm", "no oneDNN"],
)
def test_other_machines_pack_nothing_and_decode(changed, monkeypatch):
    where, name, value = changed
    monkeypatch.setattr(f"{where}.{name}", value)
    can_pack.cache_clear()
    try:
        ours = CausalLM(pack(wide()))
        assert not is_packed(ours.model)
        assert ours.score(PROMPT, ours.new_cache()).logits.isfinite().all()
    finally:
        monkeypatch.undo()
        can_pack.cache_clear()


def test_nothing_is_packed_if_an_operator_is_missing(monkeypatch):
    monkeypatch.setattr(linear, "OPERATORS", (*linear.OPERATORS, "_gone"))
    can_pack.cache_clear()
    try:
        assert not worth_packing(torch.empty(BIG, 512))
    finally:
        monkeypatch.undo()
        can_pack.cache_clear()
    assert worth_packing(torch.empty(BIG, 512))


def test_autocast_and_other_dtypes_take_the_plain_product():
    ours, x = packed_layer(), torch.randn(1, 512)
    with torch.autocast("cpu", torch.bfloat16):
        assert infer(ours, x).dtype == torch.bfloat16
    with pytest.raises(RuntimeError, match="same dtype"):
        infer(ours, x.bfloat16())


def test_a_compiled_loss_is_one_graph():
    model = native(dtype=torch.float32).model.requires_grad_(True)
    assert (
        torch._dynamo.explain(next_token_loss(model))(torch.randint(0, 40, (2, 9))).graph_count == 1
    )
    ids = torch.randint(0, 40, (2, 9))
    small = native(seed=1, dtype=torch.float32).model.requires_grad_(False)
    assert torch._dynamo.explain(distillation_loss(model, small))(ids).graph_count == 1
    with torch.inference_mode():
        assert torch._dynamo.explain(pack(wide()))(ids).graph_count == 1


@pytest.mark.parametrize("family", ["native", "Llama"])
def test_wrapping_a_model_never_changes_its_modules(family):
    """Explicit packing is the only step that changes a layer's class or attributes."""
    large = dict(hidden_size=512, vocab_size=BIG)
    model = wide() if family == "native" else build("Llama", large).requires_grad_(False)
    before = {name: (type(part), *vars(part)) for name, part in model.named_modules()}
    CausalLM(model)
    assert {name: (type(part), *vars(part)) for name, part in model.named_modules()} == before
    assert not is_packed(model) and is_packed(pack(model))


def test_models_up_to_the_limit_are_packed(monkeypatch):
    model = pack(wide())
    packed = {name for name, part in model.named_modules() if type(part) is PackedLinear}
    assert packed == {
        "head",
        *(f"blocks.{i}.{name}" for i in range(2) for name in ("qkv", "out", "gate_up")),
    }
    model = copy.deepcopy(model)
    monkeypatch.setattr(linear, "LIMIT", sum(weight.nbytes for weight in model.parameters()) - 1)
    assert not is_packed(pack(model))
    monkeypatch.setattr(linear, "LIMIT", LIMIT)
    assert is_packed(pack(model))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_shipped_pair_decodes_the_same_packed_and_plain(dtype):
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


def test_packing_twice_keeps_the_copies_and_small_models_have_none():
    model = pack(wide())
    assert is_packed(model)
    copies = lambda: [part.packed for part in model.modules() if type(part) is PackedLinear]
    before = copies()
    pack(model)
    assert len(copies()) == len(before) > 0 and all(map(operator.is_, before, copies()))
    unpack(model)
    assert not is_packed(model) and not copies() and model.rows_alike == 0
    assert not is_packed(pack(native(dtype=torch.float32).model))


@pytest.mark.parametrize("padded, chosen", [(0.5, {1, 2}), (0.97, set()), (2.0, set())])
def test_rows_are_padded_where_that_was_measured_to_be_faster(padded, chosen, monkeypatch):
    times = iter([1.0, padded] * 100)
    monkeypatch.setattr(linear, "seconds", lambda run: next(times))
    linear.rows_to_pad.cache_clear()
    try:
        assert packed_layer().padded == chosen
        again = packed_layer().padded
        assert again == chosen, "measured once per shape"
    finally:
        linear.rows_to_pad.cache_clear()


def test_the_pair_decodes_the_same_with_padded_rows():
    """In float32: greedy text, and the logits to rounding."""
    pair = load_pair(device="cpu", dtype="float32")
    ids = pair.tokenizer.encode("def main():\n    ")
    layers = [part for part in pair.target.model.modules() if type(part) is PackedLinear]
    assert layers
    found = []
    for rows in ((), linear.FEW):
        for part in layers:
            part.padded = frozenset(rows)
        text = generate(pair.target, ids, ModelDrafter(pair.draft, 3), 40).tokens.tolist()
        found.append((text, pair.target.score(ids[:1], pair.target.new_cache()).logits))
    assert found[0][0] == found[1][0]
    assert (found[0][1] - found[1][1]).abs().max() < 1e-3


# In bfloat16, rows hardly depend on the number of rows ----------------------------------------------


def bfloat16_model() -> CausalLM:
    """Return a small model in bfloat16 whose rows agree, or skip."""
    model = native(4, torch.bfloat16, num_layers=3)
    pack(model.model.requires_grad_(False))
    if not model.model.rows_alike:
        pytest.skip("on this processor a row's rounding depends on the number of rows")
    return model


def test_a_chain_in_bfloat16_has_nearly_always_the_logits_of_its_tokens_one_by_one():
    model = bfloat16_model()
    text = torch.randint(40, (96,), generator=torch.Generator().manual_seed(1)).tolist()
    expected = logits_in_chains(model, text, 1)
    for size in (2, 3, 5, 8, 11, linear.ALONE):
        same = (logits_in_chains(model, text, size) == expected).all(1)
        assert same.double().mean() > 0.9
    model.model.rows_alike = 0  # broken: it fails the check above (.5 to .73 by kernel)
    same = (logits_in_chains(model, text, 5) == logits_in_chains(model, text, 1)).all(1)
    assert same.double().mean() < 0.9


@pytest.mark.skipif(torch.bfloat16 not in PACKED, reason="no bfloat16 instructions here")
def test_rows_that_do_not_agree_are_found(monkeypatch):
    def alone_is_different(x, packed, bias):
        result = product(x, packed, bias)
        return result * 1.01 if x.shape[-2] == 1 else result

    product = linear.product
    monkeypatch.setattr(linear, "product", alone_is_different)
    ours = packed_layer(torch.bfloat16)
    assert linear.rows_agree(ours) and 1 in ours.padded, "padding makes the single row agree"
    ours.padded = frozenset()
    assert not linear.rows_agree(ours)
    monkeypatch.setattr(linear, "PADDED", 1)
    assert linear.agreeing_rows(ours) == (frozenset(), False), "no padding helps"
