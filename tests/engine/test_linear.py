"""Packed weights: the same products, and never those of weights that have changed since."""

import copy
import operator
import pickle

import pytest
import torch
import torch.nn.functional as F
from models_zoo import PROMPT, native
from torch import nn

from specdec_lite import CausalLM, generate, load_pair
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine import linear
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
FORMATS = {torch.float32: 1e-6, torch.bfloat16: 2**-8}
pytestmark = pytest.mark.skipif(
    not worth_packing(torch.empty(BIG, 512)), reason="needs an x86 processor and oneDNN"
)


def layer(dtype=torch.float32, bias=False, rows=BIG) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(512, rows, bias=bias).to(dtype).requires_grad_(False)


def packed_layer(dtype=torch.float32, bias=False) -> PackedLinear:
    ours = layer(dtype, bias)
    pack(ours)
    assert type(ours) is PackedLinear and is_packed(ours)
    return ours


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
def decoded(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return layer(x)


def plain(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, layer.weight, layer.bias)


@pytest.mark.parametrize(
    "shape",
    [(512,), (1, 512), (1, 1, 512), (1, 5, 512), (3, 2, 512), (1, 130, 512), (1, 0, 512)],
    ids=str,
)
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_a_packed_product_is_the_plain_one_to_within_rounding(dtype, bias, shape):
    if not worth_packing(layer(dtype).weight):
        pytest.skip("a processor without bfloat16")
    ours = packed_layer(dtype, bias)
    x = torch.randn(shape).to(dtype)
    found, expected = decoded(ours, x), plain(ours, x)
    assert is_packed(ours) and found.dtype == expected.dtype and found.shape == expected.shape
    assert (
        not x.numel() or (found - expected).abs().max() <= 4 * FORMATS[dtype] * expected.abs().max()
    )


def test_rows_cut_from_a_longer_block_are_multiplied_as_they_stand():
    ours, x = packed_layer(), torch.randn(1, 6, 512)
    torch.testing.assert_close(decoded(ours, x[:, -1:]), plain(ours, x)[:, -1:])
    torch.testing.assert_close(
        decoded(ours, x.expand(2, 6, 512).transpose(0, 1)),
        plain(ours, x.expand(2, 6, 512)).transpose(0, 1),
    )


def test_the_copy_is_read_in_inference_mode_and_nowhere_else():
    ours, x = packed_layer(), torch.randn(1, 512)
    ours.packed = torch.ops.mkldnn._reorder_linear_weight(
        2 * ours.weight.detach(), 8
    )  # another matrix, so that it shows
    torch.testing.assert_close(decoded(ours, x), 2 * plain(ours, x))
    with torch.no_grad():
        assert torch.equal(ours(x), plain(ours, x))
    x.requires_grad_(True)
    ours(x).sum().backward()
    torch.testing.assert_close(x.grad, ours.weight.sum(0, keepdim=True))
    unpack(ours)
    assert type(ours) is nn.Linear and torch.equal(decoded(ours, x), plain(ours, x))
    ours.requires_grad_(True)(x).sum().backward()
    assert ours.weight.grad is not None


def doubled(ours: nn.Linear) -> None:
    with torch.no_grad():
        ours.weight.mul_(2.0)


def loaded(ours: nn.Linear) -> None:
    ours.load_state_dict({"weight": torch.randn(ours.weight.shape)})


def trained(ours: nn.Linear) -> None:
    """Refused first: a fused optimiser changes weights in place without raising their version."""
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
    """As a tied embedding is; the layer's own forward runs in no loss."""
    optimizer = torch.optim.AdamW(ours.requires_grad_(True).parameters(), lr=1.0, fused=True)
    ours.weight.square().sum().backward()
    optimizer.step()


def replaced(ours: nn.Linear) -> None:
    ours.weight = torch.nn.Parameter(torch.randn(ours.weight.shape))


def cut(ours: nn.Linear) -> None:
    ours.weight = torch.nn.Parameter(ours.weight.detach()[:300])


def turned(ours: nn.Linear) -> None:
    ours.weight = torch.nn.Parameter(ours.weight.detach().t())


def assigned(ours: nn.Linear) -> None:
    weights = {"weight": torch.randn(ours.weight.shape)}
    ours.load_state_dict(weights, assign=True)


def born_in_inference(ours: nn.Linear) -> None:
    """Such weights keep no count of their changes."""
    with torch.inference_mode():
        ours.load_state_dict({"weight": torch.randn(ours.weight.shape)}, assign=True)


def set_through_data(ours: nn.Linear) -> None:
    ours.weight.data = torch.randn(ours.weight.shape)


def rounded(ours: nn.Linear) -> None:
    with torch.no_grad():
        ours.weight.mul_(1.1)
    ours.to(torch.bfloat16).to(torch.float32)


CHANGES = [doubled, loaded, assigned, born_in_inference, set_through_data, rounded, replaced, cut]
CHANGES += [turned, trained, trained_and_frozen, trained_by_its_weight_alone]


@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_are_never_multiplied_from_an_old_copy(change, monkeypatch):
    """The broken variant, which does not look whether the weights are still the same, gives the old
    products.
    """
    ours, x = packed_layer(), torch.randn(1, 512)
    broken = copy.deepcopy(ours)
    pack(broken)
    old = decoded(ours, x)
    change(ours)
    new = plain(ours, x).detach()
    assert old.shape != new.shape or not torch.allclose(old, new, rtol=1e-3, atol=1e-3)
    close = dict(rtol=1e-4, atol=1e-3)
    assert not is_packed(ours) and torch.equal(decoded(ours, x), new)
    assert type(ours) is nn.Linear and not vars(ours).keys() & {"packed", "source", "version"}
    with monkeypatch.context() as patched:
        patched.setattr(PackedLinear, "is_current", lambda self: True)
        if change not in (trained, trained_and_frozen):  # which no packed layer lets happen
            change(broken)
            torch.testing.assert_close(decoded(broken, x), old, **close)
    pack(broken)  # made anew where the old copy does not hold
    pack(ours.requires_grad_(False))
    assert is_packed(ours) == worth_packing(ours.weight)
    torch.testing.assert_close(decoded(ours, x), new, **close)
    torch.testing.assert_close(decoded(broken, x), plain(broken, x).detach(), **close)


def test_training_packed_weights_is_refused_compiled_or_not():
    ours, x = packed_layer(), torch.randn(4, 512)
    ours.requires_grad_(True)
    for forward in (ours, torch.compile(lambda x: ours(x).square().sum(), backend="eager")):
        with pytest.raises(RuntimeError, match="unpack"):
            forward(x)
    pack(ours)  # a look at the model, before its weights change: no copy of what is trained
    assert type(ours) is nn.Linear
    optimizer = torch.optim.AdamW(ours.parameters(), lr=1.0, fused=True)
    ours(x).sum().backward()
    pack(ours)
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
    ours = packed_layer()
    copied = ours.packed
    assert ours.to("cpu").packed is copied and is_packed(ours)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        decoded(ours, torch.ones(1, 100))
    assert not is_packed(ours.to("meta"))
    assert decoded(ours, torch.ones(1, 512, device="meta")).device.type == "meta"
    assert type(ours) is nn.Linear


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_another_dtype_takes_the_plain_product_until_it_is_packed_again(dtype):
    ours, x = packed_layer(), torch.randn(1, 512)
    ours.to(dtype)
    assert not is_packed(ours) and torch.equal(decoded(ours, x.to(dtype)), plain(ours, x.to(dtype)))
    ours.to(torch.float32)  # rounded in bfloat16, perhaps at the address of the first
    assert torch.equal(decoded(ours, x), plain(ours, x))
    pack(ours)
    assert is_packed(ours)
    torch.testing.assert_close(decoded(ours, x), plain(ours, x).detach())


def test_other_weights_cannot_come_to_lie_where_the_packed_ones_lay():
    ours, x = packed_layer(), torch.randn(1, 512)
    taken = ours.weight.data_ptr()
    for _ in range(20):
        ours.weight.data = torch.randn(ours.weight.shape)
        assert ours.weight.data_ptr() != taken and not is_packed(ours)
    assert torch.equal(decoded(ours, x), plain(ours, x))


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"]
)
def test_a_copied_model_carries_no_packed_weights_of_another(again):
    ours, x = packed_layer(), torch.randn(1, 512)
    other = again(ours)
    assert type(other) is nn.Linear and is_packed(ours)
    assert vars(other).keys() == vars(layer()).keys()
    doubled(ours)
    torch.testing.assert_close(2 * decoded(other, x), decoded(ours, x))


def test_a_packed_layer_shows_its_weights_as_a_plain_one_does():
    ours, bare = packed_layer(bias=True), layer(bias=True)
    weight = ours.weight
    assert isinstance(ours, nn.Linear) and list(ours.parameters()) == [weight, ours.bias]
    assert ours.state_dict().keys() == bare.state_dict().keys()
    assert all(map(torch.equal, ours.state_dict().values(), bare.state_dict().values()))
    unpack(ours)
    assert ours.weight is weight and vars(ours).keys() == vars(bare).keys()


def test_tied_weights_stay_tied_and_a_model_is_packed_where_it_stands():
    model = wide()
    tied, head = model.model, model.backend.head
    assert head is tied.head and type(head) is PackedLinear
    assert head.weight is tied.embedding.weight
    other = copy.deepcopy(tied)
    assert type(other.head) is nn.Linear and other.head.weight is other.embedding.weight
    unpack(tied)
    assert type(head) is nn.Linear and head.weight is tied.embedding.weight


def test_what_is_not_worth_it_stays_plain():
    for ours in (layer(rows=BIG - 1), layer(torch.float64), layer(torch.float16)):
        pack(ours)
        assert type(ours) is nn.Linear
    with torch.inference_mode():
        born = nn.Linear(512, BIG)  # such weights keep no count of their changes
        pack(born)
        assert type(born) is nn.Linear and torch.equal(
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
    ours, x = packed_layer(), torch.randn(1, 512)
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
    packed = {name for name, part in model.named_modules() if type(part) is PackedLinear}
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
    copies = lambda: [part.packed for part in model.modules() if type(part) is PackedLinear]
    before = copies()
    pack(model)
    assert len(copies()) == len(before) > 0 and all(map(operator.is_, before, copies()))
    unpack(model)
    assert not is_packed(model) and not copies()
    tiny = native(dtype=torch.float32)
    assert (
        not is_packed(tiny.model) and tiny.score(PROMPT, tiny.new_cache()).logits.isfinite().all()
    )
