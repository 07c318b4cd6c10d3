"""A draft that learns while it serves: requests on one topic, on another, and on the first again.

    python -m benchmarks.online             # ten minutes on two quiet cores

The same requests with the same seeds go to a draft that stays as it is and to others that learn
between them, at one rate or another. All begin as the small draft of `benchmarks.losses`, which has
read text and never the target. After every few requests α is read on windows of the same held-out
documents, both topics'. No times are recorded, so a busy machine changes nothing.
Writes results/online.json; nothing here is asserted.
"""

import argparse
from pathlib import Path

from tqdm import tqdm

from benchmarks.losses import spread, starting_draft
from specdec_lite import CausalLM, corpus, generate, load_pair, results
from specdec_lite.checks import whole
from specdec_lite.drafters import ModelDrafter, OnlineDrafter
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.loading.weights import fingerprint
from specdec_lite.training.draft import apart, pieces, target_law

GAMMA = 4
PROMPT = 64
WINDOW = 192


def requests(tokenizer, each: int) -> list[tuple[str, list[int]]]:
    """`each` prompts of code, as many of prose, and as many of code again, all of held-out text."""
    texts = corpus.held_out_text()
    code = pieces(texts["code"], tokenizer, 2 * each, PROMPT, seed=2).tolist()
    prose = pieces(texts["prose"], tokenizer, each, PROMPT, seed=2).tolist()
    found = [("code", row) for row in code[:each]] + [("prose", row) for row in prose]
    return found + [("code", row) for row in code[each:]]


def served(drafter, target: CausalLM, stream, new: int, judge, every: int) -> tuple[list, list]:
    """What came of each request, in order, and what `judge` says of the draft after every few; a
    drafter that learns is told every text.
    """
    rows = []
    judged = []
    for seed, (topic, prompt) in enumerate(tqdm(stream, mininterval=5)):
        out = generate(target, prompt, drafter, new, temperature=1.0, seed=seed)
        drafter.learn([*prompt, *out.tokens.tolist()])
        tested = sum(step.tested for step in out.steps)
        accepted = sum(step.accepted for step in out.steps)
        rows.append({"topic": topic, "accepted": accepted, "tested": tested})
        if (seed + 1) % every == 0:
            judged.append(judge(drafter.model.model))
    return rows, judged


def curves(judged: dict[str, list[dict]], each: int, every: int) -> dict:
    """By drafter and topic: α after every few requests; and at the end of each topic's requests how
    much it is above that of the draft that stays, with its interval over texts.
    """
    ends = [(phase + 1) * each // every - 1 for phase in range(3)]
    found = {}
    for name, marks in judged.items():
        found[name] = {
            topic: {
                "alpha": [mark[topic].mean().item() for mark in marks],
                "gain": [spread(marks[end][topic] - judged["stays"][end][topic]) for end in ends],
            }
            for topic in marks[0]
        }
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.online")
    parser.add_argument("--each", type=int, default=16, help="requests on one topic")
    parser.add_argument("--new", type=int, default=40, help="tokens of a request")
    parser.add_argument("--every", type=int, default=2, help="requests a step")
    parser.add_argument("--rates", type=float, nargs="*", default=[1e-4, 1e-3])
    parser.add_argument("--texts", type=int, default=16, help="of each topic, to read α on")
    parser.add_argument("--start", type=int, default=300, help="steps of the starting draft")
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
    law = target_law(pair.target, options.work / "features")
    held_out = {
        topic: pieces(corpus.held_out_text()[topic], pair.tokenizer, options.texts, WINDOW, seed=3)
        for topic in ("code", "prose")
    }

    def judge(model) -> dict:
        return {name: apart(model, law, rows, PROMPT)["alpha"] for name, rows in held_out.items()}

    drafters = {"stays": ModelDrafter(draft, GAMMA)} | {
        f"learns at {rate:g}": OnlineDrafter(draft, GAMMA, options.every, rate)
        for rate in options.rates
    }
    rows = {}
    judged = {}
    mark = options.each // 4
    for name, drafter in drafters.items():
        rows[name], judged[name] = served(drafter, pair.target, stream, options.new, judge, mark)
    data = {
        "target": fingerprint(pair.target),
        "gamma": GAMMA,
        "every": options.every,
        "each": options.each,
        "new": options.new,
        "mark": mark,
        "requests": rows,
        "curves": curves(judged, options.each, mark),
    }
    command = f"python -m benchmarks.online --each {options.each} --new {options.new}"
    what = "a draft that learns between requests beside one that does not, while the topic changes"
    results.save(options.out, results.stamp(what, command), data)
    for name, topics in data["curves"].items():
        for topic, found in topics.items():
            print(name, topic, [results.spread(gain) for gain in found["gain"]])


if __name__ == "__main__":
    main()
