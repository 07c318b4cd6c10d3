"""Record SmolLM2's next words: a few distributions, and three continuations to compare.

Chapter 1 reads the recording: its interactive shows the distributions, and its text shows the
continuations. Nothing here is timed.
"""

from specdec_book.viz.next_word import record_distribution
from specdec_lite import generate, load_smollm2

from .experiment import Run, experiment

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


@experiment("next-words", "SmolLM2's next words", time="30 seconds", quick={"new_tokens": 4})
def next_words(run: Run, *, new_tokens: int = 40) -> dict:
    """Return distributions of next words, and continuations of one story.

    Args:
        new_tokens: tokens per continuation
    """
    model, tokenizer = load_smollm2("cpu", "float32")

    def distribution(prompt: str) -> dict:
        ids = tokenizer.encode(prompt)
        logits = model.score(ids, model.new_cache(), last=True).logits[0, -1]
        return record_distribution(prompt, logits, tokenizer)

    def continuation(settings: dict) -> str:
        ids, options = tokenizer.encode(STORY), {"stop_token_ids": (), "seed": 1} | settings
        out = generate(model, ids, max_new_tokens=new_tokens, **options)
        return tokenizer.decode(out.tokens.tolist())

    rows = run(
        {
            "contexts": lambda: [distribution(prompt) for prompt in PROMPTS],
            "texts": lambda: {name: continuation(each) for name, each in SETTINGS.items()},
        }
    )
    return {"model": getattr(model, "about", "a small model"), "story": STORY, **rows}
