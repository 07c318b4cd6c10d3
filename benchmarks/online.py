"""A draft that learns while it serves: requests on one topic, on another, and on the first again.

    python -m benchmarks.online             # ten minutes on two quiet cores

The same requests with the same seeds go to a draft that stays as it is and to one that learns
between them. Both begin as the small draft of `benchmarks.losses`, which has read text and never
the target. Recorded are rates of acceptance, no times. Writes results/online.json; nothing here is
asserted.
"""

import argparse
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks.losses import starting_draft
from specdec_lite import CausalLM, corpus, generate, load_pair, results
from specdec_lite.checks import whole
from specdec_lite.drafters import ModelDrafter, OnlineDrafter
from specdec_lite.loading.smollm2 import cache_folder
from specdec_lite.loading.weights import fingerprint
from specdec_lite.measure.intervals import ratio
from specdec_lite.training.draft import pieces

GAMMA = 4
PROMPT = 64


def requests(tokenizer, each: int) -> list[tuple[str, list[int]]]:
    """`each` prompts of code, as many of prose, and as many of code again, all of held-out text."""
    texts = corpus.held_out_text()
    code = pieces(texts["code"], tokenizer, 2 * each, PROMPT, seed=2).tolist()
    prose = pieces(texts["prose"], tokenizer, each, PROMPT, seed=2).tolist()
    found = [("code", row) for row in code[:each]] + [("prose", row) for row in prose]
    return found + [("code", row) for row in code[each:]]


def served(drafter, target: CausalLM, stream, new: int) -> list[dict]:
    """What came of each request, in order; a drafter that learns is told every text."""
    rows = []
    for seed, (topic, prompt) in enumerate(tqdm(stream, mininterval=5)):
        out = generate(target, prompt, drafter, new, temperature=1.0, seed=seed)
        drafter.learn([*prompt, *out.tokens.tolist()])
        tested = sum(step.tested for step in out.steps)
        accepted = sum(step.accepted for step in out.steps)
        rows.append({"topic": topic, "accepted": accepted, "tested": tested})
    return rows


def phases(rows: list[dict], each: int) -> list[dict]:
    """α of the second half of each topic's requests, with its interval over requests."""
    found = []
    for first in range(0, len(rows), each):
        part = rows[first + each // 2 : first + each]
        accepted = torch.tensor([[row["accepted"]] for row in part])
        tested = torch.tensor([[row["tested"]] for row in part])
        found.append({"topic": part[0]["topic"], "alpha": ratio(accepted, tested)})
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.online")
    parser.add_argument("--each", type=int, default=24, help="requests on one topic")
    parser.add_argument("--new", type=int, default=48, help="tokens of a request")
    parser.add_argument("--every", type=int, default=2, help="requests a step")
    parser.add_argument("--rate", type=float, default=1e-3)
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
    drafters = {
        "stays": ModelDrafter(draft, GAMMA),
        "learns": OnlineDrafter(draft, GAMMA, options.every, options.rate),
    }
    rows = {name: served(d, pair.target, stream, options.new) for name, d in drafters.items()}
    data = {
        "target": fingerprint(pair.target),
        "gamma": GAMMA,
        "every": options.every,
        "rate": options.rate,
        "each": options.each,
        "new": options.new,
        "steps": drafters["learns"].lessons.steps,
        "requests": rows,
        "phases": {name: phases(found, options.each) for name, found in rows.items()},
    }
    command = f"python -m benchmarks.online --each {options.each} --new {options.new}"
    what = "a draft that learns between requests beside one that does not, while the topic changes"
    results.save(options.out, results.stamp(what, command), data)
    for name, found in data["phases"].items():
        print(name, [f"{part['topic']} {results.spread(part['alpha'])}" for part in found])


if __name__ == "__main__":
    main()
