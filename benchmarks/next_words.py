"""What SmolLM2 would say next: a few distributions and three continuations that one can judge.

    python -m benchmarks.next_words      # half a minute; writes results/next_words.json

Chapter 1 reads it: the interactive is drawn from the distributions, the texts stand beside one
another. Nothing here is timed.
"""

from pathlib import Path

from specdec_lite import generate, load_smollm2, results
from specdec_lite.viz.next_word import recorded

from .command import parser_for, typed

PROMPTS = (
    "The capital of France is",
    "Once upon a time there was a little",
    "She opened the door and saw",
    "My favourite fruit is the",
    "Two plus two equals",
)
STORY = "The old lighthouse keeper looked out at the sea and"
SETTINGS = {
    "greedy": {"temperature": 0.0},
    "T = 0.7, top-p 0.9": {"temperature": 0.7, "top_p": 0.9},
    "T = 1.5": {"temperature": 1.5},
}


def record(model, tokenizer, new_tokens: int = 40) -> dict:
    """{"model", "contexts", "story", "texts": {setting: continuation}}."""

    def ids(text):
        return tokenizer.encode(text)

    def said(**how):
        out = generate(model, ids(STORY), max_new_tokens=new_tokens, seed=1, **how)
        return tokenizer.decode(out.tokens.tolist())

    def row(prompt):
        return model.score(ids(prompt), model.new_cache(), last=True).logits[0, -1]

    return {
        "model": getattr(model, "about", "a small model"),
        "contexts": [recorded(prompt, row(prompt), tokenizer) for prompt in PROMPTS],
        "story": STORY,
        "texts": {name: said(**how) for name, how in SETTINGS.items()},
    }


def main(arguments: list[str] | None = None, load=load_smollm2) -> Path:
    """The command line; returns the recording's path. load: gives model and tokenizer."""
    parser = parser_for("benchmarks.next_words", __doc__)
    parser.add_argument("--out", type=Path, default=Path("results/next_words.json"))
    options = parser.parse_args(arguments)
    if options.out.is_dir():
        parser.error(f"--out {options.out}: must be a file")
    stamp = results.stamp("SmolLM2's next words", typed(parser, arguments))
    path = results.save(options.out, stamp, record(*load("cpu", "float32")))
    print(f"written to {path}")
    return path


if __name__ == "__main__":
    main()
