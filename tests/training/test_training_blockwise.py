"""Training blockwise heads: labels, learning, measures and the recording."""

import argparse
import json
from functools import partial
from itertools import count

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from models_zoo import native

from specdec_lite import generate
from specdec_lite.drafters import BlockwiseDrafter
from specdec_lite.drafters.heads import Heads
from specdec_lite.engine.models import CausalLM
from specdec_lite.loading.pairs import Pair
from specdec_lite.loading.weights import FILE, load
from specdec_lite.measure import stamps
from specdec_lite.texts.corpus import HELD_OUT
from specdec_lite.training import (
    MIXTURE,
    Plan,
    blockwise,
    blockwise_evaluation,
    loop,
    train,
    train_tokenizer,
)
from specdec_lite.training.blockwise import (
    add_to_recording,
    block_sizes,
    evaluate_heads,
    finetuned_loss,
    frozen_loss,
    own_text_streams,
    read_recording,
    text_differences,
    train_regime,
    training_order,
)
from specdec_lite.training.features import Features
from specdec_lite.training.losses import final_states, head_loss

STREAMS = {
    name: np.random.default_rng(i).integers(0, 48, 400).astype(np.uint16)
    for i, name in enumerate(MIXTURE)
}


def target():
    return native(dtype=torch.float32)


def some_heads(model, count=3):
    torch.manual_seed(0)
    heads = Heads(model.hidden_size, count)
    torch.nn.init.normal_(heads.down, std=0.1)
    return heads


def states(model):
    return partial(final_states, model.model)


def test_head_i_is_scored_on_the_token_i_plus_two_ahead():
    model, rows = target(), torch.randint(48, (2, 13), generator=torch.Generator().manual_seed(0))
    heads, hidden = some_heads(model), final_states(model.model, rows[:, :-1])
    for index in (-1, 0, 2):
        terms = []
        for b in range(2):
            for j in range(12):
                if j + index + 2 <= 12:
                    state = hidden[b, j] if index < 0 else heads(hidden[b, j])[index]
                    terms.append(F.cross_entropy(model.head(state), rows[b, j + index + 2]))
        assert len(terms) == 2 * (11 - index) and head_loss(
            model.model, heads, hidden, rows, index
        ).item() == pytest.approx(torch.stack(terms).mean().item(), rel=1e-5)


def test_the_random_loss_is_one_of_those_that_the_mean_loss_averages():
    model = target()
    heads, drawn = some_heads(model), set()
    for seed in range(40):
        rows = torch.randint(48, (2, 13), generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():  # as for frozen states: a norm with gradients rounds differently
            hidden = final_states(model.model, rows[:, :-1])
        each = [head_loss(model.model, heads, hidden, rows, i).item() for i in range(3)]
        assert frozen_loss(model.model, heads, "mean", states(model))(rows).item() == pytest.approx(
            sum(each) / 3, rel=1e-5
        )
        value = frozen_loss(model.model, heads, "random", states(model))(rows).item()
        assert value == frozen_loss(model.model, heads, "random", states(model))(rows).item()
        drawn.add(int(np.argmin(np.abs(np.array(each) - value))))
        assert min(abs(x - value) for x in each) < 1e-6
    assert drawn == {0, 1, 2}


def test_only_a_finetuned_backbone_gets_gradients_and_its_own_loss():
    model, rows = target(), torch.randint(48, (2, 13), generator=torch.Generator().manual_seed(0))
    heads = some_heads(model)
    frozen_loss(model.model, heads, "mean", states(model))(rows).backward()
    assert heads.up.grad is not None and all(w.grad is None for w in model.model.parameters())
    model.model.requires_grad_(True)
    loss = finetuned_loss(model.model, heads, "mean")(rows)
    loss.backward()
    assert all(w.grad is not None for w in model.model.parameters())
    hidden = final_states(model.model, rows[:, :-1])
    assert loss.item() == pytest.approx(
        sum(head_loss(model.model, heads, hidden, rows, i).item() for i in range(-1, 3)) / 4,
        rel=1e-5,
    )


@pytest.mark.parametrize("kind", ["random", "mean"])
def test_training_lowers_the_loss_of_every_head(kind, tmp_path):
    model = target()
    streams = {name: np.tile(np.array([3, 1, 4, 1, 5, 9], dtype=np.uint16), 80) for name in MIXTURE}
    heads, rows = Heads(model.hidden_size, 3), torch.tensor([[3, 1, 4, 1, 5, 9] * 6])
    hidden = final_states(model.model, rows[:, :-1])
    each = lambda: [head_loss(model.model, heads, hidden, rows, i).item() for i in range(3)]
    before, weights = each(), {n: w.clone() for n, w in model.model.state_dict().items()}
    train(
        heads,
        frozen_loss(model.model, heads, kind, states(model)),
        streams,
        Plan(90, 0.02, batch=2, context=24, long_context=24, warmup=5),
        tmp_path / "h.pt",
    )
    assert all(after < 0.5 * first for first, after in zip(before, each()))
    assert all(torch.equal(w, weights[n]) for n, w in model.model.state_dict().items())


def test_own_text_streams_are_greedy_continuations(tmp_path):
    model = target()
    streams = own_text_streams(model, STREAMS, tmp_path, pieces=8, prompt=6, new=10, batch=4)
    assert set(streams) <= set(MIXTURE) and sum(map(len, streams.values())) == 8 * 16
    for name, stream in streams.items():
        source = STREAMS[name].astype(int).tolist()
        for piece in stream.reshape(-1, 16).astype(int).tolist():
            assert any(source[i : i + 6] == piece[:6] for i in range(len(source)))
            assert generate(model, piece[:6], max_new_tokens=10).tokens.tolist() == piece[6:]


# What is measured ----------------------------------------


@pytest.fixture
def small(monkeypatch):
    """Return a tokenizer and a target for it; make held-out text and prompts short."""
    tokenizer = train_tokenizer(["def f(x):\n    return x\n", "It was 25 °C"] * 20, vocabulary=280)
    monkeypatch.setattr(
        blockwise_evaluation,
        "held_out_text",
        lambda: {domain: ["def f(x):\n    return x\n" * 9, "It was"] for domain in HELD_OUT},
    )
    monkeypatch.setattr(
        blockwise_evaluation,
        "evaluation_prompts",
        lambda: {domain: [{"text": "def f(x):"}, {"text": "It"}] for domain in HELD_OUT},
    )
    return tokenizer, native(dtype=torch.float32, vocab_size=len(tokenizer))


def test_held_out_counts_every_label_once(small):
    tokenizer, model = small
    heads = some_heads(model, 2)
    measures = evaluate_heads(model, heads, tokenizer, window=16)
    loss, right, count = np.zeros(3), np.zeros(3), np.zeros(3)
    for text in ["def f(x):\n    return x\n" * 9, "It was"] * len(HELD_OUT):
        tokens = torch.tensor(tokenizer.encode(text))
        for start in range(0, len(tokens) - 4, 16):
            window = tokens[start : start + 17]
            hidden = final_states(model.model, window[None, :-1])[0]
            for j, state in enumerate(hidden):
                for index, s in enumerate([state, *heads(state)]):
                    if j + index + 1 < len(window):
                        logits, label = model.head(s), window[j + index + 1]
                        loss[index] += F.cross_entropy(logits, label).item()
                        right[index] += int(logits.argmax() == label)
                        count[index] += 1
    assert (
        measures["tokens"] == count[0]
        and np.allclose(measures["loss"], loss / count, rtol=1e-4)
        and np.allclose(measures["accuracy"], right / count)
    )


def test_block_sizes_are_tokens_per_pass_and_count_identical_texts(small):
    tokenizer, model = small
    measures, texts = block_sizes(model, some_heads(model, 2), tokenizer, (1, 2, 3), new_tokens=12)
    assert (
        measures["k"] == [1, 2, 3]
        and measures["all"][0] == 1.0
        and measures["prompts"] == 2 * len(HELD_OUT) == len(texts)
    )
    assert measures["identical_to_greedy"] == [measures["prompts"]] * 3 and all(
        1 <= size <= k for k, size in zip((1, 2, 3), measures["all"])
    )
    assert (
        texts[0]
        == generate(model, tokenizer.encode("def f(x):"), max_new_tokens=12).tokens.tolist()
    )


def test_text_differences_measure_the_unchanged_share():
    assert text_differences([[1, 2, 3, 4], [5, 6, 7, 8]], [[1, 2, 3, 4], [5, 6, 0, 8]]) == {
        "texts_changed": 0.5,
        "tokens_before_the_change": 0.75,
    }


@pytest.mark.parametrize(
    "regime, loss, expected",
    [
        (
            "all",
            None,
            [
                ("frozen", "random"),
                ("frozen", "mean"),
                ("distilled", "mean"),
                ("finetuned", "mean"),
            ],
        ),
        ("frozen", None, [("frozen", "random"), ("frozen", "mean")]),
        ("frozen", "random", [("frozen", "random")]),
        ("finetuned", None, [("frozen", "mean"), ("finetuned", "mean")]),
        ("distilled", "random", [("frozen", "random"), ("distilled", "random")]),
    ],
)
def test_the_frozen_regime_precedes_those_that_start_from_it(regime, loss, expected):
    assert training_order(regime, loss) == expected


def test_a_recording_replaces_its_entry_and_drops_other_targets(tmp_path):
    path = tmp_path / "b.json"
    model = target()
    entry = lambda regime, steps: {"regime": regime, "loss_kind": "mean", "steps": steps}
    for regime, steps in (("frozen", 1), ("distilled", 2), ("frozen", 3)):
        add_to_recording(path, model, {"loss": [1.0]}, entry(regime, steps))
    measures = json.loads(path.read_text())
    stamps.validate(path.name, measures)
    assert [(run["regime"], run["steps"]) for run in measures["runs"]] == [
        ("distilled", 2),
        ("frozen", 3),
    ]
    assert read_recording(path, model)["untrained"] == {"loss": [1.0]} and read_recording(
        path, native(seed=1)
    ) == {"untrained": None, "runs": []}
    add_to_recording(path, native(seed=1), {"loss": [1.0]}, entry("finetuned", 4))
    assert [run["steps"] for run in json.loads(path.read_text())["runs"]] == [4]


def test_fine_tuning_trains_a_copy(tmp_path, monkeypatch):
    model, options = target(), argparse.ArgumentParser()
    blockwise.add_arguments(options)
    chosen = options.parse_args(
        ["--work", str(tmp_path), "--frozen-steps", "2", "--finetuned-steps", "2"]
    )
    monkeypatch.setattr(
        blockwise,
        "Plan",
        lambda steps, rate, batch, **other: Plan(
            steps, rate, batch=1, context=16, long_context=16, **other
        ),
    )
    same, heads, _ = train_regime("frozen", "mean", model, None, STREAMS, chosen)
    tuned, on, plan = train_regime("finetuned", "mean", model, heads, STREAMS, chosen)
    assert isinstance(tuned, CausalLM) and same.model is model.model and plan["steps"] == 2
    weights = lambda m: m.model.state_dict()["embedding.weight"]
    assert torch.equal(weights(model), weights(native(dtype=torch.float32))) and not torch.equal(
        weights(tuned), weights(model)
    )
    assert not torch.equal(on.down, heads.down) and not any(
        w.requires_grad for w in (*heads.parameters(), *tuned.model.parameters())
    )
    line = blockwise.entry_command(chosen, "finetuned", "mean")
    assert options.parse_args(line.split()[4:]).finetuned_steps == 2


@pytest.fixture
def small_run(small, tmp_path, monkeypatch):
    """Return run(*arguments): the command on the small target; it returns the recorded runs."""
    tokenizer, model = small
    streams = {name: np.tile(np.arange(48, dtype=np.uint16), 20) for name in MIXTURE}
    pieces = dict(pieces=4, prompt=6, new=42, batch=2)
    monkeypatch.setattr(blockwise, "load_pair", lambda **options: Pair(model, None, tokenizer))
    monkeypatch.setattr(blockwise, "prepare", lambda work, start: (tokenizer, streams))
    monkeypatch.setattr(
        blockwise, "own_text_streams", partial(blockwise.own_text_streams, **pieces)
    )
    small_plan = dict(batch=1, context=16, long_context=32)
    plan = lambda steps, rate, batch, **other: Plan(steps, rate, **small_plan, **other)
    monkeypatch.setattr(blockwise, "Plan", plan)
    parser = argparse.ArgumentParser()
    blockwise.add_arguments(parser)
    (tmp_path / "work").mkdir()
    folders = [f"--{name}={tmp_path / name}" for name in ("out", "work")]
    folders += [f"--record={tmp_path / 'blockwise.json'}"]
    steps = [f"--{regime}-steps={steps}" for regime, steps in (("frozen", 8), ("distilled", 4))]

    def run(*arguments):
        blockwise.run(parser.parse_args([*folders, *steps, "--finetuned-steps=3", *arguments]))
        return json.loads((tmp_path / "blockwise.json").read_text())["runs"]

    return run


@pytest.mark.slow
def test_a_whole_run_stores_and_records_and_is_not_repeated(
    small, small_run, tmp_path, monkeypatch
):
    runs = small_run()
    order = [("frozen", "random"), ("frozen", "mean"), ("distilled", "mean"), ("finetuned", "mean")]
    assert [(run["regime"], run["loss_kind"]) for run in runs] == order
    assert [run["steps"] for run in runs] == [8, 8, 4, 3]
    drafter = BlockwiseDrafter.from_pretrained(small[1], tmp_path / "out", k=8)
    assert drafter.heads.count == blockwise.COUNT and drafter.heads.down.abs().max() > 0
    stored = sorted(path.name for path in (tmp_path / "work" / "features").iterdir())
    assert len(stored) == 8 + 4, "both losses of the frozen regime read the same features"
    assert len(list((tmp_path / "work" / "own-text").iterdir())) == 2
    monkeypatch.setattr(blockwise, "Features", lambda *args: pytest.fail)
    again = small_run()
    assert [run["held_out"] for run in again] == [run["held_out"] for run in runs]


@pytest.mark.slow
def test_an_interrupted_run_ends_like_an_uninterrupted_one(small, small_run, tmp_path, monkeypatch):
    small_run("--regime=frozen", "--loss=mean")
    weights = (tmp_path / "out" / FILE).read_bytes()
    (tmp_path / "work").rename(tmp_path / "straight")
    (tmp_path / "work").mkdir()
    times = count(1000.0, 200.0)  # a checkpoint after every step
    calls = []

    class Interrupted(Features):
        def __call__(self, tokens):
            calls.append(tokens)
            if len(calls) == 4:
                raise KeyboardInterrupt
            return super().__call__(tokens)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(blockwise, "Features", Interrupted)
        patch.setattr(loop.time, "monotonic", lambda: next(times))
        small_run("--regime=frozen", "--loss=mean")
    (tmp_path / "out" / FILE).unlink()
    monkeypatch.setattr(blockwise, "Features", Interrupted)
    small_run("--regime=frozen", "--loss=mean")
    assert len(calls) == 4 + 5, "three of eight steps were done"
    again = load(tmp_path / "out", small[1], Heads)
    (tmp_path / "out" / FILE).write_bytes(weights)
    straight = load(tmp_path / "out", small[1], Heads)
    assert again.down.equal(straight.down) and again.up.equal(straight.up)
