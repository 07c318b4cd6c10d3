"""Record SmolLM2's next words: a few distributions, and three continuations to compare.

    python -m benchmarks.next_words      # half a minute; writes results/next_words.json

Chapter 1 reads the recording: its interactive shows the distributions, and its text shows the
continuations. Nothing here is timed.
"""

from pathlib import Path

from specdec_book.viz.next_word import record_distribution
from specdec_lite import generate, load_smollm2
from specdec_lite.measure import stamps

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
    """Return the data of the recording: model, contexts, story and texts.

    Args:
        model: Model that writes.
        tokenizer: Its tokenizer.
        new_tokens: Tokens per continuation.
    """

    def ids(text):
        return tokenizer.encode(text)

    def continuation(**settings):
        out = generate(model, ids(STORY), max_new_tokens=new_tokens, seed=1, **settings)
        return tokenizer.decode(out.tokens.tolist())

    def row(prompt):
        return model.score(ids(prompt), model.new_cache(), last=True).logits[0, -1]

    return {
        "model": getattr(model, "about", "a small model"),
        "contexts": [record_distribution(prompt, row(prompt), tokenizer) for prompt in PROMPTS],
        "story": STORY,
        "texts": {name: continuation(**settings) for name, settings in SETTINGS.items()},
    }


def main(arguments: list[str] | None = None, load=load_smollm2) -> Path:
    """Run the command line.

    Args:
        arguments: Arguments; None uses those of this process.
        load: Function that returns model and tokenizer.

    Returns:
        Path of the recording.
    """
    parser = parser_for("benchmarks.next_words", __doc__)
    parser.add_argument("--out", type=Path, default=Path("results/next_words.json"))
    options = parser.parse_args(arguments)
    if options.out.is_dir():
        parser.error(f"--out {options.out}: must be a file")
    stamp = stamps.stamp("SmolLM2's next words", typed(parser, arguments))
    path = stamps.save(options.out, stamp, record(*load("cpu", "float32")))
    print(f"written to {path}")
    return path


if __name__ == "__main__":
    main()
