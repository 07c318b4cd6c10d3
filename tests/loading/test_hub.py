"""Checks before a pair is loaded: sizes, free memory, downloads from the hub, the list of pairs."""

import json
import re
from unittest.mock import Mock

import pytest
import torch
from models_zoo import build, native

from specdec_lite import hub, load_pair, memory
from specdec_lite.loading import checkpoints, model_config, pairs
from specdec_lite.loading.checkpoints import INDEX, load_model, model_size, save_model
from specdec_lite.loading.memory import ADVICE, MARGIN, advise, check_room, free_bytes, gigabytes
from specdec_lite.loading.pairs import SHIPPED


def quantize(folder):
    """State in a model's config.json that its weights are quantized."""
    file = folder / "config.json"
    stated = {"quantization_config": {"quant_method": "fp8"}}
    file.write_text(json.dumps(json.loads(file.read_text()) | stated))


@pytest.fixture
def folder(tmp_path, tokenizer):
    """Save a native target and a GPT-2 draft like repositories of the hub."""
    save_model(
        tmp_path / "large", native(dtype=torch.float32, vocab_size=280, tied=True).model, tokenizer
    )
    build("GPT2", dict(n_positions=64, vocab_size=280)).save_pretrained(tmp_path / "small")
    tokenizer.save_pretrained(tmp_path / "small")
    return tmp_path


@pytest.fixture
def snapshots(monkeypatch, folder):
    """Replace the hub by local folders; return the list of (repository, patterns) of all calls."""
    calls = []

    def snapshot_download(repository, allow_patterns, ignore_patterns):
        assert ignore_patterns == ["*/*"]
        calls.append((repository, tuple(allow_patterns)))
        return str(folder / repository.split("/")[1])

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    return calls


def test_sizes_match_the_loaded_models(folder):
    for name in ("large", "small"):
        model, size = load_model(folder / name, dtype="float32"), model_size(folder / name)
        assert size.parameters == sum(weight.numel() for weight in model.model.parameters())
        assert size.positions == model.max_positions
    cache = load_model(folder / "large").new_cache(capacity=10).storage.tensors
    assert model_size(folder / "large").cache * 10 == cache.keys.numel() + cache.values.numel()
    assert model_size(folder / "small").cache == 2 * 2 * 32 and model_size(folder / "small").bytes(
        torch.float16, 3
    ) == 2 * (model_size(folder / "small").parameters + 384)


def test_quantized_weights_count_as_stored(folder):
    plain = model_size(folder / "large")
    quantize(folder / "large")
    on_disk = sum(file.stat().st_size for file in (folder / "large").glob("*.safetensors"))
    assert model_size(folder / "large").bytes(torch.float32, 3) == on_disk + 3 * 4 * plain.cache
    index = {"metadata": {"total_size": 1234}, "weight_map": {}}  # downloaded before any weight
    (folder / "large" / INDEX).write_text(json.dumps(index))
    assert model_size(folder / "large").bytes(torch.float16, 3) == 1234 + 3 * 2 * plain.cache


def test_quantized_weights_without_index_are_checked_after_download(folder, snapshots, monkeypatch):
    weights = folder / "small" / "model.safetensors"
    quantize(folder / "small")
    checked, content = [], weights.read_bytes()
    weights.unlink()

    def download(*_, allow_patterns, **__):
        if "*.safetensors" in allow_patterns:
            weights.write_bytes(content)
        return str(folder / "small")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    watch = lambda needs, device, room: checked.append(needs["draft"])
    monkeypatch.setattr(pairs, "check_room", watch)
    monkeypatch.setattr(pairs, "load_model", lambda *_, **__: native())
    load_pair("somebody/small", "somebody/small", device="cpu", dtype="float32")
    assert len(checked) == 2 and checked[1] - checked[0] == len(content)


def test_configs_are_downloaded_before_weights(snapshots):
    load_pair("somebody/large", "somebody/small", device="cpu", dtype="float32")
    assert [name for name, _ in snapshots] == ["somebody/large", "somebody/small"] * 2
    assert not any("safetensors" in kind for _, kinds in snapshots[:2] for kind in kinds)
    assert all({"*.json", "*.jinja"} <= {*kinds} for _, kinds in snapshots)  # templates, too
    for _, kinds in snapshots[2:]:
        assert [kind for kind in kinds if "safetensors" in kind] == ["*.safetensors"]
        assert not any(kind.endswith((".bin", ".py", ".pt")) for kind in kinds)


def test_only_files_in_the_index_are_downloaded(snapshots, folder, tokenizer):
    model = native(dtype=torch.float32, vocab_size=280, tied=True).model
    save_model(folder / "large", model, tokenizer, 20_000)
    (folder / "large" / "consolidated.safetensors").write_bytes(b"not read either")
    load_pair("somebody/large", "somebody/large", device="cpu")
    names = [kind for kind in snapshots[2][1] if kind.endswith(".safetensors")]
    assert len(names) > 1 and names == sorted(
        file.name for file in (folder / "large").glob("model-*.safetensors")
    )


def test_too_little_memory_is_reported_before_weights_are_downloaded(
    snapshots, monkeypatch, folder
):
    sizes = [model_size(folder / name).bytes(torch.float32, 64) for name in ("large", "small")]
    free = int(MARGIN * sum(sizes)) - 1000
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    with pytest.raises(MemoryError, match=("target .* draft .* caches for 64 tokens")):
        load_pair("somebody/large", "somebody/small", device="cpu", dtype="float32")
    assert len(snapshots) == 2
    load_pair("somebody/large", "somebody/small", device="cpu", dtype="float32", context=8)
    load_pair("somebody/large", "somebody/small", device="cpu", dtype="float16")


def test_memory_is_reserved_for_4096_tokens_by_default(folder, monkeypatch):
    rooms = []
    monkeypatch.setattr(pairs, "model_size", lambda path: memory.Size(1, 1, 131072))
    monkeypatch.setattr(pairs, "check_room", lambda needs, device, room: rooms.append(room))
    for context in (None, 60000):
        load_pair(folder / "large", folder / "small", device="cpu", context=context)
    assert rooms == [4096, 60000]


def test_the_message_states_needed_and_free_memory():
    needs = {"target": 15_231_000_000, "draft": 988_000_000}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "free_bytes", lambda device: 16_000_000_000)
        with pytest.raises(MemoryError) as error:
            check_room(needs, "cuda", 4096)
        patch.setattr(memory, "free_bytes", lambda device: 18_000_000_000)
        check_room(needs, "cuda", 4096)
        patch.setattr(memory, "free_bytes", lambda device: None)
        check_room(needs, "mps", 4096)
    assert str(error.value).startswith(
        "17.8 GB are needed on cuda and 16.0 GB are free: target 15.2 GB, draft 1.0 GB,"
    ) and ADVICE in str(error.value)
    assert gigabytes(2_500_000) == "2.5 MB" and free_bytes("meta") is None
    assert free_bytes("cpu") > 1e6


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7.00 GiB. GPU 0 has …"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes"),
        RuntimeError("unable to mmap 538090520 bytes from file: Cannot allocate memory (12)"),
    ],
)
@pytest.mark.parametrize("place", ["from_hf_state", "load_file"])
def test_a_lack_of_memory_becomes_advice_and_is_not_taken_for_damaged_weights(
    folder, monkeypatch, error, place
):
    monkeypatch.setattr(checkpoints, place, Mock(side_effect=error))
    with pytest.raises(MemoryError, match="memory ran out while loading the target") as advice:
        load_pair(folder / "large", folder / "large", device="cpu")
    assert advice.value.__suppress_context__ and "allocate" not in str(advice.value)
    with pytest.raises(RuntimeError, match="something else"), advise("decoding"):
        raise RuntimeError("something else")


def test_a_target_larger_than_one_gpu_is_loaded_by_transformers(folder, monkeypatch):
    calls = []

    def from_pretrained(path, **options):
        calls.append(options)
        return build("Llama", dict(vocab_size=280)), {"missing_keys": set()}

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", from_pretrained)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 400_000)  # room for the draft alone
    for split in (dict(device_map="auto"), dict(tp_plan="auto")):
        pair = load_pair(folder / "large", folder / "large", device="cpu", dtype="float32", **split)
        options = calls.pop()
        assert options.items() >= (split | {"trust_remote_code": False}).items()
        assert options["use_safetensors"] is True
        assert not calls and pair.draft.device == pair.target.device


@pytest.mark.parametrize(
    "dtype, expected",
    [("auto", torch.float16), ("float16", torch.float16), ("float32", torch.float32)],
)
def test_a_gpu_without_bfloat16(monkeypatch, dtype, expected):
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation
    )
    assert model_config.resolve_dtype(dtype, "bfloat16", "cuda") == expected
    with pytest.raises(ValueError, match="dtype='bfloat16'"):
        model_config.resolve_dtype("bfloat16", "float32", "cuda")


@pytest.mark.parametrize("emulated", [True, False])
def test_a_processor_that_emulates_bfloat16_decodes_in_float32(monkeypatch, capsys, emulated):
    monkeypatch.setattr(model_config, "has_bfloat16", lambda device: not emulated)
    model_config.announce.cache_clear()
    resolved = [model_config.resolve_dtype("auto", "bfloat16") for _ in range(2)]
    assert resolved == 2 * [torch.float32 if emulated else torch.bfloat16]
    assert capsys.readouterr().err.count("emulated here") == emulated, "said once"
    assert model_config.resolve_dtype("bfloat16", "float32") == torch.bfloat16


# The list of pairs --------------------------------------------------------------------------------


def test_the_listed_pairs_are_consistent():
    listing = json.loads((SHIPPED.parents[1] / "loading" / "hub_pairs.json").read_text())
    assert "Not verified here" in listing["about"] and set(sum(listing["pairs"], [])) == set(
        listing["models"]
    )
    for pair in hub.hub_pairs():
        assert pair.licenses == ("Apache-2.0", "Apache-2.0")
        assert pair.sizes[0].parameters > 2.5 * pair.sizes[1].parameters and pair.card in hub.CARDS
        for name, size in zip((pair.target, pair.draft), pair.sizes):
            # A model's name contains its rounded number of parameters.
            number, unit = re.search(r"-([\d.]+)([BM])\b", name).groups()
            count = float(number) * {"B": 1e9, "M": 1e6}[unit]
            assert size.parameters == pytest.approx(count, rel=0.09)
    assert {pair.card for pair in hub.hub_pairs()} == set(hub.CARDS)
