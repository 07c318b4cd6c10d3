"""Layers with a copy of their weights give the plain products, and never those of weights that have
changed since, whatever the copy's format.
"""

import copy
import pickle
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from models_zoo import PROMPT, build, native
from torch import nn

from specdec_lite import CausalLM
from specdec_lite.engine import int4, linear
from specdec_lite.engine.frozen import ADDED, FrozenLinear
from specdec_lite.engine.int4 import Codes, attach, share_rows
from specdec_lite.engine.linear import (
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
without_our_product = mock.patch.object(int4, "product", lambda: None)
"""Layers in bfloat16 are packed only where there is no product of ours."""


def layer(dtype=torch.float32, bias=False, rows=BIG) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(512, rows, bias=bias).to(dtype).requires_grad_(False)


@without_our_product
def packed_layer(dtype=torch.float32, bias=False) -> PackedLinear:
    ours = pack(layer(dtype, bias))
    assert type(ours) is PackedLinear and is_packed(ours)
    return ours


KINDS = {f"packed {dtype}": (dtype, without_our_product(pack)) for dtype in PACKED}
if int4.can_multiply():
    KINDS["4 bits"] = torch.bfloat16, lambda ours: attach(ours, Codes.rounded(ours.weight))
if int4.product() is not None:
    KINDS["shared rows"] = torch.bfloat16, share_rows
"""Kinds of layers with a copy: format of the weights, and what turns a plain layer into one."""
EVERY = pytest.mark.parametrize("kind", KINDS)


def made(kind: str, scale: float = 1.0) -> FrozenLinear:
    dtype, freeze = KINDS[kind]
    ours = layer(dtype)
    ours.weight.mul_(scale)
    freeze(ours)
    assert isinstance(ours, FrozenLinear) and is_packed(ours)
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


def random(like: nn.Linear, *shape: int) -> torch.Tensor:
    """Return random numbers in a layer's format, of its weights' shape by default."""
    return torch.randn(shape or like.weight.shape).to(like.weight.dtype)


SHAPES = [(512,), (1, 512), (1, 1, 512), (1, 2, 512), (2, 1, 512), (1, 5, 512), (3, 2, 512)]


@pytest.mark.parametrize("shape", [*SHAPES, (1, 130, 512), (1, 0, 512)], ids=str)
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("dtype", PACKED, ids=str)
def test_a_packed_product_equals_the_plain_one_to_rounding(dtype, bias, shape):
    ours = packed_layer(dtype, bias)
    whole = torch.randn(shape).to(dtype)
    for x in (whole, whole[..., -1:, :], whole.transpose(0, -2)) if len(shape) > 1 else (whole,):
        product, expected = infer(ours, x), plain(ours, x)
        assert is_packed(ours)
        assert product.dtype == expected.dtype and product.shape == expected.shape
        if x.numel():
            tolerance = 4 * PACKED[dtype] * expected.abs().max()
            assert (product - expected).abs().max() <= tolerance


@EVERY
def test_the_copy_is_used_in_inference_mode_only(kind):
    """It is replaced by that of a matrix that is twice as large, so that its use is visible."""
    ours, twice = made(kind), vars(made(kind, 2.0))
    x = random(ours, 3, 512)
    vars(ours).update({name: twice[name] for name in twice.keys() & {"packed", "scales_and_zeros"}})
    error = (infer(ours, x) - 2 * plain(ours, x)).abs().mean()
    assert error < 0.3 * plain(ours, x).abs().mean()
    with torch.no_grad():
        assert torch.equal(ours(x), plain(ours, x))
    x.requires_grad_(True)
    ours(x).sum().backward()
    torch.testing.assert_close(x.grad, ours.weight.sum(0).expand(3, -1))


def doubled(ours: nn.Linear) -> None:
    with torch.no_grad():
        ours.weight.mul_(2.0)


def loaded_in_inference(ours: nn.Linear) -> None:
    """Load inference tensors, which count no changes."""
    with torch.inference_mode():
        ours.load_state_dict({"weight": random(ours)}, assign=True)


def trained(ours: nn.Linear) -> None:
    """A fused optimizer changes weights in place without raising their version."""
    optimizer = torch.optim.AdamW(ours.requires_grad_(True).parameters(), lr=1.0, fused=True)
    ours(random(ours, 4, 512)).square().sum().backward()
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
    ours.weight = nn.Parameter(random(ours), requires_grad=False)


def transposed(ours: nn.Linear) -> None:
    ours.weight = nn.Parameter(ours.weight.detach().t(), requires_grad=False)


def set_through_data(ours: nn.Linear) -> None:
    """The memory of the copied weights is not reused, so that their address tells them apart."""
    taken = ours.weight.data_ptr()
    for _ in range(20):
        ours.weight.data = random(ours)
        assert ours.weight.data_ptr() != taken


def cast(ours: nn.Linear) -> None:
    ours.double()


def cast_and_back(ours: nn.Linear) -> None:
    doubled(ours)
    dtype = ours.weight.dtype
    ours.to(torch.float16).to(dtype)


CHANGES = [
    doubled,
    loaded_in_inference,
    set_through_data,
    cast,
    cast_and_back,
    replaced,
    transposed,
]
CHANGES += [trained, trained_and_frozen, trained_by_its_weight_alone]


@EVERY
@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_are_never_multiplied_from_an_old_copy(change, kind):
    """A broken variant, which does not check for changes, returns the old products."""
    ours, broken = made(kind), made(kind)
    x = random(ours, 1, 512)
    old = infer(ours, x)
    change(ours)
    now = x.to(ours.weight.dtype)
    new = plain(ours, now).detach()
    assert not is_packed(ours) and type(copy.deepcopy(ours)) is nn.Linear
    assert torch.equal(infer(ours, now), new)
    assert type(ours) is nn.Linear and not vars(ours).keys() & {*ADDED}
    with mock.patch.object(FrozenLinear, "is_current", lambda self: True):
        if change not in (trained, trained_and_frozen, cast):
            change(broken)
            assert torch.equal(infer(broken, x), old)
            assert old.shape != new.shape or (old - new).abs().mean() > 0.1 * old.abs().mean()
    if not is_packed(broken):
        pack(broken)  # removes the old copy, which is outdated
        pack(broken.requires_grad_(False))
        error = (infer(broken, x) - plain(broken, x)).abs().mean()
        assert error < 0.01 * plain(broken, x).abs().mean()


@EVERY
def test_a_compiled_loss_turns_a_layer_that_is_trained_back(kind):
    ours = made(kind).requires_grad_(True)
    pack(ours)  # weights that are being trained are not packed
    assert type(ours) is nn.Linear
    ours = made(kind).requires_grad_(True)
    x = random(ours, 4, 512)
    torch.compile(lambda x: ours(x).square().sum(), backend="eager")(x).backward()
    assert type(ours) is nn.Linear
    gradient = 2 * plain(ours, x).detach().T @ x
    torch.testing.assert_close(ours.weight.grad, gradient)


@EVERY
def test_a_layer_keeps_its_copy_on_its_device_and_loses_it_elsewhere(kind):
    ours = made(kind)
    copied = ours.packed
    assert ours.to("cpu").packed is copied and is_packed(ours)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        infer(ours, random(ours, 1, 100))
    assert not is_packed(ours.to("meta"))
    assert infer(ours, random(ours, 1, 512).to("meta")).device.type == "meta"
    assert type(ours) is nn.Linear


@EVERY
@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"]
)
def test_a_copied_layer_multiplies_the_same_and_notices_its_own_changes(again, kind):
    ours = made(kind)
    other, x = again(ours), random(ours, 1, 512)
    assert type(other) is (type(ours) if ours.stays else nn.Linear) and is_packed(ours)
    expected = infer(ours, x)
    torch.testing.assert_close(infer(other, x), expected)
    doubled(other)
    assert torch.equal(infer(other, x), plain(other, x)) and torch.equal(infer(ours, x), expected)


@EVERY
def test_a_layer_with_a_copy_has_the_parameters_of_a_plain_one(kind):
    ours, bare = made(kind), layer(KINDS[kind][0])
    weight = ours.weight
    assert isinstance(ours, nn.Linear) and list(ours.parameters()) == [weight]
    assert ours.state_dict().keys() == bare.state_dict().keys()
    assert torch.equal(ours.state_dict()["weight"], bare.weight)
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
    "change",
    [
        mock.patch("platform.machine", lambda: "arm64"),
        mock.patch("torch.backends.mkldnn.is_available", lambda: False),
        mock.patch.object(linear, "OPERATORS", (*linear.OPERATORS, "_gone")),
    ],
    ids=["arm", "no oneDNN", "a missing operator"],
)
def test_other_machines_pack_nothing_and_decode(change):
    can_pack.cache_clear()
    try:
        with change:
            ours = CausalLM(pack(wide()))
    finally:
        can_pack.cache_clear()
    assert not is_packed(ours.model) and worth_packing(torch.empty(BIG, 512))
    assert ours.score(PROMPT, ours.new_cache()).logits.isfinite().all()


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


def test_a_models_large_matrices_are_packed_once_up_to_the_limit(monkeypatch):
    model, size = wide(), sum(weight.nbytes for weight in wide().parameters())
    monkeypatch.setattr(linear, "LIMIT", size - 1)
    assert not is_packed(pack(model))
    monkeypatch.setattr(linear, "LIMIT", size)
    copies = {}
    for _ in range(2):
        parts = pack(model).named_modules()
        packed = {name: part.packed for name, part in parts if type(part) is PackedLinear}
        assert all(packed[name] is copied for name, copied in copies.items())
        copies = packed
    names = {f"blocks.{i}.{name}" for i in range(2) for name in ("qkv", "out", "gate_up")}
    assert copies.keys() == {"head"} | names
    assert not is_packed(unpack(model)) and not is_packed(copy.deepcopy(pack(model)))
    assert not is_packed(pack(native(dtype=torch.float32).model))
