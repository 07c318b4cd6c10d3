"""Files of trained drafters: saved modules load again, and every other file is rejected."""

import copy

import gguf
import pytest
import torch
from models_zoo import native, shipped
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from specdec_lite.drafters.heads import MEDUSA, Heads
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading import weights
from specdec_lite.loading.weights import (
    FILE,
    SHIPPED,
    fingerprint,
    load,
    pack,
    read_stored,
    save,
    unpack,
    write,
    write_deflated,
)


class Deep(nn.Module):
    """A module with sub-modules, integers, and a buffer that is not stored."""

    def __init__(self, size: int, layers: int = 2):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(size, size) for _ in range(layers))
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("ids", torch.arange(5000) + layers)
        self.register_buffer("angles", torch.arange(4) / 3, persistent=False)


def save_deep(folder, dtype=torch.bfloat16):
    target, module = native(), Deep(8)
    return target, module, save(folder, module, target, {"size": 8}, dtype)


def test_a_saved_module_loads_unchanged(tmp_path):
    target, module, path = save_deep(tmp_path / "new" / "folder", torch.float32)
    assert path == tmp_path / "new" / "folder" / FILE
    random_state = torch.get_rng_state()
    for location in (path, path.parent, str(path.parent)):
        again = load(location, target, Deep)
        assert not again.training and not any(w.requires_grad for w in again.parameters())
        assert set(again.state_dict()) == set(module.state_dict())
        for name, weight in module.state_dict().items():
            dtype = target.dtype if weight.is_floating_point() else weight.dtype
            assert again.state_dict()[name].equal(weight.to(dtype))
        assert again.angles.equal(module.angles)
    assert torch.get_rng_state().equal(random_state), "loading must not use global randomness"
    assert module.training and module.blocks[0].weight.dtype == torch.float32


def test_a_tied_weight_is_stored_once_and_tied_again(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Embedding(5, 3)
            self.again = nn.Linear(3, 5, bias=False)
            self.again.weight = self.first.weight

    target, module = native(), Tied()
    path = save(tmp_path, module, target, {}, torch.float32)
    assert set(read_stored(path, "")[1]) == {"first.weight"}
    again = load(tmp_path, target, Tied)
    assert again.again.weight.equal(module.first.weight.to(target.dtype))
    assert again.again.weight.data_ptr() == again.first.weight.data_ptr()


@pytest.mark.parametrize("bits, bound", [(4, 1.3 / 8), (5, 1.3 / 16), (8, 1.3 / 128)])
def test_weights_saved_in_few_bits_load_within_rounding(bits, bound, tmp_path):
    """In a block of 32 the error is at most 1.3 steps, since the scale may leave the largest number
    out. Weights without blocks are rounded to bfloat16.
    """
    build = lambda: nn.Sequential(nn.Linear(64, 48), nn.Linear(48, 3))
    target, module = native(dtype=torch.float32), build()
    with torch.no_grad():
        module[0].weight[0] *= 100
    path = save(tmp_path, module, target, {}, bits=bits)
    assert path.stat().st_size < 64 * 48 * (bits + 0.7) / 8 + 1200
    again = load(path, target, build)
    blocks = module[0].weight.view(48, 2, 32)
    most = bound * blocks.abs().amax(-1, keepdim=True)
    error = (again[0].weight.view(48, 2, 32) - blocks).abs()
    assert again[0].weight.dtype == torch.float32 and (error <= most).all() and error.any()
    for name in ("0.bias", "1.weight", "1.bias"):
        stored = module.state_dict()[name].bfloat16().float()
        assert again.state_dict()[name].equal(stored)
    with pytest.raises(ValueError, match=r"0.weight has shape \(48, 64\)"):
        load(path, target, lambda: nn.Sequential(nn.Linear(68, 48), nn.Linear(48, 3)))


def test_blocks_are_those_of_gguf():
    """Dequantization equals GGUF's, and the squared error is at most that of its own quantization."""
    torch.manual_seed(0)
    weight = torch.randn(64, 320) * 0.02
    weight[0] *= 100
    weight[1, :32] = 0
    kind = gguf.GGMLQuantizationType.Q8_0
    reference = torch.from_numpy(gguf.quants.quantize(weight.numpy(), kind))
    blocks, errors = {bits: pack(weight, bits) for bits in (4, 5, 6, 7, 8)}, []
    for bits, each in blocks.items():
        assert each.shape == reference.shape
        assert unpack(each).equal(torch.from_numpy(gguf.quants.dequantize(each.numpy(), kind)))
        codes = each.view(64, 10, 34)[..., 2:].contiguous().view(torch.int8).int()
        assert -(2 ** (bits - 1)) <= codes.min() and codes.max() < 2 ** (bits - 1)
        squares = (unpack(each) - weight).view(-1, 32).square().sum(-1)
        assert squares[10] == 0, "a block of zeros"
        errors.append(float(squares.sum()))
    assert all(more > 3 * less for more, less in zip(errors, errors[1:]))
    assert errors[-1] <= float((unpack(reference) - weight).square().sum())


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_deflated_files_return_every_bit_and_plain_files_still_load(bits, tmp_path):
    build = lambda: nn.Sequential(nn.Linear(64, 48), nn.Embedding(9, 7))
    target, module = native(dtype=torch.float32), build()
    path = save(tmp_path / "deflated", module, target, {}, bits=bits)
    metadata, tensors = read_stored(path, "")
    plain = {key: text for key, text in metadata.items() if key != "deflated"}
    assert plain != metadata
    write(tmp_path / "plain" / FILE, tensors, plain)
    first, second = load(path, target, build), load(tmp_path / "plain", target, build)
    for name, weight in first.state_dict().items():
        assert weight.equal(second.state_dict()[name])


def test_shipped_files_are_deflated():
    files = sorted(SHIPPED.rglob(FILE))
    assert files
    for file in files:
        metadata, tensors = read_stored(file, str(file))
        assert "deflated" in metadata and file.stat().st_size < sum(
            w.nbytes for w in tensors.values()
        )


def test_special_numbers_and_empty_tensors_are_stored_bit_for_bit(tmp_path):
    special = torch.tensor([0.0, -0.0, float("nan"), float("inf"), 1e-45, -3.4e38])
    tensors = {
        "special": special,
        "scalar": torch.tensor(3.0, dtype=torch.float64),
        "empty": torch.zeros(0, 4),
        "column": torch.arange(6).view(2, 3).t(),
        "flags": torch.tensor([True, False]),
    }
    _, again = read_stored(write_deflated(tmp_path / FILE, tensors, {}), "")
    for name, tensor in tensors.items():
        assert again[name].dtype == tensor.dtype and again[name].shape == tensor.shape
    assert again["special"].view(torch.int32).equal(special.view(torch.int32))
    assert all(again[name].equal(tensors[name]) for name in tensors if name != "special")


@pytest.mark.parametrize("folder, count", [(SHIPPED / "blockwise" / "pair", 7), (MEDUSA, 4)])
def test_shipped_heads_load(folder, count):
    heads = load(folder, shipped().target, Heads)
    assert heads.config == {"hidden_size": 320, "count": count, "width": 320}
    assert read_stored(folder / FILE, "")[1]["up"].to(heads.up.dtype).equal(heads.up)


def test_other_files_are_rejected(tmp_path):
    target = native()
    for location in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ValueError, match=f"path='.*': must be a folder that holds {FILE}, or"):
            load(location, target, Deep)
    (tmp_path / "pickle").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(ValueError, match="pickle'"):
        load(tmp_path / "pickle", target, Deep)
    save_file({"weight": torch.zeros(2)}, tmp_path / "plain")
    with pytest.raises(ValueError, match=r"holds \['weight'\]"):
        load(tmp_path / "plain", target, Deep)


@pytest.mark.parametrize(
    "key, text",
    [
        ("config", "{"),
        ("config", "[8]"),
        ("Q8_0", "{}"),
        ("Q8_0", '["absent"]'),
        ("Q8_0", "[[1]]"),
        ("deflated", "[]"),
        ("deflated", '{"absent": ["float32", [1], 4]}'),
        ("deflated", '{"ids": ["float32", [1], 4]}'),
        ("deflated", '{"ids": ["int64", [5000], 7]}'),
        ("deflated", '{"ids": ["int64"]}'),
        ("deflated", '{"ids": ["int64", [1000000000000], 8]}'),
        ("deflated", f'{{"ids": ["int64", [{"9" * 400}], 8]}}'),
        ("deflated", '{"ids": ["no dtype", [5000], 8]}'),
        ("deflated", '{"blocks.0.bias": ["bfloat16", [8], 2], "ids": ["int64", [5001], 8]}'),
    ],
)
def test_malformed_metadata_names_file_and_key(key, text, tmp_path):
    target, _, path = save_deep(tmp_path)
    with safe_open(path, "pt") as content:
        metadata = content.metadata()
    write(path, load_file(path), metadata | {key: text})
    with pytest.raises(ValueError, match=f"path=.*(metadata {key}|has shape)"):
        load(path, target, Deep)


@pytest.mark.parametrize("size", [10**12, 10**6, -1, 10**400, "8", None])
@pytest.mark.parametrize("entry", ["hidden_size", "count"])
def test_sizes_that_do_not_fit_the_weights_take_no_memory(size, entry, tmp_path):
    """A million of 4-byte rows of a million, or of modules, would occupy any machine."""
    target = native()
    config = {"hidden_size": target.hidden_size, "count": 2}
    save(tmp_path, Heads(**config), target, config | {entry: size})
    with pytest.raises(ValueError, match="path=") as error:
        load(tmp_path, target, Heads)
    assert len(str(error.value)) < 1200


@pytest.fixture
def sealed(tmp_path, monkeypatch):
    """A small file may hold very many zeros: none of its tensors may be read before it is refused."""
    target, _, path = save_deep(tmp_path)
    monkeypatch.setattr(weights, "inflate", None)
    return target, path


def test_another_target_is_rejected_with_both_fingerprints(sealed):
    target, path = sealed
    other = native(seed=1)
    message = (
        f"another target .fingerprint {fingerprint(target)}, this target's is {fingerprint(other)}"
    )
    with pytest.raises(ValueError, match=message):
        load(path, other, Deep)


def test_another_config_or_other_weights_are_rejected(sealed):
    target, path = sealed
    with pytest.raises(ValueError, match=r"config \{'size': 8\}"):
        load(path, target, Heads)
    with pytest.raises(
        ValueError, match=r"missing \['blocks.2.bias', 'blocks.2.weight'\], unexpected \[\]"
    ):
        load(path, target, lambda size: Deep(size, 3))
    with pytest.raises(
        ValueError, match=r"missing \[\], unexpected \['blocks.1.bias', 'blocks.1.weight'\]"
    ):
        load(path, target, lambda size: Deep(size, 1))
    with pytest.raises(ValueError, match=r"blocks.0.bias has shape \(8,\)"):
        load(path, target, lambda size: Deep(size + 1))


def test_the_fingerprint_depends_on_the_target_not_on_its_dtype():
    others = {fingerprint(native(seed=1)), fingerprint(native(num_layers=3))}
    wide = (torch.bfloat16, torch.float32, torch.float64)
    half, stored = native(dtype=torch.bfloat16, scale=0.02), native(dtype=torch.float32)
    for model, dtypes in ((half, (torch.float16, *wide)), (stored, wide)):
        prints = {fingerprint(CausalLM(copy.deepcopy(model.model).to(kind))) for kind in dtypes}
        assert len(prints) == 1 and prints.isdisjoint(others)
    merged = copy.deepcopy(stored.model)
    # Like fine-tuning that does not change the embeddings.
    merged.blocks[1].down.weight.data += 0.01 * torch.ones(32, 1) @ torch.ones(1, 48)
    assert fingerprint(CausalLM(merged)) != fingerprint(stored)
