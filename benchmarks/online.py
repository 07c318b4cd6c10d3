"""Measure a draft that learns while it serves: one topic, another topic, the first topic again.

    python -m benchmarks.online             # ten minutes on two quiet cores

The same requests with the same seeds go to a constant draft and to drafts that train between
requests at several learning rates. All start as the small draft of `benchmarks.losses`, which was
trained on text and never on the target. After every few requests, α is measured on windows of the
same held-out documents of both topics. The recording contains no times, so a busy machine changes
nothing. It writes results/online.json and asserts nothing.
"""

import argparse
from pathlib import Path

from tqdm import tqdm

from benchmarks.losses import spread, starting_draft
from specdec_book import recordings
from specdec_lite import CausalLM, corpus, generate, load_pair
from specdec_lite.checks import whole
from specdec_lite.drafters import ModelDrafter, OnlineDrafter
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.loading.weights import fingerprint
from specdec_lite.measure import stamps
from specdec_lite.training.draft import compare, target_log_probs, text_windows

GAMMA = 4
PROMPT = 64
WINDOW = 192


def requests(tokenizer, each: int) -> list[tuple[str, list[int]]]:
    """Return (topic, prompt) of the requests, from held-out text: code, prose, code again.

    Args:
        tokenizer: Tokenizer of the target.
        each: Requests per topic.
    """
    texts = corpus.held_out_text()
    code = text_windows(texts["code"], tokenizer, 2 * each, PROMPT, seed=2).tolist()
    prose = text_windows(texts["prose"], tokenizer, each, PROMPT, seed=2).tolist()
    rows = [("code", row) for row in code[:each]] + [("prose", row) for row in prose]
    return rows + [("code", row) for row in code[each:]]


def served(drafter, target: CausalLM, stream, new: int, evaluate, every: int) -> tuple[list, list]:
    """Serve requests and evaluate the draft after every few of them.

    Args:
        drafter: Drafter; it learns from every text if it can.
        target: Model that verifies.
        stream: (topic, prompt) of each request.
        new: New tokens per request.
        evaluate: Function from the draft's model to its rates.
        every: Requests between evaluations.

    Returns:
        One row per request, and the evaluations.
    """
    rows = []
    evaluations = []
    for seed, (topic, prompt) in enumerate(tqdm(stream, mininterval=5)):
        out = generate(target, prompt, drafter, new, temperature=1.0, seed=seed)
        drafter.learn([*prompt, *out.tokens.tolist()])
        tested = sum(step.tested for step in out.steps)
        accepted = sum(step.accepted for step in out.steps)
        rows.append({"topic": topic, "accepted": accepted, "tested": tested})
        if (seed + 1) % every == 0:
            evaluations.append(evaluate(drafter.model.model))
    return rows, evaluations


def curves(evaluations: dict[str, list[dict]], each: int, every: int) -> dict:
    """Return α after every few requests and the gain over the constant draft, by drafter and topic.

    The gain is measured at the end of each topic's requests, with its interval over texts.

    Args:
        evaluations: Evaluations by drafter.
        each: Requests per topic.
        every: Requests between evaluations.
    """
    ends = [(phase + 1) * each // every - 1 for phase in range(3)]
    table = {}
    for name, marks in evaluations.items():
        table[name] = {
            topic: {
                "alpha": [mark[topic].mean().item() for mark in marks],
                "gain": [
                    spread(marks[end][topic] - evaluations["stays"][end][topic]) for end in ends
                ],
            }
            for topic in marks[0]
        }
    return table


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.online")
    parser.add_argument("--each", type=int, default=16, help="requests per topic")
    parser.add_argument("--new", type=int, default=40, help="new tokens per request")
    parser.add_argument("--every", type=int, default=2, help="requests per training step")
    parser.add_argument("--rates", type=float, nargs="*", default=[1e-4, 1e-3])
    parser.add_argument(
        "--texts", type=int, default=16, help="held-out texts per topic, to measure α"
    )
    parser.add_argument(
        "--start", type=int, default=300, help="training steps of the starting draft"
    )
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--work", type=Path, default=cache_folder() / "losses")
    parser.add_argument("--out", type=Path, default=Path("results/online.json"))
    options = parser.parse_args(arguments)
    whole("each", options.each, 4)
    pair = load_pair(dtype="float32")
    documents = corpus.training_text()
    shape = argparse.Namespace(**vars(options) | {"new": 128})
    texts = documents["library"] + documents["docs"]
    draft = CausalLM(starting_draft(pair.target, pair.tokenizer, shape, texts))
    stream = requests(pair.tokenizer, options.each)
    log_probs = target_log_probs(pair.target, options.work / "features")
    held_out = {
        topic: text_windows(
            corpus.held_out_text()[topic], pair.tokenizer, options.texts, WINDOW, seed=3
        )
        for topic in ("code", "prose")
    }

    def evaluate(model) -> dict:
        return {
            name: compare(model, log_probs, rows, PROMPT)["alpha"]
            for name, rows in held_out.items()
        }

    drafters = {"stays": ModelDrafter(draft, GAMMA)} | {
        f"learns at {rate:g}": OnlineDrafter(draft, GAMMA, options.every, rate)
        for rate in options.rates
    }
    rows = {}
    evaluations = {}
    mark = options.each // 4
    for name, drafter in drafters.items():
        rows[name], evaluations[name] = served(
            drafter, pair.target, stream, options.new, evaluate, mark
        )
    data = {
        "target": fingerprint(pair.target),
        "gamma": GAMMA,
        "every": options.every,
        "each": options.each,
        "new": options.new,
        "mark": mark,
        "requests": rows,
        "curves": curves(evaluations, options.each, mark),
    }
    command = f"python -m benchmarks.online --each {options.each} --new {options.new}"
    what = "a draft that learns between requests beside one that does not, while the topic changes"
    stamps.save(options.out, stamps.stamp(what, command), data)
    for name, topics in data["curves"].items():
        for topic, row in topics.items():
            print(name, topic, [recordings.spread(gain) for gain in row["gain"]])


if __name__ == "__main__":
    main()
