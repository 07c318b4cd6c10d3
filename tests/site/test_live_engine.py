"""The live page's engine, run in node, agrees with the library on the same rounded weights."""

import copy
import json
import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from chance import RecordingRng
from chosen import one_in
from node import add_kernels, live_module, page_logits
from specdec_site import live
from tokenizers import Tokenizer

from specdec_lite import generate
from specdec_lite.decoding import stream
from specdec_lite.drafters import ModelDrafter
from specdec_lite.engine.models import CausalLM
from specdec_lite.engine.transformer import Transformer, TransformerConfig
from specdec_lite.loading.pairs import SHIPPED, load_model
from specdec_lite.texts.corpus import evaluation_prompts

TOKENIZER = SHIPPED / "target" / "tokenizer.json"
FORMATS = ("int8", "float32")
KERNELS = (*live.KERNELS, "scalar")


def tiny(seed: int, layers: int, kv_heads: int = 1, tied: bool = True) -> Transformer:
    """Return a small model with random weights."""
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_layers=layers,
        num_heads=2,
        num_kv_heads=kv_heads,
        head_size=16,
        tied=tied,
    )
    model = Transformer(config).requires_grad_(False)
    for weight in model.parameters():
        weight.copy_(
            torch.randn_like(weight) * (0.3 if weight.dim() > 1 else 0.1) + (weight.dim() == 1)
        )
    return model


class Exported:
    """A pair as files for the page (`folder`), and as models with the same rounded weights."""

    def __init__(self, folder: Path, target: Transformer, draft: Transformer):
        data, manifest = live.export(target, draft, TOKENIZER)
        (folder / "weights.bin").write_bytes(data)
        (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")
        add_kernels(folder)
        self.folder, self.target, self.draft = (
            str(folder),
            *(CausalLM(live.dequantize(model)) for model in (target, draft)),
        )


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Exported:
    draft = tiny(2, 1, kv_heads=2, tied=False)
    return Exported(tmp_path_factory.mktemp("small"), tiny(1, 2), draft)


@pytest.fixture(scope="session")
def shipped(tmp_path_factory) -> Exported:
    models = [load_model(SHIPPED / name, "cpu", "float32").model for name in ("target", "draft")]
    return Exported(tmp_path_factory.mktemp("shipped"), *models)


def logits(
    pair: Exported, model: str, passes: list[dict], format: str, kernel: str, capacity: int = 80
) -> np.ndarray:
    """Return the page's logits of some passes [tokens, V]."""
    request = {"folder": pair.folder, "format": format, "capacity": capacity, "passes": passes}
    vocab = getattr(pair, model).vocab_size
    return page_logits("logits", vocab, kernel, model=model, **request)


def reference(model: CausalLM, tokens: list[int]) -> np.ndarray:
    """Return PyTorch's logits of a text [tokens, V]."""
    return model.model(torch.tensor([tokens]))[0].numpy()


MODELS = ("target", "draft")
EACH = ["target int8 relaxed", "draft int8 simd", "target float32 scalar"]
"""Both models, both formats and every kernel once."""


@pytest.mark.parametrize(
    "model, format, kernel", one_in(12, product(MODELS, FORMATS, KERNELS), EACH)
)
def test_logits_equal_those_of_pytorch(small, model, format, kernel):
    """Cover chunks of a long prompt, wide and narrow passes, grouped queries, an untied head and a
    rollback; one wrong weight would be noticed.
    """
    draw = random.Random(3)
    tokens, other = [[draw.randrange(64) for _ in range(61)] for _ in range(2)]
    passes = [
        {"start": 0, "tokens": tokens[:40]},
        {"start": 40, "tokens": tokens[40:43]},
        {"start": 30, "tokens": other[30:41]},
        {"start": 41, "tokens": other[41:42]},
        {"start": 42, "tokens": other[42:61], "last": True},
    ]
    expected = (
        reference(getattr(small, model), tokens),
        reference(getattr(small, model), tokens[:30] + other[30:]),
    )
    expected = np.concatenate([expected[0][:43], expected[1][30:42], expected[1][60:61]])
    rows = logits(small, model, passes, format, kernel)
    assert np.abs(rows - expected).max() < 1e-4
    wrong = copy.deepcopy(getattr(small, model))
    wrong.model.blocks[-1].down.weight[0, 0] += 0.05
    assert np.abs(rows[:43] - reference(wrong, tokens)[:43]).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("kernel", live.KERNELS)
@pytest.mark.parametrize("model", ["target", "draft"])
def test_logits_of_the_shipped_pair_equal_those_of_pytorch(shipped, model, kernel):
    """Both formats use the same arithmetic, so their logits agree bit for bit."""
    tokens = (
        Tokenizer.from_file(str(TOKENIZER))
        .encode(evaluation_prompts()["code"][0]["text"])
        .ids[:120]
    )
    passes = [
        {"start": 0, "tokens": tokens[:100]},
        {"start": 100, "tokens": tokens[100:105]},
        {"start": 105, "tokens": tokens[105:]},
    ]
    rows = [logits(shipped, model, passes, format, kernel, 200) for format in FORMATS]
    assert np.array_equal(*rows)
    assert np.abs(rows[0] - reference(getattr(shipped, model), tokens)).max() < 1e-4


def test_rounding_errors_are_at_most_half_a_step():
    weight = torch.randn(20, 32) * torch.logspace(-3, 2, 20)[:, None]
    weight[3] = 0
    small, scales = live.quantize(weight)
    assert bool(
        ((weight - small.float() * scales[:, None]).abs() <= scales[:, None] * 0.5001).all()
    )
    assert bool((small.abs().amax(-1)[torch.arange(20) != 3] == 127).all()) and not small[3].any()


def recorded(pair: Exported, prompt: list[int], seed: int, plain: bool, stop: int, **options):
    """Return the library's steps, and the request that replays its uniforms in the page's loop."""
    rng = RecordingRng(seed)
    drafter = None if plain else ModelDrafter(pair.draft, options["gamma"])
    shared = {
        "temperature": options["temperature"],
        "stop_token_ids": [stop] if stop >= 0 else [],
        "rng": rng,
    }
    steps = list(stream(pair.target, prompt, drafter, options["wanted"], **shared))
    given = {"prompt": prompt, "uniforms": rng.uniforms, "plain": plain, "stop": stop}
    return steps, options | given


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_the_same_uniforms_give_the_same_steps(small, format):
    """The page's loop replays the library's uniforms: every token, outcome and count agrees.

    Some texts end at a stop token.
    """
    cases = [
        recorded(small, [5, 9, 2][: 1 + seed % 3], seed, plain, stop, **options | {"gamma": gamma})
        for seed in range(6)
        for gamma in (1, 2, 4, 7)
        for temperature, stop, plain in (
            (1.0, -1, False),
            (0.6, 7, False),
            (1.3, -1, seed % 2 == 0),
        )
        for options in [{"temperature": temperature, "wanted": 30}]
    ]
    request = {"folder": small.folder, "format": format, "capacity": 80}
    answers = live_module("decode", **request, runs=[run for _, run in cases])
    stopped = 0
    for (steps, run), answer in zip(cases, answers, strict=True):
        expected = [[list(s.tokens), len(s.path), s.kind, s.token] for s in steps]
        names = ("emitted", "accepted", "kind", "token")
        assert [[step[name] for name in names] for step in answer["steps"]] == expected
        assert answer["used"] == len(run["uniforms"])
        for count in ("tested", "drafted"):
            assert answer["stats"][count] == sum(getattr(step, count) for step in steps)
        stopped += steps[-1].tokens[-1] == run["stop"]
    assert stopped > 0, "no text reached its stop token"


@pytest.mark.slow
def test_greedy_text_equals_that_of_the_library_on_every_prompt(shipped):
    """Each format decodes half of the prompts."""
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    texts = [prompt["text"] for kind in evaluation_prompts().values() for prompt in kind]
    prompts = [tokenizer.encode(text).ids for text in texts]
    plain = [generate(shipped.target, ids, max_new_tokens=32).tokens.tolist() for ids in prompts]
    runs = [{"prompt": ids, "gamma": 3, "temperature": 0, "wanted": 32} for ids in prompts]
    for turn, (format, kernel) in enumerate(zip(FORMATS, live.KERNELS, strict=True)):
        request = {"folder": shipped.folder, "format": format, "kernel": kernel, "capacity": 512}
        answers = live_module("decode", **request, runs=runs[turn::2])
        emitted = [[step["emitted"] for step in answer["steps"]] for answer in answers]
        assert [sum(steps, []) for steps in emitted] == plain[turn::2]


def test_a_whole_run_of_the_worker(shipped):
    """The worker posts a trace first, then numbers that agree with it."""
    options = {"prompt": "def add(a, b):\n", "gamma": 2, "temperature": 0, "seed": 1}
    options["format"] = "int8"
    answer = live_module("run", folder=shipped.folder, format="int8", options=options)
    result, kinds = answer["result"], [message["type"] for message in answer["messages"]]
    traces = [message for message in answer["messages"] if message["type"] == "trace"]
    assert kinds == ["trace"] * len(traces) + ["turn"] * 3 + ["result"]
    assert result["simd"] and result["same"] and len(traces[0]["steps"]) == 1
    assert [trace["last"] for trace in traces] == [False] * (len(traces) - 1) + [True]
    steps = [step for trace in traces for step in trace["steps"]]
    assert sum(len(step["emitted"]) for step in steps) == result["stats"]["tokens"]
    assert len(steps) == result["stats"]["passes"]
    times = {"passTimes": len(steps), "plain": 3, "speculative": 3}
    assert {name: len(result[name]) for name in times} == times
    target, draft = result["costs"]["target"], result["costs"]["draft"]
    assert len(target) == 9 and min(draft, *target, *(min(result[name]) for name in times)) > 0
