"""Products with 4-bit weights: the file's numbers, the same row by row, and the same greedy text."""

import copy
import platform
import shutil
import subprocess

import gguf
import numpy as np
import pytest
import torch
from chosen import one_of
from models_zoo import PROMPT, logits_in_chains
from torch import nn

from specdec_lite import CausalLM, TokenTree, generate, load_pair, load_smollm2
from specdec_lite.drafters import EagleDrafter, ModelDrafter, PromptLookupDrafter, QuantizedDrafter
from specdec_lite.drafters.eagle import Eagle1Head
from specdec_lite.engine import int4
from specdec_lite.engine.compiled import FLAGS, library
from specdec_lite.engine.int4 import (
    GROUP,
    OPERATORS,
    ROWS,
    Codes,
    Int4Linear,
    attach,
    can_multiply,
    int4_bytes,
    is_int4,
    share_rows,
)
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.loading import memory, smollm2
from specdec_lite.loading.gguf_file import read_codes
from specdec_lite.texts.smollm2_tasks import TASKS, chat

pytestmark = [
    pytest.mark.numeric,
    pytest.mark.skipif(not can_multiply(), reason="needs PyTorch's 4-bit product"),
]
needs_compiler = pytest.mark.skipif(int4.product() is None, reason="needs a C compiler")
STORED = {"Q4_1": gguf.GGMLQuantizationType.Q4_1, "Q8_0": gguf.GGMLQuantizationType.Q8_0}
CONFIG = TransformerConfig(
    vocab_size=64,
    hidden_size=64,
    intermediate_size=96,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_size=32,
    max_positions=512,
)


class Stored:
    """A matrix as the reader of a GGUF file gives it."""

    def __init__(self, weight: torch.Tensor, kind: str):
        self.name, self.tensor_type = "matrix", STORED[kind]
        self.data = gguf.quants.quantize(weight.numpy(), self.tensor_type)

    def weight(self) -> torch.Tensor:
        """Return the weights as the format defines them, in float32."""
        return torch.from_numpy(np.array(gguf.dequantize(self.data, self.tensor_type)))


def matrix(outputs: int = 64, inputs: int = 96) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(0))


def in_float32(codes: Codes) -> torch.Tensor:
    """Return the weights [out, in] before scales and zero points are rounded to bfloat16."""
    groups = codes.codes.float().unflatten(1, (-1, GROUP))
    if codes.zeros is None:
        return (groups * codes.scales[..., None]).flatten(1)
    return ((groups - 8) * codes.scales[..., None] + codes.zeros[..., None]).flatten(1)


def multiplied(codes: Codes) -> torch.Tensor:
    """Return the weights [out, in] that products multiply by, with numbers rounded to bfloat16."""
    return in_float32(Codes(codes.codes, *(part.bfloat16().float() for part in codes.parts[1:])))


def layer_of(codes: Codes, inputs: int) -> Int4Linear:
    layer = nn.Linear(inputs, len(codes.codes), bias=False)
    layer = layer.bfloat16().requires_grad_(False)
    attach(layer, codes)
    return layer  # pyright: ignore[reportReturnType]


@torch.inference_mode()
def product(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return layer(x)


@pytest.fixture(params=["ours", "PyTorch's"])
def each_product(request, monkeypatch) -> None:
    """Run a test with our product, where it can be compiled, and with PyTorch's."""
    if request.param != "ours":
        monkeypatch.setattr(int4, "product", lambda: None)
    elif int4.product() is None:
        pytest.skip("needs a C compiler")


def shared_layer() -> nn.Linear:
    layer = nn.Linear(96, 64, bias=False).requires_grad_(False)
    layer.weight.copy_(matrix())
    share_rows(layer.bfloat16())
    return layer


def model_of_4_bits(seed: int = 0, bits: int = 4) -> CausalLM:
    """Return a small model whose linear layers are rounded to Q4_1, its head to Q8_0; or that shares
    rows, with bits=16."""
    torch.manual_seed(seed)
    model = Transformer(CONFIG)
    for weight in model.parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=0.3)
    model = model.bfloat16().requires_grad_(False)
    if bits == 16:
        share_rows(model)
        return CausalLM(model)
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear):
            kind = "Q8_0" if name == "head" else "Q4_1"
            attach(layer, read_codes(Stored(layer.weight.detach().float(), kind)))
    int4.let_rows_alone(model)
    return CausalLM(model)


# The numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STORED)
def test_codes_are_the_files_weights(kind):
    stored = Stored(matrix(), kind)
    codes = read_codes(stored)
    assert (in_float32(codes) - stored.weight()).abs().max() < 1e-6
    assert codes.codes.max() == (15 if kind == "Q4_1" else 127)


@pytest.mark.parametrize("kind", STORED)
def test_the_product_is_that_of_the_codes(kind, each_product):
    """Both products are, to the last bit of bfloat16, so they differ in few numbers."""
    codes = read_codes(Stored(matrix(192, 576), kind))
    x = torch.randn(40, 576).bfloat16()
    weight = multiplied(codes).double()
    exact, size = x.double() @ weight.T, x.double().abs() @ weight.abs().T
    error = (product(layer_of(codes, 576), x).double() - exact).abs()
    assert (error <= 2**-8 * exact.abs() + 2**-13 * size).all()
    broken = [codes.codes, *codes.parts[1:-1], codes.parts[-1].roll(1, 0)]  # another row's numbers
    wrong = (product(layer_of(Codes(*broken), 576), x).double() - exact).abs()
    assert wrong.max() > 10 * error.max()


@needs_compiler
def test_inputs_of_any_size_are_multiplied():
    codes = read_codes(Stored(matrix(), "Q4_1"))
    layer = layer_of(codes, 96)
    x = torch.randn(5, 96).bfloat16()
    for power in (-110, -40, 40, 100):  # exact: another power of two as the unit
        assert torch.equal(product(layer, x * 2.0**power), product(layer, x) * 2.0**power)
    assert not product(layer, x * 0).any()
    assert not product(layer, x * 2.0**-126).any()  # too small for a unit: zeros
    for value in (float("nan"), float("inf")):
        x[2, 40] = value
        out = product(layer, x)
        assert out[2].isnan().all() and out[[0, 1, 3, 4]].isfinite().all()


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    "flags", [("-mavx2", "-mfma"), pytest.param(("-mfma",), marks=pytest.mark.registry)]
)
def test_every_instruction_set_gives_the_same_bits(flags, tmp_path, monkeypatch):
    if platform.machine() != "x86_64":
        pytest.skip("the flags are those of one processor")
    layers = [layer_of(read_codes(Stored(matrix(64, 96), kind)), 96) for kind in STORED]
    layers.append(shared_layer())
    x = torch.randn(13, 96).bfloat16()
    expected = [product(layer, x) for layer in layers]
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path))
    monkeypatch.setattr(int4, "library", lambda source: library(source, flags))
    int4.product.cache_clear()
    results = [product(layer, x) for layer in layers]
    int4.product.cache_clear()
    assert len(list(tmp_path.glob("compiled/*.so"))) == 1
    assert all(map(torch.equal, results, expected))


ON_ARM = """
#include "SOURCE"
#include <stdio.h>
int main(void) {
    int64_t n[5];
    if (fread(n, 8, 5, stdin) != 5) return 2;
    uint8_t *blocks = malloc(n[4]);
    uint16_t *x = malloc(2 * n[3] * n[1]), *y = malloc(2 * n[3] * n[2]);
    fread(blocks, 1, n[4], stdin);
    fread(x, 2, n[3] * n[1], stdin);
    Matrix w = {blocks, n[0], n[1], n[2]};
    Team team = {1, NULL};
    if (multiply(&w, x, n[3], y, &team)) return 1;
    return fwrite(y, 2, n[3] * n[2], stdout) != (size_t)(n[3] * n[2]);
}
"""
CROSS, QEMU = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")


@needs_compiler
@pytest.mark.skipif(not (CROSS and QEMU), reason="needs gcc-aarch64-linux-gnu and qemu-user")
def test_an_arm_processor_gives_the_same_bits(tmp_path):
    (tmp_path / "main.c").write_text(ON_ARM.replace("SOURCE", str(int4.SOURCE)))
    flags = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC")]
    command = [CROSS, *flags, "-static", "-o", "main", "main.c", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    x = torch.randn(13, 96).bfloat16()
    coded = [layer_of(read_codes(Stored(matrix(), kind)), 96) for kind in STORED]
    for layer in (*coded, shared_layer()):
        sizes = torch.tensor([layer.bits, 96, 64, len(x), layer.packed.nbytes])
        parts = [sizes, layer.packed, x.view(torch.int16)]
        data = b"".join(part.contiguous().view(torch.uint8).numpy().tobytes() for part in parts)
        run = subprocess.run(
            [QEMU, "main"], input=data, cwd=tmp_path, capture_output=True, check=True
        )
        assert run.stdout == product(layer, x).view(torch.int16).numpy().tobytes()


@needs_compiler
@pytest.mark.parametrize("outputs, inputs", [(32, 32), (64, 96), (960, 320)])
@pytest.mark.parametrize("instructions", [False, True])
def test_bfloat16_weights_are_converted_once_for_all_rows(
    outputs, inputs, instructions, monkeypatch
):
    """Every number is rounded once."""
    monkeypatch.setattr(int4, "computes_bfloat16", lambda: instructions)
    layer = nn.Linear(inputs, outputs, bias=False).bfloat16().requires_grad_(False)
    x = torch.randn(2 * ROWS + 3, inputs).bfloat16()
    exact = x.double() @ layer.weight.double().T
    share_rows(layer)
    results = product(layer, x)
    assert type(layer) is int4.Bfloat16Linear
    size = x.double().abs() @ layer.weight.double().abs().T
    assert ((results - exact).abs() <= exact.abs() / 256 + 1e-6 * size).all()


def test_only_frozen_bfloat16_layers_of_whole_groups_share_rows(monkeypatch):
    model = nn.Sequential(nn.Linear(64, 40), nn.Linear(40, 64), nn.Linear(64, 64)).bfloat16()
    share_rows(model)
    model.requires_grad_(False)
    share_rows(model[:2])
    share_rows(copy.deepcopy(model[2]).float())
    monkeypatch.setattr(int4, "product", lambda: None)
    share_rows(model)
    assert {type(layer) for layer in model} == {nn.Linear}


@needs_compiler
@pytest.mark.parametrize("instructions", [False, True])
def test_a_processor_loads_the_pair_in_bfloat16_with_or_without_instructions_for_it(
    instructions, monkeypatch
):
    for module in (memory, int4):
        monkeypatch.setattr(module, "computes_bfloat16", lambda: instructions)
    pair = load_pair(device="cpu")
    for model in (pair.target.model, pair.draft.model):
        layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
        assert {type(layer) for layer in layers} == {int4.Bfloat16Linear} and model.decoder
    monkeypatch.setattr(int4, "product", lambda: None)
    loaded = load_pair(device="cpu")
    assert loaded.target.dtype == (torch.bfloat16 if instructions else torch.float32)


def test_stacked_layers_are_their_layers_on_top_of_each_other():
    parts = [read_codes(Stored(matrix(rows), "Q4_1")) for rows in (32, 64)]
    x = torch.randn(3, 96).bfloat16()
    whole = product(layer_of(Codes.stack(parts), 96), x)
    assert torch.equal(whole, torch.cat([product(layer_of(part, 96), x) for part in parts], 1))


# The same, row by row -------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [4, 16])
def test_a_products_rows_depend_neither_on_their_number_nor_on_threads(bits, each_product):
    if bits == 16 and int4.product() is None:
        pytest.skip("PyTorch's own product")
    codes = read_codes(Stored(matrix(192, 96), "Q4_1"))
    layer = layer_of(codes, 96) if bits == 4 else shared_layer()
    x = torch.randn(ROWS if bits == 16 else 2 * ROWS, 96).bfloat16()
    whole, before = product(layer, x), torch.get_num_threads()
    try:
        for rows in range(1, len(x)):
            torch.set_num_threads(1 + rows % 3)
            assert torch.equal(product(layer, x[:rows]), whole[:rows])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("bits", [4, 16])
def test_a_chain_has_exactly_the_logits_of_its_tokens_one_by_one(bits, each_product, monkeypatch):
    model = model_of_4_bits(bits=bits)
    if bits == 16 and int4.product() is None:
        pytest.skip("PyTorch's own product")
    text = torch.randint(64, (96,), generator=torch.Generator().manual_seed(1)).tolist()
    expected = logits_in_chains(model, text, 1)
    for size in (2, 3, 5, 8, ROWS):
        assert torch.equal(logits_in_chains(model, text, size), expected)
    forward, model.model.decoder = Int4Linear.forward, None
    broken = lambda self, x: forward(self, x) * (1.01 if x.shape[-2] > 1 else 1)
    monkeypatch.setattr(Int4Linear, "forward", broken)  # several rows differ from a single one
    assert not torch.equal(logits_in_chains(model, text, 5), expected)


@needs_compiler
@pytest.mark.parametrize("bits", [4, 16])
def test_whole_blocks_agree_with_their_parts(bits):
    model = model_of_4_bits(bits=bits)
    text = torch.randint(64, (96,), generator=torch.Generator().manual_seed(1)).tolist()
    assert model.model.decoder is not None
    whole = logits_in_chains(model, text, 4).float()
    model.model.decoder = None
    parts = logits_in_chains(model, text, 4).float()
    error = (whole - parts).abs().mean() / parts.abs().mean()
    assert 0 < error < 0.05
    model.model.decoder = lambda block, x, rotary, past, start: int4.decode(
        block, x, (rotary[0], -rotary[1]), past, start
    )  # broken: rotates backwards
    broken = logits_in_chains(model, text, 4).float()
    assert (broken - parts).abs().mean() / parts.abs().mean() > 10 * error


def test_blocks_that_have_other_parts_are_not_decoded_whole():
    model = model_of_4_bits().model
    model.blocks[1].out = nn.Linear(128, 64, bias=False).bfloat16()
    int4.let_rows_alone(model)
    assert model.decoder is None


@needs_compiler
@torch.inference_mode()
def test_a_hidden_layer_is_that_of_the_same_pass():
    model = model_of_4_bits()
    cache = model.new_cache()
    model.score(PROMPT, cache)
    scores = model.score([5, 6, 7], cache, hidden_layers=(0, 1, 3, "final"))
    again = model.score([8], cache)  # what follows changes nothing that was kept
    assert torch.equal(scores.hidden[0][0], model.embed(torch.tensor([5, 6, 7])))
    assert torch.equal(model.head(scores.hidden["final"]), scores.logits)
    assert not torch.equal(scores.hidden[1], scores.hidden[3]) and len(again.logits)


def test_a_tree_agrees_to_rounding():
    model = model_of_4_bits()
    tree = TokenTree([7, 8, 9, 10], [-1, -1, 0, 0])
    cache = model.new_cache()
    model.score(PROMPT, cache)
    nodes = model.score([5, *tree.tokens.tolist()], cache, tree).logits[0]
    for node, path in enumerate(([7], [8], [7, 9], [7, 10])):
        alone = logits_in_chains(model, [5, *path], 1)[-1]
        assert (nodes[node + 1] - alone).abs().max() < 0.05 * alone.abs().max()


@pytest.mark.parametrize("bits", [4, 16])
@pytest.mark.parametrize("gamma", one_of(__name__, [1, 3, 8]))
def test_greedy_text_with_a_draft_is_plain_text(gamma, bits, each_product):
    if bits == 16 and int4.product() is None:
        pytest.skip("PyTorch's own product")
    target, draft = model_of_4_bits(bits=bits), model_of_4_bits(seed=1, bits=bits)
    plain = generate(target, PROMPT, None, 80).tokens
    for drafter in (ModelDrafter(target, gamma), ModelDrafter(draft, gamma), PromptLookupDrafter()):
        assert torch.equal(generate(target, PROMPT, drafter, 80).tokens, plain)


@needs_compiler
def test_a_head_of_such_a_target_drafts_with_4_bits():
    target = model_of_4_bits()
    torch.manual_seed(0)
    head = Eagle1Head.for_target(target).bfloat16().requires_grad_(False)
    for weight in head.parameters():
        nn.init.normal_(weight, std=0.3)
    exact = copy.deepcopy(head)
    drafter = EagleDrafter(target, head, 4)
    layers = [each for each in drafter.body.model.modules() if isinstance(each, nn.Linear)]
    assert all(isinstance(each, Int4Linear) for each in (*layers, head.fuse))
    assert drafter.body.model.decoder is not None
    for ours, theirs in ((head.fuse, exact.fuse), (head.block.down, exact.block.down)):
        rows = torch.randn(5, theirs.in_features).bfloat16()
        rounded, whole = product(ours, rows), product(theirs, rows)
        assert 0 < (rounded - whole).abs().mean() < 0.15 * whole.abs().mean()
    plain = generate(target, PROMPT, None, 60).tokens
    assert torch.equal(generate(target, PROMPT, drafter, 60).tokens, plain)


def test_rounded_weights_are_half_a_step_away_at_most():
    weight = matrix()
    weight[3, :GROUP] = 0
    codes = Codes.rounded(weight)
    steps = codes.scales.repeat_interleave(GROUP, 1)
    assert ((in_float32(codes) - weight).abs() <= 0.5001 * steps).all()
    assert not in_float32(codes)[3, :GROUP].any()


# SmolLM2 --------------------------------------------------------------------------------------------


def test_int4_needs_a_cpu_and_the_operators(monkeypatch):
    with pytest.raises(ValueError, match="needs device='cpu', not 'cuda'"):
        smollm2._check_int4("cuda")
    monkeypatch.setattr(smollm2, "can_multiply", lambda: False)
    with pytest.raises(ValueError, match=OPERATORS[0]):
        load_smollm2("cpu", "int4")


@pytest.mark.slow
def test_smollm2_in_4_bits():
    model, tokenizer = load_smollm2("cpu", "int4")
    exact, _ = load_smollm2("cpu", "float32")
    assert int4_bytes(model.model) and not int4_bytes(exact.model)
    ids = chat(tokenizer, TASKS["json"][0].text)
    ours, theirs = (each.score(ids, each.new_cache()).logits[0].float() for each in (model, exact))
    assert (ours - theirs).abs().max() < 0.05 * theirs.abs().max()
    assert (ours.argmax(-1) == theirs.argmax(-1)).float().mean() > 0.9
    drafters = (PromptLookupDrafter(4), EagleDrafter.from_pretrained(model, 1, draft=3))
    for kind in ("edit", "summary"):
        ids = chat(tokenizer, TASKS[kind][0].text)
        plain = generate(model, ids, None, 32).tokens
        assert all(torch.equal(generate(model, ids, each, 32).tokens, plain) for each in drafters)


# What changes ---------------------------------------------------------------------------------------


def text_of(target, count: int = 12) -> list[int]:
    return generate(target, [1, 2, 3], None, count).tokens.tolist()


@pytest.mark.parametrize("bits", [4, 16])
def test_a_copy_of_a_model_that_is_changed_writes_another_text(bits):
    """It decodes in the new precision, and by its parts, if it is cast."""
    target = model_of_4_bits(bits=bits)
    cast = CausalLM(copy.deepcopy(target.model).float())
    assert cast.dtype == torch.float32 and len(text_of(cast)) == 12
    copied = CausalLM(copy.deepcopy(target.model))
    assert text_of(copied) == text_of(target) and is_int4(copied.model) == (bits == 4)
    with torch.no_grad():
        for weight in copied.model.parameters():
            weight.mul_(-0.5)
    plain = Transformer(CONFIG).bfloat16()
    own = copied.model.state_dict()
    plain.load_state_dict({name: own[name].clone() for name in plain.state_dict()})
    assert text_of(copied) == text_of(CausalLM(plain))
    assert text_of(copied) != text_of(target)


@pytest.mark.parametrize("bits", [2, 3, 8])
def test_a_rounded_copy_of_an_int4_target_is_another_model(bits):
    target = model_of_4_bits()
    draft = QuantizedDrafter(target, bits).model
    scores = [each.score([1, 2, 3], each.new_cache()).logits.float() for each in (target, draft)]
    difference = float((scores[0] - scores[1]).abs().max())
    assert difference > (0.01 if bits == 8 else 0.1)
    assert is_int4(target.model) and not is_int4(draft.model)
